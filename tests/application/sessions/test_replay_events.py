"""Recorded envelopes to events again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from kimi.application.codec.envelope import encode_event
from kimi.application.codec.event_json import decode_event
from kimi.application.sessions.replay_events import ReplayedEvent, replay
from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from kimi.domain.events import event as ev
from kimi.domain.events import request as rq
from kimi.domain.tools.tool import UnknownBlock, tool_ok
from tests.interfaces.rpc.test_wire_events import GOLDEN, REQUESTS
from tests.support.conversations import memory_files

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("event", [event for event, _, _ in GOLDEN] + [request for request, _, _ in REQUESTS])
async def test_every_event_round_trips(event: ev.Event) -> None:
    assert decode_event(json.loads(encode_event(event))) == event


async def replayed(*envelopes: object) -> list[ReplayedEvent]:
    """The replay of these records."""
    files = await memory_files()
    for envelope in envelopes:
        data = envelope if isinstance(envelope, bytes) else json.dumps(envelope).encode()
        files.append_event(data, 1.0)
    return list(replay(files))


async def test_current_events_are_replayed_byte_for_byte() -> None:
    for event, name, _ in GOLDEN:
        envelope = encode_event(event)
        assert await replayed(envelope) == [(name, envelope, None)]


async def test_requests_are_replayed_with_their_payload() -> None:
    request = rq.ToolCallRequest("c1", "Ask", "{}")
    assert await replayed(encode_event(request)) == [("ToolCallRequest", encode_event(request), request)]


@pytest.mark.parametrize(
    ("stored", "event"),
    [
        (
            {"type": "ApprovalRequestResolved", "payload": {"request_id": "r", "response": "approve"}},
            ev.ApprovalResponse("r", "approve", ""),
        ),
        (
            {
                "type": "SubagentEvent",
                "payload": {"task_tool_call_id": "c", "event": {"type": "StepBegin", "payload": {"n": 1}}},
            },
            ev.SubagentEvent("c", None, None, ev.StepBegin(1)),
        ),
        ({"type": "StatusUpdate", "payload": {"context_usage": 0.5}}, ev.StatusUpdate(0.5)),
        (
            {"type": "ContentPart", "payload": {"type": "text", "text": "a", "new": 1}},
            TextPart("a"),
        ),
        (
            {"type": "ToolCall", "payload": {"id": "c", "function": {"name": "F"}}},
            ToolCall("c", Function("F", None)),
        ),
        (
            {
                "type": "ApprovalRequest",
                "payload": {"id": "r", "tool_call_id": "c", "sender": "S", "action": "a", "description": "d"},
            },
            rq.ApprovalRequest("r", "c", "S", "a", "d"),
        ),
        (
            {
                "type": "ToolResult",
                "payload": {
                    "tool_call_id": "c",
                    "return_value": {
                        "is_error": False,
                        "output": "",
                        "message": "",
                        "display": [{"type": "chart", "rows": [1]}],
                    },
                },
            },
            ev.ToolResult("c", tool_ok(display=(UnknownBlock("chart", {"rows": [1]}),))),
        ),
    ],
)
async def test_legacy_events_are_converted_to_current_form(stored: dict[str, Any], event: ev.Event) -> None:
    (one,) = await replayed(stored)
    assert one[1] == encode_event(event)


async def test_unreadable_events_are_skipped() -> None:
    assert await replayed({"type": "Nope", "payload": {}}, {"type": "StepBegin", "payload": {"n": "x"}}) == []


def damaged(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The payload without one of its members, or with a value of another kind there; inside of objects as well."""
    for key, value in payload.items():
        yield {name: kept for name, kept in payload.items() if name != key}
        for other in (None, 5, "x", [1], {"a": 1}):
            yield payload | {key: other}
        if isinstance(value, dict):
            yield from (payload | {key: inner} for inner in damaged(cast("dict[str, Any]", value)))


@pytest.mark.parametrize("event", [event for event, _, _ in GOLDEN] + [request for request, _, _ in REQUESTS])
async def test_no_damaged_record_ends_a_replay(event: ev.Event) -> None:
    whole = json.loads(encode_event(event))
    records = [{"type": whole["type"], "payload": payload} for payload in damaged(whole["payload"])]
    last = encode_event(ev.TurnEnd())
    assert (await replayed(*records, last))[-1] == ("TurnEnd", last, None)
