"""The reading end of a command's output.

Waiting uses the event loop's readers where they accept pipes (POSIX), and a thread where they do not (Windows).
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import Protocol

import anyio
import anyio.lowlevel

BLOCK_BYTES = 256 * 1024
"""The largest block that a read returns."""

PIPE_BYTES = 1024 * 1024
"""The capacity that the system is asked for, so that a command with much output does not stop for every read."""


class OutputPipe(Protocol):
    """A source of blocks of output, read by one task."""

    async def read(self) -> bytes:
        """Return the next block; empty at the end, or when nothing is left after `stop_waiting`."""
        ...

    def stop_waiting(self) -> None:
        """Return only what has been written by now, at most `PIPE_BYTES` of it, and then the end."""
        ...

    def close(self) -> None:
        """Close the pipe; a process that still writes to it gets the signal for a broken pipe. Idempotent."""
        ...


def open_pipe() -> tuple[OutputPipe, int]:
    """Open a pipe: its reading end, and the descriptor to write to, which the caller closes."""
    reading, writing = os.pipe()
    _enlarge_pipe(reading)
    return (ThreadPipe(reading) if sys.platform == "win32" else SelectorPipe(reading)), writing


def open_pipes() -> tuple[tuple[OutputPipe, int], tuple[OutputPipe, int]]:
    """Open two pipes, for stdout and stderr.

    Raises OSError if there are not enough descriptors; none stays open then.
    """
    first = open_pipe()
    try:
        return first, open_pipe()
    except BaseException:
        first[0].close()
        os.close(first[1])
        raise


class SelectorPipe:
    """A pipe that the event loop watches."""

    def __init__(self, descriptor: int) -> None:
        if sys.platform != "win32":
            os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor
        self._bytes_left: int | None = None
        self._readable = asyncio.Event()

    async def read(self) -> bytes:
        """See `OutputPipe`. Lets other tasks run with every block."""
        await anyio.lowlevel.checkpoint()
        while self._descriptor is not None and self._bytes_left != 0:
            try:
                block = os.read(
                    self._descriptor, min(BLOCK_BYTES, BLOCK_BYTES if self._bytes_left is None else self._bytes_left)
                )
            except BlockingIOError:
                if self._bytes_left is not None:
                    return b""
                await self._wait_readable(self._descriptor)
                continue
            if self._bytes_left is not None:
                self._bytes_left -= len(block)
            return block
        return b""

    def stop_waiting(self) -> None:
        """See `OutputPipe`."""
        if self._bytes_left is None:
            self._bytes_left = PIPE_BYTES
            self._readable.set()

    def close(self) -> None:
        """See `OutputPipe`."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    async def _wait_readable(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        # Nothing is awaited between the check in `read` and this line, so no call of `stop_waiting` is lost.
        self._readable.clear()
        loop.add_reader(descriptor, self._readable.set)
        try:
            await self._readable.wait()
        finally:
            loop.remove_reader(descriptor)


class ThreadPipe:
    """A pipe that a thread reads. It buffers at most `PIPE_BYTES`."""

    def __init__(self, descriptor: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._blocks: deque[bytes] = deque()
        self._held_bytes = 0
        self._capacity = threading.Condition()
        self._closed = False
        self._is_waiting_stopped = False
        self._arrived = asyncio.Event()
        threading.Thread(target=self._pump, args=(descriptor,), name="command output", daemon=True).start()

    async def read(self) -> bytes:
        """See `OutputPipe`."""
        await anyio.lowlevel.checkpoint()
        while not self._blocks and not self._is_waiting_stopped:
            # The thread sets the event through the loop, hence after this line: no block is missed.
            self._arrived.clear()
            await self._arrived.wait()
        return self._take_block() if self._blocks else b""

    def stop_waiting(self) -> None:
        """See `OutputPipe`. What the thread has not read by now is not waited for."""
        self._is_waiting_stopped = True
        self._arrived.set()

    def close(self) -> None:
        """See `OutputPipe`. The thread closes the descriptor when its blocking read ends."""
        with self._capacity:
            self._closed = True
            self._capacity.notify()

    def _take_block(self) -> bytes:
        with self._capacity:
            block = self._blocks[0]
            if block:
                # The empty block at the end stays, so that every later read finds it.
                self._blocks.popleft()
                self._held_bytes -= len(block)
                self._capacity.notify()
        return block

    def _pump(self, descriptor: int) -> None:
        try:
            block = b"?"
            while block and self._wait_for_capacity():
                block = self._read_blocking(descriptor)
                self._blocks.append(block)
                with suppress(RuntimeError):  # the loop may be closed already
                    self._loop.call_soon_threadsafe(self._arrived.set)
        finally:
            os.close(descriptor)

    def _wait_for_capacity(self) -> bool:
        with self._capacity:
            self._capacity.wait_for(lambda: self._closed or self._held_bytes < PIPE_BYTES)
            return not self._closed

    def _read_blocking(self, descriptor: int) -> bytes:
        try:
            block = os.read(descriptor, BLOCK_BYTES)
        except OSError:
            return b""
        # Counted before the block is queued: the count must never fall below the blocks that are held.
        with self._capacity:
            self._held_bytes += len(block)
        return block


def _enlarge_pipe(descriptor: int) -> None:
    """Raise the capacity of a pipe above the usual 64 KiB of Linux; a refusal (the user's quota) only costs speed."""
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
