"""Checkpoints, and the way back to one of them (runtime spec 5.3)."""

from __future__ import annotations

from kimi.application.conversation.conversation import Conversation
from kimi.domain.agents.dmail import NO_CHECKPOINT, TOOL, DMail, checkpoint_message, mail_message, refusal
from kimi.domain.history.session import CheckpointRecord, ContextRecord
from kimi.domain.tools.repeat_guard import RepeatGuard


def checkpoint(conversation: Conversation) -> tuple[ContextRecord, ...]:
    """The records of the next checkpoint; the model is told of it when it can go back to it (R-101)."""
    return _checkpoint(conversation, conversation.history.next_checkpoint)


def send_dmail(conversation: Conversation, message: str, checkpoint_id: int) -> str | None:
    """Send a mail that arrives when all calls of the step are answered; gives why it is refused."""
    if conversation.subagent is not None:
        return NO_CHECKPOINT
    reason = refusal(conversation.mail, checkpoint_id, conversation.history.next_checkpoint)
    if reason is None:
        conversation.mail = DMail(message, checkpoint_id)
    return reason


def rewind_if_due(conversation: Conversation, *, rejected: bool) -> bool:
    """Go back to the checkpoint that a mail names, and let the mail be read there; gives whether there was one.

    A mail from a step in which the person `rejected` a call is thrown away. Raises StoreFailed.
    """
    mail, conversation.mail = conversation.mail, None
    if mail is None or rejected:
        return False
    kept = conversation.history.before_checkpoint(mail.checkpoint_id)
    conversation.replace_history([*kept, *_checkpoint(conversation, mail.checkpoint_id), mail_message(mail)])
    conversation.repeats = RepeatGuard()
    return True


def _checkpoint(conversation: Conversation, checkpoint_id: int) -> tuple[ContextRecord, ...]:
    record = CheckpointRecord(checkpoint_id)
    named = conversation.subagent is None and TOOL in conversation.toolset.builtin_names - conversation.toolset.hidden
    return (record, checkpoint_message(checkpoint_id)) if named else (record,)
