"""D-Mail over fakes: what is refused, where the conversation goes on, what throws a mail away (runtime spec 5.3)."""

from __future__ import annotations

import json

import pytest

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.hook_registry import HookRegistry
from kimi.application.ports import ResponseEnd
from kimi.application.step.checkpoints import send_dmail
from kimi.domain.agents.dmail import DMail, dmail_message
from kimi.domain.content.message import Function, Message, ToolCall, message_text
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import StepBegin, ToolResult
from kimi.domain.events.request import Answer, ApprovalAnswer, HookAnswer, Request
from kimi.domain.history.session import CheckpointRecord, ContextRecord
from kimi.domain.hook import CommandHook
from kimi.domain.tools.tool import BriefBlock
from kimi.domain.turn import TokenUsage
from kimi.infrastructure.tools.dialog.send_dmail import NOT_SENT_MESSAGE, SendDMailTool
from tests.support.conversations import Run, conversation_with, run, with_resources
from tests.support.fakes import FakeHookRunner, FakeModel, FakeTool, Script

pytestmark = pytest.mark.anyio


def mail(call_id: str, checkpoint: object, message: object = "Look in b.") -> ToolCall:
    """A call that sends one."""
    arguments = json.dumps({"message": message, "checkpoint_id": checkpoint})
    return ToolCall(call_id, Function("SendDMail", arguments))


def look(call_id: str) -> ToolCall:
    """A call of another tool."""
    return ToolCall(call_id, Function("Look", "{}"))


async def mailing(*scripts: Script, action: str | None = None) -> Conversation:
    """A conversation whose model can send mail to itself."""
    conversations: list[Conversation] = []
    tool = SendDMailTool(lambda message, checkpoint: send_dmail(conversations[0], message, checkpoint))
    model = FakeModel(list(scripts))
    conversations.append(await conversation_with(model, [tool, FakeTool("Look", action=action)]))
    return conversations[0]


def shown(records: list[ContextRecord]) -> list[str]:
    """Checkpoints as numbers, messages as their text."""
    found: list[str] = []
    for record in records:
        if isinstance(record, CheckpointRecord):
            found.append(f"#{record.id}")
        elif isinstance(record, Message):
            found.append(message_text(record))
    return found


def results(outcome: Run) -> dict[str, str]:
    """The message of each result, by call."""
    return {event.tool_call_id: event.return_value.message for event in outcome.events if isinstance(event, ToolResult)}


@pytest.mark.spec("R-101")
async def test_checkpoints_are_named_only_when_dmail_is_available() -> None:
    conversation = await mailing([TextPart("Hello.")])
    await run(conversation, "hi")
    assert shown(conversation.files.load_context()) == [
        "#0", "<system>CHECKPOINT 0</system>", "hi", "#1", "<system>CHECKPOINT 1</system>", "Hello.",
    ]  # fmt: skip
    plain = await conversation_with(FakeModel([[TextPart("Hello.")]]), [FakeTool("Look")])
    await run(plain, "hi")
    assert shown(plain.files.load_context()) == ["#0", "hi", "#1", "Hello."]


async def test_checkpoint_of_turn_continued_by_stop_hook_is_named() -> None:
    conversation = await mailing([TextPart("Done.")], [TextPart("Tested.")])
    runner = FakeHookRunner({"x": HookAnswer("block", "run the tests")})
    conversation = with_resources(conversation, hooks=HookRegistry([CommandHook("Stop", "x")], runner))
    await run(conversation, "go")
    assert shown(conversation.files.load_context())[6:9] == ["#2", "<system>CHECKPOINT 2</system>", "run the tests"]


async def test_dmail_continues_from_the_checkpoint() -> None:
    usage = ResponseEnd(usage=TokenUsage(500, 10))
    conversation = await mailing(
        [TextPart("First."), usage],
        [look("c1"), ResponseEnd(usage=TokenUsage(9_000, 10))],
        [TextPart("Useless."), mail("c2", 2)],
        [TextPart("I know.")],
    )
    await run(conversation, "one")
    before = conversation.files.load_context()
    outcome = await run(conversation, "two")

    assert outcome.error is None
    assert [event.n for event in outcome.events if isinstance(event, StepBegin)] == [1, 2, 3]
    sent = next(event for event in outcome.events if isinstance(event, ToolResult) and event.tool_call_id == "c2")
    assert (sent.return_value.is_error, sent.return_value.message) == (False, NOT_SENT_MESSAGE)
    assert sent.return_value.display == (BriefBlock("El Psy Kongroo"),)
    records = conversation.files.load_context()
    assert records[: len(before)] == before
    text = message_text(dmail_message(DMail("Look in b.", 2)))
    assert text.startswith("<system>")
    assert text.endswith("D-Mail content:\n\nLook in b.</system>")
    assert shown(records[len(before) :]) == [
        "#2", "<system>CHECKPOINT 2</system>", text, "#3", "<system>CHECKPOINT 3</system>", "I know.",
    ]  # fmt: skip
    model = conversation.model
    assert isinstance(model, FakeModel)
    assert 510 < model.asked[-1].tokens_used < 9_000, "the counts are those of the checkpoint"
    assert send_dmail(conversation, "another", 0) is None, "none waits"


@pytest.mark.spec("T-92")
async def test_invalid_dmail_is_refused_and_rejection_discards_pending_dmail() -> None:
    conversation = await mailing(
        [mail("c1", 9), mail("c2", -1), mail("c3", 1), mail("c4", 0)],
        [TextPart("Back.")],
        [mail("c5", 0), look("c6")],
        [TextPart("Here.")],
        action="look around",
    )
    outcome = await run(conversation, "one")
    failed = "Failed to send D-Mail. Error: "
    assert results(outcome) == {
        "c1": failed + "There is no checkpoint with the given ID",
        "c2": failed + "The checkpoint ID can not be negative",
        "c3": NOT_SENT_MESSAGE,
        "c4": failed + "Only one D-Mail can be sent at a time",
    }
    refused = next(event for event in outcome.events if isinstance(event, ToolResult) and event.tool_call_id == "c1")
    assert refused.return_value.display == (BriefBlock("Failed to send D-Mail"),)
    assert shown(conversation.files.load_context())[2:4] == ["one", "#1"]
    assert "D-Mail content:" in shown(conversation.files.load_context())[5]

    def reject(request: Request) -> Answer:
        return ApprovalAnswer("reject")

    before = len(conversation.history.records)
    outcome = await run(conversation, "two", answer=reject)
    assert outcome.names.count("StepBegin") == 1
    assert len(conversation.history.records) > before
    assert "D-Mail content:" not in " ".join(shown(conversation.files.load_context()[before:]))
    assert send_dmail(conversation, "another", 0) is None, "none waits"
    await run(conversation, "three")
    assert "D-Mail content:" not in " ".join(shown(conversation.files.load_context()[before:]))


async def test_rejection_with_feedback_keeps_the_dmail() -> None:
    conversation = await mailing([mail("c1", 1), look("c2")], [TextPart("Back.")], action="look around")

    def reject(request: Request) -> Answer:
        return ApprovalAnswer("reject", "Not now.")

    await run(conversation, "one", answer=reject)
    assert shown(conversation.files.load_context())[-1] == "Back."
    assert "D-Mail content:" in shown(conversation.files.load_context())[5]
