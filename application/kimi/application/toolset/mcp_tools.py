"""The tools of MCP servers in one conversation: their names, which are offered, and which have changed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kimi.application.ports import SourceServer, SourceTool, Tool
from kimi.application.toolset.mcp_tool import ServerTool, ServerToolDeps
from kimi.domain.events.event import McpServerState, McpServerStatus, McpStatus
from kimi.domain.tools.mcp_tool_names import ToolOrigin, assign_exposed_names, show_name

if TYPE_CHECKING:
    from kimi.application.ports import ServerState, ToolSource
    from kimi.application.settings.settings import McpServer, McpSettings

logger = logging.getLogger(__name__)

_CLIENT_STATE: Final[Mapping[ServerState, McpServerState]] = {"disabled": "failed", "reconnecting": "connecting"}


class ServerTools:
    """The tools of MCP servers in a toolset. A name that the model has seen belongs to its tool for the whole session.

    With `server_filter` only these servers are used; a subagent uses the connections of its parent that way.
    """

    def __init__(
        self, settings: McpSettings, deps: ServerToolDeps, server_filter: frozenset[str] | None = None
    ) -> None:
        self._deps = deps
        self.settings = settings
        self._configured = {server.name: server for server in settings.servers}
        self._server_filter = server_filter
        self._names: dict[ToolOrigin, str] = {}
        self._shown_names: dict[ToolOrigin, str] = {}
        self._tools: dict[str, ServerTool] = {}
        self._last_compared: dict[ToolOrigin, SourceTool] = {}
        self._compared_version: int | None = None
        self._lost_servers: frozenset[str] = frozenset()
        self._refreshed_for: object = None
        self.has_waited = False
        """Whether the first turn has waited for the servers."""
        self.failed_in_status: frozenset[str] = frozenset()
        """The broken servers that the last status showed."""
        self.failed_announced: frozenset[str] = frozenset()
        """The broken servers that the client was notified of."""

    @property
    def source(self) -> ToolSource:
        """The source of the tools."""
        return self._deps.source

    @property
    def shown_names(self) -> Collection[str]:
        """The names that were offered to the model."""
        return self._shown_names.values()

    def servers(self) -> Sequence[SourceServer]:
        """Return the servers with their current states."""
        servers = self._deps.source.servers()
        return [server for server in servers if self._server_filter is None or server.name in self._server_filter]

    def list_tools(self, reserved: frozenset[str]) -> Sequence[Tool]:
        """Return the tools that may be offered to the model, in a stable order; none has a name in `reserved`."""
        self._refresh(reserved)
        return list(self._tools.values())

    def find(self, name: str, reserved: frozenset[str]) -> Tool | None:
        """Return the tool that has this name for the model, None if there is none."""
        self._refresh(reserved)
        return self._tools.get(name)

    def mark_shown(self) -> None:
        """Fix the names of the tools that `list_tools` returned last, because the model now knows them."""
        self._shown_names.update({origin: name for origin, name in self._names.items() if name in self._tools})

    def begin_turn(self) -> None:
        """Stop offering the tools of servers that cannot be used. During a turn the offered servers do not change."""
        self._lost_servers = frozenset(server.name for server in self.servers() if _is_lost(server))
        self._refreshed_for = None

    def find_changed_tools(self) -> Sequence[SourceTool]:
        """Return the tools whose description or schema has changed since `accept_changed_tools` was last called."""
        if self._compared_version == self._deps.source.version:
            return ()
        tools = [tool for server in self.servers() for tool in server.tools]
        return [tool for tool in tools if self._last_compared.get(ToolOrigin(tool.server, tool.name), tool) != tool]

    def accept_changed_tools(self) -> None:
        """Take the current descriptions and schemas as the ones that later changes are compared with."""
        if self._compared_version != self._deps.source.version:
            self._compared_version = self._deps.source.version
            tools = [tool for server in self.servers() for tool in server.tools]
            self._last_compared |= {ToolOrigin(tool.server, tool.name): tool for tool in tools}

    def reload(self, servers: Sequence[McpServer] | None = None) -> None:
        """Use these servers, or reload the current ones; see `ToolSource.reload`."""
        if servers is not None:
            self.settings = self.settings.model_copy(update={"servers": tuple(servers)})
            self._configured = {server.name: server for server in servers}
        self._deps.source.reload(servers)
        self._lost_servers, self._refreshed_for, self.failed_announced, self.failed_in_status = (
            frozenset(),
            None,
            frozenset(),
            frozenset(),
        )

    def for_subagents(self) -> ServerTools | None:
        """Return the server tools of subagents; None when no server is configured for them."""
        inherited = frozenset(server.name for server in self.settings.servers if server.subagents == "inherit")
        return ServerTools(self.settings, self._deps, inherited) if inherited else None

    def status(self) -> McpStatus:
        """Return the status of the servers for clients."""
        servers = tuple(self._server_status(server) for server in self.servers())
        return McpStatus(
            loading=any(server.status in ("pending", "connecting") for server in servers),
            connected=sum(server.status == "connected" for server in servers),
            total=len(servers),
            tools=sum(len(server.tools) for server in servers if server.status == "connected"),
            servers=servers,
        )

    def exposed_name(self, tool: SourceTool) -> str:
        """Return the name of a tool for the model; the server's name for it when none has been assigned yet."""
        return self._names.get(ToolOrigin(tool.server, tool.name)) or show_name(tool.name)

    def _server_status(self, server: SourceServer) -> McpServerStatus:
        state = _CLIENT_STATE.get(server.state, server.state)
        names = tuple(self.exposed_name(tool) for tool in server.tools) if server.state == "connected" else ()
        return McpServerStatus(server.name, state, names)  # pyright: ignore[reportArgumentType]

    def _refresh(self, reserved: frozenset[str]) -> None:
        version = (self._deps.source.version, reserved)
        if version == self._refreshed_for:
            return
        self._refreshed_for = version
        usable = [tool for server in self.servers() if server.name not in self._lost_servers for tool in server.tools]
        found = {ToolOrigin(tool.server, tool.name): tool for tool in usable}
        qualify = self.settings.always_qualify
        old, self._names = (
            self._names,
            assign_exposed_names(list(found), reserved, self._shown_names, always_qualify=qualify),
        )
        for origin, name in self._names.items():
            if name not in (origin.tool, old.get(origin)):
                logger.info("the tool %r of the MCP server %s goes by the name %s", origin.tool, origin.server, name)
        self._tools = {
            self._names[origin]: self._make_or_reuse(self._names[origin], tool) for origin, tool in found.items()
        }

    def _make_or_reuse(self, name: str, tool: SourceTool) -> ServerTool:
        known = self._tools.get(name)
        if known is not None and known.tool == tool:
            return known
        return ServerTool(name, tool, self._configured[tool.server], self._deps)


def _is_lost(server: SourceServer) -> bool:
    return server.state in ("failed", "unauthorized", "disabled")
