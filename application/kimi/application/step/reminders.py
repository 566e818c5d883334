"""What is added to the history before a step: reminders of plan mode and of absence (runtime spec 5.5)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from kimi.application.control.plan_mode import active_plan_file
from kimi.application.conversation.conversation import Conversation
from kimi.domain.agents.plan import reminder_due, reminder_text
from kimi.domain.content.message import Message, message_text
from kimi.domain.content.parts import TextPart

logger = logging.getLogger(__name__)

AFK_MARK = "<system-reminder>\nNobody is there."
_AFK = (
    f"{AFK_MARK} The person has switched to away mode: actions are approved, questions get no answer. Decide for "
    "yourself, prefer what can be undone, and say at the end what you decided.\n</system-reminder>"
)


def add_reminders(conversation: Conversation) -> None:
    """Append all reminders that are due as one user message; one that fails is logged and left out."""
    texts = [text for due in _REMINDERS if (text := _attempted(due, conversation)) is not None]
    if texts:
        conversation.append(Message("user", tuple(TextPart(text) for text in texts)))


def _attempted(due: Callable[[Conversation], str | None], conversation: Conversation) -> str | None:
    try:
        return due(conversation)
    except Exception:
        logger.exception("a reminder failed")
        return None


def _plan(conversation: Conversation) -> str | None:
    path = active_plan_file(conversation) if conversation.subagent is None else None
    if path is None:
        return None
    kind = "full" if conversation.plan_reminder_is_owed else reminder_due(conversation.history.messages)
    conversation.plan_reminder_is_owed = False
    return None if kind is None else reminder_text(kind, path, exists=os.path.exists(path))


def _afk(conversation: Conversation) -> str | None:
    """Once while the stored flag is on; again when a compaction has taken the reminder away."""
    if conversation.subagent is not None or not (conversation.policy.afk and conversation.files.state.afk):
        return None
    said = any(
        message.role == "user" and AFK_MARK in message_text(message)
        for message in reversed(conversation.history.messages)
    )
    return None if said else _AFK


_REMINDERS: tuple[Callable[[Conversation], str | None], ...] = (_plan, _afk)
