"""The prompt queue of a session: one prompt runs, the others wait in order (acp spec 4.2)."""

from __future__ import annotations

from collections import deque
from typing import Final

import anyio

from kimi.application.conversation.running_turn import RunningTurn
from kimi.interfaces.acp.transport.errors import queue_full

MAX_PENDING_PROMPTS: Final = 16


class QueuedPrompt:
    """One prompt, from its arrival to its answer. All waiting before its turn must be inside of `wait_scope`."""

    def __init__(self) -> None:
        self.is_cancelled = False
        self.wait_scope = anyio.CancelScope()
        self.reached_front = anyio.Event()
        self._turn: RunningTurn | None = None

    def cancel(self) -> None:
        """Cancel the prompt, whether it waits or runs. Idempotent."""
        self.is_cancelled = True
        self.wait_scope.cancel()
        if self._turn is not None:
            self._turn.scope.cancel()

    def bind_turn(self, turn: RunningTurn) -> None:
        """Record the turn that the prompt became."""
        self._turn = turn
        if self.is_cancelled:  # a cancel that came after the waiting and before the turn existed
            turn.scope.cancel()


class PromptQueue:
    """Runs the prompts of a session one at a time, in the order of their arrival."""

    def __init__(self) -> None:
        self._prompts: deque[QueuedPrompt] = deque()
        self._became_empty = anyio.Event()

    @property
    def is_empty(self) -> bool:
        """Whether no prompt runs or waits."""
        return not self._prompts

    def enqueue(self) -> QueuedPrompt:
        """Add a prompt, without waiting. Raises RpcError if the queue is full."""
        if len(self._prompts) > MAX_PENDING_PROMPTS:
            raise queue_full()
        ticket = QueuedPrompt()
        self._prompts.append(ticket)
        return ticket

    async def wait_for_turn(self, prompt: QueuedPrompt) -> None:
        """Wait until this prompt is the first in the queue."""
        if self._prompts[0] is not prompt:
            await prompt.reached_front.wait()

    def remove(self, prompt: QueuedPrompt) -> None:
        """Remove a prompt that was answered or given up, and let the first of the rest run."""
        self._prompts.remove(prompt)
        if self._prompts:
            self._prompts[0].reached_front.set()
        else:
            self._became_empty.set()
            self._became_empty = anyio.Event()

    def cancel_all(self) -> None:
        """Cancel all prompts in the queue. They stay in it until they are answered, so later prompts wait for them."""
        for ticket in self._prompts:
            ticket.cancel()

    async def join(self) -> None:
        """Wait until no prompt runs or waits."""
        while self._prompts:
            await self._became_empty.wait()
