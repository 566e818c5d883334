"""What of a stream is written to the log, and when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kimi.application.conversation.recorder import Recorder
from kimi.domain.content.message import Function, ToolCall, ToolCallPart
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import StepBegin
from tests.support.conversations import memory_files

pytestmark = pytest.mark.anyio


async def recorded(*steps: Any) -> list[Any]:
    """The payloads in the log after these events; None flushes."""
    files = await memory_files()
    recorder = Recorder(files, lambda: 1.0)
    for step in [*steps, StepBegin(9)]:
        recorder.flush() if step is None else recorder.record(step)
    return [json.loads(envelope)["payload"] for envelope in files.events()][:-1]


CALL = ToolCall(id="c", function=Function("Shell", '{"a'))


async def test_pieces_are_written_together() -> None:
    found = await recorded(TextPart("a"), TextPart("b"), CALL, ToolCallPart('":'), ToolCallPart("1}"))
    assert [payload.get("text") for payload in found] == ["ab", None]
    assert found[1]["function"]["arguments"] == '{"a":1}'


async def test_nothing_of_a_call_is_lost_when_it_is_written_early() -> None:
    pieces = [ToolCallPart('":'), ToolCallPart("1}")]
    found = await recorded(CALL, None, *pieces, None, ToolCallPart(" "), TextPart("x"), ToolCallPart("of no call"))
    assert found[0]["function"]["arguments"] == '{"a'
    assert [payload.get("arguments_part") for payload in found[1:]] == ['":1}', " ", None]
    assert found[3]["text"] == "x"
