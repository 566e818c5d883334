"""The names of the package `kimi-agent-sdk`, over `kimi.interfaces.embed`, for programs that were written for it.

    from kimi.interfaces.agent_sdk import Session, prompt  # in place of: from kimi_agent_sdk import Session, prompt

Signatures and behaviour are the same as far as docs/embedding.md says. New programs use `open_agent`.
"""

from __future__ import annotations

import inspect
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypedDict, TypeVar, Unpack, cast

import anyio

from kimi.domain.content.message import Message as HistoryMessage
from kimi.domain.content.message import ToolCall, ToolCallPart, message_text
from kimi.domain.content.parts import AudioPart as AudioURLPart
from kimi.domain.content.parts import ContentPart, TextPart, ThinkPart
from kimi.domain.content.parts import ImagePart as ImageURLPart
from kimi.domain.content.parts import VideoPart as VideoURLPart
from kimi.domain.content.stream import PART_TYPES, PartMerger
from kimi.domain.errors import (
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    APITimeoutError,
    ChatProviderError,
    ConfigError,
    KimiError,
    UnknownSession,
    UsageError,
)
from kimi.domain.errors import CapabilityMissing as LLMNotSupported
from kimi.domain.errors import ModelNotSet as LLMNotSet
from kimi.domain.errors import StateError as SessionStateError
from kimi.domain.events import request as requests
from kimi.domain.events.event import (
    ApprovalResponse,
    CompactionBegin,
    CompactionEnd,
    Event,
    StatusUpdate,
    StepBegin,
    StepInterrupted,
    SubagentEvent,
    ToolResult,
    TurnBegin,
    TurnEnd,
)
from kimi.domain.events.request import ApprovalAnswer, ApprovalKind
from kimi.domain.tools.tool import ToolReturnValue
from kimi.domain.turn import TurnStatus
from kimi.interfaces.embed import NoAnswer, open_agent
from kimi.interfaces.embed.options import check_option_names
from kimi.interfaces.print.stream_json_output import MessageAssembly

if TYPE_CHECKING:
    from kimi.interfaces.embed import Agent, AgentTurn

__all__ = [
    "APIConnectionError",
    "APIEmptyResponseError",
    "APIStatusError",
    "APITimeoutError",
    "AgentSpecError",
    "ApprovalHandlerFn",
    "ApprovalRequest",
    "ApprovalResponse",
    "AudioURLPart",
    "ChatProviderError",
    "CompactionBegin",
    "CompactionEnd",
    "ConfigError",
    "ContentPart",
    "ImageURLPart",
    "InvalidToolError",
    "KimiAgentException",
    "LLMNotSet",
    "LLMNotSupported",
    "MCPConfigError",
    "MCPRuntimeError",
    "MaxStepsReached",
    "Message",
    "PromptValidationError",
    "RunCancelled",
    "Session",
    "SessionStateError",
    "StatusUpdate",
    "StepBegin",
    "StepInterrupted",
    "SubagentEvent",
    "TextPart",
    "ThinkPart",
    "ToolCall",
    "ToolCallPart",
    "ToolResult",
    "ToolReturnValue",
    "TurnBegin",
    "TurnEnd",
    "VideoURLPart",
    "WireMessage",
    "prompt",
]

KimiAgentException = KimiError
AgentSpecError = ConfigError
InvalidToolError = ConfigError
MCPConfigError = ConfigError
MCPRuntimeError = ConfigError
"""A required server that does not work; any other server fails without ending anything, as its state says."""

T = TypeVar("T")
UserInput: TypeAlias = str | Sequence[ContentPart]


class PromptValidationError(KimiError):
    """The arguments of `prompt` do not go together."""


class MaxStepsReached(NoAnswer):
    """The turn took as many steps as it may."""

    @property
    def n_steps(self) -> int:
        """The number of steps."""
        return self.status.steps or 0


class RunCancelled(NoAnswer):
    """The turn was cancelled."""


class SessionOptions(TypedDict, total=False):
    """What a session of `kimi-agent-sdk` is opened with."""

    config: Path | str | Mapping[str, Any] | None
    """The path of a configuration, its text, or its tables."""
    model: str | None
    thinking: bool
    yolo: bool
    agent_file: Path | str | None
    mcp_configs: Sequence[Mapping[str, Any] | str | Path] | None
    skills_dir: object
    max_steps_per_turn: int | None
    max_retries_per_step: int | None
    max_ralph_iterations: int | None


class PromptOptions(SessionOptions, total=False):
    """The arguments of `prompt` beside the input."""

    work_dir: object
    approval_handler_fn: ApprovalHandlerFn | None
    final_message_only: bool


class AssembledMessage:
    """A whole message of a conversation; `Message` is its name for users of this module."""

    def __init__(self, message: HistoryMessage) -> None:
        self.role = message.role
        self.content: Sequence[ContentPart] = message.content
        self.tool_calls: Sequence[ToolCall] = message.tool_calls
        self.tool_call_id = message.tool_call_id
        self._message = message

    def __repr__(self) -> str:
        return f"Message(role={self.role!r}, content={self.content!r}, tool_calls={self.tool_calls!r})"

    def extract_text(self, sep: str = "") -> str:
        """Return the text of the message without thinking and media."""
        return message_text(self._message, sep)


class ResolvableApproval:
    """A question for approval that is answered by `resolve`; `ApprovalRequest` is its name for users of this module."""

    def __init__(self, request: requests.ApprovalRequest, send: Callable[[ApprovalAnswer], object] | None = None):
        self.id = request.id
        self.tool_call_id = request.tool_call_id
        self.sender = request.sender
        self.action = request.action
        self.description = request.description
        self.display = request.display
        self._send = send
        self._answer: ApprovalAnswer | None = None
        self._resolved = anyio.Event()

    def __repr__(self) -> str:
        return f"ApprovalRequest(id={self.id!r}, sender={self.sender!r}, description={self.description!r})"

    @property
    def resolved(self) -> bool:
        """Whether it was answered here."""
        return self._answer is not None

    def resolve(self, response: ApprovalKind, feedback: str = "") -> None:
        """Answer with `approve`, `approve_for_session` or `reject`; later answers count for nothing.

        Raises ValueError for other words.
        """
        if response not in ("approve", "approve_for_session", "reject"):
            raise ValueError(f"{response!r} is no answer: say 'approve', 'approve_for_session' or 'reject'.")
        if self._answer is None:
            self._answer = ApprovalAnswer(response, feedback)
            self._resolved.set()
            if self._send is not None:
                self._send(self._answer)

    async def wait(self) -> ApprovalKind:
        """Wait for the answer and return its word."""
        return (await self.wait_for_answer()).response

    async def wait_for_answer(self) -> ApprovalAnswer:
        """Wait for the answer."""
        await self._resolved.wait()
        return cast("ApprovalAnswer", self._answer)


Message = AssembledMessage
ApprovalRequest = ResolvableApproval
ApprovalHandlerFn: TypeAlias = Callable[[ResolvableApproval], Awaitable[None] | None]
WireMessage: TypeAlias = Event | ResolvableApproval
Translate: TypeAlias = Callable[[Event | None], list[T]]
"""Returns what an event is translated to; None stands for the end of the turn."""


class TranslatedTurn(Generic[T]):
    """A turn as an asynchronous iterator of messages. It is cancelled by `aclose`, or when it is dropped unfinished.

    That is at the end of an `async for message in session.prompt(...)` that is left early, as no name keeps it.
    """

    def __init__(self, turn: AgentTurn, translate: Translate[T]) -> None:
        self._turn = turn
        self._events = turn.__aiter__()
        self._translate = translate
        self._ready: deque[T] = deque()
        self._has_ended = False

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        while not self._ready:
            if self._has_ended:
                _check_end(self._turn.status)
                raise StopAsyncIteration
            event = await anext(self._events, None)
            self._has_ended = event is None
            self._ready.extend(self._translate(event))
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Cancel the turn if it runs, and wait until it has ended. Idempotent."""
        await self._turn.close()


def _check_end(status: TurnStatus | None) -> None:
    if status is not None and status.status == "cancelled":
        raise RunCancelled("The turn was cancelled.", status)
    if status is not None and status.status == "max_steps_reached":
        raise MaxStepsReached(f"Max number of steps reached: {status.steps}", status)


class Session:
    """A session; `create` and `resume` open it, `close` or `async with` closes it."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    @classmethod
    async def create(
        cls, work_dir: object = None, *, session_id: str | None = None, **options: Unpack[SessionOptions]
    ) -> Session:
        """Open a new session, or that of `session_id`. Raises ConfigError, SessionStateError and other KimiErrors."""
        check_option_names("create", options, SessionOptions)
        return cls(await _open(_build_agent(work_dir, options, session_id, "events")))

    @classmethod
    async def resume(
        cls, work_dir: object, session_id: str | None = None, **options: Unpack[SessionOptions]
    ) -> Session | None:
        """Open a stored session, the last one of the work directory without an id; None if there is none."""
        check_option_names("resume", options, SessionOptions)
        agent = _build_agent(work_dir, options, session_id, "events", must_exist=True)
        try:
            return cls(await _open(agent))
        except (UnknownSession, _NoLastSession):
            return None

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._agent.session_id

    @property
    def model_name(self) -> str:
        """The name of the model; empty without one."""
        model = self._agent.conversation.model
        return model.name if model is not None else ""

    def prompt(self, user_input: UserInput, *, merge_wire_messages: bool = False) -> TranslatedTurn[WireMessage]:
        """Run a turn while its messages are read; with `merge_wire_messages` streamed pieces come as whole parts.

        Reading raises LLMNotSet, LLMNotSupported, ChatProviderError, MaxStepsReached, RunCancelled, SessionStateError.
        """
        merger = PartMerger() if merge_wire_messages else None
        return TranslatedTurn(self._agent.prompt(user_input), lambda event: self._translate(event, merger))

    def _translate(self, event: Event | None, merger: PartMerger | None) -> list[WireMessage]:
        if merger is not None and isinstance(event, PART_TYPES):
            return [*merger.push(event)]
        done: list[WireMessage] = [*merger.flush()] if merger is not None else []
        if isinstance(event, requests.ApprovalRequest):
            asked = event
            return [*done, ResolvableApproval(asked, lambda answer: self._agent.resolve(asked, answer))]
        return done if event is None else [*done, event]

    def cancel(self) -> None:
        """Cancel the running turn; who reads it gets RunCancelled."""
        self._agent.cancel()

    async def close(self) -> None:
        """Close the session. Idempotent."""
        await self._agent.close()


class _PromptMessages:
    """Puts the messages of a prompt together; with `final_only` only the last of the assistant."""

    def __init__(self, *, final_only: bool) -> None:
        self._final_only = final_only
        self._assembly = MessageAssembly()
        self._last: AssembledMessage | None = None

    def translate(self, event: Event | None) -> list[AssembledMessage]:
        """Return the messages that are complete with this event."""
        complete = self._assembly.flush() if event is None else self._assembly.take(event)
        messages = [AssembledMessage(one) for one in complete]
        if not self._final_only:
            return messages
        self._last = next((one for one in reversed(messages) if one.role == "assistant"), self._last)
        return [self._last] if event is None and self._last is not None else []


def prompt(user_input: UserInput, **options: Unpack[PromptOptions]) -> AsyncGenerator[AssembledMessage, None]:
    """Run one prompt in a new session and yield its messages, or the last one with `final_message_only`.

    Raises PromptValidationError without `yolo` and `approval_handler_fn`. Reading raises what `Session` does.
    """
    check_option_names("prompt", options, PromptOptions)
    handler = options.get("approval_handler_fn")
    if handler is None and not options.get("yolo"):
        raise PromptValidationError("Give `approval_handler_fn`, which answers questions, or `yolo=True`.")

    async def approve(request: requests.ApprovalRequest) -> ApprovalAnswer:
        asked = ResolvableApproval(request)
        if handler is not None and (waiting := handler(asked)) is not None and inspect.isawaitable(waiting):
            await waiting
        return await asked.wait_for_answer()

    agent = _build_agent(options.get("work_dir"), options, None, approve)
    messages = _PromptMessages(final_only=options.get("final_message_only", False))
    return _run_prompt(agent, user_input, messages)


async def _run_prompt(
    agent: Agent, user_input: UserInput, messages: _PromptMessages
) -> AsyncGenerator[AssembledMessage, None]:
    try:
        await _open(agent)
        async for message in TranslatedTurn(agent.prompt(user_input), messages.translate):
            yield message
    finally:
        await agent.close()


class _NoLastSession(Exception):
    """The work directory has no session to go on with."""


_OPTION_NAMES: Final = {
    "agent_file": "agent_file",
    "thinking": "thinking",
    "mcp_configs": "mcp_configs",
    "max_steps_per_turn": "max_steps",
    "max_retries_per_step": "max_attempts",
    "max_ralph_iterations": "ralph_iterations",
}


def _build_agent(
    work_dir: object, options: SessionOptions, session: str | None, approve: Any, *, must_exist: bool = False
) -> Agent:
    given = cast("dict[str, Any]", options)
    mapped = {ours: given[theirs] for theirs, ours in _OPTION_NAMES.items() if given.get(theirs) is not None}
    mapped["approve"] = "all" if options.get("yolo") else approve
    if (config := options.get("config")) is not None:
        mapped["config"] = json.dumps(dict(config)) if isinstance(config, Mapping) else config
    if (skills := options.get("skills_dir")) is not None:
        mapped["skills_dirs"] = [str(skills)]
    if session is not None:
        mapped |= {"session": session, "must_exist": must_exist}
    elif must_exist:
        mapped["continue_last"] = True
    return open_agent(str(work_dir or "."), options.get("model"), **mapped)


async def _open(agent: Agent) -> Agent:
    """Open an agent. Raises ConfigError for every mistake of the caller, as the package did."""
    try:
        return await agent.open()
    except UsageError as error:
        if error.hint == "--continue":
            raise _NoLastSession from error
        raise ConfigError(str(error)) from error
