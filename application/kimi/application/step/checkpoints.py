"""Checkpoints, and the way back to one of them (runtime spec 5.3)."""

from __future__ import annotations

from dataclasses import dataclass

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.running_turn import RunningTurn
from kimi.domain.agents.dmail import (
    DMAIL_TOOL_NAME,
    UNKNOWN_CHECKPOINT,
    DMail,
    check_dmail,
    checkpoint_message,
    dmail_message,
)
from kimi.domain.history.session import CheckpointRecord, ContextRecord
from kimi.domain.tools.repeat_guard import RepeatGuard


@dataclass(slots=True)
class _Mailbox:
    """The mail that waits for the end of its step."""

    mail: DMail | None = None


def next_checkpoint_records(conversation: Conversation) -> tuple[ContextRecord, ...]:
    """The records of the next checkpoint; the model is told of it when it can go back to it (R-101)."""
    return _checkpoint_records(conversation, conversation.history.next_checkpoint)


def send_dmail(conversation: Conversation, message: str, checkpoint_id: int) -> str | None:
    """Send a mail that arrives when all calls of the step are answered; return why it is refused, if it is."""
    if conversation.subagent is not None:
        return UNKNOWN_CHECKPOINT
    mailbox = conversation.feature_states.get(_Mailbox)
    reason = check_dmail(mailbox.mail, checkpoint_id, conversation.history.next_checkpoint)
    if reason is None:
        mailbox.mail = DMail(message, checkpoint_id)
    return reason


def discard_dmail(conversation: Conversation) -> None:
    """Throw away a mail that an attempt has left which failed."""
    conversation.feature_states.get(_Mailbox).mail = None


def rewind_if_requested(conversation: Conversation, turn: RunningTurn, *, rejected: bool) -> bool:
    """Go back to the checkpoint that a mail names, and let the mail be read there; return whether there was one.

    A mail from a step in which the user `rejected` a call is thrown away. Raises StoreFailed.
    """
    mailbox = conversation.feature_states.get(_Mailbox)
    mail, mailbox.mail = mailbox.mail, None
    if mail is None or rejected:
        return False
    kept = conversation.history.records_before_checkpoint(mail.checkpoint_id)
    conversation.context.replace_history(
        [*kept, *_checkpoint_records(conversation, mail.checkpoint_id), dmail_message(mail)]
    )
    turn.repeat_guard = RepeatGuard()
    return True


def _checkpoint_records(conversation: Conversation, checkpoint_id: int) -> tuple[ContextRecord, ...]:
    record = CheckpointRecord(checkpoint_id)
    named = (
        conversation.subagent is None
        and DMAIL_TOOL_NAME in conversation.toolset.builtin_names - conversation.toolset.hidden_names
    )
    return (record, checkpoint_message(checkpoint_id)) if named else (record,)
