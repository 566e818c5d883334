"""The Responses API over HTTP: the adapter for `openai_responses` (runtime spec 3.4). Nothing is stored there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from kimi.application.ports import ModelItem
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Message
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.http.client import HttpLayer
from kimi.infrastructure.models.history.encoded_history import Json, KeptHistories, Latest, assembled, encode
from kimi.infrastructure.models.history.tool_call_sanitizing import with_unique_ids
from kimi.infrastructure.models.openai.responses_body import (
    ItemRules,
    system_item,
    thinking_of,
    tools_field,
    unit_rules,
)
from kimi.infrastructure.models.openai.responses_stream import ResponseReader
from kimi.infrastructure.models.streaming_request import Exchange
from kimi.infrastructure.models.thinking import thinks

_THINKING: Json = {"reasoning": {"effort": "high", "summary": "auto"}, "include": ["reasoning.encrypted_content"]}


class OpenAiResponses:
    """A `ChatModel` over `POST {base_url}/responses`. One request per call of `stream`.

    Raises:
        ConfigError: on creation: the base URL or a custom header cannot be used.
    """

    def __init__(self, settings: ModelSettings, http: HttpLayer, user_agent: Callable[[], str]) -> None:
        self.name = settings.model
        self.capabilities = settings.capabilities
        self.context_size = settings.max_context_size
        self._exchange = Exchange(settings, http, user_agent)
        self._url = settings.base_url.rstrip("/") + "/responses"
        rules = ItemRules(settings.capabilities, thinking_of(self._exchange.host))
        self._histories = KeptHistories(unit_rules(rules))
        self._system = Latest(partial(system_item, model=settings.model))
        self._tools = Latest(tools_field)
        fields: Json = {"stream": True, "store": False, **(_THINKING if thinks(settings) else {})}
        if settings.max_completion_tokens is not None and settings.max_completion_tokens > 0:
            fields["max_output_tokens"] = settings.max_completion_tokens
        self._fields = encode(fields)[1:]

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`."""
        body = self.body(system, history, tools, tokens_used)
        async with self._exchange.ask(self._url, self._exchange.bearer(), body, ResponseReader()) as items:
            yield items

    def body(self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int) -> bytes:
        """The body of a request; messages, tools and system prompt that are known already are not encoded again."""
        encoded = self._histories.encoded(with_unique_ids(history))
        items = [item for item in (self._system(system), *encoded.units) if item]
        offered = self._tools(tuple(tools))
        start = b'{"model":' + encode(self.name) + b',"input":['
        return assembled(start, items or [b""], [*([offered] if offered else []), self._fields])
