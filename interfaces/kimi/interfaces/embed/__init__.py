"""The public API for Python programs that embed the agent: everything that the examples in docs/embedding.md use.

    async with open_agent(work_dir=".", approve=ask_the_user) as agent:
        async for event in agent.prompt("Tidy up the imports."):
            ...

Below that are the container and the use-cases, for programs that put their own parts together:

    app = App(settings=providers.Object(settings))
    app.open_model.override(providers.Object(my_open_model))
    await serve_wire(app, read, write)

The types of the ports are in `kimi.application.ports`.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from kimi.application.codec.envelope import encode_event
from kimi.application.control.resolve_request import resolve_request
from kimi.application.conversation.conversation import Conversation
from kimi.application.ports import ChatModel, PreparedCall, ResponseEnd, SessionStore, ToolCallContext, Workspace
from kimi.application.sessions.open_session import SessionSelector
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import ModelSettings, Settings
from kimi.application.turn.run_turn import run_turn
from kimi.domain.content.message import ToolCall
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.errors import (
    ChatProviderError,
    ConfigError,
    KimiError,
    ModelError,
    SessionBusy,
    SessionError,
    StateError,
    UnknownSession,
    UsageError,
)
from kimi.domain.events.event import Event, StatusUpdate, StepBegin, SubagentEvent, ToolResult, TurnBegin, TurnEnd
from kimi.domain.events.request import ApprovalAnswer, ApprovalRequest, HookAnswer, QuestionRequest
from kimi.domain.hook import CommandHook
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.tools.tool import DiffBlock, ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.domain.turn import TurnStatus
from kimi.interfaces.bootstrap.containers import App, SessionContainer
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.models import build_scripted_model as scripted_model
from kimi.interfaces.bootstrap.models import write_scripted_call as scripted_call
from kimi.interfaces.bootstrap.opening import open_conversation
from kimi.interfaces.bootstrap.start import load_settings
from kimi.interfaces.bootstrap.store import build_memory_store
from kimi.interfaces.embed.agent import Agent, open_agent
from kimi.interfaces.embed.agent_turn import AgentTurn
from kimi.interfaces.embed.options import AgentOptions, InvalidAnswer, NoAnswer, PythonHook

if TYPE_CHECKING:
    from kimi.interfaces.embed.blocking import SyncAgent, SyncTurn, open_agent_sync
    from kimi.interfaces.embed.function_tool import FunctionTool, tool

__all__ = [
    "Agent",
    "AgentOptions",
    "AgentTurn",
    "App",
    "ApprovalAnswer",
    "ApprovalRequest",
    "ChatModel",
    "ChatProviderError",
    "CommandHook",
    "ConfigError",
    "Conversation",
    "DiffBlock",
    "Event",
    "Flags",
    "FunctionTool",
    "HookAnswer",
    "InvalidAnswer",
    "KimiError",
    "ModelError",
    "ModelSettings",
    "NoAnswer",
    "PreparedCall",
    "ProposedAction",
    "PythonHook",
    "QuestionRequest",
    "ResponseEnd",
    "SessionBusy",
    "SessionContainer",
    "SessionError",
    "SessionSelector",
    "SessionStore",
    "Settings",
    "StateError",
    "StatusUpdate",
    "StepBegin",
    "SubagentEvent",
    "SyncAgent",
    "SyncTurn",
    "TextPart",
    "ThinkPart",
    "ToolCall",
    "ToolCallContext",
    "ToolResult",
    "ToolReturnValue",
    "ToolSpec",
    "TurnBegin",
    "TurnEnd",
    "TurnStatus",
    "UnknownSession",
    "UsageError",
    "Workspace",
    "build_memory_store",
    "encode_event",
    "load_settings",
    "open_agent",
    "open_agent_sync",
    "open_conversation",
    "providers",
    "resolve_request",
    "run_turn",
    "scripted_call",
    "scripted_model",
    "serve_wire",
    "tool",
    "tool_error",
    "tool_ok",
]

_LATER = {
    "FunctionTool": "function_tool",
    "SyncAgent": "blocking",
    "SyncTurn": "blocking",
    "open_agent_sync": "blocking",
    "tool": "function_tool",
}
"""The names that are imported with their first use, with their modules: not every program needs them."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)


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
    from kimi.interfaces.wire.run import build_wire_server  # programs that open agents do without

    async with open_conversation(app, selector or SessionSelector()) as conversation:
        await build_wire_server(app, conversation, write).serve(read)
