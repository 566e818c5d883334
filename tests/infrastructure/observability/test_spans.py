"""Spans of single events and model calls, through the library's own tracer."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import (
    StepBegin,
    StepRetry,
    SubagentEvent,
    ToolCallStarted,
    ToolResult,
    TurnBegin,
    TurnEnd,
)
from kimi.domain.tools.tool import tool_error, tool_ok
from kimi.infrastructure.observability.conversation_spans import ConversationSpans
from kimi.infrastructure.observability.instruments import Instruments
from kimi.infrastructure.observability.traced_model import TracedChatModel
from tests.support.fakes import FakeModel

pytestmark = pytest.mark.anyio


@pytest.fixture
def exported() -> InMemorySpanExporter:
    """Where spans that have ended arrive."""
    return InMemorySpanExporter()


@pytest.fixture
def measured() -> InMemoryMetricReader:
    """What is measured."""
    return InMemoryMetricReader()


@pytest.fixture
def instruments(exported: InMemorySpanExporter, measured: InMemoryMetricReader) -> Instruments:
    """Instruments whose spans are exported at once."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    meter = MeterProvider([measured]).get_meter("tests")
    names = ("model", "first", "tokens", "turn", "tool", "approval", "opening")
    return Instruments(provider.get_tracer("tests"), *(meter.create_histogram(name) for name in names))


def named(exported: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exported.get_finished_spans() if span.name == name]


def call(call_id: str, name: str = "WriteFile") -> ToolCall:
    return ToolCall(call_id, Function(name, "{}"))


async def test_what_the_model_takes_to_write_a_call_is_not_its_time(
    instruments: Instruments, exported: InMemorySpanExporter
) -> None:
    spans = ConversationSpans(instruments, "session", "default")
    for event in (TurnBegin("go"), StepBegin(1), call("c1")):
        spans.observe(event)
    written = time.time_ns()
    for event in (ToolCallStarted(None, "c1"), ToolResult("c1", tool_ok("")), TurnEnd()):
        spans.observe(event)
    (span,) = named(exported, "execute_tool WriteFile")
    assert (span.start_time or 0) >= written


async def test_a_call_that_a_failed_attempt_streamed_is_no_span(
    instruments: Instruments, exported: InMemorySpanExporter
) -> None:
    spans = ConversationSpans(instruments, "session", "default")
    for event in (TurnBegin("go"), StepBegin(1), call("c1"), StepRetry(1, 2, 3, 0.0, "APIStatusError", 500)):
        spans.observe(event)
    for event in (call("c2"), ToolCallStarted(None, "c2"), ToolResult("c2", tool_ok("")), TurnEnd()):
        spans.observe(event)
    assert [(span.attributes or {})["gen_ai.tool.call.id"] for span in named(exported, "execute_tool WriteFile")] == [
        "c2"
    ]


async def test_a_turn_whose_end_was_lost_holds_no_later_turn(
    instruments: Instruments, exported: InMemorySpanExporter
) -> None:
    spans = ConversationSpans(instruments, "session", "default")
    for event in (TurnBegin("one"), StepBegin(1), TurnBegin("two"), StepBegin(1), TurnEnd()):
        spans.observe(event)
    assert [span.parent for span in named(exported, "invoke_agent default")] == [None, None]


async def test_closing_ends_everything_that_is_open(instruments: Instruments, exported: InMemorySpanExporter) -> None:
    spans = ConversationSpans(instruments, "session", "default")
    for event in (TurnBegin("go"), StepBegin(1), call("c1"), ToolCallStarted(None, "c1")):
        spans.observe(event)
    spans.close()
    spans.close()
    assert [span.name for span in exported.get_finished_spans()] == [
        "execute_tool WriteFile",
        "step 1",
        "invoke_agent default",
    ]
    (span,) = named(exported, "execute_tool WriteFile")
    assert (span.attributes or {})["error.type"] == "cancelled"


@pytest.mark.parametrize(
    ("provider_type", "name"), [("openai_legacy", "openai"), ("vertexai", "gcp.vertex_ai"), ("anthropic", "anthropic")]
)
async def test_providers_have_the_names_of_the_conventions(
    instruments: Instruments, exported: InMemorySpanExporter, provider_type: str, name: str
) -> None:
    model = TracedChatModel(FakeModel([[TextPart("ok")]]), instruments, provider_type, "some-model")
    async with model.stream("", (), (), 0) as items:
        assert TextPart("ok") in [item async for item in items]
    (span,) = named(exported, "chat some-model")
    assert (span.attributes or {})["gen_ai.provider.name"] == name


@pytest.mark.spec("R-456")
async def test_names_that_models_invent_are_a_bounded_number_of_labels(
    instruments: Instruments, exported: InMemorySpanExporter, measured: InMemoryMetricReader
) -> None:
    spans = ConversationSpans(instruments, "session", "default")
    names = ["WriteFile", "W" * 1000, *(f"Invented{n}" for n in range(1000)), "WriteFile"]
    for number, name in enumerate(names):
        agent = SubagentEvent("c1", f"a{number}", name, TurnBegin("go"))
        for event in (TurnBegin("go"), StepBegin(1), call("c1", name), agent, replace(agent, event=TurnEnd())):
            spans.observe(event)
        for event in (ToolResult("c1", tool_error("Tool not found", "")), TurnEnd()):
            spans.observe(event)
    assert named(exported, "execute_tool Invented999")
    for metric, label in ("tool", "gen_ai.tool.name"), ("turn", "gen_ai.agent.name"):
        counts = {str((point.attributes or {})[label]): point.count for point in points(measured, metric)}
        assert counts["WriteFile"] == 2
        assert counts["_OTHER"] > 500
        assert len(counts) <= 500
        assert max(map(len, counts)) <= 128


def points(measured: InMemoryMetricReader, name: str) -> list[HistogramDataPoint]:
    data = measured.get_metrics_data()
    assert data is not None
    metrics = [one for resource in data.resource_metrics for scope in resource.scope_metrics for one in scope.metrics]
    found = next(one for one in metrics if one.name == name).data.data_points
    return [point for point in found if isinstance(point, HistogramDataPoint)]
