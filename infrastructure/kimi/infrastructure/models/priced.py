"""A model whose prices are known: the end of each answer says what the call has cost (runtime spec 3.10)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from kimi.application.ports import ChatModel, ModelItem, ResponseEnd
from kimi.domain.content.message import Message
from kimi.domain.tools.tool import ToolSpec
from kimi.domain.turn import ModelPrices, compute_cost


class PricedChatModel:
    """A `ChatModel` over `model`, with the cost of each call by `prices`."""

    def __init__(self, model: ChatModel, prices: ModelPrices) -> None:
        self.name = model.name
        self.capabilities = model.capabilities
        self.context_size = model.context_size
        self._model = model
        self._prices = prices

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`."""
        async with self._model.stream(system, history, tools, tokens_used) as items:
            yield self._add_cost(items)

    async def _add_cost(self, items: AsyncIterator[ModelItem]) -> AsyncGenerator[ModelItem]:
        async for item in items:
            if isinstance(item, ResponseEnd) and item.usage is not None:
                yield replace(item, cost=compute_cost(self._prices, item.usage))
            else:
                yield item
