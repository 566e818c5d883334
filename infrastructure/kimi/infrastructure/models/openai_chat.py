"""Chat completions over HTTP: the adapter for `openai_legacy` and, with other quirks, `kimi` (runtime spec 3.2, 3.3).

A protocol that differs in details is a `Quirks` value, not a subclass.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic_core import from_json

from kimi.application.ports import ModelItem
from kimi.application.settings import ModelSettings
from kimi.domain.content import estimate_tokens
from kimi.domain.errors import APIConnectionError, APIStatusError, APITimeoutError, AuthExpired, ChatProviderError
from kimi.domain.message import Message
from kimi.domain.tool import ToolSpec
from kimi.infrastructure.models.chat_body import EncodedHistory, Json, MessageRules, Once, assembled, encode, tool_entry
from kimi.infrastructure.models.chat_stream import ChunkReader, error_text, reported_error
from kimi.infrastructure.models.headers import checked_headers, merged, printable
from kimi.infrastructure.models.http import HttpError, HttpLayer, HttpTimeout, checked_host
from kimi.infrastructure.models.json_object import as_object
from kimi.infrastructure.models.sse import DONE, SseParser

if TYPE_CHECKING:
    from kimi.infrastructure.models.http_session import HttpResponse

LOGIN_EXPIRED = 'Authentication failed. Your login session may have expired. Please run "/login" to sign in again.'
"""Wire spec 10, -32004."""

_HISTORIES = 4
_MAX_ERROR_TEXT = 2000
_MAX_AGENT = 240
"""Product and client; `headers.user_agent_text` stays below it."""

_log = logging.getLogger(__name__)

Schema: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """What a quirk may look at: the settings, the session, and how large the request is in tokens."""

    settings: ModelSettings
    session_id: str
    tokens: int
    thinking_in_history: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Quirks:
    """Where a provider differs: what it adds to the body, how it wants schemas, its headers for a host."""

    fields: Callable[[Ask], Json]
    schema: Callable[[Schema], Schema]
    headers: Callable[[str, str], Mapping[str, str]]
    """(host, user agent) -> headers beside the common ones."""


class OpenAiChat:
    """A `ChatModel` over `POST {base_url}/chat/completions`. One request per call of `stream`."""

    def __init__(
        self, settings: ModelSettings, session_id: str, http: HttpLayer, user_agent: Callable[[], str], quirks: Quirks
    ) -> None:
        self._settings = settings
        self._session_id = session_id
        self._http = http
        self._user_agent = user_agent
        self._quirks = quirks
        self._url = settings.base_url.rstrip("/") + "/chat/completions"
        self._host = checked_host(self._url)
        self._custom = checked_headers(settings.custom_headers)
        self._reasoning_key = reasoning_key(settings)
        self._histories: deque[EncodedHistory] = deque(maxlen=_HISTORIES)
        self._system = Once()
        self._tools = Once()

    @property
    def name(self) -> str:
        return self._settings.model

    @property
    def capabilities(self) -> frozenset[str]:
        return self._settings.capabilities

    @property
    def context_size(self) -> int:
        return self._settings.max_context_size

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`."""
        body = self._body(system, history, tools, tokens_used)
        try:
            async with self._http.request("POST", self._url, self._headers(), [body]) as response:
                if response.status != 200:
                    raise await self._status_error(response)
                if (kind := _other_kind(response)) is not None:
                    raise _not_a_stream(kind, await response.read())
                async with aclosing(self._items(response)) as items:
                    yield items
        except HttpTimeout as error:
            raise APITimeoutError(f"The provider at {self._host} did not answer in time: {error}.") from error
        except HttpError as error:
            raise APIConnectionError(f"The connection to the provider at {self._host} failed: {error}.") from error

    # --- the request --------------------------------------------------------------------------------------------

    def _body(self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int) -> bytes:
        """The body; messages, tools and system prompt that are known already are not encoded again."""
        encoded = self._encoded(history)
        self._encode_system(system)
        self._encode_tools(tools)
        ask = Ask(
            self._settings,
            self._session_id,
            max(encoded.tokens + self._system.tokens + self._tools.tokens, tokens_used),
            lambda: self._reasoning_key is not None and encoded.holds_thinking,
        )
        fields: Json = {"stream": True, "stream_options": {"include_usage": True}, **self._quirks.fields(ask)}
        start = b'{"model":' + encode(self._settings.model) + b',"messages":['
        messages = [self._system.data, *encoded.units] if self._system.data else encoded.units
        tools_field = [b'"tools":[' + self._tools.data + b"]"] if self._tools.data else []
        return assembled(start, messages, [*tools_field, encode(fields)[1:]])

    def _encoded(self, history: Sequence[Message]) -> EncodedHistory:
        """The kept encoding of this conversation. A few are kept: subagents and compaction ask in between."""
        encoded = next((one for one in self._histories if one.serves(history)), None)
        if encoded is None:
            encoded = EncodedHistory(MessageRules(self._reasoning_key, self._settings.capabilities))
        else:
            self._histories.remove(encoded)
        self._histories.append(encoded)
        encoded.update(history)
        return encoded

    def _encode_system(self, system: str) -> None:
        if not self._system.is_of(system):
            data = encode({"role": "system", "content": system}) if system else b""
            self._system.keep(system, data, estimate_tokens(system))

    def _encode_tools(self, tools: Sequence[ToolSpec]) -> None:
        known = list(tools)
        if not self._tools.is_of(known):
            schema = self._quirks.schema
            data = b",".join(encode(tool_entry(tool, schema(tool.parameters))) for tool in known)
            self._tools.keep(known, data, estimate_tokens(data.decode()))

    def _headers(self) -> list[tuple[str, str]]:
        agent = printable(self._user_agent())[:_MAX_AGENT]
        common = {"Content-Type": "application/json", "Accept": "text/event-stream", "User-Agent": agent}
        if key := printable(self._settings.api_key):
            common["Authorization"] = f"Bearer {key}"
        return merged(common, self._quirks.headers(self._host, agent), self._custom)

    # --- the response -------------------------------------------------------------------------------------------

    async def _items(self, response: HttpResponse) -> AsyncGenerator[ModelItem]:
        """The parts of the answer, then its end."""
        reader = ChunkReader(self._reasoning_key)
        async with aclosing(_payloads(response, reader)) as payloads:
            async for events in payloads:
                for payload in events:
                    for part in reader.read(payload):
                        yield part
        for part in reader.finish():
            yield part
        yield reader.end()

    async def _status_error(self, response: HttpResponse) -> ChatProviderError:
        if response.status == 401 and self._settings.oauth:
            return AuthExpired(401, LOGIN_EXPIRED)
        _log.warning("HTTP %d from %s, trace %s", response.status, self._host, response.headers.get("x-trace-id"))
        text = self._without_secrets(_body_text(await response.read()))
        location = response.headers.get("location")
        text = text or (f"the address has moved to {location}" if location else "no further text")
        retry_after = seconds(response.headers.get("retry-after"))
        return APIStatusError(response.status, f"HTTP {response.status}: {text}", retry_after=retry_after)

    def _without_secrets(self, text: str) -> str:
        """An error text may repeat what was sent: our key never goes further."""
        for secret in (self._settings.api_key.strip(), *self._custom.values()):
            if len(secret) >= 8:
                text = text.replace(secret, "***")
        return text


async def _payloads(response: HttpResponse, reader: ChunkReader) -> AsyncGenerator[list[bytes]]:
    """The events of a response, those that came together in one list.

    Ends at `[DONE]`; without it at the end of the body, if the framing or a `finish_reason` says that nothing is
    missing.
    """
    parser = SseParser()
    try:
        while block := await response.block():
            events = parser.feed(block)
            if DONE in events:
                response.release()
                yield events[: events.index(DONE)]
                return
            yield events
    except HttpError:
        if not reader.finished:
            raise
    yield [event for event in parser.flush() if event != DONE]
    if not (reader.finished or response.framed):
        raise HttpError("the answer broke off")


def reasoning_key(settings: ModelSettings) -> str | None:
    """The field that carries thinking; None when the configuration turns it off with an empty name."""
    if settings.type != "openai_legacy" or settings.reasoning_key is None:
        return "reasoning_content"
    return settings.reasoning_key or None


def thinks(settings: ModelSettings) -> bool:
    """Is thinking on: because the model always thinks, or because it can and is asked to?"""
    if "always_thinking" in settings.capabilities:
        return True
    return settings.thinking is True and "thinking" in settings.capabilities


def _openai_fields(ask: Ask) -> Json:
    """`reasoning_effort`: high, an explicit null when it was switched off, medium to go on as before (R-76)."""
    if thinks(ask.settings):
        return {"reasoning_effort": "high"}
    if ask.settings.thinking is False:
        return {"reasoning_effort": None}
    return {"reasoning_effort": "medium"} if ask.thinking_in_history() else {}


OPENAI_LEGACY = Quirks(fields=_openai_fields, schema=lambda schema: schema, headers=lambda host, agent: {})


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
    except ValueError:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _body_text(body: bytes) -> str:
    """The provider's own words in an error body, shortened."""
    return (error_text(_json(body)) or body.decode(errors="replace").strip())[:_MAX_ERROR_TEXT]


def _json(body: bytes) -> object:
    try:
        return from_json(body)
    except ValueError:
        return None


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
