"""Use-case compact over fakes: when it happens, what the model is asked, what a failure leaves (runtime spec 5.4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.event_channel import EventChannel
from kimi.application.conversation.model_selection import ModelSelection
from kimi.application.ports import ResponseEnd
from kimi.application.step.reminders import AFK_MARK
from kimi.domain.content.message import Function, Message, ToolCall, message_text, user_message
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.errors import APIConnectionError, APIStatusError, ModelNotSet
from kimi.domain.events.event import CompactionBegin, Event, StatusUpdate
from kimi.domain.history.compaction import COMPACTION_SYSTEM_PROMPT, SUMMARY_HEADER
from kimi.domain.history.session import CheckpointRecord, SystemPromptRecord, UsageRecord
from kimi.domain.permissions.approval import Policy
from kimi.domain.tools.tool import CANCELLED, tool_message
from kimi.domain.turn import TokenUsage, TurnLimits
from tests.support.conversations import Run, conversation_with, run
from tests.support.fakes import FakeModel, FakeTool, Script, forever

pytestmark = pytest.mark.anyio

FINAL = APIStatusError(400, "too long")
LIMITS = TurnLimits(max_attempts=2, reserved_tokens=20_000)


def answer(text: str, used: int, output: int = 0) -> Script:
    """An answer after which the context has so many tokens."""
    return [TextPart(text), ResponseEnd(usage=TokenUsage(input_other=used - output, output=output))]


def call_step(call_id: str, used: int) -> Script:
    """A step with a call."""
    return [ToolCall(call_id, Function("Look", "{}")), ResponseEnd(usage=TokenUsage(input_other=used))]


def messages(conversation: Conversation) -> list[Message]:
    """The messages as the store has them."""
    return [record for record in conversation.files.load_context() if isinstance(record, Message)]


async def talk(scripts: list[Script], limits: TurnLimits = LIMITS, turns: int = 3) -> tuple[Conversation, Run]:
    """A conversation of some turns and its last one; the window has 100 000 tokens."""
    conversation = await conversation_with(FakeModel(scripts), [FakeTool("Look")], limits=limits)
    outcome = Run()
    for number in range(1, turns + 1):
        outcome = await run(conversation, f"question {number}")
    return conversation, outcome


def compactions(outcome: Run) -> int:
    """How many there were; each must be closed."""
    assert outcome.names.count("CompactionBegin") == outcome.names.count("CompactionEnd")
    return outcome.names.count("CompactionBegin")


async def test_a_full_context_is_compacted_between_the_step_and_its_checkpoint() -> None:
    summary: Script = [ThinkPart("hm"), TextPart("They talked."), ResponseEnd(usage=TokenUsage(9, 50))]
    conversation, outcome = await talk([answer("one", 10), answer("two", 80_000), summary, answer("three", 90)])

    assert outcome.names == [
        "TurnBegin", "StepBegin", "CompactionBegin", "CompactionEnd", "TextPart", "StatusUpdate", "TurnEnd",
    ]  # fmt: skip
    assert conversation.files.load_context() == [
        SystemPromptRecord("You are a test."),
        CheckpointRecord(0),
        Message("user", (TextPart(SUMMARY_HEADER), TextPart("They talked."))),
        Message("assistant", (TextPart("two"),)),
        user_message("question 3"),
        UsageRecord(50 + 0 + 2),
        CheckpointRecord(1),
        UsageRecord(90),
        Message("assistant", (TextPart("three"),)),
        UsageRecord(90),
    ]
    model = conversation.model
    assert isinstance(model, FakeModel)
    asked = model.asked[2]
    assert (asked.system, asked.tools, len(asked.history)) == (COMPACTION_SYSTEM_PROMPT, (), 1)
    assert "question 1" in message_text(asked.history[0])
    assert "question 3" not in message_text(asked.history[0])


@pytest.mark.spec("R-102")
@pytest.mark.parametrize(
    ("used", "window", "limits", "due"),
    [
        (84_996, 100_000, TurnLimits(reserved_tokens=1000), False),  # the question adds 2
        (84_998, 100_000, TurnLimits(reserved_tokens=1000), True),
        (49_997, 100_000, TurnLimits(), False),
        (49_998, 100_000, TurnLimits(), True),
        (30_000, 40_000, TurnLimits(), False),
        (33_998, 40_000, TurnLimits(), True),
    ],
)
async def test_compaction_starts_at_the_configured_thresholds(
    used: int, window: int, limits: TurnLimits, due: bool
) -> None:
    scripts = [answer("one", 10), answer("two", used)]
    scripts += [[TextPart("sum")]] if due else []
    model = FakeModel([*scripts, answer("three", 20)], context_size=window)
    conversation = await conversation_with(model, limits=limits)
    for text in ("question 1", "question 2"):
        await run(conversation, text)
    outcome = await run(conversation, "question 3")
    assert outcome.error is None
    assert compactions(outcome) == (1 if due else 0)

    nothing = await conversation_with(FakeModel([answer("one", 99_000), answer("two", 99_500)]), limits=limits)
    assert compactions(await run(nothing, "only this")) == 0
    nothing.context.replace_history([CheckpointRecord(0), UsageRecord(99_000)])
    assert compactions(await run(nothing, "only this")) == 0


async def test_a_compaction_that_does_not_help_is_not_repeated_at_every_step() -> None:
    scripts: list[Script] = [answer("one", 10), answer("two", 5_000)]
    scripts += [[TextPart("sum"), ResponseEnd(usage=TokenUsage(9, 4_000))]]
    scripts += [call_step(f"c{n}", 4_000 + n) for n in range(10)] + [answer("end", 4_100)]
    limits = TurnLimits(reserved_tokens=50_000)
    model = FakeModel(scripts, context_size=51_000)
    conversation = await conversation_with(model, [FakeTool("Look")], limits=limits)
    for text in ("1", "2"):
        await run(conversation, text)
    outcome = await run(conversation, "3")
    assert outcome.error is None
    assert outcome.names.count("StepBegin") == 11
    assert compactions(outcome) == 1


@pytest.mark.spec("R-103")
async def test_compaction_keeps_the_last_exchange_with_its_results() -> None:
    last = ToolCall("c2", Function("Look", '{"at": "y"}'))
    scripts: list[Script] = [
        call_step("c1", 100),
        [ThinkPart("t", "sig"), TextPart("again"), last, ResponseEnd(usage=TokenUsage(90_000))],
        [TextPart("sum")],
        answer("done", 200),
    ]
    conversation, outcome = await talk(scripts, turns=1)
    assert compactions(outcome) == 1
    kept = messages(conversation)
    assert [message.role for message in kept] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert kept[1].tool_calls[0].id == "c1"
    assert kept[3] == Message("assistant", (ThinkPart("t", "sig"), TextPart("again")), (last,))
    assert kept[4].tool_call_id == "c2"
    model = conversation.model
    assert isinstance(model, FakeModel)
    assert list(model.asked[3].history) == kept[:5]


@pytest.mark.spec("R-105")
async def test_failed_compaction_keeps_context_and_turn_continues() -> None:
    scripts: list[Script] = [answer("one", 10), answer("two", 80_000), [FINAL], call_step("c1", 80_100)]
    conversation, outcome = await talk([*scripts, answer("three", 80_200)])
    assert outcome.error is None
    assert compactions(outcome) == 1, "it is not tried again at the next step"
    assert message_text(messages(conversation)[0]) == "question 1"
    assert message_text(messages(conversation)[-1]) == "three"

    full, outcome = await talk([answer("one", 10), answer("two", 100_000), [FINAL]])
    assert outcome.error is FINAL
    assert outcome.names == [
        "TurnBegin", "StepBegin", "CompactionBegin", "CompactionEnd", "StepInterrupted", "TurnEnd",
    ]  # fmt: skip
    assert message_text(messages(full)[0]) == "question 1"


async def test_compaction_is_retried_when_the_context_has_grown() -> None:
    scripts: list[Script] = [answer("one", 10), answer("two", 80_000), [FINAL], answer("three", 84_000)]
    conversation, _ = await talk(scripts)
    model = conversation.model
    assert isinstance(model, FakeModel)
    model.scripts += [answer("four", 86_000), [TextPart("sum")], answer("five", 100)]
    assert compactions(await run(conversation, "question 4")) == 0
    assert compactions(await run(conversation, "question 5")) == 1


async def test_transient_failures_and_timeouts_are_retried() -> None:
    scripts: list[Script] = [answer("one", 10), answer("two", 80_000), [APIConnectionError("gone")], [TextPart("sum")]]
    conversation, outcome = await talk([*scripts, answer("three", 100)])
    assert (outcome.error, compactions(outcome)) == (None, 1)
    assert SUMMARY_HEADER in message_text(messages(conversation)[0])

    scripts = [answer("one", 10), answer("two", 80_000), [ThinkPart("hm")], [ThinkPart("hm")]]
    conversation, outcome = await talk([*scripts, answer("three", 80_100)])
    assert (outcome.error, compactions(outcome)) == (None, 1)
    assert message_text(messages(conversation)[0]) == "question 1"


async def test_a_cancelled_compaction_is_closed_and_changes_nothing() -> None:
    conversation, _ = await talk([answer("one", 10), answer("two", 80_000), [forever]], turns=2)
    before = messages(conversation)

    def react(conversation: Conversation, event: Event) -> None:
        if type(event).__name__ == "CompactionBegin" and conversation.turn is not None:
            conversation.turn.scope.cancel()

    outcome = await run(conversation, "question 3", react=react)
    assert outcome.status is not None
    assert outcome.status.status == "cancelled"
    assert outcome.names[1:] == ["StepBegin", "CompactionBegin", "CompactionEnd", "StepInterrupted", "TurnEnd"]
    assert messages(conversation)[:-1] == before


@pytest.mark.spec("R-106")
async def test_compact_command_accepts_an_instruction() -> None:
    empty = await conversation_with(FakeModel([]))
    outcome = await run(empty, "/compact")
    assert [event.text for event in outcome.events if isinstance(event, TextPart)] == ["The context is empty."]
    assert outcome.names == ["TurnBegin", "TextPart", "TurnEnd"]

    conversation, _ = await talk([answer("one", 10), answer("two", 20), [TextPart("They talked.")]], turns=2)
    outcome = await run(conversation, "/compact keep the names")
    assert outcome.names == ["TurnBegin", "CompactionBegin", "CompactionEnd", "TextPart", "StatusUpdate", "TurnEnd"]
    assert outcome.events[3] == TextPart("The context has been compacted.")
    update = outcome.events[4]
    assert isinstance(update, StatusUpdate)
    tokens = conversation.history.total_tokens
    assert tokens > 0
    assert (update.context_tokens, update.max_context_tokens, update.context_usage) == (tokens, 100_000, tokens / 1e5)
    model = conversation.model
    assert isinstance(model, FakeModel)
    assert message_text(model.asked[-1].history[0]).endswith("\nkeep the names")
    assert conversation.files.state.custom_title == "question 1"


async def test_compact_command_with_nothing_to_summarise_calls_no_model() -> None:
    conversation, _ = await talk([answer("one", 10)], turns=1)
    before = messages(conversation)
    outcome = await run(conversation, "/compact")
    assert outcome.names == ["TurnBegin", "CompactionBegin", "CompactionEnd", "TextPart", "StatusUpdate", "TurnEnd"]
    assert messages(conversation) == before
    assert conversation.history.total_tokens > 0


async def test_compact_command_fails_with_the_model() -> None:
    conversation, _ = await talk([answer("one", 10), answer("two", 20), [FINAL]], turns=2)
    outcome = await run(conversation, "/compact")
    assert (outcome.error, compactions(outcome)) == (FINAL, 1)
    assert message_text(messages(conversation)[0]) == "question 1"
    conversation = replace(conversation, models=ModelSelection(None))
    assert isinstance((await run(conversation, "/compact")).error, ModelNotSet)


@pytest.mark.spec("R-149")
async def test_away_mode_reminder_is_sent_once_and_again_after_compaction() -> None:
    scripts: list[Script] = [answer("one", 10), answer("two", 20), answer("three", 30), [TextPart("sum")]]
    conversation = await conversation_with(FakeModel([*scripts, answer("four", 40)]), policy=Policy(), limits=LIMITS)

    def reminders() -> int:
        return sum(AFK_MARK in message_text(message) for message in messages(conversation))

    await run(conversation, "/afk")
    for text in ("1", "2", "3"):
        await run(conversation, text)
        assert reminders() == 1
    await run(conversation, "/compact")
    assert reminders() == 0
    await run(conversation, "4")
    assert reminders() == 1


async def test_compaction_blocked_by_slow_client_is_closed_on_cancel() -> None:
    conversation, _ = await talk([answer("one", 10)], turns=1)
    conversation.events.channel = EventChannel(limit=0)

    def cancel(conversation: Conversation, event: Event) -> None:
        if isinstance(event, CompactionBegin) and conversation.turn is not None:
            conversation.turn.scope.cancel()

    outcome = await run(conversation, "/compact", react=cancel)

    assert outcome.names == ["TurnBegin", "CompactionBegin", "CompactionEnd", "TurnEnd"]


async def test_results_unsaved_on_full_disk_stay_with_their_calls_after_compaction() -> None:
    conversation, _ = await talk([answer("one", 10), answer("two", 20), [TextPart("sum")]], turns=2)
    call, owed = ToolCall("c1", Function("Look", "{}")), tool_message("c1", CANCELLED)
    conversation.context.append(Message("assistant", (), (call,)))
    conversation.context.add_pending_records(owed)

    assert (await run(conversation, "/compact")).error is None

    assert conversation.history.messages[-1] == messages(conversation)[-1] == owed
