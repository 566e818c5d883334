"""The one rule for files whose text becomes part of a prompt, and where a project begins (runtime spec 6.2).

A project may have been made by somebody else. What it puts into a prompt is a regular file inside of it, of bounded
size, that neither holds secrets nor belongs to the system or to this program.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

from kimi.domain.permissions.path_rules import PathScopes, is_sensitive, is_within

logger = logging.getLogger(__name__)

_WINDOWS = os.name == "nt"
_SYSTEM_ROOTS = ("/proc", "/sys", "/dev")
_SHARED_MEMORY = "/dev/shm"
"""Plain files, although it is below `/dev`."""

_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)  # a FIFO without a writer would block for ever
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


class FileNotTrusted(ValueError):
    """The file must not become part of a prompt; the text says why."""


@dataclass(frozen=True, slots=True)
class PromptFiles:
    """What decides which files may become part of a prompt.

    `project` is the project's directory as it is named, `closed` names own files of this program and the patterns of
    secrets.
    """

    project: str
    closed: PathScopes = field(default_factory=lambda: PathScopes(windows=_WINDOWS))

    @property
    def real_project(self) -> str:
        """The real path of the project."""
        return os.path.realpath(self.project)

    def find_bound(self, path: str) -> str | None:
        """Return the directory that the file must lie in: the project if it is named there; else None."""
        named, holder = os.path.abspath(path), os.path.realpath(os.path.dirname(path))
        project = (self.project, self.real_project)
        inside = _is_below(named, *project) or _is_below(holder, *project)
        return self.real_project if inside else None

    def read(self, path: str, max_bytes: int, within: str | None) -> str:
        """Return the text of a file, which must be UTF-8; a byte order mark is left out.

        Its real path must lie in the directory `within`; None for a file of the user, who may link it from anywhere.

        Raises:
            OSError: it cannot be read.
            FileNotTrusted: it must not become part of a prompt, or has more than `max_bytes`.
            UnicodeDecodeError: it is not UTF-8.
        """
        return self.read_bytes(path, max_bytes, within).decode("utf-8").removeprefix("\ufeff")

    def read_bytes(self, path: str, max_bytes: int, within: str | None, *, cut: bool = False) -> bytes:
        """Return the bytes of a file, as `read` does; with `cut` the first `max_bytes` of a longer one."""
        self._check_path(path, os.path.realpath(path), within)  # before it is opened: a device notices that
        descriptor = os.open(path, _OPEN_FLAGS)
        try:
            found = os.fstat(descriptor)
            real = _find_opened_path(descriptor, found, path)
            self._check_path(path, real, within)  # again, of what was opened: the path may have changed meanwhile
            _check_file(found, real)
            return _read_bounded(descriptor, max_bytes, cut)
        finally:
            os.close(descriptor)

    def _check_path(self, path: str, real: str, within: str | None) -> None:
        """Raises FileNotTrusted."""
        if _is_below(real, *_SYSTEM_ROOTS) and not _is_below(real, _SHARED_MEMORY):
            raise FileNotTrusted("it leads to a file of the system")
        if is_sensitive(os.path.abspath(path), self.closed) or is_sensitive(real, self.closed):
            raise FileNotTrusted("it may hold secrets")
        if within is not None and not _is_below(real, within):
            raise FileNotTrusted(f"it leads out of {within}")


def _is_below(path: str, *roots: str) -> bool:
    return is_within(path, roots, windows=_WINDOWS)


def _find_opened_path(descriptor: int, found: os.stat_result, path: str) -> str:
    """Return the real path of an opened file. Raises FileNotTrusted: the path leads elsewhere by now."""
    try:
        real = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # not Linux, or /proc is not there
        real = os.path.realpath(path)
    try:
        now = os.lstat(real)
    except OSError:
        now = None
    if now is None or not os.path.samestat(now, found):
        raise FileNotTrusted("it was replaced while it was read")
    return real


def _check_file(found: os.stat_result, real: str) -> None:
    """Raises FileNotTrusted: it is no regular file, or somebody else put it into a directory that is open to all."""
    if not stat.S_ISREG(found.st_mode):
        raise FileNotTrusted("it is no regular file")
    holder = os.stat(os.path.dirname(real))
    if not _WINDOWS and holder.st_mode & stat.S_IWOTH and found.st_uid not in (*_own_users(), holder.st_uid):
        raise FileNotTrusted("another user put it into a directory that everybody can write to")


def _read_bounded(descriptor: int, max_bytes: int, cut: bool) -> bytes:
    """Raises FileNotTrusted: there is more, and nothing may be cut."""
    content = bytearray()
    while len(content) <= max_bytes:
        block = os.read(descriptor, max_bytes + 1 - len(content))
        if not block:
            return bytes(content)
        content += block
    if not cut:
        raise FileNotTrusted(f"it has more than {max_bytes // 1024} KiB")
    return bytes(content[:max_bytes])


def list_dirs_from_project_root(work_dir: str) -> list[str]:
    """Return the directories from the nearest one with `.git` down to the work directory; without one, only that.

    A directory or `.git` above the work directory that belongs to another user makes no project: whoever can write to
    `/tmp` or to a shared disk could otherwise give orders to everybody who works below.
    """
    chain = [work_dir]
    while not os.path.lexists(os.path.join(chain[-1], ".git")):
        parent = os.path.dirname(chain[-1])
        if parent == chain[-1] or not _is_of_own_user(parent):
            return [work_dir]
        chain.append(parent)
    if len(chain) > 1 and not _is_of_own_user(os.path.join(chain[-1], ".git")):
        logger.warning("%s is not taken for the project: its .git belongs to another user", chain[-1])
        return [work_dir]
    return chain[::-1]


def _is_of_own_user(path: str) -> bool:
    """Return whether nobody but the user and the system's administrator can have put something there."""
    if _WINDOWS:
        return True  # the owner of a file is no number there, and shared roots are not open to all
    try:
        found = os.lstat(path)
    except OSError:
        return False
    if stat.S_ISLNK(found.st_mode):
        return found.st_uid in (*_own_users(), 0)
    return found.st_uid in _own_users() or (found.st_uid == 0 and not found.st_mode & stat.S_IWOTH)


def _own_users() -> Sequence[int]:
    """Return the user of the process; with sudo, also the one who called it."""
    user = os.geteuid()
    caller = os.environ.get("SUDO_UID", "")
    return (user, int(caller)) if user == 0 and caller.isdecimal() else (user,)


def is_project_of_own_user(directory: str) -> bool:
    """Return whether the directory and its `.git` belong to the user, so that git may work with it."""
    return _is_of_own_user(directory) and _is_of_own_user(os.path.join(directory, ".git"))


def is_in_project(path: str, project: str) -> bool:
    """Return whether the real path lies in the project, whose real path is given."""
    return _is_below(os.path.realpath(path), project)


def name_refusal(error: Exception) -> str:
    """Return why a file is left out, without its path, which the caller names."""
    if isinstance(error, OSError):
        return error.strerror or errno.errorcode.get(error.errno or 0, "it cannot be read")
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def read_head(path: str, max_bytes: int = 65536) -> str:
    """Return the beginning of a small file, empty if there is none; what is no regular file is not waited for."""
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
    except (OSError, ValueError):
        return ""
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, max_bytes).decode("utf-8", "replace") if regular else ""
    except OSError:
        return ""
    finally:
        os.close(descriptor)
