"""`kimi --wire`: serve one session on stdin and stdout (wire spec 1.5)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from kimi.application.conversation.conversation import Conversation
from kimi.application.sessions.open_session import SessionSelector
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import Settings
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import bind_negotiation, open_conversation, warm_up
from kimi.interfaces.process.driver_process import DriverProcess, ExitRules
from kimi.interfaces.process.stdio import write_all
from kimi.interfaces.process.streams import Streams
from kimi.interfaces.wire.server import WireServer

logger = logging.getLogger(__name__)

_EXIT_RULES: Final = ExitRules(close_timeout_s=None, hints_after_signal=False)


def run_wire(flags: Flags, settings: Settings, streams: Streams) -> int:
    """Serve one client until its input ends; return the exit status, which is 1 if its output was closed before.

    Raises KimiError when the session cannot be opened.
    """
    app = App(settings=providers.Object(settings))
    process = DriverProcess(streams, _EXIT_RULES)
    selector = SessionSelector(flags.session, last=flags.continue_last)
    opening = open_conversation(app, selector, time_left=process.time_left, connect_servers=False)
    return process.run_conversation(opening, partial(_serve_client, app, process))


def build_wire_server(app: App, conversation: Conversation, write: Callable[[bytes], Awaitable[None]]) -> WireServer:
    """Build the server of a conversation, with the settings of the process."""
    return WireServer(conversation, bind_negotiation(app, conversation), write, app.settings())


async def _serve_client(app: App, process: DriverProcess, conversation: Conversation) -> int:
    server = build_wire_server(app, conversation, partial(write_all, process.streams.stdout_fd))
    async with process.watch(server.stop, server.outbox) as tasks:
        tasks.start_soon(_import_ahead, app, conversation, server)
        await server.serve(process.open_stdin().read)
    return 1 if server.outbox.is_broken else 0


async def _import_ahead(app: App, conversation: Conversation, server: WireServer) -> None:
    """Import what the first prompt needs, after the answer to the handshake is written."""
    await server.initialized.wait()
    await server.outbox.flush()
    try:
        await anyio.to_thread.run_sync(_warm_up, app, abandon_on_cancel=True)
        conversation.toolset.visible_specs()  # builds the tools, which may be used in this thread only
        if conversation.toolset.servers is not None:
            from kimi.application.control.mcp_servers import start_servers  # start-up time

            start_servers(conversation)
    except Exception:  # the code that needs the module imports it again and reports the error
        logger.exception("importing ahead failed")


def _warm_up(app: App) -> None:
    from kimi.application.control import resolve_request
    from kimi.interfaces.rpc import wire_answers

    warm_up(app)
    _ = (resolve_request, wire_answers)
