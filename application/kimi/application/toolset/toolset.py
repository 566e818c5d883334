"""The tools of one conversation, found by name and offered to the model (tools spec 1.2, 4.8; wire spec 5.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kimi.application.ports import MakeTool, Tool
from kimi.domain.agents.agent import bare_tool_name
from kimi.domain.errors import ConfigError
from kimi.domain.tools.tool import ToolSpec

if TYPE_CHECKING:
    from kimi.application.toolset.mcp_tools import ServerTools

TOOL_NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Matches valid tool names, which every provider accepts."""

BuiltinSpecs: TypeAlias = Mapping[str, Callable[[], ToolSpec]]
"""Maps the id of every built-in tool, usable or not, to a function that loads its spec."""

_NO_SPECS: BuiltinSpecs = {}


class Toolset:
    """The built-in tools, created on first use, the client's external tools, and those of plugins and MCP servers.

    No other tool gets the name of a built-in tool, even a hidden one. An external tool takes the place of a plugin's
    tool of its name, which is known from the start; server tools get the names that remain. Changes
    apply from the next model call on, because a step reads `specs_for_model` once.

    `builtin_specs` are the specs of all built-in tools, whether or not the agent has them.
    """

    def __init__(self, make_tool: MakeTool, tool_ids: Iterable[str], builtin_specs: BuiltinSpecs = _NO_SPECS) -> None:
        self._make = make_tool
        self._ids = tuple(tool_ids)
        self._builtin_specs = builtin_specs
        self._known_specs: dict[str, ToolSpec] = {}
        self._id_by_name = {bare_tool_name(tool_id): tool_id for tool_id in builtin_specs}
        self._own_names = frozenset(map(bare_tool_name, self._ids))  # once: every step asks for them
        self._has_only_builtin_tools = builtin_specs.keys() >= set(self._ids)
        self._builtin_cache: dict[str, Tool] | None = None
        self._external: dict[str, Tool] = {}
        self._plugin_tools: dict[str, Tool] = {}
        self._plugin_faults: tuple[str, ...] = ()
        self._hidden_names: frozenset[str] = frozenset()
        self._servers: ServerTools | None = None

    @property
    def hidden_names(self) -> frozenset[str]:
        """The names of the tools that are not offered to the model; calls still find them."""
        return self._hidden_names

    def hide(self, names: frozenset[str]) -> None:
        """Offer all tools except these to the model."""
        self._hidden_names = names

    @property
    def servers(self) -> ServerTools | None:
        """The tools of MCP servers; None when there are no servers."""
        return self._servers

    def use_servers(self, servers: ServerTools | None) -> None:
        """Use the tools of these servers as well."""
        self._servers = servers

    def use_plugins(self, tools: Iterable[Tool], faults: Sequence[str] = ()) -> None:
        """Use these tools of plugins as well; none has a name of `reserved_names`.

        `faults` say which plugins cannot be used, or only in part.
        """
        self._plugin_tools = {tool.spec.name: tool for tool in tools}
        self._plugin_faults = tuple(faults)

    @property
    def plugin_faults(self) -> Sequence[str]:
        """One line for each plugin that cannot be used, or only in part."""
        return self._plugin_faults

    @property
    def builtin_names(self) -> frozenset[str]:
        """The names of the agent's tools.

        The name of a built-in tool is the last part of its id. If the agent has other tools, all tools are created,
        because only the created tool knows its name.
        """
        if self._has_only_builtin_tools:
            return self._own_names
        return self._own_names.union(self._load_builtin_tools())

    def find(self, name: str) -> Tool | None:
        """Return the tool with this name, also a hidden one; None if there is none."""
        own = self._load_builtin_tools().get(name) or self._external.get(name) or self._plugin_tools.get(name)
        return own or (self.servers.find(name, self.reserved_names()) if self.servers else None)

    def find_spec(self, name: str) -> ToolSpec | None:
        """Return the spec of the tool with this name; None for an unknown tool.

        Built-in tools that the agent lacks are found as well: subagents or earlier turns may have called them.
        """
        if name in self._id_by_name:
            if name not in self._known_specs:
                self._known_specs[name] = self._builtin_specs[self._id_by_name[name]]()
            return self._known_specs[name]
        tool = self.find(name)
        return tool.spec if tool else None

    def key_argument(self, name: str) -> str | None:
        """Return the name of the argument that is shown in the title of a call; None if there is none."""
        tool = self.find(name)
        return tool.spec.key_argument if tool else None

    def visible_specs(self) -> Sequence[ToolSpec]:
        """Return the specs of the tools that are offered to the model, in a stable order."""
        tools = [*self._load_builtin_tools().values(), *self._external.values()]
        tools += [tool for name, tool in self._plugin_tools.items() if name not in self._external]
        if self.servers is not None:
            tools += self.servers.list_tools(self.reserved_names())
        hidden = self._hidden_names
        return [spec for tool in tools if (spec := tool.spec).name not in hidden]

    def specs_for_model(self) -> Sequence[ToolSpec]:
        """Return `visible_specs` for a model call, and fix the names of the server tools among them."""
        specs = self.visible_specs()
        if self.servers is not None:
            self.servers.mark_shown()
        return specs

    def add_external(self, tool: Tool) -> str | None:
        """Add or replace an external tool; return the reason when its name is refused, else None."""
        name = tool.spec.name
        if name in self.builtin_names or (self.servers and name in self.servers.shown_names):
            return "conflicts with builtin tool"
        if not TOOL_NAME_PATTERN.fullmatch(name):
            return "invalid tool name"
        self._external[name] = tool
        return None

    def reset_builtin_tools(self) -> None:
        """Create the built-in tools again on their next use, because other tools may be available now."""
        self._builtin_cache = None

    def reserved_names(self) -> frozenset[str]:
        """Return the names that no further tool gets, those of built-in tools that the agent lacks included."""
        return self.builtin_names.union(self._external, self._plugin_tools, self._id_by_name)

    def _load_builtin_tools(self) -> dict[str, Tool]:
        if self._builtin_cache is None:
            self._builtin_cache = make_tools(self._make, self._ids)
        return self._builtin_cache


def make_tools(make_tool: MakeTool, tool_ids: Iterable[str]) -> dict[str, Tool]:
    """Return the tools for these ids by name, without those that are not available.

    Raises:
        ConfigError: some ids are unknown; the message lists all of them (tools spec 1.2).
    """
    tools: dict[str, Tool] = {}
    unknown: list[str] = []
    for tool_id in tool_ids:
        try:
            tool = make_tool(tool_id)
        except KeyError:
            unknown.append(tool_id)
            continue
        if tool is not None:
            tools[tool.spec.name] = tool
    if unknown:
        raise ConfigError(f"Invalid tools: {unknown}")
    return tools
