"""Use-case set-mode: plan mode on and off (wire spec 3.5, runtime spec 7.6)."""

from __future__ import annotations

import os
from dataclasses import replace
from random import random

from kimi.application.conversation.conversation import Conversation
from kimi.domain.agents.plan import new_plan_slug
from kimi.domain.errors import StateError
from kimi.domain.events.event import StatusUpdate


async def set_plan_mode(conversation: Conversation, enabled: bool) -> None:
    """Switch plan mode, remember it with the session, announce it also when nothing changed.

    Raises StateError where there is no place for plan files, StoreFailed.
    """
    switch_plan_mode(conversation, enabled)
    await announce_plan_mode(conversation)


def switch_plan_mode(conversation: Conversation, enabled: bool) -> None:
    """`set_plan_mode` for a tool: the client is told when the step is over, after its result (wire spec 7.13)."""
    _require_plans_dir(conversation)
    if enabled:
        _ensure_plan_name(conversation)
    conversation.update_state(lambda state: replace(state, plan_mode=enabled))
    if enabled != conversation.policy.plan:
        conversation.is_plan_reminder_due = enabled
    conversation.is_plan_mode_unannounced = True
    conversation.policy = replace(conversation.policy, plan=enabled)


async def announce_plan_mode(conversation: Conversation) -> None:
    """Tell the client whether plan mode is on, if it does not know."""
    if conversation.is_plan_mode_unannounced:
        emit_plan_mode_nowait(conversation)
        await conversation.channel.wait_for_capacity()


def emit_plan_mode_nowait(conversation: Conversation) -> None:
    """Tell the client without waiting for room on the channel. Raises StoreFailed."""
    conversation.is_plan_mode_unannounced = False
    conversation.emit_nowait(StatusUpdate(plan_mode=conversation.policy.plan))


def resolve_plan_file(conversation: Conversation) -> str:
    """The path of the session's plan file; it need not exist. Raises StateError where there is no place for it."""
    directory = _require_plans_dir(conversation)
    _ensure_plan_name(conversation)
    return os.path.join(directory, f"{conversation.files.state.plan_slug}.md")


def find_active_plan_file(conversation: Conversation) -> str | None:
    """The one file that may be changed while plan mode is on; None while it is off, or has no place."""
    return resolve_plan_file(conversation) if conversation.policy.plan and conversation.plans_dir is not None else None


def _require_plans_dir(conversation: Conversation) -> str:
    if conversation.plans_dir is None:
        raise StateError("Plan mode is not supported")
    return conversation.plans_dir


def _ensure_plan_name(conversation: Conversation) -> None:
    """A plan keeps its name for the session, so that a restart finds the file."""
    state = conversation.files.state
    if state.plan_slug is None:
        session_id = conversation.new_id().replace("-", "")
        conversation.update_state(lambda old: replace(old, plan_slug=new_plan_slug(random), plan_session_id=session_id))
