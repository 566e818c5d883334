"""What spans and metrics cost, sent to a collector on the loopback interface."""

from __future__ import annotations

import sys
import time
from statistics import median

from benchmarks.figures import Bench, Case, Measured, Row, Target, ms
from benchmarks.worlds import OURS, Candidate, world
from tests.support.providers.otlp_collector import otlp_collector

_ON = Candidate("observed", (sys.executable, "-m", "kimi"))


def observability(bench: Bench) -> list[Row]:
    """A text in 20 000 pieces and turns of one step with spans, beside the same program without."""
    size, turns = (5_000, 10) if bench.quick else (20_000, 40)

    def time_prompts(candidate: Candidate, pieces: int, count: int) -> tuple[float, float]:
        """Return how long a prompt takes, and the processor time of one, which other programs disturb less."""
        with otlp_collector() as collector, world(candidate, {"text": pieces}) as place:
            if candidate is _ON:
                enabled = "[observability]\nenabled = true\n"
                place.configure(enabled, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
            with place.wire() as client:
                client.initialize()
                time.sleep(1)
                client.prompt("hi")
                began = client.cpu_s()
                seconds = median(client.prompt("hi").seconds for _ in range(count))
                return seconds, (client.cpu_s() - began) / count

    def measure(candidate: Candidate) -> Measured:
        text, processor = time_prompts(candidate, size, 10)
        return {"text": text, "processor": processor, "turn": time_prompts(candidate, 5, turns)[0]}

    found = bench.medians("observability", measure, (_ON, OURS))
    ours = {"kimi": found["observed"], "floor": found["kimi"]}
    return [
        ms(f"text of {size} pieces with spans, without", ours, "text"),
        ms("processor time of that text with spans, without", ours, "processor", Target(ratio=1.05)),
        ms("turn with spans, without", ours, "turn"),
    ]


CASES: dict[str, Case] = {"observability": observability}
