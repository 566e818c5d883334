"""Agents: which tools an agent has (runtime spec 6.3, 6.4; tools spec 3)."""

from __future__ import annotations

from dataclasses import dataclass

from kimi.domain.approval import Effect

DEFAULT_TOOLS = (
    "kimi_cli.tools.todo:SetTodoList",
    "kimi_cli.tools.shell:Shell",
    "kimi_cli.tools.file:ReadFile",
    "kimi_cli.tools.file:Glob",
    "kimi_cli.tools.file:Grep",
    "kimi_cli.tools.file:WriteFile",
    "kimi_cli.tools.file:StrReplaceFile",
)
"""The tools of the default agent, in the order in which the model sees them; stable for its prompt cache."""


@dataclass(frozen=True, slots=True)
class Subagent:
    """Who a subagent is: its instance, its type, and the call of the parent that it works for now.

    `ask_commands` makes every command line of it a question, whatever was approved for the session.
    """

    agent_id: str
    type: str
    call_id: str
    ask_commands: bool = False

    def asks_for(self, effect: Effect) -> bool:
        """Is this an effect for which standing approvals do not count?"""
        return self.ask_commands and effect.kind == "command"
