"""The agents that the program brings along (runtime spec 6.4)."""

from __future__ import annotations

from typing import Final

from kimi.application.agents.system_prompt import CODER_NOTICE, EXPLORE_NOTICE, PLAN_NOTICE
from kimi.domain.agents.agent import (
    BUILTIN_PROMPT,
    AgentDeclaration,
    AgentSpec,
    SubagentType,
    builtin_tool_ids,
    extend_agent,
)

_READ_TOOLS: Final = builtin_tool_ids("ReadFile", "ReadMediaFile", "Glob", "Grep")
_WRITE_TOOLS: Final = builtin_tool_ids("WriteFile", "StrReplaceFile")
_WEB_TOOLS: Final = builtin_tool_ids("SearchWeb", "FetchURL")

CODER: Final = AgentSpec(
    name="coder",
    tools=(*builtin_tool_ids("Shell"), *_READ_TOOLS, *_WRITE_TOOLS, *_WEB_TOOLS),
    prompt_args={"ROLE_ADDITIONAL": CODER_NOTICE},
)
EXPLORE: Final = AgentSpec(
    name="explore",
    tools=(*builtin_tool_ids("Shell"), *_READ_TOOLS, *_WEB_TOOLS),
    prompt_args={"ROLE_ADDITIONAL": EXPLORE_NOTICE},
    ask_commands=True,
    git_context=True,
)
PLAN: Final = AgentSpec(
    name="plan",
    tools=(*_READ_TOOLS, *_WEB_TOOLS),
    prompt_args={"ROLE_ADDITIONAL": PLAN_NOTICE},
)

SUBAGENT_TYPES: Final = {
    "coder": SubagentType("Work on code: changes files, runs commands and checks the outcome.", CODER),
    "explore": SubagentType("Quick search and reading to answer a question about the code; changes nothing.", EXPLORE),
    "plan": SubagentType("Works out how a change is best made; reads only, runs no commands.", PLAN),
}
"""The types of subagents of the built-in agents."""

DEFAULT_TOOLS: Final = (
    *builtin_tool_ids("Agent", "AskUserQuestion", "SetTodoList", "Shell", "TaskList", "TaskOutput", "TaskStop"),
    *_READ_TOOLS,
    *_WRITE_TOOLS,
    *_WEB_TOOLS,
    *builtin_tool_ids("ExitPlanMode", "EnterPlanMode"),
)
"""The tools of the default agent, in the order in which the model sees them; stable for its prompt cache."""

_DEFAULT_AGENT: Final[AgentDeclaration] = {
    "name": "default",
    "system_prompt_path": BUILTIN_PROMPT,
    "system_prompt_args": {},
    "tools": list(DEFAULT_TOOLS),
    "own_subagents": SUBAGENT_TYPES,
}
_OKABE_AGENT: Final[AgentDeclaration] = {"name": "okabe", "tools": [*DEFAULT_TOOLS, *builtin_tool_ids("SendDMail")]}

BUILTIN_AGENTS: Final[dict[str, AgentDeclaration]] = {
    "default": _DEFAULT_AGENT,
    "okabe": extend_agent(_DEFAULT_AGENT, _OKABE_AGENT),
}
"""What each built-in agent states, for `--agent` and for `extend`."""
