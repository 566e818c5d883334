"""The prompts of one session: one runs, the others wait in order, all of them can be cancelled (acp spec 4.2)."""

from __future__ import annotations

from collections import deque
from typing import Final

import anyio

from kimi.application.conversation.conversation import RunningTurn
from kimi.interfaces.acp.transport.errors import queue_full

MAX_WAITING: Final = 16


class Ticket:
    """One prompt, from its arrival to its answer. What it waits for before its turn begins is inside of `before`."""

    def __init__(self) -> None:
        self.cancelled = False
        self.before = anyio.CancelScope()
        self.first = anyio.Event()
        self._turn: RunningTurn | None = None

    def cancel(self) -> None:
        """End the prompt, wherever it is. Idempotent."""
        self.cancelled = True
        self.before.cancel()
        if self._turn is not None:
            self._turn.scope.cancel()

    def runs(self, turn: RunningTurn) -> None:
        """The prompt is this turn now."""
        self._turn = turn
        if self.cancelled:
            turn.scope.cancel()


class Lane:
    """First come, first served."""

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()
        self._emptied = anyio.Event()

    @property
    def is_empty(self) -> bool:
        """Does no prompt run or wait?"""
        return not self._tickets

    def enter(self) -> Ticket:
        """Take a place in the queue, at once. Raises Refused: it is full."""
        if len(self._tickets) > MAX_WAITING:
            raise queue_full()
        ticket = Ticket()
        self._tickets.append(ticket)
        return ticket

    async def turn_comes(self, ticket: Ticket) -> None:
        """Wait until it is this prompt's turn."""
        if self._tickets[0] is not ticket:
            await ticket.first.wait()

    def leave(self, ticket: Ticket) -> None:
        """The prompt is over: the next one's turn has come."""
        self._tickets.remove(ticket)
        if self._tickets:
            self._tickets[0].first.set()
        else:
            self._emptied.set()
            self._emptied = anyio.Event()

    def cancel(self) -> None:
        """Cancel everything that is here now; what comes later waits for its end."""
        for ticket in self._tickets:
            ticket.cancel()

    async def emptied(self) -> None:
        """Wait until no prompt runs or waits."""
        while self._tickets:
            await self._emptied.wait()
