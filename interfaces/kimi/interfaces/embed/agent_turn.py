"""One prompt of an agent: its events, its answer, its end."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import anyio

from kimi.domain.content.parts import TextPart
from kimi.domain.errors import StateError
from kimi.domain.events.event import Event, StepBegin, StepInterrupted, StepRetry, TurnBegin
from kimi.interfaces.embed.options import NoAnswer

if TYPE_CHECKING:
    from kimi.application.conversation.running_turn import RunningTurn
    from kimi.domain.turn import TurnStatus


async def outlast(is_over: Callable[[], bool], wait: Callable[[], Awaitable[object]]) -> None:
    """Wait until something is over, however the caller is cancelled meanwhile; that takes effect afterwards."""
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):  # against scopes; `Task.cancel` and `asyncio.timeout` come through
        while not is_over():
            try:
                await wait()
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled


class TurnFeed:
    """The events of one turn on their way from the agent to the reader; the agent waits until they are taken.

    All of it happens on one event loop. After `drop` nobody reads and nothing waits.
    """

    def __init__(self, running: RunningTurn, events: Sequence[Event] = ()) -> None:
        self._running = running
        self._events = deque(events)
        self._changed = anyio.Event()
        self.is_dropped = False
        self.is_over = False
        self.error: Exception | None = None
        self.status: TurnStatus | None = None

    async def send(self, events: Sequence[Event]) -> None:
        """Give events to the reader; wait until it has taken all of them."""
        self._events.extend(events)
        self._wake()
        while self._events and not self.is_dropped:
            await self._changed.wait()

    async def receive(self) -> Event | None:
        """Return the next event; None at the end. Raises what the turn raised."""
        while not self._events and not self.is_over:
            await self._changed.wait()
        if self._events and not self.is_dropped:
            event = self._events.popleft()
            if not self._events:
                self._wake()
            return event
        if self.error is not None:
            raise self.error
        return None

    def finish(self, status: TurnStatus | None, error: Exception | None) -> None:
        """Say that the turn is over. Idempotent: the first end counts, and an error that was there before it."""
        if self.is_over:
            return
        self.status = status
        self.error = self.error or error
        self.is_over = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """Cancel the turn because of an error, which its reader gets."""
        self.error = self.error or error
        self.cancel()

    def cancel(self) -> None:
        """Ask the turn to end; its last events still come. Idempotent."""
        self._running.scope.cancel()

    def drop(self) -> None:
        """Cancel the turn, because nobody reads its events any more. Idempotent."""
        self.is_dropped = True
        self._events.clear()
        self.cancel()
        self._wake()

    async def wait_until_over(self) -> None:
        """Wait for the end of the turn, also when the caller is cancelled: it settles in a moment."""
        await outlast(lambda: self.is_over, lambda: self._changed.wait())  # noqa: PLW0108 -- each time another one

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class AgentTurn:
    """A prompt that runs while its events are read, once: `async for event in agent.prompt("...")`.

    Leaving the loop early cancels the turn, and so does cancelling the task that reads. The loop raises what the turn
    raised (`KimiError`); a turn that was cancelled simply ends, see `status`. `await turn.answer()` reads to the end
    and returns the text of the answer.
    """

    def __init__(self, start: Callable[[], Awaitable[TurnFeed]]) -> None:
        self._start = start
        self._feed: TurnFeed | None = None
        self._is_closed = False
        self._answer: list[str] = []

    @property
    def status(self) -> TurnStatus | None:
        """How the turn ended; None before."""
        return self._feed.status if self._feed is not None else None

    @property
    def text(self) -> str:
        """The text of the last step so far: at the end of the turn this is the answer."""
        return "".join(self._answer)

    def __aiter__(self) -> AsyncIterator[Event]:
        return _TurnReader(self)

    def __del__(self) -> None:
        if self._feed is None and not self._is_closed:
            warnings.warn(
                "A prompt was never read, so nothing was asked: write `async for event in agent.prompt(...)` or "
                "`await agent.ask(...)`.",
                RuntimeWarning,
                source=self,
                stacklevel=1,
            )

    async def next_event(self) -> Event | None:
        """Return the next event; None after the end. The first call begins the turn.

        Cancelling it cancels the turn. Raises StateError when another turn is running; else what the turn raised.
        """
        if self._is_closed:
            return None
        try:
            if self._feed is None:
                self._feed = await self._start()
            event = await self._feed.receive()
        except BaseException:
            await self.close()
            raise
        if event is None:
            self._is_closed = True
        else:
            self._note(event)
        return event

    async def answer(self) -> str:
        """Read to the end and return the text of the answer; empty if the last step said nothing.

        Raises NoAnswer for a turn that was cancelled or reached the limit of steps; else what the turn raised.
        """
        async for _ in self:
            pass
        status = self.status
        if status is None:
            raise StateError("This prompt was left before it had begun; call prompt again.")
        if status.status == "cancelled":
            raise NoAnswer("The turn was cancelled.", status)
        if status.status == "max_steps_reached":
            raise NoAnswer(f"The turn took as many steps as it may: {status.steps}.", status)
        return self.text

    def cancel(self) -> None:
        """Ask the turn to end; its last events still come. Does nothing when it is over."""
        if self._feed is not None:
            self._feed.cancel()

    async def close(self) -> None:
        """Cancel the turn if it runs, and wait until it has ended. Idempotent."""
        self.abandon()
        if self._feed is not None:
            await self._feed.wait_until_over()

    def abandon(self) -> None:
        """Cancel the turn, whose events nobody reads any more, without waiting for its end. Idempotent."""
        self._is_closed = True
        if self._feed is not None and not self._feed.is_over:
            self._feed.drop()

    def _note(self, event: Event) -> None:
        match event:
            case TurnBegin() | StepBegin() | StepRetry() | StepInterrupted():
                self._answer.clear()
            case TextPart(text):
                self._answer.append(text)
            case _:
                pass


class _TurnReader:
    """The iterator of one `async for`. Python drops it when the loop is left, and then the turn is cancelled.

    An async generator would be closed by a task that runs later: the next prompt would find this one still running.
    """

    def __init__(self, turn: AgentTurn) -> None:
        self._turn = turn
        self._thread_id = threading.get_ident()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self._turn.next_event()
        if event is None:
            raise StopAsyncIteration
        return event

    def __del__(self) -> None:
        # Dropped by the collector in another thread: there the loop cannot be touched, and the agent's end remains.
        if threading.get_ident() == self._thread_id:
            self._turn.abandon()
