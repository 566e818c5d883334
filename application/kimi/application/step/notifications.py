"""Use-case notifications: model and client are told once of the end of each background task (runtime spec 7.8)."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import anyio.lowlevel

from kimi.application.conversation.conversation import Conversation
from kimi.application.hooks.hook_points import fire_notification_hooks
from kimi.domain.background import BackgroundTask, build_task_notification, format_notification, take_tail
from kimi.domain.content.message import user_message
from kimi.domain.errors import StoreFailed

logger = logging.getLogger(__name__)

MAX_MODEL_NOTIFICATIONS = 4
"""Tasks that the model is told of before a step, at most."""

MAX_CLIENT_NOTIFICATIONS = 8
"""Tasks that the client is told of at a time, at most."""

POLL_INTERVAL_S = 1.0
"""Seconds from one look for the client to the next, while a turn runs."""


async def notify_model(conversation: Conversation) -> None:
    """Append a message for each task that has ended and that the model does not know of. Raises StoreFailed."""
    tasks = conversation.resources.background.tasks
    for task in tasks.find_unannounced("llm")[:MAX_MODEL_NOTIFICATIONS] if tasks else ():
        assert tasks is not None
        notification = build_task_notification(task)
        conversation.context.append(
            user_message(format_notification(notification, _read_output_tail(conversation, task)))
        )
        tasks.mark_announced(task.id, "llm")
        await fire_notification_hooks(conversation, notification, "llm")


async def notify_client(conversation: Conversation) -> None:
    """Emit a Notification for each task that has ended and that the client does not know of. Raises StoreFailed.

    Only while a turn is open: between turns clients expect none (wire spec 4.2).
    """
    tasks = conversation.resources.background.tasks
    for task in tasks.find_unannounced("wire")[:MAX_CLIENT_NOTIFICATIONS] if tasks else ():
        assert tasks is not None
        notification = build_task_notification(task)
        conversation.events.emit_nowait(notification)  # with the next line one step: several may look at a time
        tasks.mark_announced(task.id, "wire")
        await conversation.events.channel.wait_for_capacity()
        await fire_notification_hooks(conversation, notification, "wire")


@contextmanager
def watch_background_tasks(conversation: Conversation) -> Generator[None, None, None]:
    """Look for news every second while the context is open; where nothing can run beside the turn, not at all."""
    group = conversation.resources.hooks.task_group
    if group is None or not conversation.resources.background.is_available:
        yield
        return
    scope = anyio.CancelScope()
    group.start_soon(_poll_notifications, conversation, scope)
    try:
        yield
    finally:
        scope.cancel()


async def _poll_notifications(conversation: Conversation, scope: anyio.CancelScope) -> None:
    with scope:
        await anyio.lowlevel.checkpoint()
        while not scope.cancel_called:
            try:
                await notify_client(conversation)
            except StoreFailed:
                logger.exception("a notification could not be stored")
            await anyio.sleep(POLL_INTERVAL_S)


def _read_output_tail(conversation: Conversation, task: BackgroundTask) -> str:
    """The end of what the task has written, as much as the model gets to read unasked."""
    tasks, settings = conversation.resources.background.tasks, conversation.resources.background.settings
    text = tasks.read_output(task.id, settings.read_max_bytes).text if tasks else ""
    return take_tail(text, settings.notification_tail_lines, settings.notification_tail_chars)
