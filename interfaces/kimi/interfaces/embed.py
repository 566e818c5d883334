"""The public face for Python programs that embed the agent: all that the examples in docs/embedding.md use.

Swap an adapter before anything is built:

    app = App(settings=providers.Object(settings))
    app.open_model.override(providers.Object(my_open_model))
    await serve_wire(app, read, write)

The ports, as types of parameters and results, are in `kimi.application.ports`.
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
    """Speak the wire protocol over any two byte streams until the input ends, in one session: a new one without a
    `selector`.

    `read` returns the next block, empty at the end of the input. `write` takes whole lines; when it raises OSError the
    turn is cancelled and this returns. Raises what `open_conversation` raises.
    """
    async with open_conversation(app, selector or SessionSelector()) as conversation:
        await build_wire_server(app, conversation, write).serve(read)
