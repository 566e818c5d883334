"""A long stored session again: on the wire, and in an editor."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.cases.acp_talk import acp_in
from benchmarks.figures import Bench, Case, Measured, Row, Target, ms, row
from benchmarks.worlds import FLOOR, SESSION, Candidate, World, world

_LOAD_FLOOR = (sys.executable, str(Path(__file__).parents[1] / "load_floor.py"))
_KINDS = {"": World.put_log, " of turns": World.put_turns}


def replay(bench: Bench) -> list[Row]:
    """Texts and whole turns on the wire: time, and memory at its peak over that of a start."""
    records = 10_000 if bench.quick else 50_000
    rows: list[Row] = []
    for name, put in _KINDS.items():

        def measure(candidate: Candidate, put: Callable[[World, int], None] = put) -> Measured:
            with world(candidate) as place:
                put(place, records)
                with place.wire(resume=True) as client:
                    client.initialize(client={"name": "benchmark"})  # without a name the profile is strict
                    time.sleep(0.5)
                    before = client.memory_mb(peak=True)
                    seconds, count = client.replay()
                    assert count >= records, count
                    return {"time": seconds, "memory": client.memory_mb(peak=True) - before}

        found = bench.medians(f"replay{name}", measure)
        rows.append(ms(f"replay of {records} records{name}", found, "time", Target(ratio=4)))
        rows.append(row("  memory more", "MB", found, "memory", Target(value=20)))
    return rows


def load(bench: Bench) -> list[Row]:
    """The same in an editor; a second session is loaded, so that nothing is imported meanwhile."""
    records = 10_000 if bench.quick else 50_000
    rows: list[Row] = []
    for name, put in _KINDS.items():

        def measure(candidate: Candidate, put: Callable[[World, int], None] = put) -> Measured:
            with world(candidate) as place:
                put(place, records)
                command = _LOAD_FLOOR if candidate == FLOOR else candidate.command
                with acp_in(place, command) as client:
                    client.shake_hands()
                    if candidate != FLOOR:
                        client.new_session(place.work)
                        client.settle()
                    before = client.memory_mb(peak=True)
                    began = time.perf_counter()
                    client.answer(
                        client.ask("session/load", {"sessionId": SESSION, "cwd": str(place.work), "mcpServers": []})
                    )
                    return {"time": time.perf_counter() - began, "memory": client.memory_mb(peak=True) - before}

        found = bench.medians(f"load{name}", measure)
        rows.append(ms(f"session/load of {records} records{name}", found, "time", Target(ratio=3)))
        rows.append(row("  memory more", "MB", found, "memory", Target(value=20)))
    return rows


CASES: dict[str, Case] = {"replay": replay, "load": load}
