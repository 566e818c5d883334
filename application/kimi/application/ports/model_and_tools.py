"""The ports of the agent: the model that answers, its tools, and the servers that provide further tools."""

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
from kimi.domain.turn import Cost, StopReason, TokenUsage

if TYPE_CHECKING:
    from kimi.application.settings.settings import McpServer
    from kimi.domain.tools.diff import ChangedText

# --- the model ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResponseEnd:
    """The last item of a model's stream: its message id, its usage and cost if known, and why it stopped."""

    message_id: str | None = None
    usage: TokenUsage | None = None
    stop_reason: StopReason = "unknown"
    cost: Cost | None = None


ModelItem: TypeAlias = StreamPart | ResponseEnd


class ChatModel(Protocol):
    """A model that answers a history with a stream of parts."""

    @property
    def name(self) -> str:
        """The name for messages to the user, e.g. in a capability error."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """The inputs and abilities of the model: `thinking`, `always_thinking`, `image_in`, `video_in`."""
        ...

    @property
    def context_size(self) -> int:
        """The size of the context window, in tokens."""
        ...

    def stream(
        self,
        system: str,
        history: Sequence[Message],
        tools: Sequence[ToolSpec],
        tokens_used: int,
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelItem]]:
        """Request the next message.

        Order: parts come as the provider sends them. The pieces of one tool call follow their call, and those of two
        calls never interleave. Exactly one `ResponseEnd` is the last item of a stream that did not fail. Every tool
        call that the stream yields has a non-empty id.

        `tokens_used` is the size of the context as far as it is known, for limits that the request may carry. Messages
        are immutable: an adapter may keep their encoding from one call to the next.

        Cancellation: cancelling, and leaving the context early, close the connection at once.

        Errors: only the model branch of the error tree is raised, on entering or while iterating. The model never waits
        and retries by itself: the caller decides on retries.
        """
        ...


OpenModel: TypeAlias = Callable[[str, Callable[[], str]], "ChatModel | None"]
"""Open the model of the process's settings for a session id; None if no usable model is configured.

The second argument returns what to add to the User-Agent at each request.
"""


# --- tools --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCallContext:
    """The call that a tool runs for, and the two ways to reach the client while it runs.

    `emit` puts an event on the stream; events keep their order. `ask` puts a request there and waits for its answer.
    The request is resolved with a refusal when the turn ends or the client disconnects, so the wait always ends.
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
    has_rule: Callable[[str], bool] = lambda subject: True
    """Whether a rule of the user may deny, or ask about, a call with this subject. May be called in any thread."""


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call that is ready to run.

    Without a `proposed_action` no approval is needed; then only deny rules apply. `subject` is the real path, or the
    address, that they match; with a `proposed_action` they match it beside that of the action. `changed_text` is the
    file that the call would change, for drivers that show more than the hunks of its display.
    """

    run: Callable[[], Awaitable[ToolReturnValue]]
    proposed_action: ProposedAction | None = None
    changed_text: ChangedText | None = None
    subject: str = ""


class CallRejected(Exception):
    """Raised by the `run` of a call when the user explicitly rejected its question. The turn ends (tools spec 5.3)."""


class Tool(Protocol):
    """A tool that the model may call."""

    @property
    def spec(self) -> ToolSpec:
        """The description of the tool; constant for the life of the tool."""
        ...

    def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AbstractAsyncContextManager[PreparedCall]:
        """Validate the arguments and find out what the call would do, without doing it.

        Bad arguments are not an exception: the prepared call then has no proposed action, and its `run` returns the
        error. `prepare` never asks for approval: the policy decides on the proposed action.

        Order: what must hold from the approval to the action (the lock of a path, the text of a diff) is held while the
        context is open. `run` is awaited at most once, inside of the context.

        Cancellation leaves no child process, no lock and no half-written file.

        Errors: a result for the model is returned, never raised; an exception of `run` other than `CallRejected` is
        reported as a crashed tool.
        """
        ...


MakeTool: TypeAlias = Callable[[str], "Tool | None"]
"""Make the tool of this id for a conversation; None if it is unavailable here. Raises KeyError for an unknown id."""

CheckSchema: TypeAlias = Callable[[JsonObject], str | None]
"""Check a JSON Schema (draft 2020-12); return None if it is valid, else the validator's text."""

CheckArguments: TypeAlias = Callable[[JsonObject, Any], str | None]
"""Check a value against a schema; return None if it matches, else path and error in at most 2 000 characters."""


# --- tools of servers ---------------------------------------------------------------------------------------------

ServerState: TypeAlias = Literal[
    "pending", "connecting", "connected", "reconnecting", "failed", "unauthorized", "disabled"
]


@dataclass(frozen=True, slots=True)
class SourceTool:
    """A tool as its server describes it. `parameters` is a valid JSON Schema of an object.

    `read_only` is the server's own, unverified claim. `title` is for users.
    """

    server: str
    name: str
    description: str
    parameters: JsonObject
    title: str | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class SourceServer:
    """A snapshot of a server; `reason` says in one sentence why it cannot be used, if it cannot.

    A server that is being reconnected keeps the tools of its last connection. No text holds a secret of its
    configuration.
    """

    name: str
    state: ServerState
    reason: str = ""
    tools: tuple[SourceTool, ...] = ()


@dataclass(frozen=True, slots=True)
class Elicitation:
    """A question of a server during a call.

    `schema` describes an object of plain values. Without it the server wants only a consent or, if there is a `url`,
    something that cannot be answered here.
    """

    message: str
    schema: JsonObject | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class ElicitationAnswer:
    """The answer to an elicitation; `content` belongs to an accepted one."""

    action: Literal["accept", "decline", "cancel"]
    content: JsonObject | None = None


class SourceCallFailed(Exception):
    """A call to a server had no result; the text is the error of the server or of the connection."""


class SourceTimedOut(SourceCallFailed):
    """No result came in time."""


class SourceDisconnected(SourceCallFailed):
    """The server disconnected during the call, which may or may not have taken effect."""


class SourceAnswerRefused(SourceDisconnected):
    """The server sent what exceeds a limit, and was disconnected; the text is a sentence that says which."""


class SourceUnavailable(SourceCallFailed):
    """The server is not connected; nothing was sent."""


class ToolSource(Protocol):
    """Servers that provide tools for one conversation (tools spec 4). All methods must be called on its event loop.

    Servers connect concurrently, in the background. A failure of a server becomes its state; only `call` raises. A
    server that disconnects is reconnected a few times; a call is never repeated.
    """

    def start(self) -> None:
        """Start connecting.

        Returns at once. Idempotent; does nothing after `request_stop`.
        """
        ...

    def servers(self) -> Sequence[SourceServer]:
        """Return a snapshot of all servers, in the order of their configuration."""
        ...

    @property
    def version(self) -> int:
        """A number that grows with every change of what `servers` returns."""
        ...

    async def wait_for_first_connect(self) -> None:
        """Wait until every server has connected or failed for the first time, or until `request_stop`.

        Call it after `start`. Cancellation ends only the wait.
        """
        ...

    async def call(
        self,
        server: str,
        tool: str,
        arguments: JsonObject,
        elicit: Callable[[Elicitation], Awaitable[ElicitationAnswer]],
    ) -> ToolReturnValue:
        """Call a tool by the name that its server uses.

        `elicit` is called for each question of the server meanwhile. The result is complete: nothing is cut. Calls may
        run concurrently.

        Cancellation notifies the server and keeps the connection.

        Raises SourceCallFailed or a subclass, nothing else.
        """
        ...

    def reload(self, servers: Sequence[McpServer] | None = None) -> None:
        """Replace the servers by these, or reload the present ones.

        A server that is new, changed or failed is connected afresh; the others keep their connection, and their running
        calls go on. Returns at once; nothing is connected before `start`, and nothing happens after `request_stop`.
        """
        ...

    def request_stop(self) -> None:
        """Ask all servers to end; none is connected after that. Returns at once. Idempotent."""
        ...

    async def stop_and_wait(self, timeout_s: float) -> None:
        """Do `request_stop`, then wait until all servers have ended, at most `timeout_s` seconds.

        After that no process of a server is alive, unless the wait is cancelled. Idempotent.
        """
        ...
