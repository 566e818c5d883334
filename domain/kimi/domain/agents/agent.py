"""Agents: what an agent is made of, how agent files inherit (runtime spec 6; tools spec 3).

Pure: reading files and rendering prompts is the business of adapters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypedDict

from kimi.domain.errors import ConfigError

BUILTIN_PROMPT: Final = "builtin:default"
"""Stands for the path of a system prompt: the one that the program brings along."""


def bare_tool_name(tool_id: str) -> str:
    """The last part of a tool's id; of a built-in tool this is its name."""
    return tool_id.rpartition(":")[2]


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


def build_agent_spec(
    declaration: AgentDeclaration, subagents: Mapping[str, SubagentType], builtin_ids: Collection[str]
) -> AgentSpec:
    """The agent that was stated, its subagents loaded. `builtin_ids` are those of all built-in tools.

    Raises ConfigError when something required is missing.
    """
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
        tools=select_tools(tools if allowed is None else allowed, declaration.get("exclude_tools"), builtin_ids),
        prompt_path=prompt_path,
        prompt_args=declaration.get("system_prompt_args", {}),
        model=declaration.get("model"),
        when_to_use=declaration.get("when_to_use", ""),
        subagents={**declaration.get("own_subagents", {}), **subagents},
    )


def select_tools(
    tools: Iterable[str] | None, excluded: Iterable[str] | None, builtin_ids: Collection[str]
) -> tuple[str, ...]:
    """The ids of `tools` in order, each once, without those that are excluded. A bare name in either stands for the
    built-in tool of that name.
    """
    id_by_name = {bare_tool_name(tool_id): tool_id for tool_id in builtin_ids}
    left_out = {id_by_name.get(text, text) for text in excluded or ()}
    selected = (id_by_name.get(text, text) for text in tools or ())
    return tuple(dict.fromkeys(tool_id for tool_id in selected if tool_id not in left_out))


def check_tools(spec: AgentSpec, is_known: Callable[[str], bool]) -> None:
    """Raises ConfigError that names every tool id, of the agent and its subagents, that nothing answers to."""
    named = [*spec.tools, *(one for kind in spec.subagents.values() for one in kind.spec.tools)]
    unknown = [one for one in dict.fromkeys(named) if not is_known(one)]
    if unknown:
        raise ConfigError(f"Invalid tools: {unknown}")
