"""Compose tools by their ids, built-in and foreign ones (tools spec 1.2, 7.2).

The table of built-in tools is `SessionContainer.builtin_tools`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kimi.application.agents.builtin_agents import build_builtin_agent
from kimi.application.ports import MakeTool, ThirdPartyTool, Tool, Workspace
from kimi.application.settings.settings import Settings
from kimi.application.toolset.toolset import TOOL_NAME_PATTERN, Toolset
from kimi.domain.agents.agent import AgentSpec, check_tools
from kimi.domain.content.message import JsonObject
from kimi.domain.errors import ConfigError
from kimi.domain.tools.tool import ToolSpec
from kimi.interfaces.bootstrap.injector import providers


@dataclass(frozen=True, slots=True)
class BuiltinTool:
    """A row of the table of built-in tools. The id is a name: nothing is imported from it.

    `is_available` says whether the conversation can use the tool as it is configured; None means always.
    """

    id: str
    factory: providers.Factory[Tool]
    is_available: providers.Provider[bool] | None = None


def build_tool_factory(
    tools: providers.Aggregate[Tool],
    availability: providers.Aggregate[bool],
    extra_tools: Mapping[str, ThirdPartyTool],
    workspace: Workspace,
) -> MakeTool:
    """Return a function that makes a tool by its id: a built-in one, else one that an embedder added, else an installed
    one. It raises ConfigError for a foreign tool that no provider would accept.
    """

    def make(tool_id: str) -> Tool | None:
        if tool_id in tools.providers:
            is_usable = tool_id not in availability.providers or availability(tool_id)
            return tools(tool_id) if is_usable else None
        factory = extra_tools.get(tool_id) or _load_installed_tool(tool_id)
        if factory is None:
            raise KeyError(tool_id)
        return _check_foreign_tool(tool_id, factory(workspace))

    return make


def _load_installed_tool(tool_id: str) -> ThirdPartyTool | None:
    from kimi.infrastructure.definitions.third_party_tools import load_tool

    return load_tool(tool_id)


def _check_foreign_tool(tool_id: str, tool: Tool | None) -> Tool | None:
    """Return a foreign tool. Raises ConfigError when no provider accepts its name or schema (tools spec 1.1)."""
    if tool is None:
        return None
    if not TOOL_NAME_PATTERN.fullmatch(tool.spec.name):
        raise ConfigError(f"The tool '{tool_id}' has the name '{tool.spec.name}', which no provider takes.")
    if (fault := check_schema(tool.spec.parameters)) is not None:
        raise ConfigError(f"The parameters of the tool '{tool.spec.name}' are no valid JSON Schema: {fault}")
    if tool.spec.parameters.get("type") != "object":
        raise ConfigError(f"The parameters of the tool '{tool.spec.name}' are no schema of the type object.")
    return tool


def build_toolset(make_tool: MakeTool, agent: AgentSpec, tools: providers.Aggregate[Tool]) -> Toolset:
    """Return the toolset of an agent."""

    def load_spec(tool_id: str) -> ToolSpec:
        return tools(tool_id).spec

    return Toolset(make_tool, agent.tools, {tool_id: partial(load_spec, tool_id) for tool_id in tools.providers})


def load_agent(settings: Settings, extra: Mapping[str, ThirdPartyTool], builtin_ids: Collection[str]) -> AgentSpec:
    """Return the process's agent. Raises ConfigError: its file cannot be used, or names an unknown tool."""
    if settings.agent_file is None:
        return build_builtin_agent(settings.agent)
    from kimi.infrastructure.definitions.agent_files import load_agent_file
    from kimi.interfaces.bootstrap.conversation import build_prompt_files

    agent = load_agent_file(settings.agent_file, builtin_ids, build_prompt_files(settings))
    check_tools(agent, lambda tool_id: tool_id in builtin_ids or tool_id in extra or _is_installed(tool_id))
    return agent


def _is_installed(tool_id: str) -> bool:
    from kimi.infrastructure.definitions.third_party_tools import is_registered

    return is_registered(tool_id)


def check_schema(schema: JsonObject) -> str | None:
    """See `CheckSchema` of the ports."""
    from kimi.infrastructure.json_schema import check_schema as check

    return check(schema)


def check_arguments(schema: JsonObject, value: Any) -> str | None:
    """See `CheckArguments` of the ports."""
    from kimi.infrastructure.json_schema import check_arguments as check

    return check(schema, value)
