"""The outbox of a JSON-RPC driver: a bounded queue of lines, written in order (wire spec 1.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate, takewhile
from typing import Final

import anyio

PIECE_BYTES: Final = 1024 * 1024
"""How many bytes of the outbox are joined for one write, unless one line alone has more."""


MAX_UNREAD_ANSWER_BYTES: Final = 2 * 1024 * 1024
"""How many bytes of answers a client may leave unread, beyond the high-water mark, before its input waits."""


class Outbox:
    """Queues lines and writes them in order, joined to pieces.

    `put` never waits, so a response is always accepted; a producer of many lines must await `wait_for_capacity`. Who
    reads requests must await `wait_for_reader` while `is_flooded`: a client may send any number of requests and read no
    answer. After a failed write or `fail`, `is_broken` is set, `on_broken` has been called once, and lines are dropped.
    """

    def __init__(
        self, write: Callable[[bytes], Awaitable[None]], high_water: int, on_broken: Callable[[], None]
    ) -> None:
        self._write = write
        self._high_water = high_water
        self._on_broken = on_broken
        self._lines: list[bytes] = []
        self._size: int = 0
        self._answer_bytes = 0  # queued since the queue was last empty
        self._arrived = anyio.Event()
        self._written = anyio.Event()
        self._writing = False
        self.is_broken = False

    def put(self, line: bytes) -> None:
        """Queue lines, each with its line end; none at all are no write."""
        if self.is_broken or not line:
            return
        self._lines.append(line)
        self._size += len(line)
        self._arrived.set()

    def put_answer(self, line: bytes) -> None:
        """Queue the answer to a request."""
        self._answer_bytes += len(line)
        self.put(line)

    @property
    def is_flooded(self) -> bool:
        """Whether the client has sent requests for more answers than it reads. Events alone never flood the outbox:
        a client may stop reading and still cancel."""
        excess = self._size - self._high_water
        return min(excess, self._answer_bytes) > MAX_UNREAD_ANSWER_BYTES and not self.is_broken

    async def wait_for_reader(self) -> None:
        """Wait until the outbox is no longer flooded."""
        while self.is_flooded:
            await self._written.wait()

    async def wait_for_capacity(self) -> None:
        """Wait until no more than the high-water mark is queued."""
        while self._size > self._high_water and not self.is_broken:
            await self._written.wait()

    async def flush(self) -> None:
        """Wait until everything is written, or the outbox is broken."""
        while (not self._is_empty() or self._writing) and not self.is_broken:
            await self._written.wait()

    @property
    def is_write_stuck(self) -> bool:
        """Whether a write is under way; after `run` was cancelled, whether a write is blocked by the reader."""
        return self._writing and not self.is_broken

    def fail(self) -> None:
        """Drop all lines, now and later, because the other side is gone. Idempotent."""
        if self.is_broken:
            return
        self.is_broken = True
        self._lines.clear()
        self._size = 0
        self._on_broken()
        self._notify_written()

    async def run(self) -> None:
        """Write until cancelled."""
        while not self.is_broken:
            if self._is_empty():
                # No await between the check and the new event, so no `put` is missed.
                self._arrived = anyio.Event()
                await self._arrived.wait()
            self._writing = True  # not reset when the write is cancelled: see `is_write_stuck`
            try:
                await self._write(self.take_piece())  # not named, or the piece would be kept until the next one
            except OSError:
                self.fail()
                return
            self._writing = False
            self._notify_written()

    def _is_empty(self) -> bool:
        return not self._lines

    def take_piece(self) -> bytes:
        """Remove the next piece of what is queued, and return it.

        All lines joined at once would be in memory twice, and as many more arrive while a slow reader takes them.
        """
        count = len(self._lines) if self._size <= PIECE_BYTES else max(1, _count_fitting(self._lines))
        block = b"".join(self._lines[:count])
        del self._lines[:count]
        self._size -= len(block)
        if not self._lines:
            self._answer_bytes = 0
        return block

    def _notify_written(self) -> None:
        self._written.set()
        self._written = anyio.Event()


def _count_fitting(lines: Sequence[bytes]) -> int:
    """Return how many of the first lines are no larger than a piece together."""
    return sum(1 for _ in takewhile(PIECE_BYTES.__ge__, accumulate(map(len, lines))))
