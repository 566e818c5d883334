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
from kimi.infrastructure.http.client import HttpLayer
from kimi.infrastructure.models.anthropic.body import system_field, tools_field, unit_rules, write_marked
from kimi.infrastructure.models.anthropic.stream import MessageReader
from kimi.infrastructure.models.history.encoded_history import Json, KeptHistories, Latest, assembled, encode
from kimi.infrastructure.models.history.tool_call_sanitizing import with_unique_ids
from kimi.infrastructure.models.streaming_request import Exchange
from kimi.infrastructure.models.thinking import thinks

API_VERSION = "2023-06-01"
INTERLEAVED = "interleaved-thinking-2025-05-14"
"""Lets models before 4.6 think between the calls of one turn."""

MAX_TOKENS = 50_000
"""Of an answer, where model and window allow that much."""

_MIN_BUDGET = 1024
_BUDGET = 32_000
_HEADROOM = 1024
_LIMITS = (
    (re.compile(r"claude-(3-(opus|haiku|sonnet)|2|instant)"), 4096),
    (re.compile(r"claude-3-5-"), 8192),
    (re.compile(r"claude-opus-4(-[01])?(-\d{8}|@|$|-latest|-v\d)"), 32_000),
)
"""Models whose answers are shorter than `MAX_TOKENS`; they refuse a request that asks for more."""

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2}))?(?!\d)")
_ADAPTIVE_SINCE = (4, 6)


class Anthropic:
    """A `ChatModel` over `POST {base_url}/v1/messages`. One request per call of `stream`.

    Raises:
        ConfigError: on creation: the base URL or a custom header cannot be used.
    """

    def __init__(
        self, settings: ModelSettings, session_id: str, http: HttpLayer, user_agent: Callable[[], str]
    ) -> None:
        self.name = settings.model
        self.capabilities = settings.capabilities
        self.context_size = settings.max_context_size
        self._settings = settings
        self._session_id = session_id
        self._exchange = Exchange(settings, http, user_agent)
        self._url = settings.base_url.rstrip("/").removesuffix("/v1") + "/v1/messages"
        self._histories = KeptHistories(unit_rules(settings.capabilities))
        self._system = Latest(_counted_system)
        self._tools = Latest(_counted_tools)

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`."""
        body = self.body(system, history, tools, tokens_used)
        async with self._exchange.ask(self._url, self._headers(), body, MessageReader()) as items:
            yield items

    def body(self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int) -> bytes:
        """The body of a request. What was encoded before stays as it is; the last message is written anew, with its
        mark.
        """
        encoded = self._histories.encoded(with_unique_ids(history))
        prompt, prompt_tokens = self._system(system)
        offered, tools_tokens = self._tools(tuple(tools))
        tokens = max(encoded.tokens + prompt_tokens + tools_tokens, tokens_used)
        units = [unit for unit in encoded.units if unit]
        if units and encoded.units[-1]:
            units[-1] = write_marked(encoded.last_unit())
        beside = [data for data in (prompt, offered) if data]
        start = b'{"model":' + encode(self._settings.model) + b',"messages":['
        return assembled(start, units or [b""], [*beside, encode(self._fields(tokens))[1:]])

    def _fields(self, tokens: int) -> Json:
        limit = max_tokens(self._settings, tokens)
        owner = {"metadata": {"user_id": self._session_id}} if self._session_id else {}
        return {"max_tokens": limit, "stream": True, **owner, **thinking_fields(self._settings, limit)}

    def _headers(self) -> Mapping[str, str]:
        headers = {"anthropic-version": API_VERSION}
        if key := self._exchange.key():
            headers["x-api-key"] = key
        if thinks(self._settings) and not is_adaptive(self._settings.model):
            headers["anthropic-beta"] = INTERLEAVED
        return headers


def _counted_system(system: str) -> tuple[bytes, int]:
    return system_field(system), estimate_tokens(system)


def _counted_tools(tools: Sequence[ToolSpec]) -> tuple[bytes, int]:
    field = tools_field(tools)
    return field, estimate_tokens(field.decode())


def max_tokens(settings: ModelSettings, tokens: int) -> int:
    """How long the answer may be: what is left of the window after `tokens`, at most what is configured, or else what
    the model can say."""
    limit = settings.max_completion_tokens or 0
    if limit <= 0:
        name = settings.model.lower()
        limit = next((most for pattern, most in _LIMITS if pattern.search(name)), MAX_TOKENS)
    return max(1, min(limit, settings.max_context_size - (tokens + _HEADROOM)))


def thinking_fields(settings: ModelSettings, limit: int) -> Json:
    """The fields about thinking, by the version of the model; none for a model that cannot and was not told."""
    if thinks(settings):
        if is_adaptive(settings.model):
            return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}}
        if limit > _MIN_BUDGET:
            return {"thinking": {"type": "enabled", "budget_tokens": max(_MIN_BUDGET, min(_BUDGET, limit * 2 // 3))}}
    elif settings.thinking is None and "thinking" not in settings.capabilities:
        return {}
    return {"thinking": {"type": "disabled"}}


def is_adaptive(model: str) -> bool:
    """Does the model decide itself how much it thinks: 4.6 and later?"""
    found = _VERSION.search(model.lower())
    return found is not None and (int(found[1]), int(found[2] or 0)) >= _ADAPTIVE_SINCE
