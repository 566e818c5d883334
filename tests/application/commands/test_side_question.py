"""`/btw`: a question beside the work."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from kimi.application.commands.side_question import answer_side_question
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.event_channel import EventChannel
from kimi.domain.client import Client
from kimi.domain.content.message import Function, ToolCall, message_text
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import APIStatusError, ModelNotSet
from kimi.domain.events.event import BtwBegin, BtwEnd, Event, TurnBegin, TurnEnd
from tests.support.conversations import conversation_with, run
from tests.support.fakes import FakeModel, FakeTool, forever

pytestmark = pytest.mark.anyio


async def test_answer_is_announced_and_context_stays_unchanged() -> None:
    model = FakeModel([[TextPart("It "), TextPart("is seven.")]])
    conversation = await conversation_with(model)
    conversation.events.set_client(replace(Client(), protocol_version=(1, 9)))
    outcome = await run(conversation, "/btw how many?")
    assert outcome.events == [
        TurnBegin("/btw how many?"),
        BtwBegin("id-2", "how many?"),
        BtwEnd("id-2", "It is seven.", None),
        TurnEnd(),
    ]
    assert list(conversation.history.messages) == []
    assert message_text(model.asked[0].history[-1]).endswith("how many?")


@pytest.mark.parametrize("version", [(1, 0), (1, 8)])
async def test_client_without_btw_events_gets_answer_as_text(version: tuple[int, int]) -> None:
    conversation = await conversation_with(FakeModel([[TextPart("seven")]]))
    conversation.events.set_client(replace(Client(), protocol_version=version))
    outcome = await run(conversation, "/btw how many?")
    assert outcome.events[-2] == TextPart("seven")


async def test_empty_question_returns_usage_without_calling_the_model() -> None:
    model = FakeModel([])
    outcome = await run(await conversation_with(model), "/btw ")
    assert TextPart("Usage: /btw <question>") in outcome.events
    assert model.asked == []


@pytest.mark.parametrize(
    ("script", "error"),
    [([APIStatusError(503, "busy")], "busy"), ([ToolCall("c", Function("Look", "{}"))], "The model gave no answer.")],
)
async def test_failure_is_reported_in_the_end_event(script: list[ToolCall | Exception], error: str) -> None:
    conversation = await conversation_with(FakeModel([list(script)]))
    outcome = await run(conversation, "/btw how many?")
    assert outcome.error is None
    assert BtwEnd("id-2", None, error) in outcome.events
    assert outcome.events[-2] == TextPart(error)


async def test_while_a_turn_runs_the_model_gets_the_history_up_to_the_open_calls() -> None:
    model = FakeModel([[ToolCall("c1", Function("Look", "{}"))], [TextPart("fine")], [TextPart("done")]])

    ends: list[object] = []
    tool = FakeTool("Look")

    async def react(conversation: Conversation, event: Event) -> None:
        if isinstance(event, ToolCall) and not ends:
            ends.append(await answer_side_question(conversation, "how is it going?"))

    conversation = await conversation_with(model, [tool])
    outcome = await run(conversation, "go", react=react)
    assert outcome.error is None
    assert [type(end) for end in ends] == [BtwEnd]
    roles = [message.role for message in model.asked[1].history]
    assert roles[-1] == "user"
    assert "assistant" not in roles
    texts = [message_text(message) for message in conversation.history.messages]
    assert not any("how is it going" in text for text in texts)


async def test_cancelling_the_question_announces_its_end() -> None:
    conversation = await conversation_with(FakeModel([[forever]]))
    with anyio.move_on_after(0.01):
        await answer_side_question(conversation, "how many?")
    events = [delivery.event for delivery in await conversation.events.channel.receive()]
    assert events[-1] == BtwEnd("id-1", None, "The question was cancelled.")


async def test_side_question_blocked_by_slow_client_is_closed_on_cancel() -> None:
    conversation = await conversation_with(FakeModel([[TextPart("never said")]]))
    conversation.events.channel = EventChannel(limit=0)

    def cancel(conversation: Conversation, event: Event) -> None:
        if isinstance(event, BtwBegin) and conversation.turn is not None:
            conversation.turn.scope.cancel()

    outcome = await run(conversation, "/btw how many?", react=cancel)

    assert outcome.names == ["TurnBegin", "BtwBegin", "BtwEnd", "TurnEnd"]


async def test_side_question_without_model_raises() -> None:
    with pytest.raises(ModelNotSet):
        await answer_side_question(await conversation_with(None), "how many?")
