"""Use-case set-mode: switch plan mode on and off (wire spec 3.5, runtime spec 7.6)."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from random import random

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.permissions import ChangeState, keep_state
from kimi.domain.errors import StateError
from kimi.domain.events.event import StatusUpdate
from kimi.domain.history.session import SessionState


@dataclass(slots=True)
class _PlanAnnouncements:
    """Whether client and model must still be notified that plan mode was switched."""

    is_client_due: bool = False
    is_model_due: bool = False


async def set_plan_mode(conversation: Conversation, enabled: bool) -> None:
    """Switch plan mode, store it with the session, and announce it even when nothing changed.

    Raises StateError when there is no directory for plan files, StoreFailed.
    """
    switch_plan_mode(conversation, enabled)
    await announce_plan_mode(conversation)


def switch_plan_mode(
    conversation: Conversation,
    enabled: bool,
    *,
    yolo: bool | None = None,
    afk: bool | None = None,
    edits: bool | None = None,
) -> None:
    """Switch plan mode and store it; the client is notified at the end of the step (wire spec 7.13).

    A tool calls this, so that the client gets the result of the call first. The other modes are switched in the
    same write; None leaves them as they are. Raises StateError when there is no directory for plan files, StoreFailed.
    """
    _require_plans_dir(conversation)
    was_enabled = conversation.policy.plan
    change_state = _make_plan_naming(conversation) if enabled else keep_state
    conversation.permissions.switch_modes(yolo=yolo, afk=afk, edits=edits, plan=enabled, change_state=change_state)
    announcements = conversation.feature_states.get(_PlanAnnouncements)
    announcements.is_client_due = True
    if enabled != was_enabled:
        announcements.is_model_due = enabled


async def announce_plan_mode(conversation: Conversation) -> None:
    """Notify the client whether plan mode is on, if it has not been notified since the last switch."""
    if conversation.feature_states.get(_PlanAnnouncements).is_client_due:
        emit_plan_mode_nowait(conversation)
        await conversation.events.channel.wait_for_capacity()


def emit_plan_mode_nowait(conversation: Conversation) -> None:
    """Notify the client whether plan mode is on, without waiting for the channel. Raises StoreFailed."""
    conversation.feature_states.get(_PlanAnnouncements).is_client_due = False
    conversation.events.emit_nowait(StatusUpdate(plan_mode=conversation.policy.plan))


def take_plan_reminder(conversation: Conversation) -> bool:
    """Return whether the full reminder of plan mode is due, and clear that; it is due once after each switch to on."""
    announcements = conversation.feature_states.get(_PlanAnnouncements)
    is_due, announcements.is_model_due = announcements.is_model_due, False
    return is_due


def resolve_plan_file(conversation: Conversation) -> str:
    """Return the path of the session's plan file, which need not exist.

    The first call stores its name. Raises StateError when there is no directory for plan files, StoreFailed.
    """
    directory = _require_plans_dir(conversation)
    if conversation.files.state.plan_slug is None:
        conversation.session.update_state(_make_plan_naming(conversation))
    return os.path.join(directory, f"{conversation.files.state.plan_slug}.md")


def find_active_plan_file(conversation: Conversation) -> str | None:
    """Return the only file that may be changed in plan mode; None when plan mode is off or has no directory."""
    return (
        resolve_plan_file(conversation)
        if conversation.policy.plan and conversation.resources.plans_dir is not None
        else None
    )


def _require_plans_dir(conversation: Conversation) -> str:
    if conversation.resources.plans_dir is None:
        raise StateError("Plan mode is not supported")
    return conversation.resources.plans_dir


def _make_plan_naming(conversation: Conversation) -> ChangeState:
    """Return the change that names the plan file. The name is kept for the session, so that a restart finds it."""

    def name_plan(state: SessionState) -> SessionState:
        if state.plan_slug is not None:
            return state
        from kimi.domain.agents.plan import new_plan_slug  # start-up time

        session_id = conversation.resources.new_id().replace("-", "")
        return replace(state, plan_slug=new_plan_slug(random), plan_session_id=session_id)

    return name_plan
