"""The output of a background task, of which the beginning and the end are kept (tools spec 3.1).

Standard library only, because the worker starts with it.
"""

from __future__ import annotations

import os
from typing import Final

from kimi.infrastructure.background.task_files import OUTPUT_FILE

DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024

_NOTE: Final = "\n[{} bytes were left out here, because the output is longer than background.max_output_bytes]\n"


class OutputLog:
    """Writes the output of one task, never more than `max_bytes` of it plus a line; no other process writes it.

    When the file is full, what is between its first and its last quarter is replaced by a line that says how much is
    missing, so a writer that never ends costs no more than one rewritten quarter for each half of the limit. The file
    stays the same one, so that a program that follows it goes on.
    """

    def __init__(self, directory: str, max_bytes: int) -> None:
        """Open the output. Raises OSError."""
        self._descriptor = os.open(
            os.path.join(directory, OUTPUT_FILE),
            os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0),
            0o600,
        )
        self._max_bytes = max_bytes
        self._quarter = max(1, max_bytes // 4)
        self._size = os.fstat(self._descriptor).st_size
        self._missing = 0
        self._note_size = 0

    def write(self, data: bytes) -> None:
        """Append `data`. Raises OSError; a part of it may be written then."""
        rest = memoryview(data)
        while rest:
            if self._size >= self._max_bytes + self._note_size:
                self._leave_out_the_middle()
            room = self._max_bytes + self._note_size - self._size
            os.lseek(self._descriptor, self._size, os.SEEK_SET)
            written = os.write(self._descriptor, rest[:room])
            self._size += written
            rest = rest[written:]

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _leave_out_the_middle(self) -> None:
        os.lseek(self._descriptor, self._size - self._quarter, os.SEEK_SET)
        tail = os.read(self._descriptor, self._quarter)
        self._missing += self._size - self._note_size - self._quarter - len(tail)
        note = _NOTE.format(self._missing).encode()
        os.lseek(self._descriptor, self._quarter, os.SEEK_SET)
        rest = memoryview(note + tail)
        size = self._quarter + len(rest)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        os.truncate(self._descriptor, size)
        self._size, self._note_size = size, len(note)
