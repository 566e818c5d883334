"""What a person feels first: from the start of the process to the first piece, the turn after it, memory then."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.cases.acp_talk import AcpClient, acp_in
from benchmarks.client import WireClient
from benchmarks.figures import Bench, Case, Measured, Row, Target, ms, row
from benchmarks.worlds import FLOOR, OURS, Candidate, world

_EDITOR_FLOOR = replace(FLOOR, command=(sys.executable, str(Path(__file__).parent.parent / "editor_floor.py")))
_TURNS = 20
_STARTS = 3
"""How many starts count for one that is reported: a start is short, and what else the machine does is not."""


def wire(bench: Bench) -> list[Row]:
    """From spawn to the first piece of the first turn, whose client prompts at once; processor time and memory."""

    def measure(candidate: Candidate) -> Measured:
        with world(candidate) as place, place.wire() as client:
            client.initialize()
            memory = client.memory_mb()
            began = time.perf_counter()
            first = began - client.began + client.prompt("hi").first_s
            cpu = client.cpu_s()
            _prompt_often(client)
            return {"first": first, "cpu": cpu, "memory": memory, "later": client.memory_mb()}

    found = replace(bench, repeats=bench.repeats * _STARTS).medians("first-turn", measure)
    return [
        ms("spawn → first piece of the first turn, wire", found, "first", Target(value=200)),
        ms("processor time until the first turn is done, wire", found, "cpu"),
        row("memory after the handshake, wire", "MB", found, "memory", Target(value=36)),
        row(f"memory after {_TURNS} turns, wire", "MB", found, "later", Target(value=45)),
    ]


def _prompt_often(client: WireClient) -> None:
    for _ in range(_TURNS - 1):
        client.prompt("hi")


def editor(bench: Bench) -> list[Row]:
    """The same for an editor, which also opens a session; then the turn that follows at once."""

    def measure(candidate: Candidate) -> Measured:
        with world(candidate) as place, acp_in(place, candidate.command) as client:
            client.shake_hands()
            memory = client.memory_mb()
            session_id = client.new_session(place.work)
            first = _first_piece(client, session_id) - client.began
            cpu = client.cpu_s()
            second = _timed(client, session_id)
            for _ in range(_TURNS - 2):
                _timed(client, session_id)
            return {"first": first, "cpu": cpu, "second": second, "memory": memory, "later": client.memory_mb()}

    found = replace(bench, repeats=bench.repeats * _STARTS).medians("first-turn-editor", measure, (OURS, _EDITOR_FLOOR))
    return [
        ms("spawn → first piece of the first turn, editor", found, "first", Target(value=230)),
        ms("processor time until the first turn is done, editor", found, "cpu"),
        ms("second turn at once, editor", found, "second", Target(value=3)),
        row("memory after the handshake, editor", "MB", found, "memory", Target(value=36)),
        row(f"memory after {_TURNS} turns, editor", "MB", found, "later", Target(value=50)),
    ]


def _first_piece(client: AcpClient, session_id: str) -> float:
    """When the first piece of a turn came; returns when the turn is done."""
    came: list[float] = []

    def note(line: bytes) -> None:
        if b'"agent_message_chunk"' in line:
            came.append(time.perf_counter())

    client.on_update = note
    client.answer(client.prompt_in(session_id))
    client.on_update = None
    return came[0]


def _timed(client: AcpClient, session_id: str) -> float:
    began = time.perf_counter()
    client.answer(client.prompt_in(session_id))
    return time.perf_counter() - began


CASES: dict[str, Case] = {"first-turn": wire, "first-turn-editor": editor}
