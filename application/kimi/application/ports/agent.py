"""The ports of the agent: the model that answers, the tools that it may call, the servers that lend tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from kimi.domain.content.message import JsonObject, Message
from kimi.domain.content.stream import StreamPart
from kimi.domain.events.event import Event
from kimi.domain.events.request import Answer, Request
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec
from kimi.domain.turn import StopReason, TokenUsage

if TYPE_CHECKING:
    from kimi.application.settings.settings import McpServer
    from kimi.domain.tools.diff import ChangedText

# --- the model ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResponseEnd:
    """The last item of a model's stream: its message id, its usage if known, and why it stopped."""

    message_id: str | None = None
    usage: TokenUsage | None = None
    stop_reason: StopReason = "unknown"


ModelItem: TypeAlias = StreamPart | ResponseEnd


class ChatModel(Protocol):
    """A model that answers a history with a stream of parts."""

    @property
    def name(self) -> str:
        """The name for messages to the user, e.g. in a capability error."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """What it can take and do: `thinking`, `always_thinking`, `image_in`, `video_in`."""
        ...

    @property
    def context_size(self) -> int:
        """The window, in tokens."""
        ...

    def stream(
        self,
        system: str,
        history: Sequence[Message],
        tools: Sequence[ToolSpec],
        tokens_used: int,
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelItem]]:
        """Ask for the next message.

        Order: parts come as the provider sends them; the pieces of one tool call follow their call, those of
        two calls never interleave; exactly one `ResponseEnd` is the last item of a stream that did not fail.
        Every tool call has a non-empty id when it is given out. `tokens_used` is the size of the context as far
        as it is known, for limits that the request may carry. Messages are immutable: an adapter may keep what
        it encoded of them from one call to the next.

        Cancellation and leaving the context early close the connection at once.

        Raises only the model branch of the error tree, on entering or while iterating. It never waits and tries
        again by itself: the caller decides on retries.
        """
        ...


OpenModel: TypeAlias = Callable[[str, Callable[[], str]], "ChatModel | None"]
"""Session id, and what to add to the User-Agent at each request -> the model of the process's settings; None when
no usable model is configured."""


# --- tools --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCallContext:
    """All that a tool may know of the call it serves, and the two ways to speak while it runs.

    `emit` puts an event on the stream, in order. `ask` puts a request there and waits for its answer; it is
    settled with a refusal when the turn ends or the client goes away, so it never waits for ever.
    """

    session_id: str
    turn_id: str
    step: int
    call_id: str
    call_name: str
    raw_arguments: str | None
    emit: Callable[[Event], Awaitable[None]]
    ask: Callable[[Request], Awaitable[Answer]]
    agent_id: str | None = None
    subagent_type: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call that is ready to run. `effect` is None when nobody has to be asked about it; only deny rules count then,
    for which `subject` is the real path or the address that it is about.

    `changed` is the file that it would change, for drivers that show more than the hunks of its display.
    """

    run: Callable[[], Awaitable[ToolReturnValue]]
    proposed_action: ProposedAction | None = None
    changed_text: ChangedText | None = None
    subject: str = ""


class CallRejected(Exception):
    """Raised by a call's `run`: the person rejected what it asked, in so many words. The turn ends (tools spec 5.3)."""


class Tool(Protocol):
    """Something that the model may call."""

    @property
    def spec(self) -> ToolSpec:
        """Constant for the life of the tool."""
        ...

    def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AbstractAsyncContextManager[PreparedCall]:
        """Validate the arguments and find out what the call would do, without doing it.

        Bad arguments are not an exception: the prepared call then has no effect and its `run` gives the error.
        What must hold from the question to the action (the lock of a path, the text a diff was made from) is
        held while the context is open. `run` is awaited at most once. Nothing here asks for approval: the
        policy decides on the effect.

        Cancellation leaves no child process, no lock and no half-written file. `run` raises nothing that is
        meant for the model; an exception that escapes is reported as a broken tool.
        """
        ...


MakeTool: TypeAlias = Callable[[str], "Tool | None"]
"""Tool id -> a tool of this conversation; None when it is unavailable here. Raises KeyError: unknown id."""

CheckSchema: TypeAlias = Callable[[JsonObject], str | None]
"""Is this a valid JSON Schema (draft 2020-12)? The validator's text when it is not."""

CheckArguments: TypeAlias = Callable[[JsonObject, Any], str | None]
"""Does the value match the schema? A text with path and error, at most 2 000 characters, when it does not."""


# --- tools of servers ---------------------------------------------------------------------------------------------

ServerState: TypeAlias = Literal[
    "pending", "connecting", "connected", "reconnecting", "failed", "unauthorized", "disabled"
]


@dataclass(frozen=True, slots=True)
class SourceTool:
    """A tool as its server describes it. `parameters` is a valid JSON Schema of an object.

    `read_only` is what the server says of it, which nobody has checked. `title` is for people.
    """

    server: str
    name: str
    description: str
    parameters: JsonObject
    title: str | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class SourceServer:
    """A server as it stands now; `reason` says in one sentence why it cannot be used, if it cannot.

    The tools of one that is lost for now stay the last known. No text holds a secret of its configuration.
    """

    name: str
    state: ServerState
    reason: str = ""
    tools: tuple[SourceTool, ...] = ()


@dataclass(frozen=True, slots=True)
class Elicitation:
    """What a server wants to know during a call. `schema` describes an object of plain values; None: nothing but a
    yes, or something that cannot be answered here when there is a `url`."""

    message: str
    schema: JsonObject | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class ElicitationAnswer:
    """The answer to an elicitation; `content` belongs to an accepted one."""

    action: Literal["accept", "decline", "cancel"]
    content: JsonObject | None = None


class SourceCallFailed(Exception):
    """A call to a server did not come to a result; the text says what the server, or the way to it, said."""


class SourceTimedOut(SourceCallFailed):
    """No result came in time."""


class SourceDisconnected(SourceCallFailed):
    """The server went away during the call, which may or may not have taken effect."""


class SourceUnavailable(SourceCallFailed):
    """The server is not connected; nothing was sent."""


class ToolSource(Protocol):
    """Servers that lend tools to one conversation (tools spec 4). All methods are for its event loop.

    Servers connect side by side and in the background; what goes wrong with one is its state, and raises nowhere.
    One that goes away is connected again, a few times; a call is never repeated.
    """

    def start(self) -> None:
        """Begin to connect. Returns at once; idempotent, and nothing after `end`."""
        ...

    def servers(self) -> Sequence[SourceServer]:
        """All servers in the order of their configuration."""
        ...

    @property
    def version(self) -> int:
        """Grows with every change of what `servers` gives."""
        ...

    async def wait_for_first_connect(self) -> None:
        """After `start`: wait until no server is being connected for the first time any more, or until `end`."""
        ...

    async def call(
        self,
        server: str,
        tool: str,
        arguments: JsonObject,
        elicit: Callable[[Elicitation], Awaitable[ElicitationAnswer]],
    ) -> ToolReturnValue:
        """Call a tool by the name that the server knows.

        `elicit` is asked what the server wants to know meanwhile. The result is a whole one: nothing is cut. Raises
        SourceCallFailed or one of its kind, nothing else. Cancellation tells the server and keeps the connection.
        """
        ...

    def reload(self, servers: Sequence[McpServer] | None = None) -> None:
        """Take these servers instead, or the same: who is new, changed, or has failed, is connected afresh; the others
        keep their connection, and calls that run there go on. Returns at once; nothing is connected before `start`.
        """
        ...

    def request_stop(self) -> None:
        """Ask all servers to end; none is connected any more. Returns at once; idempotent."""
        ...

    async def stop_and_wait(self, timeout_s: float) -> None:
        """`end`, then wait until they have; after `patience_s` seconds none is left alive, if this is not cancelled.
        Idempotent."""
        ...
