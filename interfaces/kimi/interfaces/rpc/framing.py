"""Read and write messages as lines of a byte stream (wire spec 1.1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

ReadBlock: TypeAlias = Callable[[], Awaitable[bytes]]
"""Return the next block of the input; empty at its end."""


class LineSplitter:
    """Splits a byte stream into lines; a line over `limit` bytes is dropped while it arrives, and yielded as None."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # One growing buffer: the blocks of a very long line, kept one by one, would fragment the memory.
        self._partial_line = bytearray()
        self._line_size = 0
        self._is_first_line = True

    def feed(self, block: bytes) -> Iterator[bytes | None]:
        """Yield the lines that `block` completes, without line ends; a byte order mark before the first is dropped."""
        *ends, rest = block.split(b"\n")
        for end in ends:
            self._line_size += len(end)
            yield self._complete_line(end)
        self._line_size += len(rest)
        if self._line_size > self._limit:
            self._partial_line = bytearray()
        else:
            self._partial_line += rest

    def end(self) -> Iterator[bytes | None]:
        """Yield the last line, if the stream ended without a line end."""
        if self._line_size:
            yield self._complete_line(b"")

    def _complete_line(self, end: bytes) -> bytes | None:
        line = (
            (bytes(self._partial_line + end) if self._partial_line else end) if self._line_size <= self._limit else None
        )
        if self._partial_line:
            self._partial_line = bytearray()
        self._line_size = 0
        if self._is_first_line and line is not None:
            line = line.removeprefix(b"\xef\xbb\xbf")
        self._is_first_line = False
        return line


class LineReader:
    """Iterates over the lines of an input; yields None for a line over `limit` bytes.

    An iteration that is cancelled while it waits for the next block loses nothing: another iteration continues there.
    """

    def __init__(self, read_block: ReadBlock, limit: int) -> None:
        self._read_block = read_block
        self._splitter = LineSplitter(limit)
        self._lines: deque[bytes | None] = deque()
        self._has_ended = False

    def __aiter__(self) -> LineReader:
        return self

    async def __anext__(self) -> bytes | None:
        while not self._lines:
            if self._has_ended:
                raise StopAsyncIteration
            block = await self._read_block()
            self._has_ended = not block
            self._lines.extend(self._splitter.feed(block) if block else self._splitter.end())
        return self._lines.popleft()


def frame_message(message: bytes) -> bytes:
    """Add the line end to `message`, and escape the separators at which some readers split lines (W-06)."""
    if not message.isascii():
        # A search for one byte is ten times as fast as a search for two.
        if b"\xe2" in message:
            message = message.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
        if b"\xc2" in message:
            message = message.replace(b"\xc2\x85", b"\\u0085")
    return message + b"\n"
