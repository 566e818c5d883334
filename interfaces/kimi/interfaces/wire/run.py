"""`kimi --wire`: one session on stdin and stdout, from start to exit status (wire spec 1.5)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial

import anyio
import anyio.to_thread

from kimi.application.conversation.conversation import Conversation
from kimi.application.sessions.open_session import SessionSelector
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import Settings
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import bind_negotiation, open_conversation, warm_up
from kimi.interfaces.process import startup_tuning
from kimi.interfaces.process.graceful_shutdown import (
    EXIT_TIMEOUT_S,
    KILL_RESERVE_S,
    GracefulShutdown,
    exit_by_signal,
    watch_output,
)
from kimi.interfaces.process.process import Streams, set_session_id
from kimi.interfaces.process.stdio import BlockReader, write_all
from kimi.interfaces.rpc.jsonrpc import Outbox
from kimi.interfaces.wire.server import ReadBlock, WireServer

logger = logging.getLogger(__name__)


def run_wire(flags: Flags, settings: Settings, streams: Streams) -> int:
    """Serve one client until its input ends; gives the exit status.

    Raises KimiError for what makes a start impossible. Ends by SIGTERM or SIGHUP itself when it was told to end by
    one, after everything is settled, so that the parent sees the signal.
    """
    app = App(settings=providers.Object(settings))
    wire = _WireProcess(app, streams)
    choice = SessionSelector(flags.session, last=flags.continue_last)
    status = anyio.run(wire.serve, choice)
    if (number := wire.shutdown.exit_signal) is not None:
        exit_by_signal(number)
    return status


def build_wire_server(app: App, conversation: Conversation, on_initialized: Callable[[], None]) -> WireServer:
    """The server of a conversation, with the settings of the process."""
    settings = app.settings()
    return WireServer(
        conversation,
        bind_negotiation(app, conversation),
        max_line_bytes=settings.wire.max_line_bytes,
        strict=settings.strict_profile,
        on_initialized=on_initialized,
    )


class _WireProcess:
    """A run of the wire driver: the server, and what has asked it to end."""

    def __init__(self, app: App, streams: Streams) -> None:
        self._app = app
        self._streams = streams
        self.shutdown = GracefulShutdown(EXIT_TIMEOUT_S, self._stop, self._force_exit)

    async def serve(self, choice: SessionSelector) -> int:
        async with open_conversation(
            self._app, choice, time_left=self._time_left, connect_servers=False
        ) as conversation:
            set_session_id(conversation.id)
            startup_tuning.end()
            self._conversation = conversation
            self._server = build_wire_server(self._app, conversation, self._start_import_ahead)
            write = partial(write_all, self._streams.stdout_fd)
            self._outbox = Outbox(write, self._app.settings().wire.max_queued_bytes, self._server.stop)
            await self._serve_until_end()
            resumable = not conversation.is_empty
        if not self._outbox.is_write_stuck:  # a stuck write would hold the interpreter's end
            self.shutdown.disarm_watchdog()
        if resumable and self.shutdown.exit_signal is None:
            self._streams.write_resume_hint(conversation.id)
        return 1 if self._outbox.is_broken else 0

    async def _serve_until_end(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self.shutdown.watch_signals)
            self._tasks.start_soon(watch_output, self._streams.stdout_fd, self._outbox.fail)
            await self._server.serve(self._wrap_reader(BlockReader(self._streams.stdin_fd)), self._outbox)
            self._tasks.cancel_scope.cancel()

    def _wrap_reader(self, reader: BlockReader) -> ReadBlock:
        async def read() -> bytes:
            block = await reader.read()
            if not block:
                self.shutdown.arm_watchdog()
            return block

        return read

    def _start_import_ahead(self) -> None:
        """Import what the first prompt needs while the client composes it; the answer is out already."""
        self._tasks.start_soon(self._import_ahead)

    async def _import_ahead(self) -> None:
        await self._outbox.flush()
        try:
            await anyio.to_thread.run_sync(_warm_up, self._app, abandon_on_cancel=True)
            self._conversation.toolset.visible_specs()  # makes the tools, which are of this thread only
            if self._conversation.toolset.servers is not None:
                from kimi.application.control.mcp_servers import start_servers  # start-up time

                start_servers(self._conversation)
        except Exception:  # whoever needs it will import it again, and report
            logger.exception("importing ahead failed")

    def _time_left(self) -> float:
        """Seconds that the hooks of the session's end may take, so that what they started can still be killed."""
        return self.shutdown.time_left() - KILL_RESERVE_S

    def _stop(self) -> None:
        self._server.stop()

    def _force_exit(self) -> None:
        if self.shutdown.exit_signal is None:
            os._exit(0)
        exit_by_signal(self.shutdown.exit_signal)


def _warm_up(app: App) -> None:
    from kimi.application.control import resolve_request
    from kimi.interfaces.wire import answers

    warm_up(app)
    _ = (resolve_request, answers)
