"""Many sessions of one `kimi acp` that prompt at once: how long the last one waits, and is it fair?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence

from benchmarks.cases.acp_talk import AcpClient, Fairness, acp_in
from benchmarks.client import Json
from benchmarks.figures import Bench, Case, Measured, Row, Target, ms, row
from benchmarks.worlds import FLOOR, Candidate, World, world

SESSIONS = 64
CHUNKS = 500
FEW_CHUNKS = 5
PACE_S = 0.02
"""Between two pieces, as models have it; much less, and the provider of the benchmark is what is measured."""


def editors(bench: Bench) -> list[Row]:
    """64 sessions that prompt at once, 500 pieces each: first turns at the pace of a model, then all at once."""
    specs: dict[str, Json] = {"paced": {"text": CHUNKS, "pause_s": PACE_S}, "flood": {"text": CHUNKS}}

    def measure(candidate: Candidate) -> Measured:
        found: dict[str, float] = {}
        for name, spec in specs.items():
            with world(candidate, spec) as place:
                measured = _bare(place.url) if candidate == FLOOR else _in_sessions(place, candidate)
            found |= {f"{name} {key}": value for key, value in measured.items()}
        return found

    found = bench.medians("editors", measure)
    each = f"{SESSIONS} sessions × {CHUNKS} pieces"
    return [
        ms(f"acp: {each}, {1 / PACE_S:.0f} pieces a second", found, "paced all"),
        ms("acp:   the slowest first piece", found, "paced first"),
        row("acp:   … to the whole", "", found, "paced share", Target(value=0.1)),
        row("acp:   how much later the last is done", "", found, "paced spread", Target(value=0.2)),
        row("acp:   memory of a session then", "MB", found, "paced memory"),
        ms(f"acp: {each}, as fast as it goes", found, "flood all", Target(value=1400)),
        ms("acp:   the slowest first piece", found, "flood first", Target(value=250)),
        row("acp:   how much later the last is done", "", found, "flood spread", Target(value=0.2)),
        row("acp:   memory of a session then", "MB", found, "flood memory"),
    ]


def sessions(bench: Bench) -> list[Row]:
    """First turns of more and more sessions at once, of a few pieces each: how long the last one waits."""
    rows: list[Row] = []
    for count in (1, 16) if bench.quick else (1, 4, 16, 64):

        def measure(candidate: Candidate, count: int = count) -> Measured:
            with world(candidate, {"text": FEW_CHUNKS}) as place:
                return (
                    _bare(place.url, count) if candidate == FLOOR else _in_sessions(place, candidate, count, FEW_CHUNKS)
                )

        found = bench.medians(f"sessions {count}", measure)
        target = Target(value=250) if count == SESSIONS else None
        rows.append(ms(f"slowest first piece of {count} sessions", found, "first", target, ("sessions", count)))
    return rows


def _in_sessions(place: World, candidate: Candidate, count: int = SESSIONS, chunks: int = CHUNKS) -> dict[str, float]:
    with acp_in(place, candidate.command) as client:
        client.shake_hands()
        ids = [client.new_session(place.work) for _ in range(count)]
        client.settle()
        before = client.memory_mb()
        found = _together(client, ids, chunks)
        return {**found, "memory": (client.memory_mb() - before) / count}


def _bare(url: str, count: int = SESSIONS) -> dict[str, float]:
    """The floor: as many requests at once, whose answers are read and forgotten."""
    host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
    first: list[float] = []
    done: list[float] = []

    async def one(began: float) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 20000\r\n\r\n" + b" " * 20_000)
        tail = await reader.readuntil(b"piece number")
        first.append(time.perf_counter() - began)
        while not tail.endswith(b"0\r\n\r\n"):
            tail = tail[-5:] + await reader.read(1 << 18)
        done.append(time.perf_counter() - began)
        writer.close()

    async def everyone() -> None:
        began = time.perf_counter()
        await asyncio.gather(*(one(began) for _ in range(count)))

    asyncio.run(everyone())
    return _figures(first, done)


def _figures(first: Collection[float], done: Sequence[float]) -> dict[str, float]:
    """Seconds: the slowest first piece, the whole; then the one to the other, and how far the ends lie apart."""
    whole = max(done)
    return {"all": whole, "first": max(first), "share": max(first) / whole, "spread": 1 - min(done) / whole}


def _together(client: AcpClient, ids: list[str], chunks: int) -> dict[str, float]:
    fairness = Fairness()
    client.on_update = fairness.update
    calls = [client.prompt_in(session_id) for session_id in ids]
    client.answers(calls, fairness.ended)
    assert fairness.pieces == chunks * len(ids), f"{fairness.pieces} pieces"
    return _figures(fairness.first.values(), fairness.done)


CASES: dict[str, Case] = {"editors": editors, "sessions": sessions}
