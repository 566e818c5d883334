"""Use-case restore-session over fakes: what an opened session goes on with, and what the user is told (R-167)."""

from __future__ import annotations

import pytest

from kimi.application.control.approval_modes import switch_mode
from kimi.application.control.switch_model import current_choice, switch_model
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.model_selection import ModelCatalog, ModelChoice
from kimi.application.ports import ChatModel, SessionFiles
from kimi.application.sessions.restore_session import (
    RestoreOptions,
    SuspendedState,
    capture_state,
    fail_interrupted_subagents,
    restore_session,
)
from kimi.application.settings.settings import ModelSettings, Settings
from kimi.domain.agents.subagent import SubagentRecord
from kimi.domain.errors import ConfigError
from kimi.domain.permissions.approval import Policy
from tests.support.conversations import conversation_with, memory_files
from tests.support.fakes import FakeModel

pytestmark = pytest.mark.anyio

FIRST = ModelSettings(alias="first", provider_name="p", type="_echo", model="m1")
THINKER = ModelSettings(
    alias="thinker", provider_name="p", type="_echo", model="m2", capabilities=frozenset({"thinking"})
)
BROKEN = ModelSettings(alias="broken", provider_name="p", type="_echo", model="broken")


def open_model(settings: ModelSettings) -> ChatModel:
    """A model of this name; `broken` cannot be used."""
    if settings.model == "broken":
        raise ConfigError("The model cannot be used.")
    return FakeModel([], name=settings.model)


async def open_again(files: SessionFiles, *configured: ModelSettings) -> Conversation:
    """A conversation over these files that starts with the first model."""
    catalog = ModelCatalog(FIRST, {one.alias: one for one in (FIRST, *configured)}, open_model)
    return await conversation_with(FakeModel([], name="m1"), files=files, models=catalog)


async def files_with_choice(alias: str = "thinker", *, thinking: bool = True) -> SessionFiles:
    """A session for which this model was chosen in an earlier run."""
    files = await memory_files()
    conversation = await open_again(files, THINKER)
    switch_model(conversation, alias, thinking)
    return files


def restore(conversation: Conversation, suspended: SuspendedState | None = None, **more: object) -> list[str]:
    """Restore, and return what the user is told. `more` are settings."""
    told: list[str] = []
    settings = Settings(share_dir="/share", work_dir="/w").model_copy(update=more)
    restore_session(conversation, settings, RestoreOptions(report=told.append, suspended=suspended))
    return told


async def test_resumed_session_goes_on_with_its_model_and_stores_nothing() -> None:
    files = await files_with_choice()
    state = files.state
    conversation = await open_again(files, THINKER)

    assert restore(conversation) == []

    assert current_choice(conversation) == ModelChoice("thinker", True)
    assert conversation.model is not None
    assert conversation.model.name == "m2"
    assert files.state is state


@pytest.mark.spec("R-321")
async def test_resumed_session_thinks_as_much_as_before_where_it_still_can() -> None:
    files = await memory_files()
    levelled = THINKER.model_copy(update={"effort_levels": ("low", "high")})
    switch_model(await open_again(files, levelled), "thinker", effort="low")

    conversation = await open_again(files, levelled)
    assert restore(conversation) == []
    assert current_choice(conversation) == ModelChoice("thinker", True, "low")

    conversation = await open_again(files, THINKER)
    assert restore(conversation) == []
    assert current_choice(conversation) == ModelChoice("thinker", True)


async def test_session_without_a_choice_takes_the_model_of_the_start() -> None:
    conversation = await open_again(await memory_files(), THINKER)

    assert restore(conversation) == []

    assert conversation.models.choice is None


async def test_requested_model_comes_before_that_of_the_session() -> None:
    conversation = await open_again(await files_with_choice(), THINKER)

    assert restore(conversation, is_model_requested=True) == []

    assert current_choice(conversation) == ModelChoice("first", False)
    assert conversation.files.state.model_alias == "thinker"


async def test_requested_thinking_holds_for_the_model_of_the_session() -> None:
    conversation = await open_again(await files_with_choice(), THINKER)

    assert restore(conversation, requested_thinking=False) == []

    assert current_choice(conversation) == ModelChoice("thinker", False)


async def test_user_is_told_of_a_model_that_cannot_be_restored() -> None:
    files = await files_with_choice()
    without = await open_again(files)
    assert restore(without) == ["The model 'thinker' of this session is no longer configured."]
    assert current_choice(without) == ModelChoice("first", False)

    broken = await open_again(files, BROKEN.model_copy(update={"alias": "thinker"}))
    assert restore(broken) == ["The model cannot be used."]
    assert current_choice(broken) == ModelChoice("first", False)


async def test_suspended_session_keeps_choices_of_this_process() -> None:
    files = await files_with_choice()
    before = await open_again(files, THINKER)
    switch_model(before, "first")
    switch_mode(before, "yolo")
    suspended = capture_state(before)
    stored = files.state

    conversation = await open_again(files, THINKER)
    assert restore(conversation, suspended, is_model_requested=True, requested_thinking=True) == []

    assert conversation.policy == Policy(yolo=True)
    assert conversation.models.choice == ModelChoice("first", False)
    assert files.state is stored


async def test_running_subagents_are_marked_failed_after_restart() -> None:
    files = await memory_files()
    for record in (
        SubagentRecord("a00000001", "coder", "running_foreground", updated_at=1.0),
        SubagentRecord("a00000002", "coder", "completed", updated_at=1.0),
    ):
        child = files.subagent_files(record.agent_id)
        child.save_record(record)
        child.close()

    fail_interrupted_subagents(files, 5.0)

    assert files.subagent_files("a00000001").record == SubagentRecord("a00000001", "coder", "failed", updated_at=5.0)
    assert files.subagent_files("a00000002").record == SubagentRecord("a00000002", "coder", "completed", updated_at=1.0)
