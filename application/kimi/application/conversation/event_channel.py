"""The event channel of a conversation: bounded, ordered, one reader."""

from __future__ import annotations

from typing import NamedTuple

import anyio

from kimi.domain.events.event import Event


class Delivery(NamedTuple):
    """An event on its way to the driver, with its envelope where the recorder has encoded it already."""

    event: Event
    envelope: bytes | None


class EventChannel:
    """Hands events from the conversation to its driver, in order.

    A sender whose event finds `limit` others waiting waits until the driver has taken what is there, so a client
    that does not read slows the turn down and memory stays flat. Sending costs no switch of task while there is
    room: a burst is handed over in one piece.
    """

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._queue: list[Delivery] = []
        self._not_empty = anyio.Event()
        self._batch_taken = anyio.Event()
        self._unfinished = 0
        self._closed = False

    def put_nowait(self, delivery: Delivery) -> None:
        """Queue an event; the sender calls `wait_for_capacity` before the next one. After `close` it is dropped.

        A sender that is cancelled while it waits has delivered its event all the same: it is recorded already.
        """
        if self._closed:
            return
        self._queue.append(delivery)
        self._unfinished += 1
        if len(self._queue) == 1:
            self._not_empty.set()

    @property
    def unfinished(self) -> int:
        """How many events the driver has not dealt with."""
        return self._unfinished

    async def wait_for_capacity(self) -> None:
        """Wait while the channel is over its limit."""
        while len(self._queue) > self._limit and not self._closed:
            await self._batch_taken.wait()

    async def receive(self) -> list[Delivery]:
        """All events that wait, at least one; empty only after `close`.

        Taking the next batch tells the channel that the last one was dealt with.
        """
        self._finish_batch()
        while not self._queue and not self._closed:
            await self._not_empty.wait()
        batch, self._queue = self._queue, []
        self._not_empty = anyio.Event()
        return batch

    async def join(self) -> None:
        """Wait until the driver has dealt with every event sent so far."""
        while self._unfinished and not self._closed:
            await self._batch_taken.wait()

    def close(self) -> None:
        """Nobody reads any more: wake everybody who waits. Idempotent."""
        self._closed = True
        self._unfinished = 0
        self._not_empty.set()
        self._batch_taken.set()

    def _finish_batch(self) -> None:
        self._unfinished = len(self._queue)
        self._batch_taken.set()
        if not self._closed:
            self._batch_taken = anyio.Event()
