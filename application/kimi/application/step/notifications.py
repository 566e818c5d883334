"""Use-case notifications: model and client are told once of the end of each background task (runtime spec 7.8)."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import anyio.lowlevel

from kimi.application.conversation.conversation import Conversation
from kimi.application.hooks.hook_points import notified
from kimi.domain.background import BackgroundTask, last_part, notification_text, task_notification
from kimi.domain.content.message import user_message
from kimi.domain.errors import StoreFailed

logger = logging.getLogger(__name__)

MODEL_LIMIT = 4
"""Tasks that the model is told of before a step, at most."""

CLIENT_LIMIT = 8
"""Tasks that the client is told of at a time, at most."""

POLL_S = 1.0
"""Seconds from one look for the client to the next, while a turn runs."""


async def tell_model(conversation: Conversation) -> None:
    """Append a message for each task that has ended and that the model does not know of. Raises StoreFailed."""
    tasks = conversation.background.tasks
    for task in tasks.unannounced("llm")[:MODEL_LIMIT] if tasks else ():
        assert tasks is not None
        notification = task_notification(task)
        conversation.append(user_message(notification_text(notification, _tail(conversation, task))))
        tasks.announced(task.id, "llm")
        await notified(conversation, notification, "llm")


async def tell_client(conversation: Conversation) -> None:
    """Emit a Notification for each task that has ended and that the client does not know of. Raises StoreFailed.

    Only while a turn is open: between turns clients expect none (wire spec 4.2).
    """
    tasks = conversation.background.tasks
    for task in tasks.unannounced("wire")[:CLIENT_LIMIT] if tasks else ():
        assert tasks is not None
        notification = task_notification(task)
        conversation.post(notification)  # with the next line one step: several may look at a time
        tasks.announced(task.id, "wire")
        await conversation.channel.room()
        await notified(conversation, notification, "wire")


@contextmanager
def telling_client(conversation: Conversation) -> Generator[None, None, None]:
    """Look for news every second while the context is open; where nothing can run beside the turn, not at all."""
    group = conversation.hooks.tasks
    if group is None or not conversation.background.available:
        yield
        return
    scope = anyio.CancelScope()
    group.start_soon(_keep_telling, conversation, scope)
    try:
        yield
    finally:
        scope.cancel()


async def _keep_telling(conversation: Conversation, scope: anyio.CancelScope) -> None:
    with scope:
        await anyio.lowlevel.checkpoint()
        while not scope.cancel_called:
            try:
                await tell_client(conversation)
            except StoreFailed:
                logger.exception("a notification could not be stored")
            await anyio.sleep(POLL_S)


def _tail(conversation: Conversation, task: BackgroundTask) -> str:
    """The end of what the task has written, as much as the model gets to read unasked."""
    tasks, settings = conversation.background.tasks, conversation.background.settings
    text = tasks.output(task.id, settings.read_max_bytes).text if tasks else ""
    return last_part(text, settings.notification_tail_lines, settings.notification_tail_chars)
