"""Permissions have one owner: memory and disk agree after every change, also when the store fails."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any, TypeAlias, cast

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi.application.control.approval_modes import MODES, Mode, switch_mode
from kimi.application.control.plan_mode import resolve_plan_file, set_plan_mode, switch_plan_mode
from kimi.application.conversation.conversation import Conversation
from kimi.application.ports import SessionFiles
from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import StoreFailed
from kimi.domain.events.request import Answer, ApprovalAnswer, QuestionAnswer, QuestionRequest, Request
from kimi.domain.permissions.approval import Policy
from kimi.infrastructure.tools.dialog.plan_mode import EnterPlanModeTool, ExitPlanModeTool, PlanModeControls
from tests.support.conversations import conversation_with, memory_files, run, with_resources
from tests.support.fakes import FakeModel, FakeTool
from tests.support.unreliable_store import UnreliableStore


async def open_on(failures: Iterator[bool], plans_dir: str) -> Conversation:
    """A conversation on an unreliable store, with the tools of plan mode and one that asks."""
    controls = PlanModeControls(
        is_on=lambda: conversation.policy.plan,
        set_enabled=lambda enabled: switch_plan_mode(conversation, enabled),
        plan_path=lambda: resolve_plan_file(conversation),
        is_supported=lambda: True,
        is_yolo=lambda: conversation.policy.yolo,
        is_user_absent=lambda: conversation.policy.is_user_absent,
        new_id=lambda: "question",
    )
    tools = [EnterPlanModeTool(controls), ExitPlanModeTool(controls), FakeTool("Edit", action="edit file")]
    files = cast("SessionFiles", UnreliableStore(await memory_files(), failures))
    conversation = await conversation_with(FakeModel([]), tools, files=files)
    conversation = with_resources(conversation, plans_dir=plans_dir)
    return conversation


def answer(request: Request) -> Answer:
    """What the user says to everything."""
    if isinstance(request, QuestionRequest):
        question = request.questions[0]
        return QuestionAnswer({question.question: question.options[0].label})
    return ApprovalAnswer("approve_for_session")


async def call_tool(conversation: Conversation, name: str) -> None:
    """A turn in which the model calls one tool."""
    assert isinstance(conversation.model, FakeModel)
    conversation.model.scripts[:] = [[ToolCall("c1", Function(name, "{}"))], [TextPart("done")]]
    if (slug := conversation.files.state.plan_slug) is not None and conversation.resources.plans_dir is not None:
        await anyio.Path(conversation.resources.plans_dir, f"{slug}.md").write_text("1. Do it.")
    await run(conversation, "go", answer=answer)


async def command(conversation: Conversation, text: str) -> None:
    """A turn that is a slash command."""
    await run(conversation, text)


async def set_mode(conversation: Conversation, mode: Mode) -> None:
    """What an editor's choice of a mode does."""
    switch_mode(conversation, mode)


async def remember(conversation: Conversation, key: str) -> None:
    conversation.permissions.remember(key)


async def forget(conversation: Conversation, key: str) -> None:
    conversation.permissions.forget({key})


Change: TypeAlias = Callable[[Conversation, Any], Awaitable[None]]
WAYS: Mapping[str, tuple[Change, Any]] = {
    **{f"/{text}": (command, f"/{text}") for text in ("yolo", "yolo on", "yolo off", "afk", "afk on", "afk off")},
    **{f"/{text}": (command, f"/{text}") for text in ("plan", "plan on", "plan off")},
    **{f"set_mode {mode}": (set_mode, mode) for mode in MODES},
    **{f"set_plan_mode {enabled}": (set_plan_mode, enabled) for enabled in (True, False)},
    **{name: (call_tool, name) for name in ("EnterPlanMode", "ExitPlanMode", "Edit")},
    **{f"remember {key}": (remember, key) for key in ("a", "edit file")},
    **{f"forget {key}": (forget, key) for key in ("a", "edit file")},
}
"""Every way to change a mode or an approval, by its name."""


async def check_steps(steps: list[str], failures: list[bool], plans_dir: str) -> None:
    conversation = await open_on(iter(failures), plans_dir)
    answered: frozenset[str] = frozenset()
    for step in steps:
        change, argument = WAYS[step]
        before = conversation.policy
        try:
            await change(conversation, argument)
        except StoreFailed:
            assert conversation.policy == before, step
        policy, state = conversation.policy, conversation.files.state
        assert (policy.yolo, policy.afk, policy.plan) == (state.yolo, state.afk, state.plan_mode), step
        # What the user has just answered holds also where it cannot be stored.
        answered |= {"edit file"} if step == "Edit" else frozenset()
        assert state.auto_approve_actions <= policy.remembered, step
        assert policy.remembered - state.auto_approve_actions <= answered, step
        answered &= policy.remembered - state.auto_approve_actions


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(sorted(WAYS)), max_size=10), st.lists(st.booleans(), max_size=20))
def test_memory_and_disk_agree_after_every_change(steps: list[str], failures: list[bool]) -> None:
    with tempfile.TemporaryDirectory() as plans_dir:
        anyio.run(check_steps, steps, failures, str(Path(plans_dir)))


@pytest.mark.anyio
async def test_mode_switch_of_several_fields_is_one_write(tmp_path: Path) -> None:
    conversation = await open_on(repeat(False), str(tmp_path))
    store = cast("UnreliableStore", conversation.files)
    for mode in MODES:
        switch_mode(conversation, mode)

    written = [
        (state.plan_mode, state.yolo, state.afk, state.edits, state.plan_slug is not None) for state in store.saved
    ]

    assert written == [
        (False, False, False, False, False),
        (False, False, False, True, False),
        (True, False, False, True, True),
        (False, True, False, False, True),
        (False, False, True, False, True),
    ]


@pytest.mark.anyio
async def test_answer_that_cannot_be_stored_holds_and_is_stored_later(tmp_path: Path) -> None:
    conversation = await open_on(iter([False, True]), str(tmp_path))
    await run(conversation, "give the session a title, which is the first write")
    await call_tool(conversation, "Edit")
    assert conversation.policy.remembered == {"edit file"}
    assert conversation.files.state.auto_approve_actions == frozenset()

    conversation.permissions.remember("a")

    assert conversation.files.state.auto_approve_actions == {"edit file", "a"}


@pytest.mark.anyio
async def test_modes_of_a_flag_are_not_stored_by_another_switch() -> None:
    conversation = await conversation_with(None, policy=Policy(yolo=True))

    conversation.permissions.switch_modes(afk=True)

    assert conversation.policy == Policy(yolo=True, afk=True)
    assert (conversation.files.state.yolo, conversation.files.state.afk) == (False, True)
