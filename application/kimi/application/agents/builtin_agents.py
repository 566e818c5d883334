"""The built-in agents (runtime spec 6.4)."""

from __future__ import annotations

from typing import Final

from kimi.application.agents.system_prompt import CODER_NOTICE, EXPLORE_NOTICE, PLAN_NOTICE
from kimi.domain.agents.agent import (
    BUILTIN_PROMPT,
    AgentDeclaration,
    AgentSpec,
    SubagentType,
    build_agent_spec,
    extend_agent,
)

_SHELL: Final = "kimi_cli.tools.shell:Shell"
_READ_TOOLS: Final = (
    "kimi_cli.tools.file:ReadFile",
    "kimi_cli.tools.file:ReadMediaFile",
    "kimi_cli.tools.file:Glob",
    "kimi_cli.tools.file:Grep",
)
_WRITE_TOOLS: Final = ("kimi_cli.tools.file:WriteFile", "kimi_cli.tools.file:StrReplaceFile")
_WEB_TOOLS: Final = ("kimi_cli.tools.web:SearchWeb", "kimi_cli.tools.web:FetchURL")

CODER: Final = AgentSpec(
    name="coder",
    tools=(_SHELL, *_READ_TOOLS, *_WRITE_TOOLS, *_WEB_TOOLS),
    prompt_args={"ROLE_ADDITIONAL": CODER_NOTICE},
)
EXPLORE: Final = AgentSpec(
    name="explore",
    tools=(_SHELL, *_READ_TOOLS, *_WEB_TOOLS),
    prompt_args={"ROLE_ADDITIONAL": EXPLORE_NOTICE},
    ask_commands=True,
    git_context=True,
    is_read_only=True,
)
PLAN: Final = AgentSpec(
    name="plan",
    tools=(*_READ_TOOLS, *_WEB_TOOLS),
    prompt_args={"ROLE_ADDITIONAL": PLAN_NOTICE},
    is_read_only=True,
)

SUBAGENT_TYPES: Final = {
    "coder": SubagentType("Work on code: changes files, runs commands and checks the outcome.", CODER),
    "explore": SubagentType("Quick search and reading to answer a question about the code; changes nothing.", EXPLORE),
    "plan": SubagentType("Works out how a change is best made; reads only, runs no commands.", PLAN),
}
"""The types of subagents of the built-in agents."""

DEFAULT_TOOLS: Final = (
    "kimi_cli.tools.agent:Agent",
    "kimi_cli.tools.ask_user:AskUserQuestion",
    "kimi_cli.tools.todo:SetTodoList",
    _SHELL,
    "kimi_cli.tools.background:TaskList",
    "kimi_cli.tools.background:TaskOutput",
    "kimi_cli.tools.background:TaskStop",
    *_READ_TOOLS,
    *_WRITE_TOOLS,
    *_WEB_TOOLS,
    "kimi_cli.tools.plan:ExitPlanMode",
    "kimi_cli.tools.plan.enter:EnterPlanMode",
)
"""The tools of the default agent, in the order in which the model sees them; stable for its prompt cache."""

_DEFAULT_AGENT: Final[AgentDeclaration] = {
    "name": "default",
    "system_prompt_path": BUILTIN_PROMPT,
    "system_prompt_args": {},
    "tools": list(DEFAULT_TOOLS),
    "own_subagents": SUBAGENT_TYPES,
}
_OKABE_AGENT: Final[AgentDeclaration] = {
    "name": "okabe",
    "tools": [*DEFAULT_TOOLS, "kimi_cli.tools.dmail:SendDMail"],
}

BUILTIN_AGENTS: Final[dict[str, AgentDeclaration]] = {
    "default": _DEFAULT_AGENT,
    "okabe": extend_agent(_DEFAULT_AGENT, _OKABE_AGENT),
}
"""The declaration of each built-in agent, for `--agent` and for `extend`."""


def build_builtin_agent(name: str) -> AgentSpec:
    """Return the built-in agent of this name. Raises KeyError."""
    return build_agent_spec(BUILTIN_AGENTS[name], {}, ())
