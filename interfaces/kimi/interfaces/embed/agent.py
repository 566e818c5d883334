"""An agent in the program that embeds it: one session, its turns, who answers its requests, its end."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast, overload

import anyio

from kimi.application.control.resolve_request import resolve_request
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.pending_requests import build_refusal
from kimi.application.turn.run_turn import run_turn
from kimi.domain.content.parts import ContentPart, UserInput
from kimi.domain.errors import ModelNotSet, StateError, UsageError
from kimi.domain.events.event import INTERNAL_TYPES, REQUEST_TYPES, ApprovalResponse, Event
from kimi.domain.events.request import Answer, ApprovalRequest, QuestionAnswer, QuestionRequest, Request
from kimi.interfaces.embed.agent_turn import AgentTurn, TurnFeed, outlast
from kimi.interfaces.embed.assembly import Assembly, SharedApp
from kimi.interfaces.embed.callbacks import RequestAnswers, build_approval
from kimi.interfaces.embed.options import AgentOptions, ApprovalVerdict, ModelOption, check_option_names
from kimi.interfaces.process.log import set_session_id

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from kimi.application.conversation.running_turn import RunningTurn
    from kimi.application.ports import ChatModel
    from kimi.domain.content.message import Message
    from kimi.domain.turn import TurnStatus, UsageFigures

logger = logging.getLogger("kimi.embed")
T = TypeVar("T")

_working_for: ContextVar[tuple[Agent, ...]] = ContextVar("kimi_agents", default=())
"""The agents whose turns or requests the current task works for: it cannot wait for the end of those."""

NO_MODEL: Final = "No model is configured: run 'kimi setup', or give open_agent a `model`."

MAX_WAITING_EVENTS: Final = 256
"""How many events between two turns are kept for the next one; what is older is dropped."""


def open_agent(
    work_dir: str | Path | None = None, model: ModelOption | None = None, **options: Unpack[AgentOptions]
) -> Agent:
    """Return an agent for `async with open_agent(...) as agent:`, which opens its session and closes it.

    `work_dir` is the current directory if it is left out. `model` is a name of the configuration, a `ModelSettings`,
    or a `ChatModel` of your own; without it the agent has the model that the user has configured. Opening raises
    UsageError and ConfigError (what to correct), UnknownSession, SessionBusy, InvalidSessionId and StoreFailed; a
    misspelled option is a TypeError at once.
    """
    check_option_names("open_agent", options, AgentOptions)
    return Agent(Assembly(_find_work_dir(work_dir, options), model, options, RequestAnswers(options)))


def _find_work_dir(given: str | Path | None, options: AgentOptions) -> str:
    settings = options.get("settings")
    if given is None:
        return settings.work_dir if settings is not None else os.getcwd()
    directory = os.path.abspath(os.path.expanduser(given))
    if settings is not None and directory != os.path.abspath(settings.work_dir):
        raise UsageError(f"`work_dir` is '{directory}' and that of `settings` '{settings.work_dir}': say it once.")
    return directory


class Agent:
    """An agent with its session. `open_agent` makes it; it belongs to the event loop that opens it.

    Its conversation lives in a task of its own, so that neither an error nor a cancellation of the caller breaks it
    off in between. One turn runs at a time.
    """

    def __init__(self, assembly: Assembly, shared: SharedApp | None = None, session: str | None = None) -> None:
        self._assembly = assembly
        self._shared = shared
        self._session = session
        self._host: asyncio.Task[None] | None = None
        self._conversation: Conversation | None = None
        self._tasks: TaskGroup | None = None
        self._opened = anyio.Event()
        self._closing = anyio.Event()
        self._failure: BaseException | None = None
        self._feed: TurnFeed | None = None
        self._asking: dict[str, anyio.CancelScope] = {}
        self._waiting_events: deque[Event] = deque(maxlen=MAX_WAITING_EVENTS)

    # --- opening and closing --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Agent:
        return await self.open()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def open(self) -> Agent:
        """Open the session; `close` must follow. `async with` does both. Raises what `open_agent` says."""
        if self._host is not None or self._closing.is_set():
            raise StateError("An agent is opened once; call open_agent again.")
        _check_event_loop()
        self._host = asyncio.create_task(self._live(), name="kimi agent")
        try:
            await self._opened.wait()
        except BaseException:  # cancelled meanwhile
            self._host.cancel()
            await self.close()
            raise
        if self._failure is not None:
            await self.close()
            raise self._failure
        return self

    async def close(self) -> None:
        """Cancel the turn, end what runs beside it, and close the session. Idempotent.

        Takes as long as hooks and programs need to end. It is not broken off by a cancellation. In a tool, hook or
        other function that the agent calls it only asks for the end, which comes after that function.
        """
        host = self._host
        if host is not None and not host.done():
            self._check_own_loop()
        self._closing.set()
        if host is not None and self not in _working_for.get():
            await outlast(host.done, lambda: asyncio.wait([host]))

    @property
    def is_closed(self) -> bool:
        """Whether the agent is closed, or was never open."""
        return self._conversation is None or self._closing.is_set()

    def open_session(self, session: str | None = None) -> Agent:
        """Return an agent for another session, a new one without an id: the same options, one set of connections.

        It is opened and closed by itself, and may outlive this one.
        """
        self._require_open()
        return Agent(self._assembly, self._shared, session or "")

    async def _live(self) -> None:
        """Open the conversation, keep it until `close`, and close it: all in one task, as its scopes demand."""
        try:
            if self._shared is None:
                self._shared = await anyio.to_thread.run_sync(self._assembly.load_app)
            opening = self._assembly.open(self._shared, self._session)
            async with opening as conversation, anyio.create_task_group() as tasks:
                set_session_id(conversation.id)
                self._conversation, self._tasks = conversation, tasks
                tasks.start_soon(self._pump_events, conversation, tasks)
                self._opened.set()
                await self._closing.wait()
                await self._end_turn(conversation)
                tasks.cancel_scope.cancel()
        except BaseException as error:
            self._failure = error
            if not isinstance(error, Exception):
                raise
            if self._opened.is_set():
                logger.exception("an agent failed and was closed")
        finally:
            self._closing.set()
            self._opened.set()
            if self._feed is not None:
                self._feed.finish(None, StateError("The agent was closed."))

    async def _end_turn(self, conversation: Conversation) -> None:
        conversation.events.pending_requests.close()
        if self._feed is not None and not self._feed.is_over:
            self._feed.drop()
            await self._feed.wait_until_over()
        conversation.events.channel.close()

    # --- turns ----------------------------------------------------------------------------------------------------

    def prompt(self, user_input: str | Sequence[ContentPart]) -> AgentTurn:
        """Return a turn, which runs while its events are read: `async for event in agent.prompt("...")`."""
        return AgentTurn(lambda: self._start_turn(user_input if isinstance(user_input, str) else tuple(user_input)))

    @overload
    async def ask(self, user_input: str | Sequence[ContentPart]) -> str: ...
    @overload
    async def ask(self, user_input: str | Sequence[ContentPart], answer_type: type[T]) -> T: ...
    async def ask(self, user_input: str | Sequence[ContentPart], answer_type: type[Any] | None = None) -> Any:
        """Run a turn and return its answer: the text, or an object of `answer_type`.

        The type is one that pydantic can check: a model, a dataclass, `list[int]`. The model is told its schema, and
        gets one chance to correct an answer that does not fit it. Raises NoAnswer, InvalidAnswer, StateError, and what
        the turn raises (ModelError, StoreFailed).
        """
        if answer_type is None:
            return await self.prompt(user_input).answer()
        from kimi.interfaces.embed.structured_answer import ask_for_object

        return await ask_for_object(self, user_input, answer_type)

    async def _start_turn(self, user_input: UserInput) -> TurnFeed:
        conversation, tasks = self._require_open()
        self._check_own_loop()
        previous = self._feed
        if previous is not None and previous.is_dropped:
            await previous.wait_until_over()
            conversation, tasks = self._require_open()
        running = conversation.turns.begin()
        unanswered = [one for one in conversation.events.pending_requests.list_requests() if self._is_for_reader(one)]
        self._feed = feed = TurnFeed(running, [*self._waiting_events, *unanswered])
        self._waiting_events.clear()
        tasks.start_soon(self._run_turn, conversation, feed, running, user_input)
        return feed

    async def _run_turn(
        self, conversation: Conversation, feed: TurnFeed, running: RunningTurn, user_input: UserInput
    ) -> None:
        _working_for.set((*_working_for.get(), self))
        set_session_id(conversation.id)
        status: TurnStatus | None = None
        error: Exception | None = StateError("The agent was closed.")
        try:
            status = await run_turn(conversation, running, user_input)
            error = None
        except ModelNotSet as failure:
            error = failure if failure.reason else ModelNotSet(NO_MODEL)
        except Exception as failure:
            error = failure
        finally:
            for request_id, asking in self._asking.items():
                if conversation.events.pending_requests.find(request_id) is None:
                    asking.cancel()  # the turn is over, and nobody waits for the answer
            feed.finish(status, error)
        await conversation.files.sync()  # after the end: only a power failure needs it, and it takes time

    def cancel(self) -> bool:
        """Ask the running turn to end, from any task; return False when none runs. Its last events still come."""
        if self._feed is None or self._feed.is_over:
            return False
        self._feed.cancel()
        return True

    def steer(self, user_input: str | Sequence[ContentPart]) -> None:
        """Add a message to the running turn. Raises StateError when no turn takes one."""
        from kimi.application.control.steer import steer

        steer(self.conversation, user_input if isinstance(user_input, str) else tuple(user_input))

    # --- events and requests --------------------------------------------------------------------------------------

    async def _pump_events(self, conversation: Conversation, tasks: TaskGroup) -> None:
        """Hand events to the turn's reader, and requests to those who answer them."""
        channel = conversation.events.channel
        try:
            while batch := await channel.receive():
                events = [event for event, _ in batch if not isinstance(event, INTERNAL_TYPES)]
                for event in events:
                    if isinstance(event, REQUEST_TYPES):
                        if (answer := self._assembly.answers.find(event)) is not None:
                            tasks.start_soon(self._answer, conversation, event, answer)
                    elif isinstance(event, ApprovalResponse) and event.request_id in self._asking:
                        self._asking[event.request_id].cancel()  # somebody else has answered
                await self._deliver(events)
        finally:
            channel.close()  # else a turn would wait for ever until its events are taken

    async def _deliver(self, events: Sequence[Event]) -> None:
        """Wait until the reader has taken the events; between two turns keep them for the next one.

        Requests need not be kept: those that still wait are given to the next reader.
        """
        feed = self._feed
        if feed is None or feed.is_over:
            self._waiting_events.extend(event for event in events if not isinstance(event, REQUEST_TYPES))
        elif not feed.is_dropped:
            await feed.send(events)

    def _is_for_reader(self, request: Request) -> bool:
        return self._assembly.answers.find(request) is None

    async def _answer(
        self, conversation: Conversation, request: Request, answer: Callable[[], Awaitable[Answer]]
    ) -> None:
        """Answer a request. An error of the function that should ends the turn, whose reader gets it."""
        _working_for.set((*_working_for.get(), self))
        found = build_refusal(request)
        with anyio.CancelScope() as self._asking[request.id]:
            try:
                found = await answer()
            except Exception as error:
                logger.exception("the function that answers a %s raised", type(request).__name__)
                if self._feed is not None:
                    self._feed.fail(error)
            finally:
                del self._asking[request.id]
            resolve_request(conversation, request.id, found)

    def resolve(self, request: ApprovalRequest | QuestionRequest, answer: ApprovalVerdict | Mapping[str, Any]) -> bool:
        """Answer a request that came as an event; return False when it does not wait (any more).

        An approval is answered with True or "approve", "approve_for_session", False or "reject", or with an
        `ApprovalAnswer`; a question with the chosen label or text for each question. Raises ValueError for others.
        """
        given: Answer
        if isinstance(request, QuestionRequest):
            if not isinstance(answer, Mapping):
                raise ValueError("Questions are answered with a mapping of each question to what was chosen.")
            given = QuestionAnswer(dict(answer))
        else:
            given = build_approval(cast("ApprovalVerdict", answer))
        return resolve_request(self.conversation, request.id, given)

    # --- state ----------------------------------------------------------------------------------------------------

    @property
    def conversation(self) -> Conversation:
        """The conversation, for the use-cases of this package. Raises StateError when the agent is not open."""
        return self._require_open()[0]

    @property
    def session_id(self) -> str:
        """The id of the session, to go on with it later. Raises StateError when the agent was never open."""
        if self._conversation is None:
            raise StateError("The agent is not open; use `async with`.")
        return self._conversation.id

    @property
    def history(self) -> Sequence[Message]:
        """The messages that the model reads."""
        return self.conversation.history.messages

    @property
    def usage(self) -> UsageFigures:
        """The tokens and the cost of the last turn and of the session."""
        return self.conversation.models.usage.figures

    def use_model(self, model: ModelOption, *, thinking: bool | None = None) -> None:
        """Use another model from the next step on. Raises StateError for an unknown name, ConfigError for a wrong one.

        A name of the configuration is stored with the session, other models are not.
        """
        from kimi.application.control.switch_model import switch_model, use_unlisted_model
        from kimi.application.settings.settings import ModelSettings

        conversation = self.conversation
        if isinstance(model, str):
            switch_model(conversation, model, thinking)
        elif isinstance(model, ModelSettings):
            use_unlisted_model(conversation, conversation.models.require_catalog().open_model(model))
        elif hasattr(model, "stream"):
            use_unlisted_model(conversation, cast("ChatModel", model))
        else:
            raise UsageError("Give the name of a model, its settings, or an object that is a `ChatModel`.")

    def _check_own_loop(self) -> None:
        if self._host is not None and self._host.get_loop() is not asyncio.get_running_loop():
            raise StateError("An agent belongs to the event loop that opened it: open another one, or a SyncAgent.")

    def _require_open(self) -> tuple[Conversation, TaskGroup]:
        if self._conversation is None or self._tasks is None:
            raise StateError("The agent is not open; use `async with`.")
        if self._closing.is_set():
            raise StateError("The agent is closed; open another with `session=` to go on.")
        return self._conversation, self._tasks


def _check_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # nothing runs, or trio does
        raise UsageError("An agent needs asyncio: use asyncio.run, or open_agent_sync where there is none.") from None
