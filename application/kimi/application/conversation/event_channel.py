"""The event channel of a conversation: a bounded, ordered queue with one reader."""

from __future__ import annotations

from typing import Final, NamedTuple

import anyio

from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.events.event import Event


class Delivery(NamedTuple):
    """An event for the driver, with its envelope if the recorder has encoded it already."""

    event: Event
    envelope: bytes | None


MAX_QUEUED_WEIGHT: Final = 1024 * 1024
"""About how many characters the queued events may hold together."""


class EventChannel:
    """Delivers events from the conversation to its driver, in order and in batches.

    A sender waits while more than `limit` events are queued, or more than `MAX_QUEUED_WEIGHT`, so a client that does
    not read slows the turn down and memory use is bounded. Below the limit, sending does not yield: a burst of events
    is delivered as one batch.
    """

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._queue: list[Delivery] = []
        self._weight = 0
        self._not_empty = anyio.Event()
        self._batch_taken = anyio.Event()
        self._sent = 0
        self._unfinished = 0
        self._closed = False

    def put_nowait(self, delivery: Delivery) -> None:
        """Queue an event; the sender calls `wait_for_capacity` before the next one. After `close` it is dropped.

        Queueing and waiting are separate, so that an event that is recorded already is delivered even if its sender
        is cancelled while it waits.
        """
        if self._closed:
            return
        self._queue.append(delivery)
        self._weight += _weigh(delivery)
        self._sent += 1
        self._unfinished += 1
        if len(self._queue) == 1:
            self._not_empty.set()

    @property
    def unfinished(self) -> int:
        """The number of events that the driver has not handled yet, including the batch that it holds."""
        return self._unfinished

    async def wait_for_capacity(self) -> None:
        """Wait while too many events are queued, or too heavy ones. Returns at once after `close`."""
        while (len(self._queue) > self._limit or self._weight > MAX_QUEUED_WEIGHT) and not self._closed:
            await self._batch_taken.wait()

    async def receive(self) -> list[Delivery]:
        """Wait for events and return all that are queued; the list is empty only after `close`.

        The call also marks the previous batch as handled.
        """
        # Before the wait: `join` returns when the driver comes back for more, not when the next event arrives.
        self._finish_batch()
        while not self._queue and not self._closed:
            await self._not_empty.wait()
        batch, self._queue, self._weight = self._queue, [], 0
        self._not_empty = anyio.Event()
        return batch

    async def join(self) -> None:
        """Wait until the driver has dealt with every event sent so far, whatever is sent meanwhile."""
        awaited = self._sent
        while self._sent - self._unfinished < awaited and not self._closed:
            await self._batch_taken.wait()

    def close(self) -> None:
        """Drop all further events and wake up all waiting tasks, because the reader is gone. Idempotent."""
        self._closed = True
        self._unfinished = 0
        self._not_empty.set()
        self._batch_taken.set()

    def _finish_batch(self) -> None:
        self._unfinished = len(self._queue)
        # Setting the event wakes all senders and `join`, which check again. The next waits need a new event, except
        # after `close`, where nothing may wait any more.
        self._batch_taken.set()
        if not self._closed:
            self._batch_taken = anyio.Event()


def _weigh(delivery: Delivery) -> int:
    """Return about how many characters an event holds; only streamed parts come without an envelope and have many."""
    event, envelope = delivery
    if envelope is not None:
        return len(envelope)
    if isinstance(event, TextPart):
        return len(event.text)
    return len(event.think) if isinstance(event, ThinkPart) else 0
