"""Ask for approvals with `session/request_permission`, and parse the client's answers (acp spec 3.4)."""

from __future__ import annotations

from typing import Any, Final, cast

from kimi.domain.content.message import JsonObject
from kimi.domain.events.request import ApprovalAnswer, ApprovalKind
from kimi.interfaces.acp.updates.result_content import JsonDict

APPROVAL_OPTIONS: Final[list[JsonDict]] = [
    {"optionId": "approve", "name": "Approve once", "kind": "allow_once"},
    {"optionId": "approve_for_session", "name": "Approve for this session", "kind": "allow_always"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
]

_APPROVAL_KINDS: dict[str, ApprovalKind] = {
    "approve": "approve",
    "approve_once": "approve",
    "approve_for_session": "approve_for_session",
    "approve_always": "approve_for_session",
}


def find_selected_option(result: object) -> str | None:
    """Return the chosen option; None for a cancel, an error (`result` is None) or a wrong shape."""
    outcome: Any = cast("JsonObject", result).get("outcome") if isinstance(result, dict) else None
    if not isinstance(outcome, dict):
        return None
    source = cast("JsonObject", outcome)
    option: Any = source.get("optionId")
    return option if source.get("outcome") == "selected" and isinstance(option, str) else None


def parse_approval_answer(result: object) -> ApprovalAnswer:
    """Return the decision in the client's answer; anything but a known approval rejects."""
    return ApprovalAnswer(_APPROVAL_KINDS.get(find_selected_option(result) or "", "reject"))
