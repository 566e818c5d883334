"""Use-case: take the last prompt and what came of it out of the context (acp spec 1.9, `refusal`)."""

from __future__ import annotations

from kimi.application.conversation.conversation import Conversation
from kimi.domain.history.session import CheckpointRecord


def next_mark(conversation: Conversation) -> int:
    """Where the context stands before a prompt, for `forget_since`."""
    return conversation.history.next_checkpoint


def forget_since(conversation: Conversation, mark: int) -> bool:
    """Let the context be what it was at the mark; the event log stays. No turn may be running.

    False when the mark is not there any more: the context was compacted or cleared since. Raises StoreFailed.
    """
    if CheckpointRecord(mark) not in conversation.history.records:
        return False
    conversation.replace_history(conversation.history.before_checkpoint(mark))
    return True
