"""Since which version of the wire protocol its parts exist (wire spec 2.1). Versions are the number after `1.`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NEWEST: Final = 10

METHODS: Final[Mapping[str, int]] = {
    "initialize": 1,
    "prompt": 0,
    "cancel": 0,
    "replay": 3,
    "steer": 4,
    "set_plan_mode": 4,
}
"""The methods, in the order of the documents."""

EVENTS: Final[Mapping[str, int]] = {
    "TurnBegin": 0,
    "TurnEnd": 2,
    "StepBegin": 0,
    "StepInterrupted": 0,
    "StepRetry": 10,
    "SteerInput": 5,
    "CompactionBegin": 0,
    "CompactionEnd": 0,
    "StatusUpdate": 0,
    "MCPLoadingBegin": 4,
    "MCPLoadingEnd": 4,
    "Notification": 6,
    "PlanDisplay": 7,
    "BtwBegin": 9,
    "BtwEnd": 9,
    "ContentPart": 0,
    "ToolCall": 0,
    "ToolCallPart": 0,
    "ToolResult": 0,
    "ApprovalResponse": 0,
    "SubagentEvent": 0,
    "HookTriggered": 7,
    "HookResolved": 7,
    "ApprovalRequest": 0,
    "ToolCallRequest": 1,
    "QuestionRequest": 4,
    "HookRequest": 7,
}
"""The events and requests."""

MEMBERS: Final[Mapping[tuple[str, str], int]] = {
    ("InitializeCall", "capabilities"): 4,
    ("InitializeCall", "hooks"): 7,
    ("InitializeCall", "slash_commands"): 10,
    ("InitializeResult", "capabilities"): 4,
    ("InitializeResult", "hooks"): 7,
    ("OfferedCapabilities", "supports_usage"): 10,
    ("StatusUpdate", "context_tokens"): 4,
    ("StatusUpdate", "max_context_tokens"): 4,
    ("StatusUpdate", "plan_mode"): 4,
    ("StatusUpdate", "mcp_status"): 6,
    ("StatusUpdate", "usage"): 10,
    ("SubagentEvent", "parent_tool_call_id"): 6,
    ("SubagentEvent", "agent_id"): 6,
    ("SubagentEvent", "subagent_type"): 6,
    ("ApprovalRequest", "source_kind"): 6,
    ("ApprovalRequest", "source_id"): 6,
    ("ApprovalRequest", "agent_id"): 6,
    ("ApprovalRequest", "subagent_type"): 6,
    ("ApprovalRequest", "source_description"): 6,
    ("ApprovalResponse", "feedback"): 6,
    ("ApprovalResult", "feedback"): 6,
    ("DiffBlock", "is_summary"): 8,
    ("DiffBlockInput", "is_summary"): 8,
}
"""Members that are younger than the object that they stand in, by its name in the schema."""

RENAMED: Final[Mapping[str, tuple[str, int]]] = {"ApprovalResponse": ("ApprovalRequestResolved", 0)}
"""The old name of an event, and the last version that had it."""


def parse_protocol_version(text: str) -> int | None:
    """Return the number after `1.`; None for anything that is no version of this protocol."""
    major, _, minor = text.partition(".")
    known = major == "1" and minor.isdecimal() and str(int(minor)) == minor and int(minor) <= NEWEST
    return int(minor) if known else None
