"""The public face for Python programs that embed the agent: the container, a conversation, the wire in process.

Swap an adapter before anything is built:

    app = App(settings=providers.Object(settings))
    app.open_model.override(providers.Object(my_open_model))
    await serve_wire(app, read, write)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kimi.application.control.resolve_request import resolve_request
from kimi.application.conversation.conversation import Conversation
from kimi.application.sessions.open_session import SessionSelector
from kimi.application.settings.settings import Settings
from kimi.application.turn.run_turn import run_turn
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import load_settings, open_conversation
from kimi.interfaces.wire.run import build_wire_server

__all__ = [
    "App",
    "Conversation",
    "SessionSelector",
    "Settings",
    "load_settings",
    "open_conversation",
    "providers",
    "resolve_request",
    "run_turn",
    "serve_wire",
]


async def serve_wire(
    app: App,
    read: Callable[[], Awaitable[bytes]],
    write: Callable[[bytes], Awaitable[None]],
    selector: SessionSelector | None = None,
) -> None:
    """Speak the wire protocol over any two byte streams until the input ends; one session, new unless `choice` says.

    `read` gives the next block, empty at the end of the input. `write` takes whole lines; when it raises OSError the
    turn is cancelled and this returns. Raises what `open_conversation` raises.
    """
    async with open_conversation(app, selector or SessionSelector()) as conversation:
        await build_wire_server(app, conversation, write).serve(read)
