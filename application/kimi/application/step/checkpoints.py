"""Checkpoints of the context, and rewinding to one of them (runtime spec 5.3)."""

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
    """The D-Mail that is delivered at the end of the current step."""

    mail: DMail | None = None


def next_checkpoint_records(conversation: Conversation) -> tuple[ContextRecord, ...]:
    """Return the records of the next checkpoint, with a message for the model if it can rewind to it (R-101)."""
    return _checkpoint_records(conversation, conversation.history.next_checkpoint)


def send_dmail(conversation: Conversation, message: str, checkpoint_id: int) -> str | None:
    """Send a mail that is delivered when all calls of the step are answered.

    Return None, or the reason why the mail is refused.
    """
    if conversation.subagent is not None:
        return UNKNOWN_CHECKPOINT
    mailbox = conversation.feature_states.get(_Mailbox)
    reason = check_dmail(mailbox.mail, checkpoint_id, conversation.history.next_checkpoint)
    if reason is None:
        mailbox.mail = DMail(message, checkpoint_id)
    return reason


def discard_dmail(conversation: Conversation) -> None:
    """Discard the mail of a failed attempt."""
    conversation.feature_states.get(_Mailbox).mail = None


def rewind_if_requested(conversation: Conversation, turn: RunningTurn, *, rejected: bool) -> bool:
    """Rewind the history to the checkpoint that the pending mail names, and append the mail there.

    Return whether the history was rewound. With `rejected`, the user rejected a call of the step and the mail is
    discarded. Raises StoreFailed.
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
