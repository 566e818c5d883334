"""The Messages API over HTTP: the adapter for `anthropic` (runtime spec 3.5)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from kimi.application.ports import ModelItem
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Message
from kimi.domain.content.parts import estimate_tokens
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.anthropic.body import (
    encode_cached_unit,
    encode_system_field,
    encode_tools_field,
    make_unit_rules,
)
from kimi.infrastructure.models.anthropic.stream import AnthropicEventReader
from kimi.infrastructure.models.history.encoded_history import (
    EncodedHistoryCache,
    Json,
    LastResultCache,
    assemble_body,
    encode_compact_json,
)
from kimi.infrastructure.models.history.tool_call_sanitizing import make_call_ids_unique
from kimi.infrastructure.models.streaming_request import StreamingRequest
from kimi.infrastructure.models.thinking import thinks

API_VERSION = "2023-06-01"
INTERLEAVED = "interleaved-thinking-2025-05-14"
"""The beta that lets models before 4.6 think between the tool calls of one turn."""

DEFAULT_MAX_TOKENS = 50_000
"""The length of an answer where the model and the window allow it."""

_MIN_BUDGET = 1024
_BUDGETS: Mapping[str, int] = {"low": 4_096, "medium": 16_000, "high": 32_000, "max": 128_000}
"""Tokens of thinking for a model that does not decide that itself; at most two thirds of the answer."""

_HEADROOM = 1024
_LIMITS = (
    (re.compile(r"claude-(3-(opus|haiku|sonnet)|2|instant)"), 4096),
    (re.compile(r"claude-3-5-"), 8192),
    (re.compile(r"claude-opus-4(-[01])?(-\d{8}|@|$|-latest|-v\d)"), 32_000),
)
"""Models with a limit below `DEFAULT_MAX_TOKENS`. They refuse a request that asks for more."""

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2}))?(?!\d)")
_ADAPTIVE_SINCE = (4, 6)


class AnthropicModel:
    """A `ChatModel` over `POST {base_url}/v1/messages`. Each call of `stream` sends one request.

    Raises:
        ConfigError: on creation, when the base URL or a custom header cannot be used.
    """

    def __init__(
        self, settings: ModelSettings, session_id: str, http: HttpClient, user_agent: Callable[[], str]
    ) -> None:
        self.name = settings.model
        self.capabilities = settings.capabilities
        self.context_size = settings.max_context_size
        self._settings = settings
        self._session_id = session_id
        self._streaming_request = StreamingRequest(settings, http, user_agent)
        self._url = settings.base_url.rstrip("/").removesuffix("/v1") + "/v1/messages"
        self._history_cache = EncodedHistoryCache(make_unit_rules(settings.capabilities))
        self._system_encoder = LastResultCache(_encode_system)
        self._tools_encoder = LastResultCache(_encode_tools)

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`."""
        body = self.encode_body(system, history, tools, tokens_used)
        async with self._streaming_request.send(
            self._url, self._build_headers(), body, AnthropicEventReader()
        ) as items:
            yield items

    def encode_body(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> bytes:
        """Return the body of a request.

        Messages that were encoded before are reused. Only the last one is encoded again, because it carries the cache
        mark, which must move on with every request.
        """
        encoded = self._history_cache.encode(make_call_ids_unique(history))
        prompt, prompt_tokens = self._system_encoder(system)
        offered, tools_tokens = self._tools_encoder(tuple(tools))
        tokens = max(encoded.tokens + prompt_tokens + tools_tokens, tokens_used)
        units = [unit for unit in encoded.units if unit]
        if units and encoded.units[-1]:
            units[-1] = encode_cached_unit(encoded.last_unit())
        beside = [data for data in (prompt, offered) if data]
        start = b'{"model":' + encode_compact_json(self._settings.model) + b',"messages":['
        return assemble_body(start, units or [b""], [*beside, encode_compact_json(self._build_fields(tokens))[1:]])

    def _build_fields(self, tokens: int) -> Json:
        limit = compute_max_tokens(self._settings, tokens)
        owner = {"metadata": {"user_id": self._session_id}} if self._session_id else {}
        return {"max_tokens": limit, "stream": True, **owner, **build_thinking_fields(self._settings, limit)}

    def _build_headers(self) -> Mapping[str, str]:
        headers = {"anthropic-version": API_VERSION}
        if key := self._streaming_request.get_api_key():
            headers["x-api-key"] = key
        if thinks(self._settings) and not has_adaptive_thinking(self._settings.model):
            headers["anthropic-beta"] = INTERLEAVED
        return headers


def _encode_system(system: str) -> tuple[bytes, int]:
    return encode_system_field(system), estimate_tokens(system)


def _encode_tools(tools: Sequence[ToolSpec]) -> tuple[bytes, int]:
    field = encode_tools_field(tools)
    return field, estimate_tokens(field.decode())


def compute_max_tokens(settings: ModelSettings, tokens: int) -> int:
    """Return the limit of the answer: the rest of the window after `tokens`, at most the configured limit or, without
    one, that of the model.
    """
    limit = settings.max_completion_tokens or 0
    if limit <= 0:
        name = settings.model.lower()
        limit = next((most for pattern, most in _LIMITS if pattern.search(name)), DEFAULT_MAX_TOKENS)
    return max(1, min(limit, settings.max_context_size - (tokens + _HEADROOM)))


def build_thinking_fields(settings: ModelSettings, limit: int) -> Json:
    """Return the fields about thinking, by the version of the model.

    There are none for a model that is not known to think, unless the user switched thinking off.
    """
    if thinks(settings):
        effort = settings.thinking_effort or "high"
        if has_adaptive_thinking(settings.model):
            return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": effort}}
        if limit > _MIN_BUDGET:
            tokens = max(_MIN_BUDGET, min(_BUDGETS[effort], limit * 2 // 3))
            return {"thinking": {"type": "enabled", "budget_tokens": tokens}}
    elif settings.thinking is None and "thinking" not in settings.capabilities:
        return {}
    return {"thinking": {"type": "disabled"}}


def has_adaptive_thinking(model: str) -> bool:
    """Whether the model decides itself how much it thinks, as models from 4.6 on do."""
    found = _VERSION.search(model.lower())
    return found is not None and (int(found[1]), int(found[2] or 0)) >= _ADAPTIVE_SINCE
