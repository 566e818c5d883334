"""What a driver hears of calls beside the events (port `ToolCallEvents`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kimi.application.conversation.conversation import Conversation
from kimi.application.ports import ToolCallContext
from kimi.domain.content.message import Function, JsonObject, ToolCall
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import Event
from kimi.domain.events.request import ApprovalAnswer, ApprovalRequest
from kimi.domain.tools.diff import ChangedText
from kimi.domain.tools.tool import ToolReturnValue, tool_ok
from tests.support.conversations import conversation_with, run
from tests.support.fakes import FakeModel, FakeTool

pytestmark = pytest.mark.anyio

CHANGE = ChangedText("/a", "old", "new")


@dataclass
class Heard:
    """Everything in its order: what the watch hears, the question, the run."""

    lines: list[str] = field(default_factory=list[str])

    def on_file_change(self, agent_id: str | None, call_id: str, changed: ChangedText) -> None:
        """See `ToolCallEvents`."""
        self.lines.append(f"{agent_id} {call_id} will change {changed.path}")

    def on_call_start(self, agent_id: str | None, call_id: str) -> None:
        """See `ToolCallEvents`."""
        self.lines.append(f"{agent_id} {call_id} begins")

    def note(self, conversation: Conversation, event: Event) -> None:
        """See the question."""
        if isinstance(event, ApprovalRequest):
            self.lines.append("asked")

    async def run(self, arguments: JsonObject, context: ToolCallContext) -> ToolReturnValue:
        """The body of a tool."""
        self.lines.append("runs")
        return tool_ok("done")


async def heard(answer: ApprovalAnswer, **tool: object) -> list[str]:
    """What comes of one call that is answered like this."""
    found = Heard()
    call = ToolCall("c1", Function("Write", "{}"))
    made = FakeTool("Write", found.run, **tool)  # pyright: ignore[reportArgumentType]
    conversation = await conversation_with(FakeModel([[call], [TextPart("ok")]]), [made])
    conversation.tool_call_events = found
    await run(conversation, "go", answer=lambda request: answer, react=found.note)
    return found.lines


async def test_change_event_precedes_approval_and_begin_event_follows_answer() -> None:
    lines = await heard(ApprovalAnswer("approve"), action="edit file", changed=CHANGE)
    assert lines == ["None c1 will change /a", "asked", "None c1 begins", "runs"]


async def test_a_call_that_is_refused_never_begins() -> None:
    lines = await heard(ApprovalAnswer("reject"), action="edit file", changed=CHANGE)
    assert lines == ["None c1 will change /a", "asked"]


async def test_call_without_change_emits_only_a_begin_event() -> None:
    assert await heard(ApprovalAnswer("approve")) == ["None c1 begins", "runs"]
