"""`kimi acp` as a process: its start, its sessions, a call in many pieces."""

from __future__ import annotations

import json
import time
from statistics import median

from benchmarks.cases.acp_talk import AcpClient, acp_in
from benchmarks.client import Json
from benchmarks.figures import Bench, Case, Measured, Row, Target, ms, row
from benchmarks.worlds import OURS, Candidate, World, world

SESSIONS = 64


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


CASES: dict[str, Case] = {"editor": start, "editor-pieces": pieces}
