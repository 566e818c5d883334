"""Use-case restore-session: restore model, modes and directories of an opened session (runtime spec 4.5, R-167)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kimi.application.conversation.conversation import Conversation
from kimi.application.ports import SessionFiles
from kimi.application.sessions.open_session import save_additional_dirs
from kimi.application.settings.settings import Settings
from kimi.domain.errors import KimiError
from kimi.domain.history.session import SessionState
from kimi.domain.permissions.approval import Policy
from kimi.domain.turn import UsageTotal

if TYPE_CHECKING:
    from kimi.application.conversation.model_selection import ModelChoice

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SuspendedState:
    """The policy and model of a session when it was suspended, for opening it again in the same process."""

    policy: Policy
    model_choice: ModelChoice | None
    state: SessionState
    """The state of its files, which is stored with the first record only: before that, nothing else keeps it."""


def log_unrestored(text: str) -> None:
    """Log what could not be restored, for drivers that cannot show it to the user."""
    logger.warning("%s", text)


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """Options of a driver for restoring a session.

    `report` is called with a sentence for the user for each thing that could not be restored. `persisted_dirs` are the
    additional directories that become part of the session; None means all directories of the settings.
    """

    report: Callable[[str], None] = log_unrestored
    persisted_dirs: Sequence[str] | None = None
    suspended: SuspendedState | None = None


def restore_session(conversation: Conversation, settings: Settings, options: RestoreOptions) -> None:
    """Restore the model and the modes of a session, and store the additional directories of this start with it.

    Subagents that were running when the last process ended are marked as failed. Approvals and stored modes are
    restored earlier, by `build_policy`. Raises StoreFailed.
    """
    files = conversation.files
    if options.suspended is not None:
        _restore_unstored_state(conversation, options.suspended.state)
    persisted = settings.additional_dirs if options.persisted_dirs is None else tuple(options.persisted_dirs)
    save_additional_dirs(conversation.session, settings.model_copy(update={"additional_dirs": persisted}))
    _restore_usage(conversation)
    if files.is_resumed:
        fail_interrupted_subagents(files, conversation.resources.now())
    if options.suspended is not None:
        conversation.permissions.restore_modes(options.suspended.policy)
    if (problem := _restore_model(conversation, settings, options.suspended)) is not None:
        options.report(problem)
    if (owner := dict(settings.adopted_sessions).get(conversation.id)) is not None:
        _tell_directory(conversation, owner, settings.work_dir)


_MOVED: Final = "<system-reminder>\nThis session goes on in another directory."


def _tell_directory(conversation: Conversation, stored: str, work_dir: str) -> None:
    """Tell the model that its system prompt names another directory than the one it works in. Raises StoreFailed."""
    from kimi.domain.content.message import message_text, user_message  # start-up time
    from kimi.domain.tools.tool import escape_host_tags

    paths = escape_host_tags(f"The working directory is now {work_dir}, and no longer {stored}")
    text = f"{_MOVED} {paths}: relative paths and commands are meant from there.\n</system-reminder>"
    told = [found for one in conversation.history.messages if (found := message_text(one)).startswith(_MOVED)]
    if told[-1:] != [text]:
        conversation.context.append(user_message(text))


def capture_state(conversation: Conversation) -> SuspendedState:
    """What the conversation has now that is to be restored when its session is opened again by this process."""
    return SuspendedState(conversation.policy, conversation.models.choice, conversation.files.state)


def _restore_unstored_state(conversation: Conversation, state: SessionState) -> None:
    """Let the first record store the state of a session of which nothing was stored when it was suspended."""
    if conversation.is_empty and conversation.files.state == SessionState():
        conversation.session.update_state(lambda _: state)


def _restore_usage(conversation: Conversation) -> None:
    """Go on counting from what is stored. What nobody has counted has cost something that is not known."""
    stored = conversation.files.state.usage
    if stored is None:
        stored = UsageTotal(calls=sum(message.role == "assistant" for message in conversation.history.messages))
    conversation.models.usage.restore(stored)


def fail_interrupted_subagents(files: SessionFiles, time: float) -> None:
    """Mark the subagents as failed that were running when the last process ended. Raises StoreFailed."""
    agent_ids = files.list_subagent_ids()
    if not agent_ids:
        return
    from kimi.domain.agents.subagent import RUNNING_STATUSES, is_agent_id  # start-up time

    for agent_id in filter(is_agent_id, agent_ids):
        child = files.subagent_files(agent_id)
        if child.record is not None and child.record.status in RUNNING_STATUSES:
            child.save_record(child.record.with_status("failed", time))
        child.close()


def _restore_model(conversation: Conversation, settings: Settings, suspended: SuspendedState | None) -> str | None:
    """Use the model that was chosen for the session; return None, or the reason why it cannot be used.

    A choice made in this process takes precedence over command line flags, and those over a stored choice.
    """
    state = conversation.files.state
    alias, thinking, effort = state.model_alias, state.thinking, state.thinking_effort
    if suspended is not None and suspended.model_choice is not None:
        choice = suspended.model_choice
        alias, thinking, effort = choice.alias, choice.thinking, choice.effort
    elif settings.is_model_requested:
        return None
    elif settings.requested_thinking is not None:
        thinking = settings.requested_thinking
    if alias is None:
        return None
    from kimi.application.control.switch_model import effort_choices, use_model  # start-up time
    from kimi.application.conversation.model_selection import models_by_alias

    try:
        known = models_by_alias(conversation.models.require_catalog())
        if alias not in known:
            return f"The model '{alias}' of this session is no longer configured."
        if effort not in effort_choices(known[alias]):  # the configuration has changed meanwhile
            effort = None
        use_model(conversation, alias, thinking, effort)
    except KimiError as error:
        return str(error)
    return None
