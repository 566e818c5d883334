"""The tracer and the metrics that the program reports to (runtime spec 2.9)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Histogram, Observation
from opentelemetry.trace import Tracer

_SCOPE: Final = "kimi-wire"


@dataclass(frozen=True, slots=True)
class Instruments:
    """What spans and measurements are made with. Durations are in seconds."""

    tracer: Tracer
    model_duration: Histogram
    first_chunk: Histogram
    tokens: Histogram
    turn_duration: Histogram
    tool_duration: Histogram
    approval_wait: Histogram
    opening_duration: Histogram


def create_instruments(version: str) -> Instruments:
    """Return instruments of the process-wide providers: those of `start_exporting`, or of the embedding program."""
    meter = metrics.get_meter(_SCOPE, version)

    def histogram(name: str, description: str, unit: str = "s") -> Histogram:
        return meter.create_histogram(name, unit, description)

    if os.path.exists("/proc/self/statm"):
        meter.create_observable_gauge(
            "process.memory.usage", [_observe_memory], "By", "The physical memory of the process."
        )
    return Instruments(
        tracer=trace.get_tracer(_SCOPE, version),
        model_duration=histogram("gen_ai.client.operation.duration", "How long a model call takes."),
        first_chunk=histogram("gen_ai.client.operation.time_to_first_chunk", "Until the first piece of an answer."),
        tokens=histogram("gen_ai.client.token.usage", "The tokens of a model call.", "{token}"),
        turn_duration=histogram("kimi.turn.duration", "How long a turn takes."),
        tool_duration=histogram("kimi.tool.duration", "How long a tool call takes, with the wait for its approval."),
        approval_wait=histogram("kimi.approval.wait", "How long an approval request waits for its answer."),
        opening_duration=histogram("kimi.session.open.duration", "How long it takes to make or to load a session."),
    )


def _observe_memory(options: CallbackOptions) -> Iterable[Observation]:
    with open("/proc/self/statm", encoding="ascii") as file:
        yield Observation(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
