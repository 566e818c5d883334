"""The agent for programs without an event loop: the same, in a thread of its own."""

from __future__ import annotations

import atexit
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal

from kimi.domain.content.parts import ContentPart
from kimi.domain.errors import StateError
from kimi.domain.events.event import Event
from kimi.domain.events.request import ApprovalRequest, QuestionRequest
from kimi.interfaces.embed.agent import Agent, open_agent
from kimi.interfaces.embed.options import AgentOptions, ApprovalVerdict, ModelOption

if TYPE_CHECKING:
    from kimi.domain.turn import TurnStatus, UsageFigures
    from kimi.interfaces.embed.agent_turn import AgentTurn

T = TypeVar("T")

_NOT_OPEN: Final = "The agent is not open; use `with`."


def open_agent_sync(
    work_dir: str | Path | None = None, model: ModelOption | None = None, **options: Unpack[AgentOptions]
) -> SyncAgent:
    """Return an agent for `with open_agent_sync(...) as agent:`, with the arguments and errors of `open_agent`.

    It runs on an event loop in a thread of its own. Its methods block, and may be called from any thread.
    """
    return SyncAgent(partial(open_agent, work_dir, model, **options))


class SyncTurn:
    """A prompt that runs while its events are read, once: `for event in agent.prompt("...")`.

    Leaving the loop early cancels the turn.
    """

    def __init__(self, agent: SyncAgent, turn: AgentTurn) -> None:
        self._agent = agent
        self._turn = turn

    @property
    def status(self) -> TurnStatus | None:
        """How the turn ended; None before."""
        return self._turn.status

    @property
    def text(self) -> str:
        """The text of the last step so far: at the end of the turn this is the answer."""
        return self._turn.text

    def __iter__(self) -> Generator[Event, None, None]:
        try:
            while (event := self._agent.call(self._turn.next_event)) is not None:
                yield event
        finally:
            with suppress(StateError):  # closed meanwhile, and the turn with it
                self._agent.call(self._turn.close)

    def answer(self) -> str:
        """Read to the end and return the text of the answer; see `AgentTurn.answer`."""
        return self._agent.call(self._turn.answer)

    def cancel(self) -> None:
        """Ask the turn to end; its last events still come."""
        self._agent.call(self._turn.cancel)


class SyncAgent:
    """An agent whose methods block; see `Agent`. It may be used from several threads, one turn at a time."""

    def __init__(self, make: Callable[[], Agent]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._context: AbstractContextManager[BlockingPortal] | None = None
        self._portal: BlockingPortal | None = None
        self._agent: Agent | None = None
        self._thread_id: int | None = None

    def __enter__(self) -> SyncAgent:
        return self.open()

    def __exit__(self, *error: object) -> None:
        self.close()

    def open(self) -> SyncAgent:
        """Start the thread and open the session; `close` ends both, and the end of the program does."""
        with self._lock:
            if self._context is not None or self._agent is not None:
                raise StateError("An agent is opened once; call open_agent_sync again.")
            self._context = start_blocking_portal("asyncio")
            portal = self._context.__enter__()
            try:
                self._thread_id = portal.call(_name_thread)
                self._agent = portal.call(self._make)
                portal.call(self._agent.open)
            except BaseException:
                self._context.__exit__(*sys.exc_info())
                self._context = None
                raise
            self._portal = portal
            atexit.register(self.close)
        return self

    def close(self) -> None:
        """Cancel the turn, close the session and end the thread. Idempotent. Raises StateError on that thread."""
        self._check_thread()
        atexit.unregister(self.close)
        with self._lock:
            if self._context is None or self._agent is None or self._portal is None:
                return
            context, portal, self._context, self._portal = self._context, self._portal, None, None
            try:
                portal.call(self._agent.close)
            finally:
                context.__exit__(None, None, None)

    def prompt(self, user_input: str | Sequence[ContentPart]) -> SyncTurn:
        """Return a turn, which runs while its events are read: `for event in agent.prompt("...")`."""
        return SyncTurn(self, self.agent.prompt(user_input))

    @overload
    def ask(self, user_input: str | Sequence[ContentPart]) -> str: ...
    @overload
    def ask(self, user_input: str | Sequence[ContentPart], answer_type: type[T]) -> T: ...
    def ask(self, user_input: str | Sequence[ContentPart], answer_type: type[Any] | None = None) -> Any:
        """Run a turn and return its answer; see `Agent.ask`."""
        ask: Callable[..., Any] = self.agent.ask
        return self.call(partial(ask, user_input, answer_type))

    def cancel(self) -> bool:
        """Ask the running turn to end, from any thread; return False when none runs."""
        return self.call(self.agent.cancel)

    def steer(self, user_input: str | Sequence[ContentPart]) -> None:
        """Add a message to the running turn, from any thread. Raises StateError when no turn takes one."""
        self.call(partial(self.agent.steer, user_input))

    def resolve(self, request: ApprovalRequest | QuestionRequest, answer: ApprovalVerdict | Mapping[str, Any]) -> bool:
        """Answer a request that came as an event, from any thread; see `Agent.resolve`."""
        return self.call(partial(self.agent.resolve, request, answer))

    def use_model(self, model: ModelOption, *, thinking: bool | None = None) -> None:
        """Use another model from the next step on; see `Agent.use_model`."""
        self.call(partial(self.agent.use_model, model, thinking=thinking))

    def call(self, function: Callable[[], T | Awaitable[T]]) -> T:
        """Call a function on the agent's event loop and return its result; an interrupt (Ctrl-C) cancels it.

        Raises StateError when the loop has ended, and on its own thread.
        """
        portal = self._portal
        if portal is None:
            raise StateError(_NOT_OPEN)
        self._check_thread()
        ended = threading.Event()

        async def run() -> T:
            try:
                result = function()
                return await cast("Awaitable[T]", result) if inspect.isawaitable(result) else cast("T", result)
            finally:
                ended.set()

        try:
            future = portal.start_task_soon(run)
        except RuntimeError as error:  # closed by another thread at this moment
            raise StateError(_NOT_OPEN) from error
        try:
            return future.result()
        except CancelledError as error:
            raise StateError(_NOT_OPEN) from error
        except BaseException:
            if future.cancel():
                ended.wait()
            raise

    def _check_thread(self) -> None:
        if self._portal is not None and threading.get_ident() == self._thread_id:
            raise StateError("An async function of a SyncAgent cannot wait for it: use a plain function, or `agent`.")

    @property
    def agent(self) -> Agent:
        """The agent, whose methods belong to its own event loop. Raises StateError when it is not open."""
        if self._portal is None or self._agent is None:
            raise StateError(_NOT_OPEN)
        return self._agent

    @property
    def session_id(self) -> str:
        """The id of the session, to go on with it later."""
        if self._agent is None:
            raise StateError(_NOT_OPEN)
        return self._agent.session_id

    @property
    def usage(self) -> UsageFigures:
        """The tokens and the cost of the last turn and of the session."""
        return self.agent.usage


def _name_thread() -> int:
    threading.current_thread().name = "kimi agent"
    return threading.get_ident()
