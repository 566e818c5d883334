"""`/compact [instruction]`: replace the older part of the context by a summary (runtime spec 5.4, 7.2)."""

from __future__ import annotations

from kimi.application.conversation.conversation import Conversation
from kimi.application.step.compact import compact
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import StatusUpdate

_EMPTY = "The context is empty."
_DONE = "The context has been compacted."


async def compact_context(conversation: Conversation, instruction: str) -> None:
    """Compact now. Raises ModelNotSet, ChatProviderError, StoreFailed; the context is then unchanged."""
    if conversation.history.next_checkpoint == 0:
        await conversation.events.emit(TextPart(_EMPTY))
        return
    model = conversation.models.require_model()
    trigger = "manual-with-prompt" if instruction else "manual"
    await compact(conversation, model, trigger, instruction=instruction)
    await conversation.events.emit(TextPart(_DONE))
    tokens, window = conversation.history.total_tokens, model.context_size
    await conversation.events.emit(
        StatusUpdate(
            context_usage=tokens / window,
            context_tokens=tokens,
            max_context_tokens=window,
            usage=conversation.models.usage.figures,
        )
    )
