"""Use-case steer."""

from __future__ import annotations

import pytest

from kimi.application.control.steer import steer
from kimi.application.conversation.conversation import Conversation
from kimi.domain.content.message import Function, Message, ToolCall, user_message
from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart
from kimi.domain.errors import APIStatusError, CapabilityMissing, StateError
from kimi.domain.events.event import Event, SteerInput, TurnEnd
from tests.support.conversations import conversation_with, run
from tests.support.fakes import FakeModel, FakeTool, forever

pytestmark = pytest.mark.anyio


@pytest.mark.spec("W-79", "R-110", "W-88")
async def test_steers_become_user_messages_in_order_and_slashes_stay_text() -> None:
    model = FakeModel([[ToolCall("c1", Function("Look", "{}"))], [TextPart("ok")]])
    conversation = await conversation_with(model, [FakeTool("Look")])

    def react(conversation: Conversation, event: Event) -> None:
        if isinstance(event, ToolCall):
            for text in ("one", "/clear", "three"):
                steer(conversation, text)

    outcome = await run(conversation, "go", react=react)

    assert [event for event in outcome.events if isinstance(event, SteerInput)] == [
        SteerInput("one"),
        SteerInput("/clear"),
        SteerInput("three"),
    ]
    assert outcome.names[-7:] == [
        "SteerInput", "SteerInput", "SteerInput", "StepBegin", "TextPart", "StatusUpdate", "TurnEnd",
    ]  # fmt: skip
    assert list(model.asked[1].history[-3:]) == [user_message("one"), user_message("/clear"), user_message("three")]


@pytest.mark.spec("W-80")
async def test_a_steer_during_the_last_step_forces_another_one() -> None:
    conversation = await conversation_with(FakeModel([[TextPart("done")], [TextPart("more")]]))

    def react(conversation: Conversation, event: Event) -> None:
        if event == TextPart("done"):
            steer(conversation, "and this")

    outcome = await run(conversation, "go", react=react)
    assert outcome.names.count("StepBegin") == 2


@pytest.mark.spec("R-110")
async def test_a_steer_is_refused_without_a_turn_after_its_last_step_and_after_cancel() -> None:
    conversation = await conversation_with(FakeModel([[TextPart("done")], [TextPart("a"), forever]]))
    with pytest.raises(StateError):
        steer(conversation, "nobody listens")
    refused: list[str] = []

    def late(conversation: Conversation, event: Event) -> None:
        if isinstance(event, TurnEnd):
            with pytest.raises(StateError):
                steer(conversation, "too late")
            refused.append("late")

    await run(conversation, "go", react=late)

    def cancelled(conversation: Conversation, event: Event) -> None:
        if event == TextPart("a") and conversation.turn:
            steer(conversation, "accepted, then discarded")
            conversation.turn.scope.cancel()
            with pytest.raises(StateError):
                steer(conversation, "after cancel")
            refused.append("cancelled")

    outcome = await run(conversation, "again", react=cancelled)
    assert refused == ["late", "cancelled"]
    assert not any(isinstance(event, SteerInput) for event in outcome.events)


@pytest.mark.spec("R-110")
async def test_an_accepted_steer_survives_a_failing_turn() -> None:
    conversation = await conversation_with(FakeModel([[TextPart("par"), APIStatusError(400, "no")]]))

    def react(conversation: Conversation, event: Event) -> None:
        if event == TextPart("par"):
            steer(conversation, "keep me")

    outcome = await run(conversation, "go", react=react)

    assert isinstance(outcome.error, APIStatusError)
    assert outcome.names[-3:] == ["StepInterrupted", "SteerInput", "TurnEnd"]
    assert conversation.history.messages[-1] == user_message("keep me")


async def test_a_steer_that_the_model_cannot_take_ends_the_turn_with_the_capability_error() -> None:
    conversation = await conversation_with(FakeModel([[TextPart("done")]]))

    def react(conversation: Conversation, event: Event) -> None:
        if event == TextPart("done"):
            steer(conversation, (ImagePart(MediaUrl("u")),))

    outcome = await run(conversation, "go", react=react)
    assert isinstance(outcome.error, CapabilityMissing)
    assert Message("user", (ImagePart(MediaUrl("u")),)) not in conversation.history.messages
