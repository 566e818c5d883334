"""Agents: which tools an agent has (runtime spec 6.3, 6.4; tools spec 3)."""

from __future__ import annotations

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
