"""The tracer and the metrics that the program reports to (runtime spec 2.9)."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Histogram, Observation
from opentelemetry.trace import Tracer

logger = logging.getLogger(__name__)

_SCOPE: Final = "kimi-wire"

# The bounds of the conventions; those of the library are for milliseconds, so nearly all seconds fell into one bucket.
_SECONDS: Final = tuple(0.01 * 2**power for power in range(14))
_TOKENS: Final = tuple(4.0**power for power in range(14))

_MAX_NAMES: Final = 400
_MAX_NAME: Final = 128
_OTHER: Final = "_OTHER"


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
    _names: set[str] = field(init=False, default_factory=set[str])

    def bound_name(self, name: str) -> str:
        """Return a name for a measurement: itself, or `_OTHER` of those that are too many or too long.

        Models invent names of tools and of agents, and each costs the process and its collector a series for good.
        """
        if name not in self._names:
            if len(self._names) >= _MAX_NAMES or len(name) > _MAX_NAME:
                return _OTHER
            self._names.add(name)
        return name


def create_instruments(version: str) -> Instruments:
    """Return instruments of the process-wide providers: those of `start_exporting`, or of the embedding program."""
    meter = metrics.get_meter(_SCOPE, version)

    def histogram(name: str, description: str, unit: str = "s", bounds: Sequence[float] = _SECONDS) -> Histogram:
        return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=bounds)

    if os.path.exists("/proc/self/statm"):
        meter.create_observable_up_down_counter(
            "process.memory.usage", [_observe_memory], "By", "The physical memory of the process."
        )
    return Instruments(
        tracer=trace.get_tracer(_SCOPE, version),
        model_duration=histogram("gen_ai.client.operation.duration", "How long a model call takes."),
        first_chunk=histogram("gen_ai.client.operation.time_to_first_chunk", "When an answer begins."),
        tokens=histogram("gen_ai.client.token.usage", "The tokens of a model call.", "{token}", _TOKENS),
        turn_duration=histogram("kimi.turn.duration", "How long a turn takes."),
        tool_duration=histogram("kimi.tool.duration", "How long a call takes, with the wait for its approval."),
        approval_wait=histogram("kimi.approval.wait", "How long an approval request waits for its answer."),
        opening_duration=histogram("kimi.session.open.duration", "How long it takes to make or to load a session."),
    )


@contextmanager
def log_failures() -> Generator[None]:
    """Log what is raised in it: span processors of the program that embeds the agent must not fail its turns."""
    try:
        yield
    except Exception as error:
        logger.warning("spans or metrics could not be reported: %r", error)


def _observe_memory(options: CallbackOptions) -> Iterable[Observation]:
    with open("/proc/self/statm", encoding="ascii") as file:
        yield Observation(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
