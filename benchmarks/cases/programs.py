"""What it costs to start a program: under a keeper, against a child in a group of its own."""

from __future__ import annotations

import os
import statistics
import time

import anyio

from benchmarks.figures import Bench, Case, Row, Target
from kimi.infrastructure.workspace.processes import StartProgram, run_process, start_in_group, start_program

_ROUNDS = 15
_RUNS = 10


def launch(bench: Bench) -> list[Row]:
    """A short command from start to status, in turns, so that both see the same machine; then the first one."""
    del bench
    first, kept, bare = anyio.run(_measure)
    return [
        Row("a command under a keeper", "ms", kept, bare, None, Target(over=5)),
        Row("the first command of a process", "ms", first, bare, None, None),
    ]


async def _measure() -> tuple[float, float, float]:
    first = await _run_ms(start_program)
    times: dict[StartProgram, list[float]] = {start_program: [], start_in_group: []}
    for _ in range(_ROUNDS):
        for start, found in times.items():
            found += [await _run_ms(start) for _ in range(_RUNS)]
    return first, statistics.median(times[start_program]), statistics.median(times[start_in_group])


async def _run_ms(start: StartProgram) -> float:
    began = time.perf_counter()
    words = ["/bin/sh", "-c", "echo done"]
    async with run_process(
        words, cwd="/", env=dict(os.environ), merge_stderr=True, kill_orphans=False, start=start
    ) as process:
        async for _ in process.output():
            pass
        await process.wait()
    return (time.perf_counter() - began) * 1000


CASES: dict[str, Case] = {"launch": launch}
