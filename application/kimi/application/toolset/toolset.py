"""The tools of one conversation: names, conflicts, hidden ones (tools spec 1.2, 4.8; wire spec 5.1)."""

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
"""What a tool name may look like: every provider takes such names."""

BuiltinSpecs: TypeAlias = Mapping[str, Callable[[], ToolSpec]]
"""The id of every built-in tool -> its spec, loaded when it is asked for, whether or not the tool can be used."""

_NO_SPECS: BuiltinSpecs = {}


class Toolset:
    """Built-in tools by id, made when first needed, the client's external tools, and those of MCP servers, if any.

    A name that a built-in tool has is never given to another tool, hidden or not; servers get what is left. Changes
    count from the next model call on, because a step reads `specs_for_model` once.

    `builtin_specs` are those of all tools that come with the program, whether or not the agent has them.
    """

    def __init__(self, make_tool: MakeTool, tool_ids: Iterable[str], builtin_specs: BuiltinSpecs = _NO_SPECS) -> None:
        self._make = make_tool
        self._ids = tuple(tool_ids)
        self._builtin_specs = builtin_specs
        self._known_specs: dict[str, ToolSpec] = {}
        self._id_by_name = {bare_tool_name(tool_id): tool_id for tool_id in builtin_specs}
        self._builtin_cache: dict[str, Tool] | None = None
        self._external: dict[str, Tool] = {}
        self._hidden_names: frozenset[str] = frozenset()
        self._servers: ServerTools | None = None

    @property
    def hidden_names(self) -> frozenset[str]:
        """The tools that the model is not offered; calls find them all the same."""
        return self._hidden_names

    def hide(self, names: frozenset[str]) -> None:
        """Offer all tools but these."""
        self._hidden_names = names

    @property
    def servers(self) -> ServerTools | None:
        """The tools of MCP servers; None without any server."""
        return self._servers

    def use_servers(self, servers: ServerTools | None) -> None:
        """Take the tools of these servers, too."""
        self._servers = servers

    @property
    def builtin_names(self) -> frozenset[str]:
        """The names of the agent's tools; of built-in ones known without making them, from the last part of their
        ids. Only a tool of somebody else has to be made to know its name.
        """
        names = frozenset(bare_tool_name(tool_id) for tool_id in self._ids)
        return names if self._builtin_specs.keys() >= set(self._ids) else names.union(self._load_builtin_tools())

    def find(self, name: str) -> Tool | None:
        """The tool that a call by this name means; hidden tools can be found."""
        own = self._load_builtin_tools().get(name) or self._external.get(name)
        return own or (self.servers.find(name, self._reserved_names()) if self.servers else None)

    def find_spec(self, name: str) -> ToolSpec | None:
        """What is known of the tool of this name. Built-in tools that the agent lacks are known too: subagents may have
        them, and so may an earlier part of the session.
        """
        if name in self._id_by_name:
            if name not in self._known_specs:
                self._known_specs[name] = self._builtin_specs[self._id_by_name[name]]()
            return self._known_specs[name]
        tool = self.find(name)
        return tool.spec if tool else None

    def key_argument(self, name: str) -> str | None:
        """The argument that titles a call by this name."""
        tool = self.find(name)
        return tool.spec.key_argument if tool else None

    def visible_specs(self) -> Sequence[ToolSpec]:
        """What the model is offered, in a stable order."""
        tools = [*self._load_builtin_tools().values(), *self._external.values()]
        if self.servers is not None:
            tools += self.servers.list_tools(self._reserved_names())
        return [tool.spec for tool in tools if tool.spec.name not in self.hidden_names]

    def specs_for_model(self) -> Sequence[ToolSpec]:
        """`visible` for a model call: from then on these names mean these tools."""
        specs = self.visible_specs()
        if self.servers is not None:
            self.servers.mark_shown()
        return specs

    def add_external(self, tool: Tool) -> str | None:
        """Add or replace an external tool; the reason when its name is refused."""
        name = tool.spec.name
        if name in self.builtin_names or (self.servers and name in self.servers.shown_names):
            return "conflicts with builtin tool"
        if not TOOL_NAME_PATTERN.fullmatch(name):
            return "invalid tool name"
        self._external[name] = tool
        return None

    def reset_builtin_tools(self) -> None:
        """Make the built-in tools anew when they are next needed: which are available may have changed."""
        self._builtin_cache = None

    def _reserved_names(self) -> frozenset[str]:
        """The names that no server's tool gets: built-in ones are among them even where the agent lacks that tool."""
        return self.builtin_names.union(self._external, self._id_by_name)

    def _load_builtin_tools(self) -> dict[str, Tool]:
        if self._builtin_cache is None:
            self._builtin_cache = make_tools(self._make, self._ids)
        return self._builtin_cache


def make_tools(make_tool: MakeTool, tool_ids: Iterable[str]) -> dict[str, Tool]:
    """The available tools for these ids, by name; unavailable ones are left out.

    Raises:
        ConfigError: some ids are unknown; all of them are named (tools spec 1.2).
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
