"""The event channel of a conversation: bounded, ordered, one reader (house rules: one event stream)."""

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
        self._waiting: list[Delivery] = []
        self._arrived = anyio.Event()
        self._taken = anyio.Event()
        self._unfinished = 0
        self._closed = False

    def put(self, delivery: Delivery) -> None:
        """Queue an event at once; whoever does so waits for `room` before the next one. After `close` it is dropped.

        A sender that is cancelled while it waits has delivered its event all the same: it is recorded already.
        """
        if self._closed:
            return
        self._waiting.append(delivery)
        self._unfinished += 1
        if len(self._waiting) == 1:
            self._arrived.set()

    @property
    def unfinished(self) -> int:
        """How many events the driver has not dealt with."""
        return self._unfinished

    async def room(self) -> None:
        """Wait while the channel is over its limit."""
        while len(self._waiting) > self._limit and not self._closed:
            await self._taken.wait()

    async def receive(self) -> list[Delivery]:
        """All events that wait, at least one; empty only after `close`.

        Taking the next batch tells the channel that the last one was dealt with.
        """
        self._finish_batch()
        while not self._waiting and not self._closed:
            await self._arrived.wait()
        batch, self._waiting = self._waiting, []
        self._arrived = anyio.Event()
        return batch

    async def drained(self) -> None:
        """Wait until the driver has dealt with every event sent so far."""
        while self._unfinished and not self._closed:
            await self._taken.wait()

    def close(self) -> None:
        """Nobody reads any more: wake everybody who waits. Idempotent."""
        self._closed = True
        self._unfinished = 0
        self._arrived.set()
        self._taken.set()

    def _finish_batch(self) -> None:
        self._unfinished = len(self._waiting)
        self._taken.set()
        if not self._closed:
            self._taken = anyio.Event()
