"""Agents: their specification, and how agent files inherit from each other (runtime spec 6; tools spec 3).

Adapters read the files and render the prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypedDict

from kimi.domain.errors import ConfigError

BUILTIN_PROMPT: Final = "builtin:default"
"""Used as the path of a system prompt; means the built-in system prompt."""


def bare_tool_name(tool_id: str) -> str:
    """Return the last part of a tool's id; for a built-in tool this is its name."""
    return tool_id.rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """The complete specification of an agent.

    `prompt_path` is an absolute path or `BUILTIN_PROMPT`; `prompt_text`, if not None, is the system prompt itself and
    no template. `tools` are ids in the order in which the model sees the tools. `model` is an alias of the
    configuration. With `ask_commands` every command line needs approval unless yolo or afk is on. With `git_context`
    the prompt of a new subagent starts with the state of the repository. An agent `is_read_only` if its role is to look
    and not to act.
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
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class SubagentType:
    """A type of subagent that an agent may start. `description` helps the model to choose a type."""

    description: str
    spec: AgentSpec


class SubagentDeclaration(TypedDict):
    """An entry of `subagents` in an agent file. `path` is absolute."""

    path: str
    description: str


class AgentDeclaration(TypedDict, total=False):
    """The fields of an agent file. Paths are absolute; in the file they are relative to it.

    `subagents` are those of an agent file, `own_subagents` those of a built-in agent.
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
    """Return `base` with the fields of `extension`, which replace those of `base`.

    Only the arguments of the prompt are merged one by one (R-113).
    """
    merged = base | extension
    merged["system_prompt_args"] = {**base.get("system_prompt_args", {}), **extension.get("system_prompt_args", {})}
    if "subagents" in extension:
        merged["own_subagents"] = {}
    return merged


def build_agent_spec(
    declaration: AgentDeclaration, subagents: Mapping[str, SubagentType], builtin_ids: Collection[str]
) -> AgentSpec:
    """Return the specification of a declared agent with these subagents.

    `builtin_ids` are the ids of all built-in tools. Raises ConfigError when a required field is missing.
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
    """Return the ids of `tools` in order, without duplicates and without the excluded ones.

    A bare name in `tools` or `excluded` means the built-in tool of that name.
    """
    id_by_name = {bare_tool_name(tool_id): tool_id for tool_id in builtin_ids}
    left_out = {id_by_name.get(text, text) for text in excluded or ()}
    selected = (id_by_name.get(text, text) for text in tools or ())
    return tuple(dict.fromkeys(tool_id for tool_id in selected if tool_id not in left_out))


def check_tools(spec: AgentSpec, is_known: Callable[[str], bool]) -> None:
    """Check the tools of an agent and its subagents. Raises ConfigError with all ids that are not known."""
    named = [*spec.tools, *(one for kind in spec.subagents.values() for one in kind.spec.tools)]
    unknown = [one for one in dict.fromkeys(named) if not is_known(one)]
    if unknown:
        raise ConfigError(f"Invalid tools: {unknown}")
