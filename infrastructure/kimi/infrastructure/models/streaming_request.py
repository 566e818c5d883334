"""One request to a provider and its streamed answer, for every adapter over HTTP (runtime spec 3.1, 3.7).

An adapter brings a body, headers and a reader of its events. What goes wrong on the way is turned into the model
branch of the error tree here, once.
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
from kimi.infrastructure.http.client import HttpError, HttpLayer, HttpTimeout, checked_host
from kimi.infrastructure.http.headers import checked_headers, merged, printable
from kimi.infrastructure.http.sse import DONE, SseParser
from kimi.infrastructure.models.answer_errors import error_text, reported_error, status_error
from kimi.infrastructure.models.json_object import as_object
from kimi.infrastructure.models.provider_secrets import masking, provider_secrets

if TYPE_CHECKING:
    from kimi.infrastructure.http.session import HttpResponse

LOGIN_EXPIRED = 'Authentication failed. Your login session may have expired. Please run "/login" to sign in again.'
"""Wire spec 10, -32004."""

_MAX_ERROR_TEXT = 2000
_MAX_ERROR_BYTES = 65_536
_ERROR_TEXT_S = 3.0
"""How long the text of an error status may take."""

_MAX_AGENT = 240
"""Product and client; `headers.user_agent_text` stays below it."""

_log = logging.getLogger(__name__)


class Reader(Protocol):
    """Makes parts of the events of one answer, in order."""

    needs_end: bool
    """Must the provider say that the answer has ended? Else the end of a framed body is enough."""
    finished: bool
    """Has it said why it stopped?"""
    closed: bool
    """Has it said that nothing more comes?"""

    def read(self, payload: bytes) -> Sequence[StreamPart]:
        """The parts of one event. Raises ChatProviderError: it is broken, or reports an error."""
        ...

    def finish(self) -> Sequence[StreamPart]:
        """The parts that still waited at the end of the stream."""
        ...

    def end(self) -> ResponseEnd:
        """The record that ends the stream. Raises APIEmptyResponseError: there was nothing to see."""
        ...


class Exchange:
    """The way to one provider.

    Raises:
        ConfigError: on creation: `base_url` is no URL, or a custom header cannot be sent.
    """

    def __init__(self, settings: ModelSettings, http: HttpLayer, user_agent: Callable[[], str]) -> None:
        self._settings = settings
        self._http = http
        self._user_agent = user_agent
        self._custom = checked_headers(settings.custom_headers)
        self._mask = masking(provider_secrets(settings))
        self.host = checked_host(settings.base_url)

    def agent(self) -> str:
        """The User-Agent of a request that is made now."""
        return printable(self._user_agent())[:_MAX_AGENT]

    def bearer(self) -> dict[str, str]:
        """The header that carries the key, as most providers want it; none without a key."""
        key = self.key()
        return {"Authorization": f"Bearer {key}"} if key else {}

    def key(self) -> str:
        """The key, reduced to what a header can hold."""
        return printable(self._settings.api_key)

    @asynccontextmanager
    async def ask(
        self, url: str, headers: Mapping[str, str], body: bytes, reader: Reader
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """Post `body` once, and give the answer as `ChatModel.stream` promises it.

        `headers` are the provider's own; configured ones replace those of the same name.
        """
        common = {"Content-Type": "application/json", "Accept": "text/event-stream", "User-Agent": self.agent()}
        with self._failures_named():
            async with self._http.request("POST", url, merged(common, headers, self._custom), [body]) as response:
                if response.status != 200:
                    raise await self._status_error(response)
                if (kind := _other_kind(response)) is not None:
                    raise _not_a_stream(kind, await response.read())
                async with aclosing(self._items(response, reader)) as items:
                    yield items

    async def _items(self, response: HttpResponse, reader: Reader) -> AsyncGenerator[ModelItem]:
        """The parts of the answer, then its end."""
        with self._failures_named():
            async with aclosing(_payloads(response, reader)) as payloads:
                async for events in payloads:
                    for payload in events:
                        for part in reader.read(payload):
                            yield part
        for part in reader.finish():
            yield part
        yield reader.end()

    @contextmanager
    def _failures_named(self) -> Generator[None]:
        """Failures as those of the model branch, without our secrets: a provider's words may repeat what was sent."""
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

    async def _status_error(self, response: HttpResponse) -> ChatProviderError:
        if response.status == 401 and self._settings.oauth:
            return AuthExpired(401, LOGIN_EXPIRED)
        trace = response.headers.get("x-trace-id") or response.headers.get("request-id")
        _log.warning("HTTP %d from %s, trace %s", response.status, self.host, trace)
        content = await _error_body(response)
        body = _json(content)
        location = response.headers.get("location")
        nothing = f"the address has moved to {location}" if location else "no further text"
        text = error_text(body) or content.decode(errors="replace").strip() or nothing
        return status_error(response.status, text, body, _retry_after(response.headers))


async def _error_body(response: HttpResponse) -> bytes:
    """What a response with an error status says, as far as it comes: the status counts in any case."""
    blocks: list[bytes] = []
    with suppress(HttpError), anyio.move_on_after(_ERROR_TEXT_S):
        while (block := await response.block()) and sum(map(len, blocks)) < _MAX_ERROR_BYTES:
            blocks.append(block)
    return b"".join(blocks)


async def _payloads(response: HttpResponse, reader: Reader) -> AsyncGenerator[list[bytes]]:
    """The events of a response, those that came together in one list.

    Ends at `[DONE]`, or when the reader has seen the last event; without either at the end of the body, if the reader
    (or, where that is enough, the framing) says that nothing is missing.
    """
    parser = SseParser()
    try:
        while block := await response.block():
            events = parser.feed(block)
            if DONE in events:
                response.release()
                yield events[: events.index(DONE)]
                if reader.finished or not reader.needs_end:
                    return
                break
            yield events
            if reader.closed:
                response.release()
                return
    except HttpError:
        if not reader.finished:
            raise
    yield [event for event in parser.flush() if event != DONE]
    if not (reader.finished or (response.framed and not reader.needs_end)):
        raise HttpError("the answer broke off")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds until the next try makes sense; some providers say it in milliseconds as well, more exactly."""
    try:
        return max(0.0, float(headers["retry-after-ms"]) / 1000)
    except (KeyError, ValueError):
        return seconds(headers.get("retry-after"))


def seconds(retry_after: str | None) -> float | None:
    """`Retry-After` in seconds from now, given as a number or as a date; None when it is absent or unreadable."""
    if not retry_after:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        return _seconds_until(retry_after)


def _seconds_until(date: str) -> float | None:
    from datetime import datetime
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _json(body: bytes) -> object:
    """A body as JSON; of a list, which some servers wrap an error in, the first entry."""
    try:
        value = from_json(body)
    except ValueError:
        return None
    return next(iter(cast(list[object], value)), None) if isinstance(value, list) else cast(object, value)


def _other_kind(response: HttpResponse) -> str | None:
    """What a successful response is, if it says that it is no stream of events."""
    content_type = response.headers.get("content-type", "")
    return next((kind for kind in ("json", "html") if kind in content_type), None)


def _not_a_stream(kind: str, body: bytes) -> ChatProviderError:
    answer = as_object(_json(body)) or {}
    if "error" in answer:
        return reported_error(answer)
    what = "a web page" if kind == "html" else "a JSON document"
    return ChatProviderError(f"The provider answered with {what} instead of a stream of events; check its base URL.")
