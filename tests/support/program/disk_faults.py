"""A disk that fails: a warm process in whose environment `KIMI_TEST_DISK_FAULT` stands gets such a disk.

The value is `KIND:FIRST:COUNT:ROOT`. Calls to the operating system that change something below the directory ROOT are
numbered from 0; those from FIRST on fail, COUNT of them. A file `fault-happened` beside ROOT says that one has failed.

Kinds: `enospc` and `eio` (nothing is written), `short` (half is written, and the caller is told so), `torn` (half is
written, then the disk is full), `fsync` (only flushing fails), `rename` (only replacing and linking fail).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, Final

VARIABLE: Final = "KIMI_TEST_DISK_FAULT"
KINDS: Final = ("enospc", "eio", "short", "torn", "fsync", "rename")
HAPPENED: Final = "fault-happened"

_FAILING: Final = {
    "enospc": ("write", "open", "mkdir", "link", "replace"),
    "eio": ("write", "open", "mkdir", "link", "replace", "fsync", "ftruncate", "unlink"),
    "short": ("write",),
    "torn": ("write",),
    "fsync": ("fsync",),
    "rename": ("replace", "rename", "link"),
}
_real: Final[dict[str, Callable[..., Any]]] = {
    name: getattr(os, name)
    for name in ("write", "open", "mkdir", "link", "replace", "rename", "fsync", "ftruncate", "unlink")
}


def install(fault: str) -> None:
    """Replace the functions of `os` that change files, in this process."""
    kind, first, count, root = fault.split(":", 3)
    disk = _FailingDisk(kind, int(first), int(count), os.path.realpath(root))
    for name in _FAILING[kind]:
        setattr(os, name, disk.failing(name))


class _FailingDisk:
    def __init__(self, kind: str, first: int, count: int, root: str) -> None:
        self._kind = kind
        self._numbers = range(first, first + count)
        self._root = root
        self._calls = 0
        self._torn: set[int] = set()

    def failing(self, name: str) -> Callable[..., Any]:
        real = _real[name]

        def call(*arguments: Any, **named: Any) -> Any:
            if not self._changes(name, arguments):
                return real(*arguments, **named)
            if name == "write" and arguments[0] in self._torn:
                self._torn.discard(arguments[0])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            number = self._calls
            self._calls += 1
            if number not in self._numbers:
                return real(*arguments, **named)
            self._tell(name)
            return self._fail(name, arguments)

        return call

    def _fail(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if self._kind in ("short", "torn") and len(arguments[1]) > 1:
            if self._kind == "torn":
                self._torn.add(arguments[0])
            return _real["write"](arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
        number = errno.ENOSPC if self._kind in ("enospc", "torn") else errno.EIO
        raise OSError(number, os.strerror(number))

    def _changes(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """Whether the call changes something below the root."""
        target = arguments[0]
        if name == "open" and not arguments[1] & os.O_CREAT:
            return False
        if isinstance(target, int):
            try:
                target = os.readlink(f"/proc/self/fd/{target}")
            except OSError:
                return False
        return os.path.abspath(os.fsdecode(target)).startswith(self._root + os.sep)

    def _tell(self, name: str) -> None:
        descriptor = _real["open"](os.path.join(os.path.dirname(self._root), HAPPENED), os.O_WRONLY | os.O_CREAT, 0o600)
        _real["write"](descriptor, name.encode())
        os.close(descriptor)
