"""The double of the port `ToolSource`, without processes; it passes the port's contract suite."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import anyio

from kimi.application.ports import (
    Elicitation,
    ElicitationAnswer,
    ServerState,
    SourceServer,
    SourceTool,
    SourceUnavailable,
)
from kimi.application.settings.settings import McpServer
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import ToolReturnValue

Elicit: TypeAlias = Callable[[Elicitation], Awaitable[ElicitationAnswer]]
Body: TypeAlias = Callable[[JsonObject, Elicit], Awaitable[ToolReturnValue]]


@dataclass
class FakeServer:
    """A server that has these tools once it is connected; `outcome` is the result of connecting."""

    tools: Mapping[str, Body] = field(default_factory=dict[str, Body])
    outcome: ServerState = "connected"
    reason: str = ""


class FakeToolSource:
    """Servers whose states and tools a test sets. With `hold` they connect only when the event is set."""

    def __init__(self, servers: Mapping[str, FakeServer]) -> None:
        self.made = dict(servers)
        self.views = {name: SourceServer(name, "pending") for name in servers}
        self.version = 0
        self.started = False
        self.ending = False
        self.hold: anyio.Event | None = None
        self.calls: list[tuple[str, str, JsonObject]] = []

    def start(self) -> None:
        """See `ToolSource`; connects at once without `hold`."""
        if not self.started and not self.ending:
            self.started = True
            if self.hold is None:
                self.connect_all()

    def connect_all(self) -> None:
        """Give every server the state of its outcome."""
        for name, server in self.made.items():
            tools = tuple(described(name, tool) for tool in server.tools) if server.outcome == "connected" else ()
            self.put(SourceServer(name, server.outcome, server.reason, tools))

    def put(self, view: SourceServer) -> None:
        """Set the state and tools of a server."""
        self.views[view.name] = view
        self.version += 1

    def lose(self, name: str, state: ServerState = "failed") -> None:
        """Disconnect a server; its tools stay known."""
        self.put(replace(self.views[name], state=state, reason="The connection was lost."))

    def servers(self) -> Sequence[SourceServer]:
        """See `ToolSource`."""
        return list(self.views.values())

    async def wait_for_first_connect(self) -> None:
        """See `ToolSource`."""
        if self.hold is not None:
            await self.hold.wait()
            if not self.ending:
                self.connect_all()

    async def call(self, server: str, tool: str, arguments: JsonObject, elicit: Elicit) -> ToolReturnValue:
        """See `ToolSource`."""
        view = self.views.get(server)
        if view is None or view.state != "connected":
            raise SourceUnavailable(server)
        self.calls.append((server, tool, arguments))
        return await self.made[server].tools[tool](arguments, elicit)

    def reload(self, servers: Sequence[McpServer] | None = None) -> None:
        """See `ToolSource`; new servers have no tools."""
        if self.ending:
            return
        if servers is not None:
            names = [server.name for server in servers]
            self.made = {name: self.made.get(name, FakeServer()) for name in names}
            self.views = {name: self.views.get(name, SourceServer(name, "pending")) for name in names}
        if self.started:
            self.connect_all()
        self.version += 1

    def request_stop(self) -> None:
        """See `ToolSource`."""
        self.ending = True
        if self.hold is not None:
            self.hold.set()
        for name in self.views:
            self.put(replace(self.views[name], state="pending"))

    async def stop_and_wait(self, timeout_s: float) -> None:
        """See `ToolSource`."""
        self.request_stop()


def described(server: str, name: str, description: str | None = None) -> SourceTool:
    """Return a tool with an open schema."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return SourceTool(server, name, description or f"Does {name}.", schema)
