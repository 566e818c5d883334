"""Compose tools by their ids, built-in and foreign ones (tools spec 1.2, 7.2).

The table of built-in tools is `SessionContainer.builtin_tools`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kimi.application.agents.builtin_agents import build_builtin_agent
from kimi.application.ports import MakeTool, SessionFiles, ThirdPartyTool, Tool, Workspace
from kimi.application.settings.settings import Settings
from kimi.application.toolset.toolset import TOOL_NAME_PATTERN, Toolset
from kimi.domain.agents.agent import AgentSpec, check_tools
from kimi.domain.content.message import JsonObject
from kimi.domain.errors import ConfigError
from kimi.domain.tools.tool import ToolSpec
from kimi.interfaces.bootstrap.injector import providers

if TYPE_CHECKING:
    from kimi.domain.tools.plugin import InstalledPlugins
    from kimi.infrastructure.tools.shell.confined_commands import ConfinedCommands


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


def find_plugin_directory(settings: Settings) -> str | None:
    """Return the directory of the user's plugins; None if there is none, and then nothing of them is imported."""
    directory = os.path.join(settings.share_dir, "plugins")
    # Without a share directory the path would be relative: a directory of the project is nobody's choice.
    return directory if settings.share_dir and os.path.isdir(directory) else None


def load_plugins(settings: Settings) -> InstalledPlugins | None:
    """Return the user's plugins; None without a directory of them. Blocks."""
    directory = find_plugin_directory(settings)
    if directory is None:
        return None
    from kimi.infrastructure.plugins.plugin_files import load_plugins as load

    return load(directory)


def build_plugin_tools(
    settings: Settings,
    workspace: Workspace,
    files: SessionFiles,
    environ: Mapping[str, str],
    plugins: InstalledPlugins | None,
    confined: ConfinedCommands,
    toolset: Toolset,
) -> Sequence[Tool]:
    """Return the tools of the plugins, which run on this machine, whatever the workspace is."""
    if plugins is None:
        return ()
    from kimi.infrastructure.plugins.plugin_tool import PluginToolDeps, make_plugin_tools
    from kimi.infrastructure.workspace.environment import build_command_environment
    from kimi.interfaces.bootstrap.tools.machine import find_spill_directory

    def spill(name: str) -> str | None:
        directory = find_spill_directory(files)
        return os.path.join(directory, name) if directory else None

    hidden = frozenset[str]() if settings.shell.inherit_secrets else settings.secret_variables
    environment = build_command_environment(environ, hidden, workspace.shell)
    deps = PluginToolDeps(environment, check_arguments, confined.confine, spill)
    return make_plugin_tools(plugins, toolset.reserved_names(), deps)


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
