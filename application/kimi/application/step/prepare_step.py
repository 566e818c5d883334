"""What happens between the beginning of a step and its model call (runtime spec 5.1)."""

from __future__ import annotations

from kimi.application.conversation.conversation import Conversation
from kimi.application.step.notifications import notify_model
from kimi.application.step.reminders import add_reminders


async def prepare_step(conversation: Conversation) -> None:
    """Bring the history into the state in which the model shall see it. Raises StoreFailed.

    A scratch context gets nothing: it will be gone, and what was announced there would count as announced.
    """
    if conversation.context.is_scratch:
        return
    if conversation.toolset.servers is not None:
        from kimi.application.control.mcp_servers import report_server_changes  # start-up time

        await report_server_changes(conversation)
    await notify_model(conversation)
    add_reminders(conversation)
