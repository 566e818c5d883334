"""A lock between processes: an OS lock on a small file, released when its owner dies, however it dies (R-65).

The file holds the process id of the owner, only for messages: a file that a killed process left behind locks nothing.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from kimi.domain.errors import KimiError
from kimi.infrastructure.store.files.disk import BINARY_FLAG, FILE_MODE, remove_file

logger = logging.getLogger(__name__)

HOLD_LOCK_WAIT_S: Final = 5.0
"""How long `hold_lock` waits."""

_RETRY_S: Final = 0.01

_UNSUPPORTED_ERRNOS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}

if sys.platform == "win32":
    import msvcrt

    _LOCKED_BYTE = 1 << 30
    """Other processes cannot read a locked byte, so it lies far behind the process id."""

    def _lock_descriptor(fd: int) -> None:
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def _unlock_descriptor(path: str, fd: int) -> None:
        os.close(fd)
        remove_file(path)  # fails, as intended, while the next owner has it open

else:
    import fcntl

    def _lock_descriptor(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock_descriptor(path: str, fd: int) -> None:
        remove_file(path)  # still locked: a process that waits for the old file notices by `_is_current`
        os.close(fd)


class BorrowedLock:
    """The lock of a session as its subagents see it: the session holds it for them."""

    def __init__(self, *, is_held: bool) -> None:
        self.is_held = is_held

    def try_acquire(self) -> bool:
        """Acquire the lock, which always succeeds."""
        self.is_held = True
        return True

    def release(self) -> None:
        """Do nothing: the session still holds the lock."""


class FileLock:
    """One lock. `try_acquire` and `release` are idempotent."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._fd is not None

    @property
    def descriptor(self) -> int | None:
        """The open file that is locked; a process that inherits it holds the lock, too, as long as it lives."""
        return self._fd

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free.

        The directory must exist. Raises OSError if the file cannot be made.
        """
        while self._fd is None:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | BINARY_FLAG, FILE_MODE)
            if not self._try_lock(fd):
                os.close(fd)
                return False
            if not self._is_current(fd):
                os.close(fd)
                continue
            self._fd = fd
            _write_owner(fd)
        return True

    def release(self) -> None:
        """Release the lock and remove its file."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            _unlock_descriptor(self._path, fd)

    def read_owner(self) -> int | None:
        """Return the process id of the present or last owner, as stored in the file; None if it is unknown."""
        try:
            with open(self._path, "rb") as file:
                return int(file.read(20))
        except (OSError, ValueError):
            return None

    def _try_lock(self, fd: int) -> bool:
        try:
            _lock_descriptor(fd)
        except OSError as error:
            if error.errno not in _UNSUPPORTED_ERRNOS:
                return False
            logger.warning("the file system of %s has no locks: do not open a session twice", self._path)
        return True

    def _is_current(self, fd: int) -> bool:
        """Return whether the locked file is still at the path; its owner may have removed it before it was locked."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._path))
        except FileNotFoundError:
            return False


def is_locked(path: str) -> bool:
    """Return whether a process holds the lock at `path`. Nothing is made or changed."""
    try:
        fd = os.open(path, os.O_RDWR | BINARY_FLAG)
    except OSError:
        return False
    try:
        _lock_descriptor(fd)
    except OSError as error:
        return error.errno not in _UNSUPPORTED_ERRNOS
    finally:
        os.close(fd)
    return False


def _write_owner(fd: int) -> None:
    with suppress(OSError):  # a full disk must not prevent a session from being read
        os.lseek(fd, 0, os.SEEK_SET)
        os.ftruncate(fd, 0)
        os.write(fd, b"%d" % os.getpid())


@contextmanager
def hold_lock(path: str, busy_error: KimiError) -> Generator[None, None, None]:
    """Hold the lock at `path` during the block; blocks for at most `HOLD_LOCK_WAIT_S` seconds.

    Raises:
        KimiError: `busy_error`, if the lock did not become free in that time.
        OSError: its file cannot be made.
    """
    lock = FileLock(path)
    deadline = time.monotonic() + HOLD_LOCK_WAIT_S
    while not lock.try_acquire():
        if time.monotonic() > deadline:
            raise busy_error
        time.sleep(_RETRY_S)
    try:
        yield
    finally:
        lock.release()
