"""Plays events through the update translator on a fake clock, and checks every update against the schema."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from kimi.application.codec.envelope import encode_event
from kimi.domain.content.message import Function, JsonObject, ToolCall, ToolCallPart
from kimi.domain.events import event as ev
from kimi.domain.events.request import ApprovalRequest
from kimi.domain.tools.tool import DisplayBlock
from kimi.interfaces.acp.client_capabilities import ClientCapabilities
from kimi.interfaces.acp.updates.replay import build_replay_updates, decode_stored_events
from kimi.interfaces.acp.updates.session_updates import SessionUpdateTranslator
from kimi.interfaces.acp.updates.tool_presentation import ToolPresentation, present_tool
from tests.support.acp.schema import check_agent_message
from tests.support.builtin_specs import builtin_specs

GOLDEN = Path(__file__).parent / "golden"
WORK_DIR = "/home/u/proj"

Pause: TypeAlias = float
Step: TypeAlias = "ev.Event | Pause"


def translator(client: ClientCapabilities | None = None, **options: Any) -> SessionUpdateTranslator:
    """Return a translator for a client without capabilities. It knows the built-in tools unless `options` differ."""
    given: dict[str, Any] = {"find_presentation": find_builtin_presentation, **options}
    return SessionUpdateTranslator(WORK_DIR, capabilities=client or ClientCapabilities(), **given)


def find_builtin_presentation(name: str) -> ToolPresentation | None:
    """Return the presentation of a built-in tool's calls."""
    spec = builtin_specs().get(name)
    return None if spec is None else present_tool(spec)


def checked(updates: Iterable[JsonObject]) -> list[Any]:
    """Return the updates as the client gets them, after each was checked."""
    found = json.loads(json.dumps(list(updates)))
    for update in found:
        params = {"sessionId": "s1", "update": update}
        check_agent_message({"jsonrpc": "2.0", "method": "session/update", "params": params})
    return found


def play(subject: SessionUpdateTranslator, steps: Sequence[Step], *, tick: float = 0.0) -> list[Any]:
    """Return the updates for these steps, with due updates after each. A number lets that many seconds pass."""
    found: list[JsonObject] = []
    now = 100.0
    for step in steps:
        if isinstance(step, (int, float)):
            now += step
        else:
            now += tick
            found += subject.translate(step)
        while (at := subject.next_update_at()) is not None and at <= now:
            found += subject.collect_due_updates(now)
    return checked(found)


def replayed(events: Iterable[ev.Event], **options: Any) -> list[Any]:
    """Return the replay of these events after they were stored."""
    envelopes = [json.loads(encode_event(event)) for event in events]
    replay = build_replay_updates(decode_stored_events(envelopes), translator(is_replaying=True, **options))
    return checked(chain.from_iterable(replay))


def call(name: str, call_id: str = "c1", **arguments: Any) -> ToolCall:
    """Return a complete call."""
    return ToolCall(id=call_id, function=Function(name, json.dumps(arguments)))


def pieces(name: str, text: str, size: int, call_id: str = "c1") -> list[ev.Event]:
    """Return the events of a call whose arguments arrive in pieces."""
    head = ToolCall(id=call_id, function=Function(name, None))
    return [head, *(ToolCallPart(text[at : at + size]) for at in range(0, len(text), size))]


def approval(call_id: str = "c1", sender: str = "Shell", *display: DisplayBlock, **more: Any) -> ApprovalRequest:
    """Return an approval request about a call."""
    return ApprovalRequest(f"ask-{call_id}", call_id, sender, "run command", "Run a command", display=display, **more)


def golden(name: str, updates: Sequence[Any]) -> list[Any]:
    """Return the expected updates of a golden file; with KIMI_WRITE_GOLDEN write these updates to it first."""
    path = GOLDEN / f"{name}.jsonl"
    if os.environ.get("KIMI_WRITE_GOLDEN"):
        path.write_text("".join(f"{json.dumps(u, ensure_ascii=False)}\n" for u in updates), encoding="utf-8")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
