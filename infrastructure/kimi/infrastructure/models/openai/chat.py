"""Chat completions over HTTP: the adapter for `openai_legacy` and `kimi` (runtime spec 3.2, 3.3).

Providers differ in details of the protocol: each is a value of `ProviderProfile`, not a subclass.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from kimi.application.ports import ModelItem
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Message
from kimi.domain.content.parts import estimate_tokens
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.history.encoded_history import (
    EncodedHistoryCache,
    Json,
    LastResultCache,
    assemble_body,
    encode_compact_json,
)
from kimi.infrastructure.models.openai.chat_body import (
    KIMI_HISTORY_FORMAT,
    ChatMessageRules,
    HistoryFormat,
    build_tool_entry,
    make_unit_rules,
)
from kimi.infrastructure.models.openai.chat_stream import REASONING_CONTENT, ChatChunkReader, ReasoningFields
from kimi.infrastructure.models.streaming_request import StreamingRequest

Schema: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChatRequestContext:
    """The arguments of a profile's functions: the settings, the session, and the size of the request in tokens."""

    settings: ModelSettings
    session_id: str
    tokens: int
    has_thinking_in_history: Callable[[], bool]


def keep_schema(schema: Schema) -> Schema:
    """Return a schema as it is, for providers that take every schema."""
    return schema


@dataclass(frozen=True, slots=True)
class ProviderProfile:
    """How a provider differs: the fields it adds to the body, the form of schemas."""

    build_fields: Callable[[ChatRequestContext], Json]
    adapt_schema: Callable[[Schema], Schema]
    reasoning_fields: ReasoningFields = REASONING_CONTENT
    history_format: HistoryFormat = KIMI_HISTORY_FORMAT
    omitted_fields: tuple[str, ...] = ()
    """The fields of the body that the server refuses."""


class OpenAiChatModel:
    """A `ChatModel` over `POST {base_url}/chat/completions`. Each call of `stream` sends one request."""

    def __init__(
        self,
        settings: ModelSettings,
        session_id: str,
        http: HttpClient,
        user_agent: Callable[[], str],
        profile: ProviderProfile,
    ) -> None:
        self.name = settings.model
        self.capabilities = settings.capabilities
        self.context_size = settings.max_context_size
        self._settings = settings
        self._session_id = session_id
        self._streaming_request = StreamingRequest(settings, http, user_agent)
        self._profile = profile
        self._url = settings.base_url.rstrip("/") + "/chat/completions"
        rules = ChatMessageRules(profile.reasoning_fields.message_field, settings.capabilities, profile.history_format)
        self._history_cache = EncodedHistoryCache(make_unit_rules(rules))
        self._system_encoder = LastResultCache(_encode_system_message)

        def encode_tools(tools: tuple[ToolSpec, ...]) -> tuple[bytes, int]:
            return _encode_shared_tools((tools, profile.adapt_schema))

        self._tools_encoder = LastResultCache(encode_tools)

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`."""
        body = self._encode_body(system, history, tools, tokens_used)
        headers = self._streaming_request.build_bearer_header()
        async with self._streaming_request.send(
            self._url, headers, body, ChatChunkReader(self._profile.reasoning_fields)
        ) as items:
            yield items

    # --- the request --------------------------------------------------------------------------------------------

    def _encode_body(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> bytes:
        """Return the body. Messages, tools and a system prompt that were encoded before are reused."""
        encoded = self._history_cache.encode(history)
        prompt, prompt_tokens = self._system_encoder(system)
        offered, tools_tokens = self._tools_encoder(tuple(tools))
        ask = ChatRequestContext(
            self._settings,
            self._session_id,
            max(encoded.tokens + prompt_tokens + tools_tokens, tokens_used),
            lambda: self._profile.reasoning_fields.message_field is not None and encoded.has_thinking,
        )
        fields: Json = {"stream": True, "stream_options": {"include_usage": True}, **self._profile.build_fields(ask)}
        fields = _apply_adjustments(fields, self._settings, self._profile.omitted_fields)
        start = b'{"model":' + encode_compact_json(self._settings.model) + b',"messages":['
        messages = [prompt, *encoded.units] if prompt else encoded.units
        return assemble_body(start, messages, [*([offered] if offered else []), encode_compact_json(fields)[1:]])


def _encode_system_message(system: str) -> tuple[bytes, int]:
    """Encode the system prompt as the first message (empty without one) and estimate its tokens."""
    return encode_compact_json({"role": "system", "content": system}) if system else b"", estimate_tokens(system)


def _encode_tools_field(offer: tuple[tuple[ToolSpec, ...], Callable[[Schema], Schema]]) -> tuple[bytes, int]:
    """Encode tools (empty without any) with their schemas adapted, and estimate their tokens."""
    tools, adapt_schema = offer
    entries = b",".join(encode_compact_json(build_tool_entry(tool, adapt_schema(tool.parameters))) for tool in tools)
    return b'"tools":[' + entries + b"]" if entries else b"", estimate_tokens(entries.decode())


_encode_shared_tools = LastResultCache(_encode_tools_field)
"""For the models of all sessions, most of which offer the same tools."""


def _apply_adjustments(fields: Json, settings: ModelSettings, omitted_fields: tuple[str, ...]) -> Json:
    """Return the fields of a body without the omitted ones, and with those of the configuration."""
    kept = {
        name: value for name, value in fields.items() if name not in omitted_fields and name not in settings.omit_fields
    }
    return {**kept, **settings.extra_body}
