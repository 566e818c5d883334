"""The public API for Python programs that embed the agent: everything that the examples in docs/embedding.md use.

Replace an adapter before anything is built:

    app = App(settings=providers.Object(settings))
    app.open_model.override(providers.Object(my_open_model))
    await serve_wire(app, read, write)

The types of the ports are in `kimi.application.ports`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kimi.application.control.resolve_request import resolve_request
from kimi.application.conversation.conversation import Conversation
from kimi.application.ports import PreparedCall, ResponseEnd, ToolCallContext
from kimi.application.sessions.open_session import SessionSelector
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import ModelSettings, Settings
from kimi.application.turn.run_turn import run_turn
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.errors import KimiError
from kimi.domain.events.request import ApprovalAnswer, ApprovalRequest
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.tools.tool import ToolSpec, tool_error, tool_ok
from kimi.interfaces.bootstrap.containers import App, SessionContainer
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import load_settings, open_conversation
from kimi.interfaces.bootstrap.store import build_memory_store
from kimi.interfaces.wire.run import build_wire_server

__all__ = [
    "App",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Conversation",
    "Flags",
    "KimiError",
    "ModelSettings",
    "PreparedCall",
    "ProposedAction",
    "ResponseEnd",
    "SessionContainer",
    "SessionSelector",
    "Settings",
    "TextPart",
    "ThinkPart",
    "ToolCallContext",
    "ToolSpec",
    "build_memory_store",
    "load_settings",
    "open_conversation",
    "providers",
    "resolve_request",
    "run_turn",
    "serve_wire",
    "tool_error",
    "tool_ok",
]


async def serve_wire(
    app: App,
    read: Callable[[], Awaitable[bytes]],
    write: Callable[[bytes], Awaitable[None]],
    selector: SessionSelector | None = None,
) -> None:
    """Serve the wire protocol over two byte streams until the input ends, in one session.

    The session is that of `selector`, or a new one. `read` returns the next block of the input, empty at its end.
    `write` is called with whole lines; if it raises OSError, the turn is cancelled and this returns. Raises what
    `open_conversation` raises.
    """
    async with open_conversation(app, selector or SessionSelector()) as conversation:
        await build_wire_server(app, conversation, write).serve(read)
