"""Events for drivers only: what a call would change and when it begins, in order with the questions about it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from kimi.application.conversation.conversation import Conversation
from kimi.application.ports import ToolCallContext
from kimi.domain.content.message import Function, JsonObject, ToolCall, ToolCallPart
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import Event, FileChangePlanned, ToolCallStarted
from kimi.domain.events.request import ApprovalAnswer, ApprovalRequest
from kimi.domain.tools.diff import ChangedText
from kimi.domain.tools.tool import ToolReturnValue, tool_ok
from tests.support.conversations import conversation_with, memory_files, run
from tests.support.fakes import FakeModel, FakeTool

pytestmark = pytest.mark.anyio

CHANGE = ChangedText("/a", "old", "new")


@dataclass
class Heard:
    """Everything in its order: the plan, the question, the start."""

    lines: list[str] = field(default_factory=list[str])

    def note(self, conversation: Conversation, event: Event) -> None:
        """See an event on the channel."""
        match event:
            case FileChangePlanned():
                self.lines.append(f"{event.agent_id} {event.tool_call_id} will change {event.changed.path}")
            case ToolCallStarted():
                self.lines.append(f"{event.agent_id} {event.tool_call_id} begins")
            case ApprovalRequest():
                self.lines.append("asked")
            case _:
                pass


async def heard(answer: ApprovalAnswer, **tool: object) -> list[str]:
    """What comes of one call that is answered like this."""

    async def run_tool(arguments: JsonObject, context: ToolCallContext) -> ToolReturnValue:
        ran.append(context.call_id)
        return tool_ok("done")

    found, ran = Heard(), list[str]()
    call = ToolCall("c1", Function("Write", "{}"))
    made = FakeTool("Write", run_tool, **tool)  # pyright: ignore[reportArgumentType]
    conversation = await conversation_with(FakeModel([[call], [TextPart("ok")]]), [made])
    await run(conversation, "go", answer=lambda request: answer, react=found.note)
    assert (ran == ["c1"]) == ("None c1 begins" in found.lines)
    return found.lines


async def test_planned_change_precedes_the_question_and_start_follows_it() -> None:
    lines = await heard(ApprovalAnswer("approve"), action="edit file", changed=CHANGE)
    assert lines == ["None c1 will change /a", "asked", "None c1 begins"]


async def test_a_call_that_is_refused_never_begins() -> None:
    lines = await heard(ApprovalAnswer("reject"), action="edit file", changed=CHANGE)
    assert lines == ["None c1 will change /a", "asked"]


async def test_call_without_change_emits_only_its_start() -> None:
    assert await heard(ApprovalAnswer("approve")) == ["None c1 begins"]


async def test_an_early_start_cuts_no_streamed_call_in_the_record() -> None:
    """The read-only call begins while the next one still streams; the log holds each of them whole."""
    first, second = (ToolCall(name, Function("Look", head)) for name, head in (("c1", "{}"), ("c2", "{")))
    pieces = [*(ToolCallPart('"a":') for _ in range(1)), *(ToolCallPart(" ") for _ in range(64)), ToolCallPart("1}")]
    files = await memory_files()
    model = FakeModel([[first, second, *pieces], [TextPart("ok")]])
    conversation = await conversation_with(model, [FakeTool("Look", read_only=True)], files=files)
    names: list[str] = []
    await run(conversation, "go", react=lambda _, event: names.append(type(event).__name__))
    started = names.index("ToolCallStarted")
    assert "ToolCallPart" in names[started:]
    recorded = [json.loads(envelope) for envelope in files.events()]
    calls = [one["payload"]["function"]["arguments"] for one in recorded if one["type"] == "ToolCall"]
    assert calls == ["{}", '{"a":' + " " * 64 + "1}"]
    assert not {"ToolCallPart", "ToolCallStarted"} & {one["type"] for one in recorded}
