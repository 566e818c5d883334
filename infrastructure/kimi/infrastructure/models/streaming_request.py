"""One request to a provider and its streamed response, for every adapter over HTTP (runtime spec 3.1, 3.7).

An adapter provides a body, headers and a reader of its events. This module translates all failures into the model
branch of the error tree, so that no adapter does it again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from datetime import UTC
from typing import TYPE_CHECKING, Protocol, cast

import anyio
from pydantic_core import from_json

from kimi.application.ports import ModelItem, ResponseEnd
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.stream import StreamPart
from kimi.domain.errors import APIConnectionError, APITimeoutError, AuthExpired, ChatProviderError, ConfigError
from kimi.infrastructure.http.client import HttpClient, HttpError, HttpTimeout, parse_host
from kimi.infrastructure.http.headers import merge_headers, to_printable_ascii, validate_headers
from kimi.infrastructure.http.json_limits import find_json_excess
from kimi.infrastructure.http.sse import DONE, EventTooLarge, SseParser
from kimi.infrastructure.models.answer_errors import find_error_text, make_reported_error, make_status_error
from kimi.infrastructure.models.json_object import as_object
from kimi.infrastructure.models.provider_secrets import collect_provider_secrets, make_mask

if TYPE_CHECKING:
    from kimi.infrastructure.http.session import HttpResponse

LOGIN_EXPIRED = 'Authentication failed. Your login session may have expired. Please run "/login" to sign in again.'
"""The text of the error -32004 (wire spec 10)."""

SUBSCRIPTION_REFUSED = (
    " ({host} is the endpoint of a subscription: either it does not cover this, or it admits certain programs only, and"
    " kimi-wire says that it is none of them. A key that is paid by use works: run 'kimi setup' and choose Kimi."
    " docs/providers.md tells more.)"
)
"""What is added to a refusal (403) of a subscription."""

_MAX_ERROR_TEXT = 2000
_MAX_ERROR_BYTES = 65_536
_MAX_ANSWER_BYTES = 512 << 20
"""The limit of a whole answer. The longest of today's models have a tenth of it."""

_ERROR_TEXT_S = 3.0
"""How long reading the body of an error response may take."""

_MAX_AGENT = 240
"""The length limit of the User-Agent. What `headers.format_user_agent` returns is shorter."""

_log = logging.getLogger(__name__)


class EventReader(Protocol):
    """Turns the events of one response into parts, in order."""

    requires_end_event: bool
    """Whether the provider must send an event that ends the response. Otherwise the end of a framed body is enough."""
    finished: bool
    """Whether the provider has sent a stop reason."""
    closed: bool
    """Whether the provider has said that no event follows."""

    def read(self, payload: bytes) -> Sequence[StreamPart]:
        """Return the parts of one event. Raises ChatProviderError when it is malformed or reports an error."""
        ...

    def flush(self) -> Sequence[StreamPart]:
        """Return the parts that were held back until the end of the stream."""
        ...

    def make_response_end(self) -> ResponseEnd:
        """Return the record that ends the stream. Raises APIEmptyResponseError when there was no visible content."""
        ...


class StreamingRequest:
    """Sends requests to one provider.

    Raises:
        ConfigError: on creation, when `base_url` is not a URL or a custom header cannot be sent.
    """

    def __init__(self, settings: ModelSettings, http: HttpClient, user_agent: Callable[[], str]) -> None:
        self._settings = settings
        self._http = http
        self._user_agent = user_agent
        self._custom_headers = validate_headers(settings.custom_headers)
        self._mask = make_mask(collect_provider_secrets(settings))
        self.host = parse_host(settings.base_url)

    def build_user_agent(self) -> str:
        """Return the User-Agent for a request that is sent now: the handshake may have changed it."""
        return to_printable_ascii(self._user_agent())[:_MAX_AGENT]

    def build_bearer_header(self) -> dict[str, str]:
        """Return the header that carries the key, as most providers expect it, or no header without a key."""
        key = self.get_api_key()
        return {"Authorization": f"Bearer {key}"} if key else {}

    def get_api_key(self) -> str:
        """Return the key without characters that a header cannot contain."""
        return to_printable_ascii(self._settings.api_key)

    @asynccontextmanager
    async def send(
        self, url: str, headers: Mapping[str, str], body: bytes, reader: EventReader
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """Post `body` once and yield the response as `ChatModel.stream` specifies it.

        `headers` are the provider's own; configured headers replace those of the same name.
        """
        common = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "User-Agent": self.build_user_agent(),
        }
        with self._translate_errors():
            async with self._http.request(
                "POST", url, merge_headers(common, headers, self._custom_headers), [body]
            ) as response:
                if response.status != 200:
                    raise await self._read_status_error(response)
                if (kind := _find_unexpected_type(response)) is not None:
                    raise _make_unexpected_type_error(kind, await _read_error_body(response))
                # The consumer may leave early: without `aclosing` the generator would be closed by the garbage
                # collector, outside of the task that holds the connection.
                async with aclosing(self._read_items(response, reader)) as items:
                    yield items

    async def _read_items(self, response: HttpResponse, reader: EventReader) -> AsyncGenerator[ModelItem]:
        """Yield the parts of the response, then its end record."""
        # Errors are translated here as well as in `send`: the consumer must see them in the model branch while it
        # iterates.
        with self._translate_errors():
            async with aclosing(_read_payloads(response, reader)) as payloads:
                async for events in payloads:
                    for payload in events:
                        for part in reader.read(payload):
                            yield part
        for part in reader.flush():
            yield part
        yield reader.make_response_end()

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        """Translate failures into the model branch, and mask secrets: a provider's text may repeat what was sent."""
        try:
            yield
        except ChatProviderError as error:
            error.args = (self._mask(str(error))[:_MAX_ERROR_TEXT],)
            raise
        except ConfigError as error:
            raise ChatProviderError(str(error)) from error
        except HttpTimeout as error:
            raise APITimeoutError(f"The provider at {self.host} did not answer in time: {error}.") from error
        except HttpError as error:
            raise APIConnectionError(f"The connection to the provider at {self.host} failed: {error}.") from error

    async def _read_status_error(self, response: HttpResponse) -> ChatProviderError:
        if response.status == 401 and self._settings.oauth:
            return AuthExpired(401, LOGIN_EXPIRED)
        trace = response.headers.get("x-trace-id") or response.headers.get("request-id")
        _log.warning("HTTP %d from %s, trace %s", response.status, self.host, trace)
        content = await _read_error_body(response)
        body = _parse_json_body(content)
        location = response.headers.get("location")
        nothing = f"the address has moved to {location}" if location else "no further text"
        text = find_error_text(body) or content.decode(errors="replace").strip() or nothing
        if response.status == 403:
            text += self._explain_refusal()
        return make_status_error(response.status, text, body, _parse_retry_headers(response.headers))

    def _explain_refusal(self) -> str:
        """Return why a subscription may refuse this program, and what can be done; empty for other endpoints."""
        from kimi.infrastructure.models.provider_types import find_preset_at

        preset = find_preset_at(self._settings.base_url)
        return SUBSCRIPTION_REFUSED.format(host=self.host) if preset is not None and preset.is_subscription else ""


async def _read_error_body(response: HttpResponse) -> bytes:
    """Return the body of an error response as far as it arrives. The status is reported in any case."""
    blocks: list[bytes] = []
    with suppress(HttpError), anyio.move_on_after(_ERROR_TEXT_S):
        while (block := await response.read_block()) and sum(map(len, blocks)) < _MAX_ERROR_BYTES:
            blocks.append(block)
    return b"".join(blocks)


async def _read_payloads(response: HttpResponse, reader: EventReader) -> AsyncGenerator[list[bytes]]:
    """Yield the events of a response. Events that arrived together are in one list.

    The iteration ends at `[DONE]`, or when the reader has seen the last event. Without either it ends with the body, if
    the reader has finished or, for a reader that requires no end event, if the body is framed.

    Raises:
        HttpError: the response broke off.
    """
    parser = SseParser()
    try:
        size = 0
        while block := await response.read_block():
            size += len(block)
            events = _parse_events(parser, block, size)
            if DONE in events:
                response.release()  # before the yield: the consumer may leave there, and the connection can be reused
                yield events[: events.index(DONE)]
                if reader.finished or not reader.requires_end_event:
                    return
                break
            yield events
            if reader.closed:
                response.release()
                return
    except HttpError:
        if not reader.finished:  # once there is a stop reason, the answer is complete: a broken end does not matter
            raise
    yield [event for event in parser.flush() if event != DONE and find_json_excess(event) is None]
    if not (reader.finished or (response.is_framed and not reader.requires_end_event)):
        raise HttpError("the answer broke off")


def _parse_events(parser: SseParser, block: bytes, size: int) -> list[bytes]:
    """Return the events that `block` completes; `size` is what the answer has so far.

    Raises:
        HttpError: the answer or an event exceeds a limit.
    """
    if size > _MAX_ANSWER_BYTES:
        raise HttpError(f"the answer has more than {_MAX_ANSWER_BYTES >> 20} MiB")
    try:
        events = parser.feed(block)
    except EventTooLarge as error:
        raise HttpError(f"it sent an event of {error}") from error
    excess = next(filter(None, map(find_json_excess, events)), None)
    if excess is not None:
        raise HttpError(f"it sent an event {excess}")
    return events


def _parse_retry_headers(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until a retry makes sense. Some providers also send them in milliseconds, which is exact."""
    try:
        return max(0.0, float(headers["retry-after-ms"]) / 1000)
    except (KeyError, ValueError):
        return parse_retry_after(headers.get("retry-after"))


def parse_retry_after(retry_after: str | None) -> float | None:
    """Return `Retry-After` in seconds from now, or None when it is absent or unreadable. It is a number or a date."""
    if not retry_after:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        return _count_seconds_until(retry_after)


def _count_seconds_until(date: str) -> float | None:
    from datetime import datetime
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _parse_json_body(body: bytes) -> object:
    """Parse a body as JSON. Of a list, in which some servers wrap an error, return the first entry."""
    if find_json_excess(body) is not None:
        return None
    try:
        value = from_json(body)
    except ValueError:
        return None
    return next(iter(cast(list[object], value)), None) if isinstance(value, list) else cast(object, value)


def _find_unexpected_type(response: HttpResponse) -> str | None:
    """Return `json` or `html` when the content type says that a successful response is not a stream of events."""
    content_type = response.headers.get("content-type", "")
    return next((kind for kind in ("json", "html") if kind in content_type), None)


def _make_unexpected_type_error(kind: str, body: bytes) -> ChatProviderError:
    answer = as_object(_parse_json_body(body)) or {}
    if "error" in answer:
        return make_reported_error(answer)
    what = "a web page" if kind == "html" else "a JSON document"
    return ChatProviderError(f"The provider answered with {what} instead of a stream of events; check its base URL.")
