"""Ending a process with everything it has started.

A command leads its own session and process group. On Linux the process table also shows descendants that have
left both; elsewhere on POSIX the group is all there is; Windows has a program for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import anyio

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Member:
    """A line of the process table. `started` tells it from a later process of the same number."""

    pid: int
    parent: int
    group: int
    session: int
    started: str


async def end_tree(leader: int, grace_s: float) -> None:
    """Ask the tree under `leader` to end; after `grace_s` seconds make it. Returns when it is gone or was killed.

    Call it before the leader is reaped, if that can be helped: until then its number belongs to nobody else.
    """
    if sys.platform == "win32":
        await _end_windows_tree(leader)
        return
    escaped = _escaped(leader)
    _send(leader, escaped, signal.SIGTERM)
    with anyio.move_on_after(grace_s):
        await _gone(leader, escaped)
        return
    _send(leader, escaped | _escaped(leader), signal.SIGKILL)


def living(leader: int) -> bool:
    """Is anybody left in the session or the group of `leader`? Zombies do not count where that can be seen."""
    table = _process_table()
    if table is None:
        return _group_exists(leader)
    return any(leader in (member.group, member.session) for member in table)


async def _gone(leader: int, escaped: frozenset[Member]) -> None:
    pause = _FIRST_PAUSE_S
    while living(leader) or any(_is_alive(member) for member in escaped):
        await anyio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_S)


def _send(leader: int, escaped: Iterable[Member], number: int) -> None:
    if sys.platform != "win32":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, number)
    for member in escaped:
        if _is_alive(member):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(member.pid, number)


def _group_exists(leader: int) -> bool:
    if sys.platform == "win32":
        return False
    try:
        os.killpg(leader, 0)
    except OSError:
        # Also when it is not permitted: who cannot be signalled need not be waited for.
        return False
    return True


def _escaped(leader: int) -> frozenset[Member]:
    """Those of the tree that a signal to the group of `leader` does not reach."""
    table = _process_table() or []
    tree, size = {leader}, 0
    while size != len(tree):
        size = len(tree)
        tree |= {member.pid for member in table if member.parent in tree or member.session == leader}
    return frozenset(member for member in table if member.pid in tree and member.group != leader)


def _process_table() -> list[Member] | None:
    """Every living process; None where there is no `/proc` in Linux' form."""
    if sys.platform != "linux":
        return None
    try:
        numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return None
    return [member for number in numbers if (member := _member(number)) is not None]


def _member(pid: int) -> Member | None:
    """The process of that number; None when there is none, or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    # The second field is the name in parentheses, which may itself hold spaces and parentheses.
    fields = line.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    return Member(pid, int(fields[1]), int(fields[2]), int(fields[3]), fields[19])


def _is_alive(member: Member) -> bool:
    now = _member(member.pid)
    return now is not None and now.started == member.started


async def _end_windows_tree(leader: int) -> None:
    """Windows has no request to end that console programs would hear, so there is no grace either."""
    with suppress(OSError):
        await anyio.to_thread.run_sync(
            lambda: subprocess.run(
                ["taskkill", "/T", "/F", "/PID", str(leader)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=10,
            )
        )
