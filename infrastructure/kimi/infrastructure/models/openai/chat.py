"""Chat completions over HTTP: the adapter for `openai_legacy` and, with other quirks, `kimi` (runtime spec 3.2, 3.3).

A protocol that differs in details is a `Quirks` value, not a subclass.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from kimi.application.ports import ModelItem
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Message
from kimi.domain.content.parts import estimate_tokens
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.http.client import HttpLayer
from kimi.infrastructure.models.history.encoded_history import Json, KeptHistories, Latest, assembled, encode
from kimi.infrastructure.models.openai.chat_body import OWN_FORM, HistoryForm, MessageRules, tool_entry, unit_rules
from kimi.infrastructure.models.openai.chat_stream import REASONING_CONTENT, ChunkReader, ReasoningNames
from kimi.infrastructure.models.streaming_request import Exchange

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
    reasoning: ReasoningNames = REASONING_CONTENT
    history: HistoryForm = OWN_FORM
    omit: tuple[str, ...] = ()
    """Fields of the body that the server refuses."""


class OpenAiChat:
    """A `ChatModel` over `POST {base_url}/chat/completions`. One request per call of `stream`."""

    def __init__(
        self, settings: ModelSettings, session_id: str, http: HttpLayer, user_agent: Callable[[], str], quirks: Quirks
    ) -> None:
        self.name = settings.model
        self.capabilities = settings.capabilities
        self.context_size = settings.max_context_size
        self._settings = settings
        self._session_id = session_id
        self._exchange = Exchange(settings, http, user_agent)
        self._quirks = quirks
        self._url = settings.base_url.rstrip("/") + "/chat/completions"
        rules = MessageRules(quirks.reasoning.write, settings.capabilities, quirks.history)
        self._histories = KeptHistories(unit_rules(rules))
        self._system = Latest(_system_message)
        self._tools = Latest(partial(_tools_field, schema=quirks.schema))

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`."""
        body = self._body(system, history, tools, tokens_used)
        headers = self._headers()
        async with self._exchange.ask(self._url, headers, body, ChunkReader(self._quirks.reasoning)) as items:
            yield items

    # --- the request --------------------------------------------------------------------------------------------

    def _body(self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int) -> bytes:
        """The body; messages, tools and system prompt that are known already are not encoded again."""
        encoded = self._histories.encoded(history)
        prompt, prompt_tokens = self._system(system)
        offered, tools_tokens = self._tools(tuple(tools))
        ask = Ask(
            self._settings,
            self._session_id,
            max(encoded.tokens + prompt_tokens + tools_tokens, tokens_used),
            lambda: self._quirks.reasoning.write is not None and encoded.holds_thinking,
        )
        fields: Json = {"stream": True, "stream_options": {"include_usage": True}, **self._quirks.fields(ask)}
        fields = _adjusted(fields, self._settings, self._quirks.omit)
        start = b'{"model":' + encode(self._settings.model) + b',"messages":['
        messages = [prompt, *encoded.units] if prompt else encoded.units
        return assembled(start, messages, [*([offered] if offered else []), encode(fields)[1:]])

    def _headers(self) -> Mapping[str, str]:
        return {**self._exchange.bearer(), **self._quirks.headers(self._exchange.host, self._exchange.agent())}


def _system_message(system: str) -> tuple[bytes, int]:
    """The system prompt as the first message, empty without one, and its estimate in tokens."""
    return encode({"role": "system", "content": system}) if system else b"", estimate_tokens(system)


def _tools_field(tools: Sequence[ToolSpec], schema: Callable[[Schema], Schema]) -> tuple[bytes, int]:
    """The tools, empty without any, and the estimate of their entries in tokens."""
    entries = b",".join(encode(tool_entry(tool, schema(tool.parameters))) for tool in tools)
    return b'"tools":[' + entries + b"]" if entries else b"", estimate_tokens(entries.decode())


def _adjusted(fields: Json, settings: ModelSettings, omit: tuple[str, ...]) -> Json:
    """The fields of a body without those to leave out, and with those of the configuration."""
    kept = {name: value for name, value in fields.items() if name not in omit and name not in settings.omit_fields}
    return {**kept, **settings.extra_body}
