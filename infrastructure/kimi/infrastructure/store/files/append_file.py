"""A file that grows line by line (wire spec 8.4, R-62)."""

from __future__ import annotations

import os
from contextlib import suppress

from kimi.infrastructure.store.files.disk import BINARY_FLAG, FILE_MODE, store_error, write_all


class AppendFile:
    """Lines appended with one write each to a descriptor that stays open.

    A line that something tore, a crash or another program, never swallows the next one: whenever the file is not
    as we left it, its last byte is looked at first. What a failed write left is taken back.
    """

    def __init__(self, path: str, header: bytes = b"") -> None:
        self._path = path
        self._header = header
        self._fd: int | None = None
        self._expected_size = -1

    def append(self, lines: bytes) -> None:
        """Add whole lines, the last line end included. Raises StoreFailed; the file is then as it was."""
        try:
            fd = self._open()
            status = os.fstat(fd)
            if status.st_nlink == 0:  # somebody removed the file under us
                self.close()
                fd = self._open()
                status = os.fstat(fd)
            self._write(fd, status.st_size, lines)
        except OSError as error:
            raise store_error("write", self._path, error) from error

    def duplicate_descriptor(self) -> int | None:
        """A second descriptor, which the caller closes; None while nothing was appended. Raises OSError."""
        return None if self._fd is None else os.dup(self._fd)

    def close(self) -> None:
        """Close the descriptor; the next append opens the file again. Idempotent."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def _open(self) -> int:
        if self._fd is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | BINARY_FLAG
            self._fd = os.open(self._path, flags, FILE_MODE)
            self._expected_size = -1
        return self._fd

    def _write(self, fd: int, size: int, lines: bytes) -> None:
        data = lines if size == self._expected_size else self._missing_separator(fd, size) + lines
        self._expected_size = -1
        try:
            write_all(fd, data)
        except OSError:
            _undo_write(fd, size, data)
            raise
        self._expected_size = size + len(data)

    def _missing_separator(self, fd: int, size: int) -> bytes:
        """What must stand between the end of the file as it is and the next line."""
        if size == 0:
            return self._header
        os.lseek(fd, size - 1, os.SEEK_SET)
        return b"" if os.read(fd, 1) == b"\n" else b"\n"


def _undo_write(fd: int, size: int, data: bytes) -> None:
    """Cut off the part of `data` that was written, unless somebody else has added to it."""
    with suppress(OSError):
        end = os.fstat(fd).st_size
        os.lseek(fd, size, os.SEEK_SET)
        if size < end <= size + len(data) and data.startswith(os.read(fd, end - size)):
            os.ftruncate(fd, size)
