"""Use-case set-mode over fakes: what the model is told, and what a failing disk leaves (runtime spec 7.6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi.application.control.plan_mode import announce_plan_mode, resolve_plan_file, switch_plan_mode
from kimi.domain.content.message import message_text
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import StoreFailed
from kimi.domain.permissions.approval import Policy
from tests.support.conversations import conversation_with, run, with_resources
from tests.support.fakes import FakeModel

pytestmark = pytest.mark.anyio


async def test_enabling_plan_mode_again_repeats_the_reminder() -> None:
    conversation = await conversation_with(FakeModel([[TextPart("one")], [TextPart("two")]]))
    conversation = with_resources(conversation, plans_dir="/plans")
    for text, modes in (("1", [True]), ("2", [False, True, True])):
        for enabled in modes:
            switch_plan_mode(conversation, enabled)
        await run(conversation, text)

    explained = [message for message in conversation.history.messages if "How to work in it" in message_text(message)]

    assert len(explained) == 2


async def test_mode_that_cannot_be_stored_is_not_enabled() -> None:
    conversation = await conversation_with(None)
    conversation = with_resources(conversation, plans_dir="/plans")
    conversation.files.close()

    with pytest.raises(StoreFailed):
        switch_plan_mode(conversation, True)

    assert not conversation.policy.plan
    await announce_plan_mode(conversation)
    assert conversation.events.channel.unfinished == 0, "there is nothing to announce"


@pytest.mark.parametrize("word", ["on", "view", "clear"])
async def test_plan_command_without_plans_directory_is_refused(word: str) -> None:
    conversation = await conversation_with(None)

    outcome = await run(conversation, f"/plan {word}")

    assert str(outcome.error) == "Plan mode is not supported"
    assert conversation.files.state.plan_slug is None


@pytest.mark.parametrize(("word", "verb"), [("view", "read"), ("clear", "removed")])
async def test_unusable_plan_file_is_reported(tmp_path: Path, word: str, verb: str) -> None:
    conversation = await conversation_with(None)
    conversation = with_resources(conversation, plans_dir=str(tmp_path))
    path = Path(resolve_plan_file(conversation))
    path.mkdir()

    outcome = await run(conversation, f"/plan {word}")

    assert outcome.error is None
    (said,) = [event for event in outcome.events if isinstance(event, TextPart)]
    assert said.text.startswith(f"The plan file cannot be {verb}: {path}: ")


@pytest.mark.parametrize("name", ["yolo", "afk"])
@pytest.mark.parametrize(("words", "states"), [("off", (False, False)), ("ON", (True, True)), ("of", (False, True))])
async def test_switch_with_explicit_state_sets_that_state(name: str, words: str, states: tuple[bool, bool]) -> None:
    found: list[bool] = []
    for before in (False, True):
        policy = Policy(yolo=before) if name == "yolo" else Policy(afk=before)
        conversation = await conversation_with(None, policy=policy)
        await run(conversation, f"/{name} {words}")
        found.append(getattr(conversation.policy, name))

    assert tuple(found) == states
