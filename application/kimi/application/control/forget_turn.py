"""Use-case forget-turn: remove the last prompt and its answer from the context (acp spec 1.9, `refusal`)."""

from __future__ import annotations

from kimi.application.conversation.conversation import Conversation
from kimi.domain.history.session import CheckpointRecord


def next_checkpoint_id(conversation: Conversation) -> int:
    """Return the id of the next checkpoint, to be passed to `forget_since_checkpoint` after the prompt."""
    return conversation.history.next_checkpoint


def forget_since_checkpoint(conversation: Conversation, checkpoint_id: int) -> bool:
    """Restore the context to its state before the checkpoint; the event log is unchanged. No turn may be running.

    Return False when the checkpoint no longer exists because the context was compacted or cleared. Raises StoreFailed.
    """
    if CheckpointRecord(checkpoint_id) not in conversation.history.records:
        return False
    conversation.context.replace_history(conversation.history.records_before_checkpoint(checkpoint_id))
    return True
