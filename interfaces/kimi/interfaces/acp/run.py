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
from kimi.interfaces.acp.sessions.open_sessions import AdaptContainer, OpenSessions, adapt_nothing
from kimi.interfaces.acp.sessions.session_location import ReloadingSettings
from kimi.interfaces.acp.transport.connection import create_connection, import_sdk
from kimi.interfaces.acp.transport.early_requests import serve_without_sdk
from kimi.interfaces.acp.transport.lines import AcpTransport, ReadBlock
from kimi.interfaces.acp.transport.remote_client import RemoteClient
from kimi.interfaces.acp.transport.update_outbox import UpdateOutbox
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import load_settings, warm_up
from kimi.interfaces.bootstrap.store import build_session_catalog
from kimi.interfaces.process import startup_tuning
from kimi.interfaces.process.graceful_shutdown import GracefulShutdown, watch_output
from kimi.interfaces.process.process import Streams
from kimi.interfaces.process.stdio import BlockReader, write_all

if TYPE_CHECKING:
    from acp.connection import Connection

logger = logging.getLogger(__name__)

EXIT_TIMEOUT_S: Final = 4.5
"""From the end of the input, or a signal, to the end of the process at the latest."""

WIND_DOWN_TIMEOUT_S: Final = 2.0
"""How long cancelled prompts may take to be answered."""

CLOSE_TIMEOUT_S: Final = 2.0
"""How long the end of a session may take while the others go on."""

FLUSH_TIMEOUT_S: Final = 0.5
"""How long the client may take to read the last of it."""

FIRST_REQUEST_TIMEOUT_S: Final = 0.3
"""How long the first request after the handshake is waited for, before the machine is busy with imports."""

KILL_RESERVE_S: Final = 1.5
"""What is kept of `EXIT_BOUND_S` for ending programs that are still running."""


def run_acp(flags: Flags, settings: Settings, streams: Streams) -> int:
    """Serve one client until its input ends, its output is closed or a signal comes; gives the exit status, 0."""
    run = _AcpProcess(flags, settings, streams)
    anyio.run(run.serve)
    run.release_or_exit()
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
        adapt: AdaptContainer = adapt_nothing,
    ) -> None:
        self._app = app
        self._time_left = time_left
        self._on_loaded = on_loaded
        self._adapt = adapt
        self._handshake = Handshake(
            ReloadingSettings(flags, app.environ(), app.settings(), load_settings), app.environ()
        )
        self._initialized = anyio.Event()

    async def serve(self, read_block: ReadBlock, outbox: UpdateOutbox) -> None:
        """Serve until the end of the input, then wind down: what runs is cancelled and answered, sessions close."""
        transport = AcpTransport(read_block, outbox, self._initialize)
        client = RemoteClient(transport)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outbox.run)
            sessions = OpenSessions(
                self._app, self._handshake.settings_source, client, tasks, time_left=self._time_left, adapt=self._adapt
            )
            catalog = build_session_catalog(self._app.settings().share_dir)
            agent = AcpAgent(self._handshake, sessions, catalog, self._app.new_id())
            connection = await self._serve_until_sdk_loaded(agent, sessions, transport, tasks)
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

    async def _serve_until_sdk_loaded(
        self, agent: AcpAgent, sessions: OpenSessions, transport: AcpTransport, tasks: TaskGroup
    ) -> Connection | None:
        """Serve until the SDK can take over; None when the input ended before."""
        with anyio.CancelScope() as early:
            tasks.start_soon(self._import_ahead, transport, lambda: bool(sessions.list_open()), early.cancel)
            await serve_without_sdk(agent, transport, tasks)
            return None
        return create_connection(agent, transport)

    async def _import_ahead(
        self, transport: AcpTransport, has_sessions: Callable[[], bool], on_sdk_loaded: Callable[[], None]
    ) -> None:
        """Import what sessions need, behind the handshake and the first session if it comes at once."""
        await self._initialized.wait()
        with anyio.move_on_after(FIRST_REQUEST_TIMEOUT_S):
            await transport.request_answered.wait()
        await transport.outbox.flush()
        try:
            await anyio.to_thread.run_sync(import_sdk, abandon_on_cancel=True)
            on_sdk_loaded()
            await anyio.to_thread.run_sync(warm_up, self._app, abandon_on_cancel=True)
        except Exception:  # whoever needs it will import it again, and report
            logger.exception("importing ahead failed")
        self._on_loaded(has_sessions())

    async def _wind_down(self, transport: AcpTransport, sessions: OpenSessions) -> None:
        sessions.stop()
        with anyio.move_on_after(WIND_DOWN_TIMEOUT_S):
            await transport.wait_for_answers()
        with anyio.move_on_after(max(0.0, self._time_left())):
            await sessions.close_all()
        with anyio.move_on_after(FLUSH_TIMEOUT_S):
            await transport.outbox.flush()


class _AcpProcess:
    """A run of the driver as a process: streams, signals, the bound on its end."""

    def __init__(self, flags: Flags, settings: Settings, streams: Streams) -> None:
        self._app = App(settings=providers.Object(settings))
        self._streams = streams
        self._shutdown = GracefulShutdown(
            EXIT_TIMEOUT_S, self._end_input, lambda: os._exit(0), frozenset(signal.Signals)
        )
        self._server = AcpServer(flags, self._app, time_left=self._time_left, on_loaded=_end_startup_tuning)
        self._read_scope: anyio.CancelScope | None = None
        self._is_input_ended = False

    async def serve(self) -> None:
        write = partial(write_all, self._streams.stdout_fd)
        self._outbox = UpdateOutbox(write, self._app.settings().wire.max_queued_bytes, self._end_input)
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._shutdown.watch_signals)
            self._tasks.start_soon(watch_output, self._streams.stdout_fd, self._outbox.fail)
            await self._server.serve(self._wrap_reader(BlockReader(self._streams.stdin_fd)), self._outbox)
            self._tasks.cancel_scope.cancel()

    def release_or_exit(self) -> None:
        """Everything is settled. A write that nobody reads would hold up the end of the interpreter."""
        if self._outbox.is_write_stuck:
            os._exit(0)
        self._shutdown.disarm_watchdog()

    def _wrap_reader(self, reader: BlockReader) -> ReadBlock:
        async def read() -> bytes:
            block = b""
            if not self._is_input_ended:
                with anyio.CancelScope() as self._read_scope:
                    block = await reader.read()
            if not block:
                self._shutdown.arm_watchdog()
            return block

        return read

    def _end_input(self) -> None:
        """The input ends here, whatever is still in it. Idempotent."""
        self._is_input_ended = True
        if self._read_scope is not None:
            self._read_scope.cancel()

    def _time_left(self) -> float:
        """Seconds that the end of a session may take, so that what it started can still be killed."""
        return self._shutdown.time_left() - KILL_RESERVE_S if self._shutdown.has_begun else CLOSE_TIMEOUT_S


def _end_startup_tuning(has_sessions: bool) -> None:
    gc.collect()  # what is left of a session that was closed already must not stay for ever
    startup_tuning.end(freeze=not has_sessions)
