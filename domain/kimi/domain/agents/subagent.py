"""Subagents: who one is while it works, what is kept of it (runtime spec 6.6)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from kimi.domain.permissions.approval import ProposedAction


@dataclass(frozen=True, slots=True)
class SubagentIdentity:
    """Who a subagent is: its instance, its type, and the call of the parent that it works for now.

    `ask_commands` makes every command line of it a question, whatever was approved for the session. `task_id` is the
    background task that it is, None while its call waits for it.
    """

    agent_id: str
    type: str
    call_id: str
    ask_commands: bool = False
    task_id: str | None = None

    def ignores_remembered_approval(self, proposed_action: ProposedAction) -> bool:
        """Is this an effect for which standing approvals do not count?"""
        return self.ask_commands and proposed_action.kind == "command"


SubagentStatus: TypeAlias = Literal["idle", "running_foreground", "running_background", "completed", "failed", "killed"]

RUNNING_STATUSES: Final[tuple[SubagentStatus, SubagentStatus]] = ("running_foreground", "running_background")
"""The states of a subagent that works: for a call that waits, and in the background."""

_AGENT_ID: Final = re.compile("a[0-9a-f]{8}")


def is_agent_id(text: str) -> bool:
    """Can `text` name an instance? Ids come from the model, and they are names of directories."""
    return _AGENT_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class SubagentRecord:
    """What is stored of an instance beside its context (runtime spec 6.6); times are in Unix seconds.

    `model` is the alias that was asked for, None for the one of its type or its parent.
    """

    agent_id: str
    type: str
    status: SubagentStatus
    description: str = ""
    model: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0

    def with_status(self, status: SubagentStatus, time: float) -> SubagentRecord:
        """The record after a change of state."""
        return replace(self, status=status, updated_at=time)
