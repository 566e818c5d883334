"""D-Mail: a message from a model to its earlier self, and when it is refused (runtime spec 5.3, tools spec 3.14)."""

from __future__ import annotations

from dataclasses import dataclass

from kimi.domain.content.message import Message, user_message
from kimi.domain.tools.tool import escape_host_tags

DMAIL_TOOL_NAME = "SendDMail"
"""The name of the tool that sends a D-Mail. The model reads the names of checkpoints only where it has this tool."""

ALREADY_PENDING = "Only one D-Mail can be sent at a time"
NEGATIVE_CHECKPOINT = "The checkpoint ID can not be negative"
UNKNOWN_CHECKPOINT = "There is no checkpoint with the given ID"


@dataclass(frozen=True, slots=True)
class DMail:
    """A message for the conversation as it was before a checkpoint."""

    message: str
    checkpoint_id: int


def check_dmail(pending: DMail | None, checkpoint_id: int, checkpoint_count: int) -> str | None:
    """Return why a D-Mail cannot be sent now, or None if it can.

    Checkpoint ids run from 0 to `checkpoint_count` - 1.
    """
    if pending is not None:
        return ALREADY_PENDING
    if checkpoint_id < 0:
        return NEGATIVE_CHECKPOINT
    return UNKNOWN_CHECKPOINT if checkpoint_id >= checkpoint_count else None


def checkpoint_message(checkpoint_id: int) -> Message:
    """Build the message that names a checkpoint to the model."""
    return user_message(f"<system>CHECKPOINT {checkpoint_id}</system>")


def dmail_message(dmail: DMail) -> Message:
    """Build the message that the model reads at the checkpoint that a D-Mail went back to."""
    return user_message(
        "<system>A D-Mail from your future self has arrived: you went on from here, and what came of it led you to "
        "write this. The conversation is back where it was; files and other effects of your work are not. Use what it "
        "says, and do not mention it to the person.\n\n"
        f"D-Mail content:\n\n{escape_host_tags(dmail.message)}</system>"
    )
