"""Use-case set-mode over fakes: what the model is told, and what a failing disk leaves (runtime spec 7.6)."""

from __future__ import annotations

import pytest

from kimi.application.set_mode import switch_plan_mode
from kimi.domain.content import TextPart
from kimi.domain.errors import StoreFailed
from kimi.domain.message import message_text
from tests.conversations import conversation_with, run
from tests.fakes import FakeModel

pytestmark = pytest.mark.anyio


async def test_plan_mode_that_is_switched_on_twice_is_explained_once_more() -> None:
    conversation = await conversation_with(FakeModel([[TextPart("one")], [TextPart("two")]]))
    conversation.plans_dir = "/plans"
    for text, modes in (("1", [True]), ("2", [False, True, True])):
        for enabled in modes:
            switch_plan_mode(conversation, enabled)
        await run(conversation, text)

    explained = [message for message in conversation.history.messages if "How to work in it" in message_text(message)]

    assert len(explained) == 2


async def test_a_mode_that_cannot_be_stored_is_not_on() -> None:
    conversation = await conversation_with(None)
    conversation.plans_dir = "/plans"
    conversation.files.close()

    with pytest.raises(StoreFailed):
        switch_plan_mode(conversation, True)

    assert not conversation.policy.plan
    assert not conversation.plan_mode_is_unannounced
