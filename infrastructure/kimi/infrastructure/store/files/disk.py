"""The file operations of the store, and the error sentence for the user if one fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

from kimi.application.codec.envelope import replace_surrogates
from kimi.domain.errors import StoreFailed
from kimi.infrastructure.store.layout import NEW_SUFFIX

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
BINARY_FLAG = getattr(os, "O_BINARY", 0)
"""On Windows, needed to keep line ends unchanged."""

_NO_SPACE = "free some disk space and try again"
_NO_ACCESS = "check its permissions, or set KIMI_SHARE_DIR to a directory that you may write to"
_ADVICE_BY_ERRNO = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EFBIG: "raise the limit for the size of files, or start a new session",
    errno.EROFS: "set KIMI_SHARE_DIR to a directory on a file system that can be written to",
    errno.EACCES: _NO_ACCESS,
    errno.EPERM: _NO_ACCESS,
    errno.ENOTDIR: "move the file away that stands where a directory must be",
    errno.EEXIST: "move the file away that stands where a directory must be",
    errno.EISDIR: "move the directory away that stands where a file must be",
    errno.ENOENT: "its directory is gone; start a new session",
    errno.ENAMETOOLONG: "use a shorter session id",
}


def store_error(action: str, path: str, error: OSError) -> StoreFailed:
    """Build the error for the user: the failed action and file, the reason, and advice."""
    reason = (error.strerror or type(error).__name__).lower()
    advice = _ADVICE_BY_ERRNO.get(error.errno or 0, "check the disk and try again")
    return StoreFailed(f"Cannot {action} {replace_surrogates(path)}: {reason}; {advice}.")


@contextmanager
def wrap_os_errors(action: str, path: str) -> Generator[None, None, None]:
    """Turn an OSError of the block into StoreFailed."""
    try:
        yield
    except OSError as error:
        raise store_error(action, path, error) from error


def make_private_directory(path: str) -> bool:
    """Create `path` and its missing parents, for the owner only; False if it existed. Raises OSError."""
    if os.path.isdir(path):
        return False
    parent = os.path.dirname(path)
    if parent != path:
        make_private_directory(parent)
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return False
    return True


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`; one system call unless the system takes only a part. Raises OSError."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


def write_new_file(path: str, data: bytes) -> None:
    """Write a new private file and flush it to the disk.

    The rest of an earlier try is replaced. Raises OSError.
    """
    with suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY_FLAG, FILE_MODE)
    try:
        write_all(fd, data)
        os.fsync(fd)
    except OSError:
        os.close(fd)
        with suppress(OSError):
            os.unlink(path)
        raise
    os.close(fd)


def replace_file(path: str, data: bytes) -> None:
    """Replace `path` atomically: at every instant it is the old or the new file, whole. Raises OSError.

    Callers hold the lock that guards `path`, because the name of the temporary file is fixed.
    """
    fresh = path + NEW_SUFFIX
    write_new_file(fresh, data)
    try:
        os.replace(fresh, path)
    except OSError:
        remove_file(fresh)
        raise
    sync_directory(os.path.dirname(path))


def create_file(path: str, data: bytes) -> None:
    """Create `path` atomically unless it exists; a file made at the same moment stays. Raises OSError.

    Callers hold the lock that guards `path`, because the name of the temporary file is fixed.
    """
    fresh = path + NEW_SUFFIX
    write_new_file(fresh, data)
    try:
        os.link(fresh, path)  # a link, unlike a rename, never replaces
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        if not os.path.exists(path):
            os.rename(fresh, path)
    finally:
        remove_file(fresh)
    sync_directory(os.path.dirname(path))


def sync_directory(path: str) -> None:
    """Flush a rename in `path` to the disk, where the system can. Never raises."""
    if os.name != "posix":
        return
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def remove_file(path: str) -> None:
    """Remove `path` if it exists and can be removed."""
    with suppress(OSError):
        os.unlink(path)


def remove_empty_directories(paths: Sequence[str]) -> None:
    """Remove directories that are empty, the last one first."""
    for path in reversed(paths):
        with suppress(OSError):
            os.rmdir(path)
