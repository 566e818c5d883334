"""Read standard input and write standard output asynchronously: pipes, sockets, terminals, regular files.

Blocking reads and writes run in threads: a switch of a descriptor to non-blocking would change it for every process
that shares it, and regular files cannot be polled at all.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable

import anyio
import anyio.to_thread

BLOCK_BYTES = 65_536
PIPE_BUF: int = getattr(select, "PIPE_BUF", 0)
"""How many bytes a pipe accepts in one piece; 0 on Windows, whose pipes cannot be polled."""

MAX_BLOCKS_AHEAD = 16
"""How many blocks the reading thread may read ahead before it waits for `read`."""


class BlockReader:
    """Reads blocks from a descriptor in a daemon thread, so that a blocked read never delays the exit.

    `on_end` is called when `read` reaches the end of the input.
    """

    def __init__(self, fd: int, on_end: Callable[[], None] = lambda: None) -> None:
        self._fd = fd
        self._on_end = on_end
        self._is_closed = False
        self._blocks: deque[bytes] = deque()
        self._arrived = anyio.Event()
        self._slots = threading.Semaphore(MAX_BLOCKS_AHEAD)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def read(self) -> bytes:
        """Return the next block; empty at the end of the input."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._read_blocks, name="stdin", daemon=True).start()
        while not self._blocks and not self._is_closed:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        # Blocks that were read ahead are dropped after `close`: no further request may begin.
        block = b"" if self._is_closed else self._blocks.popleft()
        self._slots.release()
        if not block:
            self._is_closed = True
            self._on_end()
        return block

    def close(self) -> None:
        """End the input here, and drop the rest of it. Idempotent."""
        self._is_closed = True
        self._arrived.set()

    def _read_blocks(self) -> None:
        assert self._loop is not None
        block = b"?"
        while block:
            self._slots.acquire()
            try:
                block = os.read(self._fd, BLOCK_BYTES)
            except OSError:  # the other side of a terminal or socket is gone, which is the end of the input
                block = b""
            try:
                self._loop.call_soon_threadsafe(self._append_block, block)
            except RuntimeError:  # the event loop was closed during the read
                return

    def _append_block(self, block: bytes) -> None:
        self._blocks.append(block)
        self._arrived.set()


async def write_all(fd: int, data: bytes) -> None:
    """Write everything. Raises OSError if the other side is gone.

    A small piece for a pipe that has room is written directly; anything that could block is written in a thread, which
    costs as much as a hundred small pieces.
    """
    if len(data) <= PIPE_BUF and _has_room(fd):
        _write_blocking(fd, data)
    else:
        await anyio.to_thread.run_sync(_write_blocking, fd, data, abandon_on_cancel=True)


def _has_room(fd: int) -> bool:
    """Whether this is a pipe that accepts `PIPE_BUF` bytes without blocking: POSIX guarantees it if it is writable."""
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        return False
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(0))


def _write_blocking(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


async def wait_for_hangup(fd: int) -> None:
    """Wait until the other side of an output pipe or socket is gone; for ever if that cannot be detected.

    A write would detect it too, but only after a tool may have run without a client.
    """
    if sys.platform != "win32":
        try:
            await anyio.wait_readable(fd)
        except OSError:  # a regular file
            await anyio.sleep_forever()
        if _is_hung_up(fd):
            return
    # There was something else to read, or this platform cannot detect it: the next write will.
    await anyio.sleep_forever()


def _is_hung_up(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))
