"""The `ToolSource` over MCP servers. Loads the library with the first server that is to be connected (tools spec 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import anyio.to_thread

from kimi.application.ports import SourceServer, SourceUnavailable
from kimi.application.settings.settings import McpServer, McpSettings
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import ToolReturnValue
from kimi.infrastructure.mcp.connection import Elicit, OpenSession, ServerLink, Times
from kimi.infrastructure.mcp.failure_reasons import reason_of
from kimi.infrastructure.mcp.host_context import Place

if TYPE_CHECKING:
    from fastmcp.client.transports import ClientTransport

    OtherWay: TypeAlias = Callable[[McpServer], ClientTransport | None]
    """Another way to a server than its configuration says, e.g. one in memory."""

KILLING_S: Final = 0.2
"""What is kept of the time for the end for killing who has not ended by then."""


class McpServers:
    """The servers of one conversation, each with a task of its own; implements `ToolSource`.

    Its tasks belong to the event loop and not to whoever calls, so that it can be ended from another task.
    """

    def __init__(
        self,
        settings: McpSettings,
        place: Place,
        *,
        times: Times | None = None,
        transport: OtherWay | None = None,
        modes: Sequence[str] | None = None,
    ) -> None:
        """`modes` are the handshakes of the library, in the order in which they are tried; None for our own."""
        self._place = place
        self._transport = transport
        self._modes = modes
        self._times = times or Times(settings.connect_timeout_ms / 1000, settings.tool_call_timeout_ms / 1000)
        self._version = 0
        self._started = False
        self._ending = False
        self._open_session: OpenSession | None = None
        self._loading: asyncio.Lock = asyncio.Lock()
        self._links: dict[str, ServerLink] = {server.name: self._new_link(server) for server in settings.servers}
        self._tasks: dict[asyncio.Task[None], ServerLink] = {}

    @property
    def version(self) -> int:
        """See `ToolSource`."""
        return self._version

    def start(self) -> None:
        """See `ToolSource`."""
        if self._started or self._ending:
            return
        self._started = True
        for link in self._links.values():
            self._run(link)

    def servers(self) -> Sequence[SourceServer]:
        """See `ToolSource`."""
        return [link.view for link in self._links.values()]

    async def settled(self) -> None:
        """See `ToolSource`."""
        while waiting := [link for link in self._links.values() if not link.settled.is_set()]:
            await waiting[0].settled.wait()

    async def call(self, server: str, tool: str, arguments: JsonObject, elicit: Elicit) -> ToolReturnValue:
        """See `ToolSource`."""
        link = self._links.get(server)
        if link is None:
            raise SourceUnavailable(server)
        return await link.call(tool, arguments, elicit)

    def reload(self, servers: Sequence[McpServer] | None = None) -> None:
        """See `ToolSource`."""
        if self._ending:
            return
        wanted = [link.server for link in self._links.values()] if servers is None else servers
        old = self._links
        self._links = {}
        for server in wanted:
            link = old.pop(server.name, None)
            if link is None or link.server != server or link.view.state in ("failed", "unauthorized"):
                if link is not None:
                    link.stop()
                link = self._new_link(server)
                if self._started:
                    self._run(link)
            self._links[server.name] = link
        for link in old.values():
            link.stop()
        self._change()

    def end(self) -> None:
        """See `ToolSource`."""
        self._ending = True
        for link in (*self._links.values(), *self._tasks.values()):
            link.stop()

    async def ended(self, patience_s: float) -> None:
        """See `ToolSource`."""
        self.end()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=max(0.0, patience_s - KILLING_S))
        for process in list(self._place.running):
            await process.kill(0)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=KILLING_S)

    def _new_link(self, server: McpServer) -> ServerLink:
        return ServerLink(server, self._times, self._load, self._reason_of, self._change)

    def _reason_of(self, server: McpServer, error: BaseException) -> str:
        return reason_of(server, error, self._place.secrets_of(server))

    def _run(self, link: ServerLink) -> None:
        if link.usable:
            task = asyncio.create_task(link.run(), name=f"mcp {link.server.name}")
            self._tasks[task] = link
            task.add_done_callback(self._tasks.pop)

    def _change(self) -> None:
        self._version += 1

    async def _load(self) -> OpenSession:
        async with self._loading:
            if self._open_session is None:
                opener = await anyio.to_thread.run_sync(_session_opener, abandon_on_cancel=True)
                self._open_session = opener(self._place, self._transport, self._modes)
        return self._open_session


def _session_opener() -> Callable[[Place, OtherWay | None, Sequence[str] | None], OpenSession]:
    """Blocks for as long as the library takes to import."""
    from kimi.infrastructure.mcp.library import load_library

    load_library()
    from kimi.infrastructure.mcp.session import session_opener

    return session_opener
