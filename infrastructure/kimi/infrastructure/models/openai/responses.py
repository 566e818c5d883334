"""The Responses API over HTTP: the adapter for `openai_responses` (runtime spec 3.4).

Nothing is stored at the service: every request contains the whole history.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from kimi.application.ports import ModelItem
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Message
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.history.encoded_history import (
    EncodedHistoryCache,
    Json,
    LastResultCache,
    assemble_body,
    encode_compact_json,
)
from kimi.infrastructure.models.history.tool_call_sanitizing import make_call_ids_unique
from kimi.infrastructure.models.openai.responses_body import (
    ResponsesItemRules,
    encode_system_item,
    encode_tools_field,
    find_thinking_prefix,
    make_unit_rules,
)
from kimi.infrastructure.models.openai.responses_stream import ResponsesEventReader
from kimi.infrastructure.models.streaming_request import StreamingRequest
from kimi.infrastructure.models.thinking import thinks


class OpenAiResponsesModel:
    """A `ChatModel` over `POST {base_url}/responses`. Each call of `stream` sends one request.

    Raises:
        ConfigError: on creation, when the base URL or a custom header cannot be used.
    """

    def __init__(self, settings: ModelSettings, http: HttpClient, user_agent: Callable[[], str]) -> None:
        self.name = settings.model
        self.capabilities = settings.capabilities
        self.context_size = settings.max_context_size
        self._streaming_request = StreamingRequest(settings, http, user_agent)
        self._url = settings.base_url.rstrip("/") + "/responses"
        rules = ResponsesItemRules(settings.capabilities, find_thinking_prefix(self._streaming_request.host))
        self._history_cache = EncodedHistoryCache(make_unit_rules(rules))
        self._system_encoder = LastResultCache(partial(encode_system_item, model=settings.model))
        self._tools_encoder = LastResultCache(encode_tools_field)
        fields: Json = {"stream": True, "store": False, **_build_thinking_fields(settings)}
        if settings.max_completion_tokens is not None and settings.max_completion_tokens > 0:
            fields["max_output_tokens"] = settings.max_completion_tokens
        self._fields = encode_compact_json(fields)[1:]

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`."""
        body = self.encode_body(system, history, tools, tokens_used)
        async with self._streaming_request.send(
            self._url, self._streaming_request.build_bearer_header(), body, ResponsesEventReader()
        ) as items:
            yield items

    def encode_body(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> bytes:
        """Return the body. Messages, tools and a system prompt that were encoded before are reused."""
        encoded = self._history_cache.encode(make_call_ids_unique(history))
        items = [item for item in (self._system_encoder(system), *encoded.units) if item]
        offered = self._tools_encoder(tuple(tools))
        start = b'{"model":' + encode_compact_json(self.name) + b',"input":['
        return assemble_body(start, items or [b""], [*([offered] if offered else []), self._fields])


def _build_thinking_fields(settings: ModelSettings) -> Json:
    """Return the fields about thinking, as much of it as configured or much; none where the model does not think."""
    if not thinks(settings):
        return {}
    reasoning = {"effort": settings.thinking_effort or "high", "summary": "auto"}
    return {"reasoning": reasoning, "include": ["reasoning.encrypted_content"]}
