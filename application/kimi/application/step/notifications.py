"""Use-case notifications: notify model and client once of the end of each background task (runtime spec 7.8)."""

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
"""The maximum number of tasks that the model is notified of before a step."""

MAX_CLIENT_NOTIFICATIONS = 8
"""The maximum number of tasks that the client is notified of at a time."""

POLL_INTERVAL_S = 1.0
"""Seconds between two checks for the client while a turn runs."""


async def notify_model(conversation: Conversation) -> None:
    """Append a message for each task that has ended and that the model was not notified of. Raises StoreFailed."""
    tasks = conversation.resources.background.tasks
    for task in tasks.find_unannounced("llm")[:MAX_MODEL_NOTIFICATIONS] if tasks else ():
        assert tasks is not None
        notification = build_task_notification(task)
        conversation.context.append(
            user_message(format_notification(notification, _read_output_tail(conversation, task)))
        )
        tasks.mark_announced(task.id, "llm")  # after the message is stored, and before the hooks can be cancelled
        await fire_notification_hooks(conversation, notification, "llm")


async def notify_client(conversation: Conversation) -> None:
    """Emit a Notification for each task that has ended and that the client was not notified of. Raises StoreFailed.

    Must be called while a turn is open: clients expect no notifications between turns (wire spec 4.2).
    """
    tasks = conversation.resources.background.tasks
    for task in tasks.find_unannounced("wire")[:MAX_CLIENT_NOTIFICATIONS] if tasks else ():
        assert tasks is not None
        notification = build_task_notification(task)
        # No await between these two lines: the poll and the end of the turn may run this function at the same time,
        # and the client must get the notification once.
        conversation.events.emit_nowait(notification)
        tasks.mark_announced(task.id, "wire")
        await conversation.events.channel.wait_for_capacity()
        await fire_notification_hooks(conversation, notification, "wire")


@contextmanager
def watch_background_tasks(conversation: Conversation) -> Generator[None, None, None]:
    """Notify the client every `POLL_INTERVAL_S` seconds while the context is open.

    Does nothing where there is no task group for the poll, or no background tasks.
    """
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
        # The scope may have been cancelled before this task first ran: then no notification may follow.
        await anyio.lowlevel.checkpoint()
        while not scope.cancel_called:
            try:
                await notify_client(conversation)
            except StoreFailed:
                logger.exception("a notification could not be stored")
            await anyio.sleep(POLL_INTERVAL_S)


def _read_output_tail(conversation: Conversation, task: BackgroundTask) -> str:
    """Return the end of the task's output, as much as a notification may hold."""
    tasks, settings = conversation.resources.background.tasks, conversation.resources.background.settings
    text = tasks.read_output(task.id, settings.read_max_bytes).text if tasks else ""
    return take_tail(text, settings.notification_tail_lines, settings.notification_tail_chars)
