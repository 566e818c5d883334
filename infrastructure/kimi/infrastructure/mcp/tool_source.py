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
from kimi.infrastructure.mcp.failure_reasons import format_failure_reason
from kimi.infrastructure.mcp.host_context import McpHostContext
from kimi.infrastructure.mcp.server_link import AnswerElicitation, LinkTimings, OpenSession, ServerLink

if TYPE_CHECKING:
    from fastmcp.client.transports import ClientTransport

    TransportOverride: TypeAlias = Callable[[McpServer], ClientTransport | None]
    """Another transport than a server's configuration says, for example one in memory."""

KILL_RESERVE_S: Final = 0.2
"""The part of the stop timeout that is kept for killing the servers that have not ended by then."""


class McpToolSource:
    """The servers of one conversation, each with a task of its own; implements `ToolSource`.

    The tasks belong to the event loop and not to the caller, so that any task can stop the source.
    """

    def __init__(
        self,
        settings: McpSettings,
        host: McpHostContext,
        *,
        timings: LinkTimings | None = None,
        transport_override: TransportOverride | None = None,
        modes: Sequence[str] | None = None,
    ) -> None:
        """`modes` are the handshakes of the library, in the order in which they are tried; None for the default."""
        self._host = host
        self._transport_override = transport_override
        self._modes = modes
        self._timings = timings or LinkTimings(settings.connect_timeout_ms / 1000, settings.tool_call_timeout_ms / 1000)
        self._version = 0
        self._is_started = False
        self._is_ending = False
        self._open_session: OpenSession | None = None
        self._load_lock: asyncio.Lock = asyncio.Lock()
        self._links: dict[str, ServerLink] = {server.name: self._new_link(server) for server in settings.servers}
        self._tasks: dict[asyncio.Task[None], ServerLink] = {}

    @property
    def version(self) -> int:
        """See `ToolSource`."""
        return self._version

    def start(self) -> None:
        """See `ToolSource`."""
        if self._is_started or self._is_ending:
            return
        self._is_started = True
        for link in self._links.values():
            self._start_link(link)

    def servers(self) -> Sequence[SourceServer]:
        """See `ToolSource`."""
        return [link.snapshot for link in self._links.values()]

    async def wait_for_first_connect(self) -> None:
        """See `ToolSource`."""
        while pending := [link for link in self._links.values() if not link.first_attempt_done.is_set()]:
            await pending[0].first_attempt_done.wait()

    async def call(self, server: str, tool: str, arguments: JsonObject, elicit: AnswerElicitation) -> ToolReturnValue:
        """See `ToolSource`."""
        link = self._links.get(server)
        if link is None:
            raise SourceUnavailable(server)
        return await link.call(tool, arguments, elicit)

    def reload(self, servers: Sequence[McpServer] | None = None) -> None:
        """See `ToolSource`."""
        if self._is_ending:
            return
        wanted = [link.server for link in self._links.values()] if servers is None else servers
        old = self._links
        self._links = {}
        for server in wanted:
            link = old.pop(server.name, None)
            if link is None or link.server != server or link.snapshot.state in ("failed", "unauthorized"):
                if link is not None:
                    link.stop()
                link = self._new_link(server)
                if self._is_started:
                    self._start_link(link)
            self._links[server.name] = link
        for link in old.values():
            link.stop()
        self._bump_version()

    def request_stop(self) -> None:
        """See `ToolSource`."""
        self._is_ending = True
        for link in (*self._links.values(), *self._tasks.values()):
            link.stop()

    async def stop_and_wait(self, timeout_s: float) -> None:
        """See `ToolSource`."""
        self.request_stop()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=max(0.0, timeout_s - KILL_RESERVE_S))
        # Processes before tasks: a cancelled task waits, shielded, for the end of its process.
        for process in list(self._host.running_processes):
            await process.kill(0)
        remaining = list(self._tasks)
        for task in remaining:
            task.cancel()
        if remaining:
            await asyncio.wait(remaining, timeout=KILL_RESERVE_S)

    def _new_link(self, server: McpServer) -> ServerLink:
        return ServerLink(server, self._timings, self._load_opener, self._format_reason, self._bump_version)

    def _format_reason(self, server: McpServer, error: BaseException) -> str:
        return format_failure_reason(server, error, self._host.find_secrets(server))

    def _start_link(self, link: ServerLink) -> None:
        if link.is_usable:
            link.announce_start()
            task = asyncio.create_task(link.run(), name=f"mcp {link.server.name}")
            self._tasks[task] = link
            task.add_done_callback(self._tasks.pop)

    def _bump_version(self) -> None:
        self._version += 1

    async def _load_opener(self) -> OpenSession:
        # One import for all servers. The thread is abandoned on cancellation, so that stopping does not wait for it.
        async with self._load_lock:
            if self._open_session is None:
                opener = await anyio.to_thread.run_sync(_import_session_opener, abandon_on_cancel=True)
                self._open_session = opener(self._host, self._transport_override, self._modes)
        return self._open_session


def _import_session_opener() -> Callable[[McpHostContext, TransportOverride | None, Sequence[str] | None], OpenSession]:
    """Import the library and return the opener of sessions. Blocks for as long as the import takes."""
    from kimi.infrastructure.mcp.fastmcp_import import load_fastmcp

    load_fastmcp()
    from kimi.infrastructure.mcp.session import create_session_opener

    return create_session_opener
