"""Use-case modes: the approval modes as one choice of session state, never of configuration (acp spec 3.9)."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from kimi.application.control.plan_mode import switch_plan_mode
from kimi.application.conversation.conversation import Conversation
from kimi.domain.permissions.approval import Policy

Mode: TypeAlias = Literal["default", "edits", "plan", "yolo", "afk"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)


def mode_from_policy(policy: Policy) -> Mode:
    """Return the mode that matches a policy; plan mode takes precedence over the others."""
    if policy.plan:
        return "plan"
    if policy.afk or policy.yolo:
        return "afk" if policy.afk else "yolo"
    return "edits" if policy.edits else "default"


def switch_mode(conversation: Conversation, mode: Mode) -> None:
    """Switch to `mode` from the next tool call on.

    Plan mode keeps the others as they are, so that they apply again after it. Raises StoreFailed; nothing has
    changed then.
    """
    yolo, afk, edits = mode == "yolo", mode == "afk", mode == "edits"
    if mode == "plan":
        if not conversation.policy.plan:
            switch_plan_mode(conversation, True)
    elif conversation.policy.plan:
        switch_plan_mode(conversation, False, yolo=yolo, afk=afk, edits=edits)
    else:
        conversation.permissions.switch_modes(yolo=yolo, afk=afk, edits=edits)
