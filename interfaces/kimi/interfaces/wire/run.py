"""`kimi --wire`: one session on stdin and stdout, from start to exit status (wire spec 1.5)."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread

from kimi.application.conversation import Conversation
from kimi.application.flags import Flags
from kimi.application.open_session import Choice
from kimi.application.settings import Settings
from kimi.interfaces import lean_start
from kimi.interfaces.container import App, negotiation, open_conversation, warm_up
from kimi.interfaces.injector import providers
from kimi.interfaces.jsonrpc import Outbox
from kimi.interfaces.process import Streams, set_session_id
from kimi.interfaces.stdio import BlockReader, hung_up, write_all
from kimi.interfaces.wire.server import Read, WireServer

logger = logging.getLogger(__name__)

EXIT_BOUND_S: Final = 2.0
"""From the end of the input, or a signal, to the end of the process at the latest."""

KILLING_S: Final = 0.9
"""What is kept of that for ending programs that are still running."""

STOP_SIGNALS: Final = [signal.SIGINT, signal.SIGTERM] + ([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])


def run_wire(flags: Flags, settings: Settings, streams: Streams) -> int:
    """Serve one client until its input ends; gives the exit status.

    Raises KimiError for what makes a start impossible. Ends by SIGTERM or SIGHUP itself when it was told to end by
    one, after everything is settled, so that the parent sees the signal.
    """
    app = App(settings=providers.Object(settings))
    wire = _Wire(app, streams)
    choice = Choice(flags.session, last=flags.continue_last)
    status = anyio.run(wire.serve, choice)
    if wire.signal in (None, signal.SIGINT):
        return status
    _end_by(wire.signal)
    return status


def wire_server(app: App, conversation: Conversation, on_initialized: Callable[[], None]) -> WireServer:
    """The server of a conversation, with the settings of the process."""
    settings = app.settings()
    return WireServer(
        conversation,
        negotiation(app, conversation),
        max_line_bytes=settings.wire.max_line_bytes,
        strict=settings.strict_profile,
        on_initialized=on_initialized,
    )


class _Wire:
    """A run of the wire driver: the server, and what has asked it to end."""

    def __init__(self, app: App, streams: Streams) -> None:
        self._app = app
        self._streams = streams
        self._watchdog: threading.Timer | None = None
        self._deadline = 0.0
        self.signal: signal.Signals | None = None

    async def serve(self, choice: Choice) -> int:
        async with open_conversation(self._app, choice, time_left=self._time_left) as conversation:
            set_session_id(conversation.id)
            lean_start.end()
            self._toolset = conversation.toolset
            self._server = wire_server(self._app, conversation, self._warm_up)
            self._outbox = Outbox(self._write, self._app.settings().wire.max_queued_bytes, self._server.stop)
            await self._serve_until_end()
            resumable = not conversation.is_empty
        if self._watchdog is not None and not self._outbox.stuck:  # a stuck write would hold the interpreter's end
            self._watchdog.cancel()
        if resumable and self.signal in (None, signal.SIGINT):
            self._streams.write_error(f"\nTo resume this session: kimi -r {conversation.id}\n")
        return 1 if self._outbox.broken else 0

    async def _serve_until_end(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._watch_signals)
            self._tasks.start_soon(self._watch_output)
            await self._server.serve(self._reading(BlockReader(self._streams.stdin_fd)), self._outbox)
            self._tasks.cancel_scope.cancel()

    def _reading(self, reader: BlockReader) -> Read:
        async def read() -> bytes:
            block = await reader.read()
            if not block:
                self._bound_exit()
            return block

        return read

    async def _write(self, data: bytes) -> None:
        await write_all(self._streams.stdout_fd, data)

    def _warm_up(self) -> None:
        """Import what the first prompt needs while the client composes it; the answer is out already."""
        self._tasks.start_soon(self._import_ahead)

    async def _import_ahead(self) -> None:
        await self._outbox.flush()
        try:
            await anyio.to_thread.run_sync(warm_up, self._app, abandon_on_cancel=True)
            self._toolset.visible()  # makes the tools, which are of this thread only
        except Exception:  # whoever needs it will import it again, and report
            logger.exception("importing ahead failed")

    async def _watch_signals(self) -> None:
        """The first signal ends the service in good order, a second interrupt at once."""
        if sys.platform == "win32":
            return
        with anyio.open_signal_receiver(*STOP_SIGNALS) as received:
            async for number in received:
                if self.signal is not None and number == signal.SIGINT:
                    os._exit(130)
                logger.info("ending because of %s", number.name)
                self.signal = self.signal or number
                self._bound_exit()
                self._server.stop()

    async def _watch_output(self) -> None:
        """Nobody reads any more: end as after a failed write (W-32)."""
        await hung_up(self._streams.stdout_fd)
        logger.info("stdout was closed by the client")
        self._outbox.fail()

    def _time_left(self) -> float:
        """Seconds that the hooks of the session's end may take, so that what they started can still be killed."""
        self._bound_exit()
        return self._deadline - time.monotonic() - KILLING_S

    def _bound_exit(self) -> None:
        """Whatever hangs, the process is gone in time."""
        if self._watchdog is None:
            self._deadline = time.monotonic() + EXIT_BOUND_S
            self._watchdog = threading.Timer(EXIT_BOUND_S, self._give_up)
            self._watchdog.daemon = True
            self._watchdog.start()

    def _give_up(self) -> None:
        logger.error("the end took longer than %s s; leaving at once", EXIT_BOUND_S)
        if self.signal in (None, signal.SIGINT):
            os._exit(0)
        _end_by(self.signal)


def _end_by(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
