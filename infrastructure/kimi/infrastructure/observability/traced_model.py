"""A model whose calls are spans and measurements, by the conventions for generative AI (runtime spec 2.9)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final

from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from kimi.application.ports import ChatModel, ModelItem, ResponseEnd
from kimi.domain.content.message import Message
from kimi.domain.tools.tool import ToolSpec
from kimi.domain.turn import TokenUsage
from kimi.infrastructure.observability.instruments import Instruments, log_failures

_CONVENTIONAL_NAMES: Final = {
    "openai_legacy": "openai",
    "openai_responses": "openai",
    "gemini": "gcp.gemini",
    "vertexai": "gcp.vertex_ai",
}
"""What the conventions call types of providers; the other types keep their name."""


class TracedChatModel:
    """A `ChatModel` over `model`, whose provider is of the type `provider_type`.

    A span starts with the request and ends with the answer. It holds no text, neither of the prompt nor of an error.
    """

    def __init__(self, model: ChatModel, instruments: Instruments, provider_type: str, model_name: str) -> None:
        self.name = model.name
        self.capabilities = model.capabilities
        self.context_size = model.context_size
        self._model = model
        self._instruments = instruments
        self._span_name = f"chat {model_name}"
        self._labels: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _CONVENTIONAL_NAMES.get(provider_type, provider_type),
            "gen_ai.request.model": model_name,
        }

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`."""
        span: Span = INVALID_SPAN
        with log_failures():
            # Not made the current one: another task may leave the context than the one that entered.
            span = self._instruments.tracer.start_span(self._span_name, kind=SpanKind.CLIENT, attributes=self._labels)
        began, error_type = perf_counter(), None
        try:
            async with self._model.stream(system, history, tools, tokens_used) as items:
                yield self._watch(items, span, began)
        except BaseException as error:
            error_type = type(error).__qualname__
            raise
        finally:
            with log_failures():
                self._end(span, perf_counter() - began, error_type)

    async def _watch(self, items: AsyncIterator[ModelItem], span: Span, began: float) -> AsyncGenerator[ModelItem]:
        is_first = True
        async for item in items:
            if is_first:
                is_first = False
                with log_failures():
                    self._instruments.first_chunk.record(perf_counter() - began, self._labels)
                    span.set_attribute("gen_ai.response.time_to_first_chunk", perf_counter() - began)
            if isinstance(item, ResponseEnd):
                with log_failures():
                    self._describe_end(item, span)
            yield item

    def _end(self, span: Span, seconds: float, error_type: str | None) -> None:
        labels = self._labels
        if error_type is not None:
            labels = {**labels, "error.type": error_type}
            span.set_attribute("error.type", error_type)
            span.set_status(Status(StatusCode.ERROR))
        self._instruments.model_duration.record(seconds, labels)
        span.end()

    def _describe_end(self, end: ResponseEnd, span: Span) -> None:
        span.set_attribute("gen_ai.response.finish_reasons", [end.stop_reason])
        if end.message_id is not None:
            span.set_attribute("gen_ai.response.id", end.message_id)
        if end.usage is not None:
            self._record_usage(end.usage, span)

    def _record_usage(self, usage: TokenUsage, span: Span) -> None:
        span.set_attributes(
            {
                "gen_ai.usage.input_tokens": usage.input,
                "gen_ai.usage.output_tokens": usage.output,
                "gen_ai.usage.cache_read.input_tokens": usage.input_cache_read,
                "gen_ai.usage.cache_creation.input_tokens": usage.input_cache_creation,
            }
        )
        self._instruments.tokens.record(usage.input, {**self._labels, "gen_ai.token.type": "input"})
        self._instruments.tokens.record(usage.output, {**self._labels, "gen_ai.token.type": "output"})
