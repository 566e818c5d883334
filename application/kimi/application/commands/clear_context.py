"""`/clear`: clear the context of the conversation (runtime spec 7.2)."""

from __future__ import annotations

from kimi.application.conversation.conversation import Conversation
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import StatusUpdate
from kimi.domain.history.session import ContextRecord, SystemPromptRecord


async def clear_context(conversation: Conversation, arguments: str) -> None:
    """Remove everything but the system prompt from the context; the old file is kept. Raises StoreFailed."""
    prompt = conversation.history.system_prompt
    records: list[ContextRecord] = [] if prompt is None else [SystemPromptRecord(prompt)]
    conversation.context.replace_history(records)
    await conversation.events.emit(TextPart("The context has been cleared."))
    size = conversation.model.context_size if conversation.model else None
    await conversation.events.emit(StatusUpdate(context_usage=0.0, context_tokens=0, max_context_tokens=size))
