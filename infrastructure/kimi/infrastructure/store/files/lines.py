"""Reading line files: lazily, from the end, or only their head."""

from __future__ import annotations

import os
from collections.abc import Iterator

_BLOCK_BYTES = 64 * 1024


def read_head_lines(path: str, limit: int) -> list[bytes]:
    """Return the lines in the first `limit` bytes, the last one perhaps cut; none if the file cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).split(b"\n")
    except OSError:
        return []


def read_lines_until(path: str, size: int) -> Iterator[bytes]:
    """Yield the lines within the first `size` bytes, read lazily. Raises OSError."""
    with open(path, "rb") as file:
        for line in file:
            size -= len(line)
            if size < 0:  # more was written since the size was taken
                line = line[:size]
            if line:
                yield line.rstrip(b"\n")
            if size <= 0:
                return


def read_lines_backward(path: str) -> Iterator[bytes]:
    """Yield the lines of a file, newest first, read lazily in blocks; none without a file. Raises OSError."""
    if not os.path.exists(path):
        return
    with open(path, "rb") as file:
        position = file.seek(0, os.SEEK_END)
        pieces: list[bytes] = []  # of the line that is being assembled, last piece first
        while position > 0:
            step = min(_BLOCK_BYTES, position)
            position = file.seek(position - step)
            *lines, last = reversed(file.read(step).split(b"\n"))
            for line in lines:
                yield b"".join([line, *reversed(pieces)])
                pieces.clear()
            pieces.append(last)
        yield b"".join(reversed(pieces))
