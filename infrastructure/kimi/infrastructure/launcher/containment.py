"""What a process can do on Linux so that nothing that it starts gets lost, and how it ends all of that.

Standard library only, because the helper and the worker of a background task start with it. A child subreaper becomes
the parent of every descendant whose own parent has ended, so `setsid`, a double fork or `nohup` lead nowhere: whatever
a command does, its processes stay below the process that started it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cache
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NAME: Final = 15
_PR_SET_CHILD_SUBREAPER: Final = 36

_PAUSE_S: Final = 0.005
_PATIENCE_S: Final = 2.0
"""How long killed processes are awaited: those of another user cannot be killed."""


def keep_descendants(name: str) -> None:
    """Make this process the one that its orphaned descendants fall to, and close its memory; `name` is its title.

    Raises OSError: the system does not offer it.
    """
    if sys.platform != "linux" or not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):
        raise OSError("this system does not list the children of a process")
    _set_process_option(_PR_SET_CHILD_SUBREAPER, 1)
    close_memory()
    title = ctypes.create_string_buffer(name.encode()[:15])
    _set_process_option(_PR_SET_NAME, ctypes.addressof(title))


def die_with_parent(parent: int) -> None:
    """Let this process get SIGTERM when its parent ends; at once if the parent is not `parent` any more."""
    _set_process_option(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def close_memory() -> None:
    """Let no other process of this user read the memory or the environment of this one; it leaves no core file."""
    _set_process_option(_PR_SET_DUMPABLE, 0)


def _set_process_option(option: int, value: int) -> None:
    """Call `prctl`. Raises OSError."""
    zero = ctypes.c_ulong(0)
    if _load_libc().prctl(option, ctypes.c_ulong(value), zero, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@cache
def _load_libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def find_children(pid: int) -> list[int]:
    """Return the children of a process, zombies included; empty if it is gone."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def find_descendants(roots: Iterable[int], visit: Callable[[int], None] | None = None) -> list[int]:
    """Return `roots` and everything below them, zombies included, each before its children.

    `visit` is called for each before its children are looked for.
    """
    seen: dict[int, None] = {}
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in seen:
            seen[pid] = None
            if visit is not None:
                visit(pid)
            waiting += find_children(pid)
    return list(seen)


def ask_to_end(roots: Iterable[int]) -> None:
    """Send SIGTERM to `roots` and to everything below them.

    Parents first: a shell that sees its command end before it is asked itself says "Terminated" in the output.
    """
    for pid in find_descendants(roots):
        send(pid, signal.SIGTERM)


def kill_trees(roots: Collection[int]) -> None:
    """Freeze `roots` and everything below them, then kill it.

    A stopped process has no new children, so forking is no way out. What is orphaned meanwhile falls to this process:
    the caller repeats this until nothing is left.
    """
    # A signal reaches all members of a group at the same moment, which ends most bombs. Every command leads a session
    # of its own, so no group of its descendants has a member from outside.
    groups = {_find_group(pid) for pid in find_descendants(roots)} - {0, os.getpgrp()}
    for group in groups:
        with suppress(OSError):
            os.killpg(group, signal.SIGSTOP)
    for pid in find_descendants(roots, lambda pid: send(pid, signal.SIGSTOP)):
        send(pid, signal.SIGKILL)


def _find_group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def send(pid: int, number: int) -> None:
    """Send a signal; a process that is gone, or that belongs to another user, is skipped."""
    with suppress(OSError):
        os.kill(pid, number)


def end_children() -> bool:
    """Kill everything below this process and reap it; return whether nothing is left. Blocks, at most two seconds."""
    deadline = time.monotonic() + _PATIENCE_S
    while reap_children(lambda pid, status: None):
        if time.monotonic() > deadline:
            return False
        kill_trees(find_children(os.getpid()))
        time.sleep(_PAUSE_S)
    return True


def reap_children(on_end: Callable[[int, int], None]) -> bool:
    """Reap the children that have ended, each with `on_end(pid, status)`; return whether this process has others."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        on_end(pid, os.waitstatus_to_exitcode(status))
