"""Start-up: the quick commands, the handshake, the end of the input."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.figures import Bench, Case, Measured, Row, Target, ms, row
from benchmarks.worlds import FLOOR, OURS, Candidate, World, world

_NOTHING = (sys.executable, "-c", "pass")


def commands(bench: Bench) -> list[Row]:
    """`--version`, `--help`, `info` against an interpreter that does nothing (in the column of the floor)."""
    asked = {"--version": ["--version"], "--help": ["--help"], "info": ["info", "--json"]}

    def measure(candidate: Candidate) -> Measured:
        with world(candidate) as place:
            if candidate == FLOOR:
                return dict.fromkeys(asked, _seconds(place, _NOTHING))
            return {name: _seconds(place, [*candidate.command, *words]) for name, words in asked.items()}

    found = bench.medians("commands", measure)
    over = {"--version": 15, "--help": 60, "info": 30}
    return [ms(f"kimi {name}", found, name, Target(over=over[name])) for name in asked]


def _seconds(place: World, command: Sequence[str]) -> float:
    """The quickest of five runs: what disturbs a run only ever makes it slower."""
    times: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(command, cwd=place.work, env=place.environ, stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - began)
    return min(times)


def handshake(bench: Bench) -> list[Row]:
    """From spawn to the answer to `initialize`; memory then; how long the end takes after an idle client left."""

    def measure(candidate: Candidate) -> Measured:
        with world(candidate) as place:
            place.wire().__exit__(None, None, None)
            with place.wire() as client:
                ready = client.initialize()
                memory = client.memory_mb()
                time.sleep(0.5)
                warm = client.memory_mb()
                return {"ready": ready, "memory": memory, "warm": warm, "end": client.end()}

    found = bench.medians("handshake", measure, (OURS, FLOOR))
    return [
        ms("spawn → initialize", found, "ready", Target(value=260)),
        row("memory after initialize", "MB", found, "memory", Target(value=50)),
        row("memory when all is imported", "MB", found, "warm"),
        ms("idle EOF → exit", found, "end", Target(value=200)),
    ]


CASES: dict[str, Case] = {"commands": commands, "handshake": handshake}
