"""`kimi acp`: one client and its sessions on stdin and stdout, from start to exit status (acp spec 0, 4.8)."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import Settings
from kimi.domain.content.message import JsonObject
from kimi.interfaces.acp.agent import AcpAgent
from kimi.interfaces.acp.handshake import Handshake
from kimi.interfaces.acp.sessions.open_sessions import Adapt, OpenSessions, adapt_nothing
from kimi.interfaces.acp.sessions.session_settings import CurrentSettings
from kimi.interfaces.acp.transport.client import ClientSide
from kimi.interfaces.acp.transport.connection import connect, load_sdk
from kimi.interfaces.acp.transport.early_requests import serve_early
from kimi.interfaces.acp.transport.lines import AcpTransport, Read
from kimi.interfaces.acp.transport.outbox import Outgoing
from kimi.interfaces.bootstrap.containers import App, load_settings, session_catalog, warm_up
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.process import startup_tuning
from kimi.interfaces.process.graceful_shutdown import Stopping, watch_output
from kimi.interfaces.process.process import Streams
from kimi.interfaces.process.stdio import BlockReader, write_all

if TYPE_CHECKING:
    from acp.connection import Connection

logger = logging.getLogger(__name__)

EXIT_BOUND_S: Final = 4.5
"""From the end of the input, or a signal, to the end of the process at the latest."""

WIND_DOWN_S: Final = 2.0
"""How long cancelled prompts may take to be answered."""

CLOSING_S: Final = 2.0
"""How long the end of a session may take while the others go on."""

FLUSH_S: Final = 0.5
"""How long the client may take to read the last of it."""

PATIENCE_S: Final = 0.3
"""How long the first request after the handshake is waited for, before the machine is busy with imports."""

KILLING_S: Final = 1.5
"""What is kept of `EXIT_BOUND_S` for ending programs that are still running."""


def run_acp(flags: Flags, settings: Settings, streams: Streams) -> int:
    """Serve one client until its input ends, its output is closed or a signal comes; gives the exit status, 0."""
    run = _Process(flags, settings, streams)
    anyio.run(run.serve)
    run.leave()
    return 0


class AcpServer:
    """One client over two byte streams, with the app that its sessions share. Serves once."""

    def __init__(
        self,
        flags: Flags,
        app: App,
        *,
        time_left: Callable[[], float],
        on_loaded: Callable[[bool], None] = lambda has_sessions: None,
        adapt: Adapt = adapt_nothing,
    ) -> None:
        self._app = app
        self._time_left = time_left
        self._on_loaded = on_loaded
        self._adapt = adapt
        self._handshake = Handshake(CurrentSettings(flags, app.environ(), app.settings(), load_settings), app.environ())
        self._initialized = anyio.Event()

    async def serve(self, read: Read, out: Outgoing) -> None:
        """Serve until the end of the input, then wind down: what runs is cancelled and answered, sessions close."""
        transport = AcpTransport(read, out, self._initialize)
        client = ClientSide(transport)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(out.run)
            sessions = OpenSessions(
                self._app, self._handshake.current, client, tasks, time_left=self._time_left, adapt=self._adapt
            )
            catalog = session_catalog(self._app.settings().share_dir)
            agent = AcpAgent(self._handshake, sessions, catalog, self._app.new_id())
            connection = await self._serve_until_loaded(agent, sessions, transport, tasks)
            if connection is not None:
                client.connect(connection)
                await connection.main_loop()
            await self._wind_down(transport, sessions)
            if connection is not None:
                await connection.close()
            tasks.cancel_scope.cancel()
        await self._app.http().close()

    def _initialize(self, params: object) -> JsonObject:
        result = self._handshake.initialize(params)
        self._initialized.set()
        return result

    async def _serve_until_loaded(
        self, agent: AcpAgent, sessions: OpenSessions, transport: AcpTransport, tasks: TaskGroup
    ) -> Connection | None:
        """Serve until the SDK can take over; None when the input ended before."""
        with anyio.CancelScope() as early:
            tasks.start_soon(self._load, transport, lambda: bool(sessions.all()), early.cancel)
            await serve_early(agent, transport, tasks)
            return None
        return connect(agent, transport)

    async def _load(self, transport: AcpTransport, has_sessions: Callable[[], bool], done: Callable[[], None]) -> None:
        """Import what sessions need, behind the handshake and the first session if it comes at once."""
        await self._initialized.wait()
        with anyio.move_on_after(PATIENCE_S):
            await transport.answered.wait()
        await transport.out.flush()
        try:
            await anyio.to_thread.run_sync(load_sdk, abandon_on_cancel=True)
            done()
            await anyio.to_thread.run_sync(warm_up, self._app, abandon_on_cancel=True)
        except Exception:  # whoever needs it will import it again, and report
            logger.exception("importing ahead failed")
        self._on_loaded(has_sessions())

    async def _wind_down(self, transport: AcpTransport, sessions: OpenSessions) -> None:
        sessions.stop()
        with anyio.move_on_after(WIND_DOWN_S):
            await transport.all_answered()
        with anyio.move_on_after(max(0.0, self._time_left())):
            await sessions.close_all()
        with anyio.move_on_after(FLUSH_S):
            await transport.out.flush()


class _Process:
    """A run of the driver as a process: streams, signals, the bound on its end."""

    def __init__(self, flags: Flags, settings: Settings, streams: Streams) -> None:
        self._app = App(settings=providers.Object(settings))
        self._streams = streams
        self._stopping = Stopping(EXIT_BOUND_S, self._stop, lambda: os._exit(0), frozenset(signal.Signals))
        self._server = AcpServer(flags, self._app, time_left=self._time_left, on_loaded=_end_startup_tuning)
        self._reading: anyio.CancelScope | None = None
        self._stopped = False

    async def serve(self) -> None:
        write = partial(write_all, self._streams.stdout_fd)
        self._out = Outgoing(write, self._app.settings().wire.max_queued_bytes, self._stop)
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._stopping.watch_signals)
            self._tasks.start_soon(watch_output, self._streams.stdout_fd, self._out.fail)
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

    def _time_left(self) -> float:
        """Seconds that the end of a session may take, so that what it started can still be killed."""
        return self._stopping.time_left() - KILLING_S if self._stopping.has_begun else CLOSING_S


def _end_startup_tuning(has_sessions: bool) -> None:
    gc.collect()  # what is left of a session that was closed already must not stay for ever
    startup_tuning.end(freeze=not has_sessions)
