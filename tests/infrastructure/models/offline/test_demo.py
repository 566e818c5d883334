"""The demo model of the shell keeps the contract of a model, and tells its story."""

import json

import anyio
import pytest

from kimi.application.ports import ModelItem, ResponseEnd
from kimi.domain.content.message import Message, ToolCall, user_message
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.infrastructure.models.offline.demo import DemoModel

pytestmark = pytest.mark.anyio


async def answer(*history: Message) -> list[ModelItem]:
    """All that the model gives for this history."""
    async with DemoModel().stream("", history, (), 10) as items:
        return [item async for item in items]


async def test_demo_requests_a_harmless_command_and_summarises() -> None:
    first = await answer(user_message("hello *there*"))
    assert isinstance(first[-1], ResponseEnd)
    assert sum(isinstance(item, ResponseEnd) for item in first) == 1
    assert isinstance(first[0], ThinkPart)
    assert "hello there" in "".join(item.text for item in first if isinstance(item, TextPart))
    (called,) = [item for item in first if isinstance(item, ToolCall)]
    assert json.loads(called.function.arguments or "") == {"command": "echo Hello from the demo"}
    second = await answer(user_message("hello"), Message("tool", (TextPart("out"),), tool_call_id=called.id))
    assert not [item for item in second if isinstance(item, ToolCall)]
    assert "/login" in "".join(item.text for item in second if isinstance(item, TextPart))


async def test_demo_can_be_cancelled() -> None:
    seen: list[ModelItem] = []
    with anyio.move_on_after(5) as scope:
        async with DemoModel().stream("", [user_message("x")], (), 0) as items:
            async for item in items:
                seen.append(item)
                scope.cancel()
    assert scope.cancelled_caught
    assert len(seen) == 1
