"""Agents: what an agent is made of, how agent files inherit (runtime spec 6; tools spec 3).

Pure: reading files and rendering prompts is the business of adapters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypedDict

from kimi.domain.errors import ConfigError

_TOOL_ID_PREFIX: Final = "kimi_cli.tools."

KNOWN_TOOLS: Final = tuple(
    _TOOL_ID_PREFIX + path
    for path in (
        "agent:Agent",
        "multiagent:Task",
        "multiagent:CreateSubagent",
        "dmail:SendDMail",
        "think:Think",
        "ask_user:AskUserQuestion",
        "todo:SetTodoList",
        "shell:Shell",
        "background:TaskList",
        "background:TaskOutput",
        "background:TaskStop",
        "file:ReadFile",
        "file:ReadMediaFile",
        "file:Glob",
        "file:Grep",
        "file:WriteFile",
        "file:StrReplaceFile",
        "web:SearchWeb",
        "web:FetchURL",
        "plan:ExitPlanMode",
        "plan.enter:EnterPlanMode",
    )
)
"""The ids of all built-in tools (tools spec 7.2). They are identifiers: nothing is imported from them."""

_ID_BY_CLASS_NAME: Final = {tool_id.rpartition(":")[2]: tool_id for tool_id in KNOWN_TOOLS}


def resolve_tool_id(text: str) -> str:
    """The id that an agent file means: a bare class name stands for the built-in tool of that name."""
    return _ID_BY_CLASS_NAME.get(text, text)


def builtin_tool_ids(*names: str) -> tuple[str, ...]:
    """The ids of built-in tools by their bare names. Raises KeyError."""
    return tuple(_ID_BY_CLASS_NAME[name] for name in names)


BUILTIN_PROMPT: Final = "builtin:default"
"""Stands for the path of a system prompt: the one that the program brings along."""


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """An agent, complete.

    `prompt_path` is an absolute path or `BUILTIN_PROMPT`; `prompt_text`, if not None, is the system prompt itself and
    no template. `tools` are ids in the order in which the model sees the tools. `model` is an alias of the
    configuration. `ask_commands` makes every command line a question unless yolo or afk is on; `git_context` gives a
    new instance the state of the repository.
    """

    name: str
    tools: tuple[str, ...]
    prompt_path: str = BUILTIN_PROMPT
    prompt_text: str | None = None
    prompt_args: Mapping[str, str] = field(default_factory=dict[str, str])
    model: str | None = None
    when_to_use: str = ""
    subagents: Mapping[str, SubagentType] = field(default_factory=dict[str, "SubagentType"])
    ask_commands: bool = False
    git_context: bool = False


@dataclass(frozen=True, slots=True)
class SubagentType:
    """A kind of subagent that an agent may start; `description` is for the model that chooses."""

    description: str
    spec: AgentSpec


class SubagentDeclaration(TypedDict):
    """An entry of `subagents`: an absolute path and a description."""

    path: str
    description: str


class AgentDeclaration(TypedDict, total=False):
    """What an agent file states. Paths are absolute: they were relative to the file that stated them.

    `own_subagents` are those of built-in agents; a file states `subagents`.
    """

    name: str
    system_prompt_path: str
    system_prompt_args: dict[str, str]
    tools: list[str] | None
    allowed_tools: list[str] | None
    exclude_tools: list[str] | None
    model: str
    when_to_use: str
    subagents: dict[str, SubagentDeclaration] | None
    own_subagents: Mapping[str, SubagentType]


def extend_agent(base: AgentDeclaration, extension: AgentDeclaration) -> AgentDeclaration:
    """What holds when `own` extends `base`: each stated field replaces the base's, only the arguments of the prompt
    are merged one by one (R-113).
    """
    merged = base | extension
    merged["system_prompt_args"] = {**base.get("system_prompt_args", {}), **extension.get("system_prompt_args", {})}
    if "subagents" in extension:
        merged["own_subagents"] = {}
    return merged


def build_agent_spec(declaration: AgentDeclaration, subagents: Mapping[str, SubagentType]) -> AgentSpec:
    """The agent that was stated, its subagents loaded. Raises ConfigError when something required is missing."""
    name, prompt_path, tools = declaration.get("name"), declaration.get("system_prompt_path"), declaration.get("tools")
    if not name:
        raise ConfigError("Agent name is required")
    if not prompt_path:
        raise ConfigError("System prompt path is required")
    allowed = declaration.get("allowed_tools")
    if tools is None and allowed is None:
        raise ConfigError("Tools are required")
    return AgentSpec(
        name=name,
        tools=select_tools(tools if allowed is None else allowed, declaration.get("exclude_tools")),
        prompt_path=prompt_path,
        prompt_args=declaration.get("system_prompt_args", {}),
        model=declaration.get("model"),
        when_to_use=declaration.get("when_to_use", ""),
        subagents={**declaration.get("own_subagents", {}), **subagents},
    )


def select_tools(tools: Iterable[str] | None, excluded: Iterable[str] | None) -> tuple[str, ...]:
    """The ids of `tools` in order, each once, without those that are excluded."""
    out = {resolve_tool_id(text) for text in excluded or ()}
    return tuple(dict.fromkeys(found for text in tools or () if (found := resolve_tool_id(text)) not in out))


def check_tools(spec: AgentSpec, is_known: Callable[[str], bool]) -> None:
    """Raises ConfigError that names every tool id, of the agent and its subagents, that nothing answers to."""
    named = [*spec.tools, *(one for kind in spec.subagents.values() for one in kind.spec.tools)]
    unknown = [one for one in dict.fromkeys(named) if not is_known(one)]
    if unknown:
        raise ConfigError(f"Invalid tools: {unknown}")
