"""What of a stream is written to the log, and when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kimi.application.conversation.event_recorder import EventRecorder
from kimi.domain.content.message import Function, ToolCall, ToolCallPart
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import StepBegin
from tests.support.conversations import memory_files

pytestmark = pytest.mark.anyio


async def recorded(*steps: Any) -> list[Any]:
    """The payloads in the log after these events; None flushes."""
    files = await memory_files()
    recorder = EventRecorder(files, lambda: 1.0)
    for step in [*steps, StepBegin(9)]:
        recorder.flush() if step is None else recorder.record(step)
    return [json.loads(envelope)["payload"] for envelope in files.events()][:-1]


CALL = ToolCall(id="c", function=Function("Shell", '{"a'))


async def test_streamed_pieces_are_recorded_as_one_part() -> None:
    found = await recorded(TextPart("a"), TextPart("b"), CALL, ToolCallPart('":'), ToolCallPart("1}"))
    assert [payload.get("text") for payload in found] == ["ab", None]
    assert found[1]["function"]["arguments"] == '{"a":1}'


async def test_early_flush_of_tool_call_loses_no_pieces() -> None:
    pieces = [ToolCallPart('":'), ToolCallPart("1}")]
    found = await recorded(CALL, None, *pieces, None, ToolCallPart(" "), TextPart("x"), ToolCallPart("of no call"))
    assert found[0]["function"]["arguments"] == '{"a'
    assert [payload.get("arguments_part") for payload in found[1:]] == ['":1}', " ", None]
    assert found[3]["text"] == "x"
