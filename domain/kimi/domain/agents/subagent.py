"""Subagents: the identity of one while it works, and the record that is stored of it (runtime spec 6.6)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from kimi.domain.permissions.approval import ProposedAction


@dataclass(frozen=True, slots=True)
class SubagentIdentity:
    """The identity of a subagent: its id, its type, and the call of the parent that it works for now.

    With `ask_commands` every command line of the subagent is asked about, whatever was approved for the session. With
    `is_read_only` it may not reach the web unless the policy allows that by itself. `task_id` is the id of the
    background task that it runs as, None while the parent's call waits for it.
    """

    agent_id: str
    type: str
    call_id: str
    ask_commands: bool = False
    task_id: str | None = None
    is_read_only: bool = False

    def ignores_remembered_approval(self, proposed_action: ProposedAction) -> bool:
        """Return whether approvals that were given for the session do not count for `proposed_action`."""
        return self.ask_commands and proposed_action.kind == "command"


SubagentStatus: TypeAlias = Literal["idle", "running_foreground", "running_background", "completed", "failed", "killed"]

RUNNING_STATUSES: Final[tuple[SubagentStatus, SubagentStatus]] = ("running_foreground", "running_background")
"""The states of a subagent that works: for a call that waits, and in the background."""

_AGENT_ID: Final = re.compile("a[0-9a-f]{8}")


def is_agent_id(text: str) -> bool:
    """Return whether `text` is a well-formed subagent id. Ids come from the model and become names of directories."""
    return _AGENT_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class SubagentRecord:
    """What is stored of a subagent beside its context (runtime spec 6.6); times are in Unix seconds.

    `model` is the alias that was asked for, None for the model of the subagent's type or of its parent.
    """

    agent_id: str
    type: str
    status: SubagentStatus
    description: str = ""
    model: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0

    def with_status(self, status: SubagentStatus, time: float) -> SubagentRecord:
        """Return the record with a new status, updated at `time`."""
        return replace(self, status=status, updated_at=time)
