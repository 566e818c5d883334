"""Preparation of the history before the model call of a step (runtime spec 5.1)."""

from __future__ import annotations

from kimi.application.conversation.conversation import Conversation
from kimi.application.step.notifications import notify_model
from kimi.application.step.reminders import add_reminders


async def prepare_step(conversation: Conversation) -> None:
    """Append notifications and reminders to the history before the model sees it. Raises StoreFailed.

    A scratch context is left alone: it is discarded, but what was announced there would count as announced.
    """
    if conversation.context.is_scratch:
        return
    if conversation.toolset.servers is not None:
        from kimi.application.control.mcp_servers import report_server_changes  # start-up time

        await report_server_changes(conversation)
    await notify_model(conversation)
    add_reminders(conversation)
