"""Use-case: take the last prompt and what came of it out of the context (acp spec 1.9, `refusal`)."""

from __future__ import annotations

from kimi.application.conversation.conversation import Conversation
from kimi.domain.history.session import CheckpointRecord


def next_checkpoint_id(conversation: Conversation) -> int:
    """Where the context stands before a prompt, for `forget_since_checkpoint`."""
    return conversation.history.next_checkpoint


def forget_since_checkpoint(conversation: Conversation, checkpoint_id: int) -> bool:
    """Let the context be what it was at the mark; the event log stays. No turn may be running.

    False when the mark is not there any more: the context was compacted or cleared since. Raises StoreFailed.
    """
    if CheckpointRecord(checkpoint_id) not in conversation.history.records:
        return False
    conversation.context.replace_history(conversation.history.records_before_checkpoint(checkpoint_id))
    return True
