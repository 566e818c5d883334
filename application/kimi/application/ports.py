"""The ports: everything the application needs from outside, as protocols and plain callables.

Each contract states order, cancellation, errors and idempotence. Every adapter passes the suite of its port in
`tests/contracts`. "Cancelled" means that an anyio cancel scope around the call was cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from kimi.domain.approval import Effect
from kimi.domain.background import BackgroundTask, Sink, TaskOrder, TaskOutput
from kimi.domain.event import Event
from kimi.domain.hook import CommandHook
from kimi.domain.message import JsonObject, Message
from kimi.domain.request import Answer, HookAnswer, Request
from kimi.domain.session import ContextRecord, SessionState, SessionSummary
from kimi.domain.skill import Skill
from kimi.domain.stream import StreamPart
from kimi.domain.tool import ToolReturnValue, ToolSpec
from kimi.domain.turn import StopReason, TokenUsage

if TYPE_CHECKING:
    from kimi.application.settings import McpServer
    from kimi.domain.subagent import SubagentRecord

# --- the model ------------------------------------------------------------------------------------------------


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


# --- tools ----------------------------------------------------------------------------------------------------


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
    """A call that is ready to run. `effect` is None when nothing about it needs to be decided."""

    run: Callable[[], Awaitable[ToolReturnValue]]
    effect: Effect | None = None


class CallRejected(Exception):
    """Raised by a call's `run`: the person rejected what it asked, in so many words. The turn ends (tools 5.3)."""


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

ThirdPartyTool: TypeAlias = Callable[["Workspace"], "Tool | None"]
"""Makes a tool that does not come with the program, over the workspace of a conversation; None: unavailable here."""

CheckSchema: TypeAlias = Callable[[JsonObject], str | None]
"""Is this a valid JSON Schema (draft 2020-12)? The validator's text when it is not."""

CheckArguments: TypeAlias = Callable[[JsonObject, Any], str | None]
"""Does the value match the schema? A text with path and error, at most 2 000 characters, when it does not."""


# --- tools of servers -----------------------------------------------------------------------------------------

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
        """Begin to connect. Returns at once; idempotent."""
        ...

    def servers(self) -> Sequence[SourceServer]:
        """All servers in the order of their configuration."""
        ...

    @property
    def version(self) -> int:
        """Grows with every change of what `servers` gives."""
        ...

    async def settled(self) -> None:
        """Wait until no server is being connected for the first time any more."""
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
        """Take these servers instead, or the same: who is new, changed, or not connected, is connected afresh; the
        others keep their connection. Returns at once."""
        ...

    def end(self) -> None:
        """Ask all servers to end. Returns at once; idempotent."""
        ...

    async def ended(self, patience_s: float) -> None:
        """Wait until they have; after `patience_s` seconds none is left alive. Also without `end`, also cancelled."""
        ...


# --- the machine ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileStat:
    """A file as it was looked at. `identity` changes when the file is replaced or its content changes."""

    real_path: str
    kind: Literal["file", "directory", "other"]
    size: int
    mode: int
    identity: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shell:
    """The shell that runs commands: what the model is told, how it is started."""

    name: str
    path: str
    language: Literal["bash", "powershell"]
    arguments: tuple[str, ...] = ("-c",)


class Process(Protocol):
    """A running command. Its output (stdout and stderr merged) is iterated once, in blocks of bytes."""

    def output(self) -> AsyncIterator[bytes]:
        """Blocks in order of arrival, at most 256 KiB each.

        Ends when the command has ended and what was buffered is read; a descendant that keeps the pipe open
        delays it by at most half a second.
        """
        ...

    async def wait(self) -> int:
        """The exit status; a signal is a negative number. Idempotent."""
        ...

    async def kill(self, grace_s: float = 2.0) -> None:
        """End the whole process tree: terminate, wait `grace_s` seconds, kill. Idempotent."""
        ...


class Workspace(Protocol):
    """Files and processes of a conversation: bytes in, bytes out. Paths are absolute.

    Every method raises OSError as the operating system does. Blocking work happens off the event loop.
    """

    @property
    def work_dir(self) -> str:
        """The work dir as it was given: absolute, normalised, symlinks kept."""
        ...

    @property
    def shell(self) -> Shell:
        """The shell that `run` starts for a command line."""
        ...

    async def stat(self, path: str) -> FileStat | None:
        """The file behind `path`, symlinks followed; None when there is none. Never opens it.

        For a missing file use `real_path`.
        """
        ...

    async def real_path(self, path: str) -> str:
        """`path` with every symlink of its existing part resolved; the file need not exist."""
        ...

    def read(self, path: str, offset: int = 0) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The content from byte `offset`, in blocks of at most 1 MiB; memory use does not depend on the size."""
        ...

    async def read_small(self, path: str) -> tuple[FileStat, bytes | None] | None:
        """What `stat` gives, with all the content of a regular file below 1 MiB; both are of the same open file.

        The content is None for a longer file and for what is no regular file, which is not opened.
        """
        ...

    async def write(self, path: str, content: bytes, expected: FileStat | None) -> FileStat:
        """Replace or create the file at the real path `path`, atomically, mode bits kept; parents are created.

        Refused with `FileChanged` when the file is no longer what `expected` says (None: there was none), or
        when its real path is no longer `path`. After an error the old content is there, whole.
        """
        ...

    def run(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, merge_stderr: bool = True
    ) -> AbstractAsyncContextManager[Process]:
        """Start a program in the work dir with empty stdin and its own process group.

        `env` is added to the environment that commands get (our own secrets removed). Leaving the context, also
        by cancellation, kills the process tree if the command is still running.
        """
        ...


class FileChanged(OSError):
    """The file on disk is not the one the caller looked at; nothing was written."""


# --- background tasks -----------------------------------------------------------------------------------------


class BackgroundTasks(Protocol):
    """The commands of one session that run beside its turns. Ids of tasks are unguessable and never used again.

    A task outlives the turn that started it. One that nothing was heard of for too long is `lost`. Methods are cheap
    enough for the event loop: they read and write small files.
    """

    def start(self, order: TaskOrder) -> BackgroundTask:
        """Start a command; returns before it has done anything. Raises TooManyTasks, OSError; nothing is left then."""
        ...

    def tasks(self) -> Sequence[BackgroundTask]:
        """All tasks of the session, also of earlier runs, newest first."""
        ...

    def find(self, task_id: str) -> BackgroundTask | None:
        """The task as it stands now; None for an unknown id."""
        ...

    def output(self, task_id: str, max_bytes: int) -> TaskOutput:
        """The end of what it has written, at most `max_bytes` bytes as UTF-8."""
        ...

    def stop(self, task_id: str, reason: str) -> None:
        """Ask for the end of a task with everything it has started; it then is `killed`. Returns at once.

        Nothing happens to a task that has ended. Raises OSError.
        """
        ...

    def unannounced(self, sink: Sink) -> Sequence[BackgroundTask]:
        """The tasks that have ended and that `sink` was not told of, oldest first. Costs next to nothing if none."""
        ...

    def announced(self, task_id: str, sink: Sink) -> None:
        """`sink` was told of the end of the task: also after a restart it is not told again.

        What cannot be stored is logged and holds until then.
        """
        ...

    def end(self) -> None:
        """Ask all tasks that were started to end, as the program will; nothing when they are to be kept alive."""
        ...

    async def ended(self, patience_s: float) -> None:
        """Wait until they have, at most `patience_s` seconds."""
        ...


# --- sessions -------------------------------------------------------------------------------------------------


class SessionFiles(Protocol):
    """One open session. Only its holder writes; `close` gives it free again. Methods raise `StoreFailed`.

    Appending is synchronous on purpose: one write to an open file costs less than a thread hop, and what was
    announced to a client must be in the hands of the operating system.
    """

    @property
    def id(self) -> str: ...

    @property
    def directory(self) -> str | None:
        """Where spilled output may go; None for a store without files."""
        ...

    @property
    def resumed(self) -> bool:
        """Did the session have at least one recorded event when it was opened?"""
        ...

    @property
    def state(self) -> SessionState: ...

    def load_context(self) -> list[ContextRecord]:
        """All records, unreadable lines left out, every tool call answered (runtime spec 4.7). Idempotent."""
        ...

    def append_context(self, records: Sequence[ContextRecord]) -> None:
        """Add records with one write. When it returns the operating system has them."""
        ...

    def rotate_context(self, records: Iterable[ContextRecord]) -> None:
        """Replace the context by `records`; the old one is kept beside it. Atomic at every instant (R-64)."""
        ...

    def append_event(self, envelope: bytes, timestamp: float) -> None:
        """Add one event, given as the JSON of `{"type", "payload"}`. Timestamps never decrease in the file."""
        ...

    def events(self) -> Iterator[bytes]:
        """The envelopes of the events recorded until now, in order, read lazily; unreadable lines left out."""
        ...

    def timed_events(self) -> Iterator[tuple[bytes, float]]:
        """The same, each with the time of its record in Unix seconds; 0 where the record tells none."""
        ...

    def older_contexts(self) -> Iterator[list[ContextRecord]]:
        """The contexts that `rotate_context` replaced, newest first, as they were then; read as they are asked for."""
        ...

    def save_state(self, state: SessionState) -> None:
        """Store the state atomically; what other programs changed of title and archive fields survives."""
        ...

    async def sync(self) -> None:
        """Bring what was appended to the disk itself. Errors are logged, not raised."""
        ...

    def close(self) -> None:
        """Release the session; an empty one that this process created is removed. Idempotent."""
        ...

    def child(self, agent_id: str) -> SubagentFiles:
        """The files of a subagent, old or new; they belong to this session and its lock.

        Nothing is made before the first record. Raises InvalidSessionId for what cannot be a name.
        """
        ...

    def children(self) -> Sequence[str]:
        """The ids of the subagents that have files."""
        ...


class SubagentFiles(SessionFiles, Protocol):
    """What is stored of one subagent: a context and an event log like a session's, and who it is."""

    @property
    def record(self) -> SubagentRecord | None:
        """As it was last read or saved; None for a subagent that is not known."""
        ...

    def save_record(self, record: SubagentRecord) -> None:
        """Store the record atomically."""
        ...

    def save_prompt(self, text: str) -> None:
        """Keep what the subagent was asked last."""
        ...

    def append_output(self, text: str) -> None:
        """Add to the text that the subagent has answered."""
        ...


class SessionStore(Protocol):
    """The sessions of one work dir. Ids are checked first (`InvalidSessionId`)."""

    async def create(self, session_id: str) -> SessionFiles:
        """A new, empty session. Nothing need be on disk before the first record."""
        ...

    async def open(self, session_id: str) -> SessionFiles | None:
        """An existing session, or None. `SessionBusy` when another process still holds it after 5 s."""
        ...

    def last(self) -> str | None:
        """The session that `--continue` means, or None."""
        ...

    def mark_last(self, session_id: str) -> None:
        """Remember the session as the last of the work dir."""
        ...

    def list(self) -> Sequence[SessionSummary]:
        """The non-empty sessions, newest first."""
        ...

    async def delete(self, session_id: str) -> bool:
        """Remove a session that this program created; False when there is none."""
        ...


class SessionCatalog(Protocol):
    """The stored sessions of all work dirs that share a store. Looking changes nothing. Methods block: use a thread."""

    def list(self, work_dir: str | None = None) -> Sequence[SessionSummary]:
        """The non-empty sessions of one work dir, or of all that are known, in no order."""
        ...

    def work_dirs(self, session_id: str) -> Sequence[str | None]:
        """The work dirs that have a session of this id: None for one whose path is not known. Raises InvalidSessionId."""
        ...

    def has(self, work_dir: str, session_id: str) -> bool:
        """Does this work dir have a session of this id? Raises InvalidSessionId."""
        ...


# --- plain functions ------------------------------------------------------------------------------------------

Now: TypeAlias = Callable[[], float]
"""Unix seconds."""

NewId: TypeAlias = Callable[[], str]
"""A fresh random UUID as text."""

Random: TypeAlias = Callable[[], float]
"""A number in [0, 1), for the jitter of back-off."""

LoadSystemPrompt: TypeAlias = Callable[[], str]
"""The system prompt for a new session."""

LoadSkills: TypeAlias = Callable[[], Sequence[Skill]]
"""All usable skills, of each name one. What cannot be used is left out, with a line in the log. Raises nothing."""

ReadSkill: TypeAlias = Callable[[str], str]
"""The text of a skill's file as it is now. Raises OSError, or ValueError when it is not UTF-8."""

RunHook: TypeAlias = Callable[[CommandHook, JsonObject], Awaitable[HookAnswer]]
"""Run a hook's command with the object on its stdin and give its verdict. At most the hook's time: then, and when it
is cancelled, the whole process tree is killed. Raises nothing: what fails allows, with a line in the log."""
