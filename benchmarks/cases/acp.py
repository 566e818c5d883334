"""What the translation for the Agent Client Protocol costs: a large call in many pieces, a long replay."""

from __future__ import annotations

import json
import time
from statistics import median

from benchmarks.figures import Bench, Case, Row, Target
from kimi.application.codec.envelope import encode_event
from kimi.domain.content.message import Function, ToolCall, ToolCallPart
from kimi.domain.content.parts import TextPart
from kimi.domain.events import event as ev
from kimi.domain.tools.tool import tool_ok
from kimi.interfaces.acp.client_capabilities import ClientCapabilities
from kimi.interfaces.acp.updates.replay import build_replay_updates, decode_stored_events
from kimi.interfaces.acp.updates.session_updates import SessionUpdateTranslator
from kimi.interfaces.acp.updates.tool_presentation import ToolPresentation

PIECES = 20_000
ARGUMENTS = json.dumps({"path": "src/large.py", "content": "value = 1234\n" * 14_000})
UPDATES = 5_000
PRESENTATIONS = {"WriteFile": ToolPresentation("edit", "path", "path"), "Shell": ToolPresentation("execute", "command")}
SECOND = Target(value=1000)


def acp(bench: Bench) -> list[Row]:
    """A call of 200 kB in 20 000 pieces, a replay of 5000 updates; the limits are those of the specification."""
    calls = [_large_call() for _ in range(max(3, bench.repeats))]
    envelopes = _long_session()
    replays = [_replay(envelopes) for _ in range(max(3, bench.repeats))]
    _, sent, updates = calls[0]
    return [
        Row(
            "acp: 20 000 pieces of arguments", "ms", median(call[0] for call in calls) * 1e3, target=Target(value=1000)
        ),
        Row("acp: sent for them, to their size", "x", sent / len(ARGUMENTS), target=Target(value=10)),
        Row("acp: updates for them in 20 s", "", updates, target=Target(value=240)),
        Row("acp: replay of 5000 updates", "ms", median(replays) * 1e3, target=SECOND),
    ]


def _new_translator(*, replaying: bool = False) -> SessionUpdateTranslator:
    return SessionUpdateTranslator(
        "/work", capabilities=ClientCapabilities(), is_replaying=replaying, find_presentation=PRESENTATIONS.get
    )


def _large_call() -> tuple[float, int, int]:
    """Processor seconds, bytes sent, updates sent; the pieces come one each millisecond of the translator's clock."""
    size = -(-len(ARGUMENTS) // PIECES)
    pieces = [ToolCallPart(ARGUMENTS[at : at + size]) for at in range(0, len(ARGUMENTS), size)]
    events: list[ev.Event] = [ev.TurnBegin("go"), ev.StepBegin(1), ToolCall(id="c", function=Function("WriteFile"))]
    events += [*pieces, ev.ToolResult("c", tool_ok(message="done"))]
    translator, now, sent, count = _new_translator(), 0.0, 0, 0
    began = time.process_time()
    for event in events:
        now += 0.001
        updates = translator.translate(event)
        if (due := translator.next_update_at()) is not None and due <= now:
            updates = [*updates, *translator.collect_due_updates(now)]
        count += len(updates)
        sent += sum(len(json.dumps(update)) for update in updates)
    return time.process_time() - began, sent, count


def _long_session() -> list[bytes]:
    call = ToolCall(id="c", function=Function("Shell", '{"command": "ls"}'))
    turn: list[ev.Event] = [ev.TurnBegin("go"), ev.StepBegin(1), TextPart("x" * 200), call, ev.StatusUpdate()]
    turn += [ev.ToolResult("c", tool_ok("line\n" * 50)), ev.TurnEnd()]
    return [encode_event(event) for event in turn] * (UPDATES // 3 + 1)


def _replay(envelopes: list[bytes]) -> float:
    began = time.process_time()
    events = decode_stored_events(map(json.loads, envelopes))
    count = sum(map(len, build_replay_updates(events, _new_translator(replaying=True))))
    assert count >= UPDATES
    return time.process_time() - began


CASES: dict[str, Case] = {"acp": acp}
