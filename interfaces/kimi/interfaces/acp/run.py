"""`kimi acp`: one client and its sessions on stdin and stdout, from start to exit status (acp spec 0, 4.8)."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import anyio.to_thread

from kimi.application.flags import Flags
from kimi.application.settings import Settings
from kimi.interfaces import lean_start
from kimi.interfaces.acp.agent import AcpAgent
from kimi.interfaces.acp.client import ClientSide
from kimi.interfaces.acp.connection import connect, load_sdk
from kimi.interfaces.acp.handshake import Handshake
from kimi.interfaces.acp.open_sessions import OpenSessions
from kimi.interfaces.acp.outgoing import Outgoing
from kimi.interfaces.acp.places import CurrentSettings
from kimi.interfaces.acp.transport import AcpTransport, Read
from kimi.interfaces.container import App, load_settings, session_catalog, warm_up
from kimi.interfaces.injector import providers
from kimi.interfaces.process import Streams
from kimi.interfaces.stdio import BlockReader, write_all
from kimi.interfaces.stopping import Stopping

logger = logging.getLogger(__name__)

EXIT_BOUND_S: Final = 4.5
"""From the end of the input, or a signal, to the end of the process at the latest."""

WIND_DOWN_S: Final = 2.0
"""How long cancelled prompts may take to be answered."""

KILLING_S: Final = 1.5
"""What is kept of `EXIT_BOUND_S` for ending programs that are still running."""

Write = Callable[[bytes], Awaitable[None]]


def run_acp(flags: Flags, settings: Settings, streams: Streams) -> int:
    """Serve one client until its input ends, its output is closed or a signal comes; gives the exit status, 0."""
    run = _Process(flags, settings, streams)
    anyio.run(run.serve)
    run.leave()
    return 0


class AcpServer:
    """One client over two byte streams, with the app that its sessions share."""

    def __init__(
        self,
        flags: Flags,
        app: App,
        *,
        time_left: Callable[[], float],
        on_initialized: Callable[[], None] = lambda: None,
    ) -> None:
        self._app = app
        self._time_left = time_left
        self._on_initialized = on_initialized
        self._current = CurrentSettings(flags, app.environ(), app.settings(), load_settings)
        self._handshake = Handshake(self._current, app.environ())

    async def serve(self, read: Read, out: Outgoing) -> None:
        """Serve until the end of the input, then wind down."""
        transport = AcpTransport(read, out, self._initialize)
        client = ClientSide(transport)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(out.run)
            sessions = OpenSessions(self._app, self._current, client, tasks, time_left=self._time_left)
            catalog = session_catalog(self._app.settings().share_dir)
            agent = AcpAgent(self._handshake, sessions, catalog, self._app.new_id())
            await self._serve(agent, transport, client, sessions)
            with anyio.move_on_after(WIND_DOWN_S):
                await out.flush()
            tasks.cancel_scope.cancel()
        await self._app.http().close()

    def _initialize(self, params: object) -> dict[str, object]:
        result = self._handshake.initialize(params)
        self._on_initialized()
        return dict(result)

    async def _serve(
        self, agent: AcpAgent, transport: AcpTransport, client: ClientSide, sessions: OpenSessions
    ) -> None:
        first = await transport.receive()  # answers `initialize` on its way, without the SDK
        if first is None:
            return
        transport.unread(first)
        await anyio.to_thread.run_sync(load_sdk)
        client.connection = connection = connect(agent, transport)
        await connection.main_loop()
        sessions.stop()
        with anyio.move_on_after(WIND_DOWN_S):
            await agent.idle()
        with anyio.move_on_after(max(0.0, self._time_left())):
            await sessions.close_all()
        await connection.close()


class _Process:
    """A run of the driver as a process: streams, signals, the bound on its end."""

    def __init__(self, flags: Flags, settings: Settings, streams: Streams) -> None:
        self._app = App(settings=providers.Object(settings))
        self._streams = streams
        self._stopping = Stopping(EXIT_BOUND_S, self._stop, lambda: os._exit(0), frozenset(signal.Signals))
        self._server = AcpServer(flags, self._app, time_left=self._time_left, on_initialized=self._warm_up)
        self._reading: anyio.CancelScope | None = None
        self._stopped = False
        self._is_warm = False

    async def serve(self) -> None:
        self._out = Outgoing(self._write, self._app.settings().wire.max_queued_bytes, self._stop)
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._stopping.watch_signals)
            self._tasks.start_soon(self._stopping.watch_output, self._streams.stdout_fd, self._out.fail)
            await self._server.serve(self._reader(BlockReader(self._streams.stdin_fd)), self._out)
            self._tasks.cancel_scope.cancel()

    def leave(self) -> None:
        """Everything is settled. A write that nobody reads would hold up the end of the interpreter."""
        if self._out.stuck:
            os._exit(0)
        self._stopping.release()

    def _reader(self, reader: BlockReader) -> Read:
        async def read() -> bytes:
            block = b""
            if not self._stopped:
                with anyio.CancelScope() as self._reading:
                    block = await reader.read()
            if not block:
                self._stopping.bound_exit()
            return block

        return read

    def _stop(self) -> None:
        """The input ends here, whatever is still in it. Idempotent."""
        self._stopped = True
        if self._reading is not None:
            self._reading.cancel()

    async def _write(self, data: bytes) -> None:
        await write_all(self._streams.stdout_fd, data)

    def _time_left(self) -> float:
        """Seconds that the ends of sessions may take, so that what they started can still be killed."""
        return self._stopping.time_left() - KILLING_S

    def _warm_up(self) -> None:
        """Import what the first session needs while the client composes its prompt; the answer is out already."""
        if not self._is_warm:
            self._is_warm = True
            self._tasks.start_soon(self._import_ahead)

    async def _import_ahead(self) -> None:
        await self._out.flush()
        try:
            await anyio.to_thread.run_sync(load_sdk, abandon_on_cancel=True)
            await anyio.to_thread.run_sync(warm_up, self._app, abandon_on_cancel=True)
            lean_start.end()
        except Exception:  # whoever needs it will import it again, and report
            logger.exception("importing ahead failed")
