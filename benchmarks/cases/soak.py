"""Memory over a long run: a thousand turns, two hundred sessions."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.cases.acp_talk import AcpClient, acp_in
from benchmarks.figures import Bench, Case, Measured, Row, Target, row
from benchmarks.worlds import OURS, Candidate, world

LIMIT_MB = 5
"""How much more than after the first tenth there may be at any time."""


def soak(bench: Bench) -> list[Row]:
    """How far memory rises above its level after the first tenth, on the wire and in an editor."""
    turns, sessions = (100, 20) if bench.quick else (1_000, 200)

    def measure(candidate: Candidate) -> Measured:
        with world(candidate) as place:
            with place.wire() as wire:
                wire.initialize()
                time.sleep(1)
                on_wire = _rise(turns, wire.memory_mb, lambda: wire.prompt("hi"), lambda: wire.prompt("/clear"))
            with acp_in(place, candidate.command) as editor:
                editor.shake_hands()
                session_id = editor.new_session(place.work)
                editor.settle()

                def say(text: str) -> None:
                    editor.answer(editor.prompt_in(session_id, text))

                in_editor = _rise(turns, editor.memory_mb, lambda: say("hi"), lambda: say("/clear"))
                opened = _rise(sessions, editor.memory_mb, lambda: _visit(editor, editor.new_session(place.work)))
        return {"wire": on_wire, "editor": in_editor, "sessions": opened}

    found = bench.medians("soak", measure, among=(OURS,))
    flat = Target(value=LIMIT_MB)
    return [
        row(f"memory over {turns} turns on the wire, after the first tenth", "MB", found, "wire", flat),
        row(f"memory over {turns} turns in an editor, after the first tenth", "MB", found, "editor", flat),
        row(f"memory over {sessions} sessions of an editor, after the first tenth", "MB", found, "sessions", flat),
    ]


def _visit(client: AcpClient, session_id: str) -> None:
    client.answer(client.prompt_in(session_id))
    client.answer(client.ask("session/close", {"sessionId": session_id}))


def _rise(
    count: int, memory_mb: Callable[[], float], once: Callable[[], object], clear: Callable[[], object] | None = None
) -> float:
    """The highest memory after each further tenth, less that after the first.

    The conversation is cleared now and then, for what it holds is no leak.
    """
    levels: list[float] = []
    for number in range(1, count + 1):
        once()
        if clear is not None and number % (count // 20) == 0:
            clear()
        if number % (count // 10) == 0:
            levels.append(memory_mb())
    return max(levels[1:]) - levels[0]


CASES: dict[str, Case] = {"soak": soak}
