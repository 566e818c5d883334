"""`kimi acp`: serve one client and its sessions on stdin and stdout, and shut them down (acp spec 0, 4.8)."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import Settings
from kimi.domain.content.message import JsonObject
from kimi.interfaces.acp.agent import AcpAgent
from kimi.interfaces.acp.handshake import Handshake
from kimi.interfaces.acp.sessions.open_sessions import AdaptContainer, OpenSessions, adapt_nothing
from kimi.interfaces.acp.transport.connection import create_connection
from kimi.interfaces.acp.transport.lines import AcpTransport
from kimi.interfaces.acp.transport.remote_client import RemoteClient
from kimi.interfaces.acp.transport.update_outbox import UpdateOutbox
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import warm_up
from kimi.interfaces.bootstrap.start import ReloadingSettings, load_settings
from kimi.interfaces.bootstrap.store import build_session_catalog
from kimi.interfaces.process import startup_tuning
from kimi.interfaces.process.driver_process import DriverProcess, ExitRules
from kimi.interfaces.process.stdio import write_all
from kimi.interfaces.process.streams import Streams
from kimi.interfaces.rpc.framing import ReadBlock

logger = logging.getLogger(__name__)

WIND_DOWN_TIMEOUT_S: Final = 2.0
"""How long the answers to cancelled prompts may take, in seconds."""

FLUSH_TIMEOUT_S: Final = 0.5
"""How long the client may take to read the last lines, in seconds."""

FIRST_REQUEST_TIMEOUT_S: Final = 0.3
"""How long to wait for the first request after the handshake before importing, in seconds."""

_EXIT_RULES: Final = ExitRules(
    timeout_s=4.5,
    kill_reserve_s=1.5,
    close_timeout_s=2.0,  # the other sessions continue while one closes
    immediate_signals=frozenset(signal.Signals),
    ends_by_signal=False,
)


def run_acp(flags: Flags, settings: Settings, streams: Streams) -> int:
    """Serve one client until its input ends, its output is closed or a signal comes; returns the exit status, 0."""
    process = DriverProcess(streams, _EXIT_RULES)
    return process.run(partial(_serve_client, flags, App(settings=providers.Object(settings)), process))


async def _serve_client(flags: Flags, app: App, process: DriverProcess) -> int:
    stdin = process.open_stdin()
    write = partial(write_all, process.streams.stdout_fd)
    outbox = UpdateOutbox(write, app.settings().wire.max_queued_bytes, stdin.close)
    startup_tuning.end()
    server = AcpServer(flags, app, time_left=process.time_left)
    async with process.watch(stdin.close, outbox):
        await server.serve(stdin.read, outbox)
    if outbox.is_write_stuck:  # the session work is done, but the client does not read the last lines
        os._exit(0)
    return 0


class AcpServer:
    """Serves one client over two byte streams, with the app that its sessions share. Serves once."""

    def __init__(
        self,
        flags: Flags,
        app: App,
        *,
        time_left: Callable[[], float],
        adapt: AdaptContainer = adapt_nothing,
    ) -> None:
        self._app = app
        self._time_left = time_left
        self._adapt = adapt
        self._handshake = Handshake(
            ReloadingSettings(flags, app.environ(), app.settings(), load_settings), app.environ()
        )
        self._initialized = anyio.Event()

    async def serve(self, read_block: ReadBlock, outbox: UpdateOutbox) -> None:
        """Serve until the end of the input, then cancel and answer what runs and close the sessions."""
        transport = AcpTransport(read_block, outbox, self._initialize)
        client = RemoteClient(transport)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outbox.run)
            sessions = OpenSessions(
                self._app, self._handshake.settings_source, client, tasks, time_left=self._time_left, adapt=self._adapt
            )
            catalog = build_session_catalog(self._app.settings().share_dir)
            agent = AcpAgent(self._handshake, sessions, catalog, self._app.new_id())
            connection = create_connection(agent, transport)
            client.connect(connection)
            tasks.start_soon(self._import_ahead, transport, sessions)
            await connection.main_loop()
            await self._wind_down(transport, sessions)
            # Only now: closing the connection cancels the requests that are still being answered.
            await connection.close()
            tasks.cancel_scope.cancel()
        await self._app.http().close()

    def _initialize(self, params: object) -> JsonObject:
        result = self._handshake.initialize(params)
        self._initialized.set()
        return result

    async def _import_ahead(self, transport: AcpTransport, sessions: OpenSessions) -> None:
        """Import what sessions need, after the handshake and after the first request if it comes at once."""
        # Imports compete with the event loop for the interpreter, so the first answers are written before them.
        await self._initialized.wait()
        with anyio.move_on_after(FIRST_REQUEST_TIMEOUT_S):
            await transport.request_answered.wait()
        await transport.outbox.flush()
        try:
            await anyio.to_thread.run_sync(warm_up, self._app, abandon_on_cancel=True)
        except Exception:  # the code that needs the module imports it again and reports the error
            logger.exception("importing ahead failed")
        await sessions.prepare_first_turns()

    async def _wind_down(self, transport: AcpTransport, sessions: OpenSessions) -> None:
        # Cancelled turns must answer their prompts before the sessions close, and the answers of both steps are queued
        # before the last flush. Each step has its own bound, so that a slow one does not stop the next.
        sessions.stop()
        with anyio.move_on_after(WIND_DOWN_TIMEOUT_S):
            await transport.wait_for_answers()
        with anyio.move_on_after(max(0.0, self._time_left())):
            await sessions.close_all()
        with anyio.move_on_after(FLUSH_TIMEOUT_S):
            await transport.outbox.flush()
