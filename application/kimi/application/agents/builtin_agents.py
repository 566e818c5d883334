"""The agents that the program brings along (runtime spec 6.4)."""

from __future__ import annotations

from typing import Final

from kimi.application.agents.system_prompt import CODER_NOTICE, EXPLORE_NOTICE, PLAN_NOTICE
from kimi.domain.agents.agent import BUILTIN_PROMPT, AgentSpec, StatedAgent, SubagentType, built_in, inherited

_READING: Final = built_in("ReadFile", "ReadMediaFile", "Glob", "Grep")
_WRITING: Final = built_in("WriteFile", "StrReplaceFile")
_WEB: Final = built_in("SearchWeb", "FetchURL")

CODER: Final = AgentSpec(
    name="coder",
    tools=(*built_in("Shell"), *_READING, *_WRITING, *_WEB),
    prompt_args={"ROLE_ADDITIONAL": CODER_NOTICE},
)
EXPLORE: Final = AgentSpec(
    name="explore",
    tools=(*built_in("Shell"), *_READING, *_WEB),
    prompt_args={"ROLE_ADDITIONAL": EXPLORE_NOTICE},
    ask_commands=True,
    git_context=True,
)
PLAN: Final = AgentSpec(
    name="plan",
    tools=(*_READING, *_WEB),
    prompt_args={"ROLE_ADDITIONAL": PLAN_NOTICE},
)

SUBAGENTS: Final = {
    "coder": SubagentType("Work on code: changes files, runs commands and checks the outcome.", CODER),
    "explore": SubagentType("Quick search and reading to answer a question about the code; changes nothing.", EXPLORE),
    "plan": SubagentType("Works out how a change is best made; reads only, runs no commands.", PLAN),
}
"""The types of subagents of the built-in agents."""

DEFAULT_TOOLS: Final = (
    *built_in("Agent", "AskUserQuestion", "SetTodoList", "Shell", "TaskList", "TaskOutput", "TaskStop"),
    *_READING,
    *_WRITING,
    *_WEB,
    *built_in("ExitPlanMode", "EnterPlanMode"),
)
"""The tools of the default agent, in the order in which the model sees them; stable for its prompt cache."""

_DEFAULT: Final[StatedAgent] = {
    "name": "default",
    "system_prompt_path": BUILTIN_PROMPT,
    "system_prompt_args": {},
    "tools": list(DEFAULT_TOOLS),
    "own_subagents": SUBAGENTS,
}
_OKABE: Final[StatedAgent] = {"name": "okabe", "tools": [*DEFAULT_TOOLS, *built_in("SendDMail")]}

BUILTIN_AGENTS: Final[dict[str, StatedAgent]] = {"default": _DEFAULT, "okabe": inherited(_DEFAULT, _OKABE)}
"""What each built-in agent states, for `--agent` and for `extend`."""
