"""D-Mail: what a model tells its earlier self, and when that is refused (runtime spec 5.3, tools spec 3.14)."""

from __future__ import annotations

from dataclasses import dataclass

from kimi.domain.content.message import Message, user_message

DMAIL_TOOL_NAME = "SendDMail"
"""The tool by which the model sends one; checkpoints are named to the model only where it has it."""

ALREADY_PENDING = "Only one D-Mail can be sent at a time"
NEGATIVE_CHECKPOINT = "The checkpoint ID can not be negative"
UNKNOWN_CHECKPOINT = "There is no checkpoint with the given ID"


@dataclass(frozen=True, slots=True)
class DMail:
    """A message, and the checkpoint before which everything is kept."""

    message: str
    checkpoint_id: int


def check_dmail(pending: DMail | None, checkpoint_id: int, checkpoint_count: int) -> str | None:
    """Why a mail cannot be sent now; None when it can. There are `checkpoints` many, counted from 0."""
    if pending is not None:
        return ALREADY_PENDING
    if checkpoint_id < 0:
        return NEGATIVE_CHECKPOINT
    return UNKNOWN_CHECKPOINT if checkpoint_id >= checkpoint_count else None


def checkpoint_message(checkpoint_id: int) -> Message:
    """How the model is told the name of a checkpoint."""
    return user_message(f"<system>CHECKPOINT {checkpoint_id}</system>")


def dmail_message(dmail: DMail) -> Message:
    """What the earlier self reads."""
    return user_message(
        "<system>A D-Mail from your future self has arrived: you went on from here, and what came of it led you to "
        "write this. The conversation is back where it was; files and other effects of your work are not. Use what it "
        "says, and do not mention it to the person.\n\n"
        f"D-Mail content:\n\n{dmail.message}</system>"
    )
