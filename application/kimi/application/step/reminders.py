"""The reminders that are added to the history before a step: plan mode and away mode (runtime spec 5.5)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from kimi.application.control.plan_mode import find_active_plan_file, take_plan_reminder
from kimi.application.conversation.conversation import Conversation
from kimi.domain.agents.plan import choose_plan_reminder, format_plan_reminder
from kimi.domain.content.message import Message, message_text
from kimi.domain.content.parts import TextPart

logger = logging.getLogger(__name__)

AFK_MARK = "<system-reminder>\nNobody is there."
_AFK_REMINDER = (
    f"{AFK_MARK} The person has switched to away mode: actions are approved, questions get no answer. Decide for "
    "yourself, prefer what can be undone, and say at the end what you decided.\n</system-reminder>"
)


def add_reminders(conversation: Conversation) -> None:
    """Append all due reminders as one user message; a reminder that raises is logged and left out."""
    texts = [text for reminder in _REMINDERS if (text := _try_reminder(reminder, conversation)) is not None]
    if texts:
        conversation.context.append(Message("user", tuple(TextPart(text) for text in texts)))


def _try_reminder(reminder: Callable[[Conversation], str | None], conversation: Conversation) -> str | None:
    try:
        return reminder(conversation)
    except Exception:
        logger.exception("a reminder failed")
        return None


def _plan_reminder(conversation: Conversation) -> str | None:
    path = find_active_plan_file(conversation) if conversation.subagent is None else None
    if path is None:
        return None
    kind = "full" if take_plan_reminder(conversation) else choose_plan_reminder(conversation.history.messages)
    return None if kind is None else format_plan_reminder(kind, path, exists=os.path.exists(path))


def _afk_reminder(conversation: Conversation) -> str | None:
    """Return the reminder if the stored flag is on and the history lacks it; a compaction may have removed it."""
    if conversation.subagent is not None or not (conversation.policy.afk and conversation.files.state.afk):
        return None
    is_already_reminded = any(
        message.role == "user" and AFK_MARK in message_text(message)
        for message in reversed(conversation.history.messages)
    )
    return None if is_already_reminded else _AFK_REMINDER


_REMINDERS: tuple[Callable[[Conversation], str | None], ...] = (_plan_reminder, _afk_reminder)
