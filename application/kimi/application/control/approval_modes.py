"""Use-case: how much a conversation asks, as one choice (acp spec 3.9). Session state, never configuration."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from kimi.application.control.plan_mode import switch_plan_mode
from kimi.application.conversation.conversation import Conversation
from kimi.domain.permissions.approval import Policy

Mode: TypeAlias = Literal["default", "plan", "yolo", "afk"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)


def mode_from_policy(policy: Policy) -> Mode:
    """The mode that a policy amounts to; plan mode counts before the others."""
    if policy.plan:
        return "plan"
    return "afk" if policy.afk else "yolo" if policy.yolo else "default"


def switch_mode(conversation: Conversation, mode: Mode) -> None:
    """Let the conversation ask as much as `mode` says, from the next tool call on.

    Plan mode leaves the approvals as they are, so that they are there again after it. Raises StoreFailed; nothing has
    changed then.
    """
    yolo, afk = mode == "yolo", mode == "afk"
    if mode == "plan":
        if not conversation.policy.plan:
            switch_plan_mode(conversation, True)
    elif conversation.policy.plan:
        switch_plan_mode(conversation, False, yolo=yolo, afk=afk)
    else:
        conversation.permissions.switch_modes(yolo=yolo, afk=afk)
