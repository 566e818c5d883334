"""The prompts of one session: one runs, the others wait in order, all of them can be cancelled (acp spec 4.2)."""

from __future__ import annotations

from collections import deque
from typing import Final

import anyio

from kimi.application.conversation.running_turn import RunningTurn
from kimi.interfaces.acp.transport.errors import queue_full

MAX_PENDING_PROMPTS: Final = 16


class QueuedPrompt:
    """One prompt, from its arrival to its answer. What it waits for before its turn begins is inside of `before`."""

    def __init__(self) -> None:
        self.is_cancelled = False
        self.wait_scope = anyio.CancelScope()
        self.reached_front = anyio.Event()
        self._turn: RunningTurn | None = None

    def cancel(self) -> None:
        """End the prompt, wherever it is. Idempotent."""
        self.is_cancelled = True
        self.wait_scope.cancel()
        if self._turn is not None:
            self._turn.scope.cancel()

    def bind_turn(self, turn: RunningTurn) -> None:
        """The prompt is this turn now."""
        self._turn = turn
        if self.is_cancelled:
            turn.scope.cancel()


class PromptQueue:
    """First come, first served."""

    def __init__(self) -> None:
        self._prompts: deque[QueuedPrompt] = deque()
        self._became_empty = anyio.Event()

    @property
    def is_empty(self) -> bool:
        """Does no prompt run or wait?"""
        return not self._prompts

    def enqueue(self) -> QueuedPrompt:
        """Take a place in the queue, at once. Raises Refused: it is full."""
        if len(self._prompts) > MAX_PENDING_PROMPTS:
            raise queue_full()
        ticket = QueuedPrompt()
        self._prompts.append(ticket)
        return ticket

    async def wait_for_turn(self, prompt: QueuedPrompt) -> None:
        """Wait until it is this prompt's turn."""
        if self._prompts[0] is not prompt:
            await prompt.reached_front.wait()

    def remove(self, prompt: QueuedPrompt) -> None:
        """The prompt is over: the next one's turn has come."""
        self._prompts.remove(prompt)
        if self._prompts:
            self._prompts[0].reached_front.set()
        else:
            self._became_empty.set()
            self._became_empty = anyio.Event()

    def cancel_all(self) -> None:
        """Cancel everything that is here now; what comes later waits for its end."""
        for ticket in self._prompts:
            ticket.cancel()

    async def join(self) -> None:
        """Wait until no prompt runs or waits."""
        while self._prompts:
            await self._became_empty.wait()
