"""A file that grows line by line (wire spec 8.4, R-62)."""

from __future__ import annotations

import os
from contextlib import suppress

from kimi.infrastructure.store.files.disk import BINARY_FLAG, FILE_MODE, store_error, write_all


class AppendFile:
    """Lines appended with one write each to a descriptor that stays open.

    A line that a crash or another program tore never swallows the next one: if the file is not as this object left it,
    its last byte is read first. What a failed write left is removed.
    """

    def __init__(self, path: str, header: bytes = b"") -> None:
        self._path = path
        self._header = header
        self._fd: int | None = None
        self._expected_size = -1

    def append(self, lines: bytes) -> None:
        """Add whole lines, the last line end included. Raises StoreFailed; the file is then unchanged."""
        try:
            fd = self._open()
            status = os.fstat(fd)
            if status.st_nlink == 0:  # the file was removed while it was open
                self.close()
                fd = self._open()
                status = os.fstat(fd)
            self._write(fd, status.st_size, lines)
        except OSError as error:
            raise store_error("write", self._path, error) from error

    def duplicate_descriptor(self) -> int | None:
        """Return a second descriptor, which the caller closes; None if nothing was appended. Raises OSError."""
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
        # Unknown until the write has succeeded: after a failure the next append must read the last byte.
        self._expected_size = -1
        try:
            write_all(fd, data)
        except OSError:
            _undo_write(fd, size, data)
            raise
        self._expected_size = size + len(data)

    def _missing_separator(self, fd: int, size: int) -> bytes:
        """Return what must stand between the present end of the file and the next line."""
        if size == 0:
            return self._header
        os.lseek(fd, size - 1, os.SEEK_SET)
        return b"" if os.read(fd, 1) == b"\n" else b"\n"


def _undo_write(fd: int, size: int, data: bytes) -> None:
    """Cut off the part of `data` that was written, unless another program has appended since."""
    with suppress(OSError):
        end = os.fstat(fd).st_size
        os.lseek(fd, size, os.SEEK_SET)
        if size < end <= size + len(data) and data.startswith(os.read(fd, end - size)):
            os.ftruncate(fd, size)
