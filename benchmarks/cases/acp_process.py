"""`kimi acp` as a process: its start, its sessions, many of them at once, a call in many pieces."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Sequence
from statistics import median

from benchmarks.cases.acp_talk import AcpClient, Fairness, acp_in
from benchmarks.client import Json
from benchmarks.figures import Bench, Case, Measured, Row, Target, ms, row
from benchmarks.worlds import FLOOR, OURS, Candidate, World, world

SESSIONS = 64
CHUNKS = 500
PACE_S = 0.02
"""Between two pieces, as models have it; much less, and the provider of the benchmark is what is measured."""


def start(bench: Bench) -> list[Row]:
    """From spawn to the answer to `initialize`, then to the first session, later sessions, memory."""
    count = 16 if bench.quick else SESSIONS - 2

    def measure(candidate: Candidate) -> Measured:
        with world(candidate) as place:
            with acp_in(place, candidate.command) as client:
                client.shake_hands()
                client.settle()
            with acp_in(place, candidate.command) as client:
                ready = client.shake_hands()
                memory = client.memory_mb()
                first = _timed(client, place)
                client.settle()
                second = _timed(client, place)
                before = client.memory_mb()
                later = [_timed(client, place) for _ in range(count)]
                each = (client.memory_mb() - before) / count
                return {
                    "ready": ready, "memory": memory, "first": first, "second": second,
                    "later": median(later), "last": median(later[-count // 4 :]), "each": each, "most": max(later),
                }  # fmt: skip

    found = bench.medians("editor", measure, among=(OURS,))
    return [
        ms("acp: spawn → initialize", found, "ready", Target(value=440)),
        row("acp: memory after initialize", "MB", found, "memory", Target(value=50)),
        ms("acp: first session/new", found, "first", Target(value=35)),
        ms("acp: second session/new, all imported", found, "second"),
        ms("acp: later session/new", found, "later", Target(value=4)),
        ms("acp: later session/new, the last quarter", found, "last", Target(value=4)),
        ms("acp: later session/new, the slowest", found, "most"),
        row("acp: memory of an idle session", "MB", found, "each", Target(value=0.3)),
    ]


def _timed(client: AcpClient, place: World) -> float:
    began = time.perf_counter()
    client.new_session(place.work)
    return time.perf_counter() - began


def crowd(bench: Bench) -> list[Row]:
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
        ms("acp:   the slowest first piece", found, "flood first", Target(value=480)),
        row("acp:   how much later the last is done", "", found, "flood spread", Target(value=0.2)),
        row("acp:   memory of a session then", "MB", found, "flood memory"),
    ]


def _in_sessions(place: World, candidate: Candidate) -> dict[str, float]:
    with acp_in(place, candidate.command) as client:
        client.shake_hands()
        ids = [client.new_session(place.work) for _ in range(SESSIONS)]
        client.settle()
        before = client.memory_mb()
        found = _together(client, ids)
        return {**found, "memory": (client.memory_mb() - before) / SESSIONS}


def _bare(url: str) -> dict[str, float]:
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
        await asyncio.gather(*(one(began) for _ in range(SESSIONS)))

    asyncio.run(everyone())
    return _figures(first, done)


def _figures(first: Collection[float], done: Sequence[float]) -> dict[str, float]:
    """Seconds: the slowest first piece, the whole; then the one to the other, and how far the ends lie apart."""
    whole = max(done)
    return {"all": whole, "first": max(first), "share": max(first) / whole, "spread": 1 - min(done) / whole}


def _together(client: AcpClient, ids: list[str]) -> dict[str, float]:
    fairness = Fairness()
    client.on_update = fairness.update
    calls = [client.prompt_in(session_id) for session_id in ids]
    client.answers(calls, fairness.ended)
    assert fairness.pieces == CHUNKS * len(ids), f"{fairness.pieces} pieces"
    return _figures(fairness.first.values(), fairness.done)


def pieces(bench: Bench) -> list[Row]:
    """The arguments of one call in pieces of 20 characters: time, and bytes out to bytes in."""
    count = 5_000 if bench.quick else 20_000
    arguments = json.dumps({"path": "large.txt", "content": "x" * (20 * count - 40)})
    spec: Json = {"calls": [["WriteFile", arguments]], "piece": 20}

    def measure(candidate: Candidate) -> Measured:
        with world(candidate, spec) as place, acp_in(place, candidate.command) as client:
            client.shake_hands()
            session_id = client.new_session(place.work)
            client.answer(client.ask("session/set_mode", {"sessionId": session_id, "modeId": "yolo"}))
            client.settle()
            began, before = time.perf_counter(), client.sent
            client.answer(client.prompt_in(session_id))
            return {"all": time.perf_counter() - began, "sent": (client.sent - before) / len(arguments)}

    found = bench.medians("editor-pieces", measure, among=(OURS,))
    return [
        ms(f"acp: {count} pieces of arguments, the turn", found, "all", Target(value=1000)),
        row("acp:   bytes out to the arguments", "x", found, "sent", Target(value=20)),
    ]


CASES: dict[str, Case] = {"editor": start, "editors": crowd, "editor-pieces": pieces}
