"""Files of this machine: blocking calls, to be made in a worker thread (tools spec 2.1, 3.4).

A write goes into a temporary file beside the target, which is then renamed to the target. On POSIX the directory is
opened one component after the other without following links, and everything after that happens relative to it, so that
no other process can put a link in the way between the check and the write (T-39).
"""

from __future__ import annotations

import errno
import os
import secrets
import stat as modes
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Literal

from kimi.application.ports import FileChanged, FileStat

BLOCK_BYTES = 1024 * 1024
"""The largest block that a read returns."""

_DIRECTORY_FLAGS = (
    getattr(os, "O_PATH", os.O_RDONLY)
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
_READ_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_CREATE_FLAGS = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def stat_file(path: str) -> FileStat | None:
    """Return the file behind `path`, links followed; None if there is none.

    Raises OSError, for example for a circle of links.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _to_file_stat(os.path.realpath(path), found)


def open_file(path: str) -> int:
    """Open the regular file `path` for reading. Never waits for the other end of a pipe.

    Raises:
        OSError: as the system does; IsADirectoryError for a directory, EINVAL for anything else that is not a
            regular file.
    """
    descriptor = os.open(path, _READ_FLAGS)
    try:
        _check_regular(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_block(descriptor: int) -> bytes:
    """Read the next `BLOCK_BYTES` of a file. A shorter block is the last one."""
    block = os.read(descriptor, BLOCK_BYTES)
    if not block or len(block) == BLOCK_BYTES:
        return block
    parts, missing = [block], BLOCK_BYTES - len(block)
    while missing and (block := os.read(descriptor, missing)):
        parts.append(block)
        missing -= len(block)
    return b"".join(parts)


def read_small_file(path: str, may_read: Callable[[str], bool] | None = None) -> tuple[FileStat, bytes | None] | None:
    """Return a file and its content if that is shorter than a block; see `Workspace.read_small`. Raises OSError.

    Only a regular file is opened. Its status is read again from the descriptor, because another file may have taken its
    place before the opening.
    """
    stat = stat_file(path)
    if stat is None:
        return None
    if stat.kind != "file" or (may_read is not None and not may_read(stat.real_path)):
        return stat, None
    try:
        descriptor = open_file(stat.real_path)  # what was looked at: a link in `path` may have changed meanwhile
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(descriptor)
        content = read_block(descriptor) if found.st_size < BLOCK_BYTES else None
    finally:
        os.close(descriptor)
    is_short = content is not None and len(content) < BLOCK_BYTES
    return _to_file_stat(stat.real_path, found), content if is_short else None


def write_file(path: str, content: bytes, expected: FileStat | None) -> FileStat:
    """Write `content` to the real path `path`, all of it or nothing; see `Workspace.write`.

    Raises:
        FileChanged: the file, or a directory above it, is not what `expected` says, or a link was put in the path.
        OSError: as the system does; a file that may not be written stays unchanged.
    """
    with _open_directory(path) as (directory, name):
        old = _check_target(directory, name, path, expected)
        temporary = _temporary_name(name)
        try:
            _write_temporary(directory, temporary, content, old)
            # Checked again, because another program may have changed the file while the temporary one was written.
            _check_target(directory, name, path, expected)
            _replace_target(directory, temporary, name)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise
        return _to_file_stat(path, os.stat(name, dir_fd=directory, follow_symlinks=False))


def _to_file_stat(real_path: str, found: os.stat_result) -> FileStat:
    mode = found.st_mode
    kind: Literal["file", "directory", "other"] = "other"
    if modes.S_ISREG(mode):
        kind = "file"
    elif modes.S_ISDIR(mode):
        kind = "directory"
    return FileStat(real_path, kind, found.st_size, modes.S_IMODE(mode), _file_identity(found))


def _file_identity(found: os.stat_result) -> tuple[int, ...]:
    """Return device, number, size and both times; programs can set back the modification, but not the change time."""
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _check_regular(found: os.stat_result, path: str) -> None:
    if modes.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not modes.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "Not a regular file", path)


def _changed_error(path: str) -> FileChanged:
    return FileChanged(errno.ESTALE, "The file has changed since it was looked at", path)


@contextmanager
def _open_directory(path: str) -> Generator[tuple[int | None, str], None, None]:
    """Open the directory of `path`, made if it is missing; yields its descriptor and the name in it.

    Where directories cannot be opened (Windows), it yields None and `path`.
    """
    if os.path.realpath(path) != path:
        raise _changed_error(path)
    if sys.platform == "win32":
        os.makedirs(os.path.dirname(path), exist_ok=True)
        yield None, path
        return
    parent, name = os.path.split(path)
    directory = _open_without_links(parent, path)
    try:
        yield directory, name
    finally:
        os.close(directory)


def _open_without_links(parent: str, path: str) -> int:
    """Open the directory `parent` without following any link; missing directories are made."""
    current = os.open("/", _DIRECTORY_FLAGS)
    for component in parent.split("/"):
        if not component:
            continue
        above = current
        try:
            current = _open_component(above, component, path)
        finally:
            os.close(above)
    return current


def _open_component(above: int, component: str, path: str) -> int:
    try:
        return os.open(component, _DIRECTORY_FLAGS, dir_fd=above)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(component, dir_fd=above)
        return os.open(component, _DIRECTORY_FLAGS, dir_fd=above)
    except OSError as error:
        found = os.stat(component, dir_fd=above, follow_symlinks=False)
        if modes.S_ISLNK(found.st_mode):
            raise _changed_error(path) from error
        raise


def _check_target(directory: int | None, name: str, path: str, expected: FileStat | None) -> os.stat_result | None:
    """Return the status of `name` if it is still the file that the caller saw; None if nothing is there."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        if expected is not None:
            raise _changed_error(path) from None
        return None
    if modes.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if expected is None or _file_identity(found) != expected.identity:
        raise _changed_error(path)
    _check_regular(found, path)
    if not os.access(name, os.W_OK, dir_fd=directory):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return found


def _temporary_name(name: str) -> str:
    """Return a name in the directory of `name` that is never longer than the system allows."""
    return os.path.join(os.path.dirname(name), f".kimi-{secrets.token_hex(8)}.tmp")


def _write_temporary(directory: int | None, temporary: str, content: bytes, old: os.stat_result | None) -> None:
    """Write the whole content to a temporary file, with the mode and owner of the old one, and flush it to the disk."""
    descriptor = os.open(temporary, _CREATE_FLAGS, 0o666 if old is None else 0o600, dir_fd=directory)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if old is not None:
            _copy_rights(descriptor, old)
        # Before the rename: after a power failure the target must not be an empty file.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy_rights(descriptor: int, old: os.stat_result) -> None:
    """Copy the owner, where the system allows it, and the mode bits of the old file."""
    if sys.platform == "win32":
        return
    mode = modes.S_IMODE(old.st_mode)
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except OSError:
            # The new file stays with this user: the setuid and setgid bits must not lend the rights of this user.
            mode &= 0o777
    os.fchmod(descriptor, mode)


def _replace_target(directory: int | None, temporary: str, name: str) -> None:
    if directory is None:
        os.replace(temporary, name)
    else:
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
