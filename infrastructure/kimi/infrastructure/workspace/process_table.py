"""The process table of this machine: members of a process tree, and signals to all of them.

Standard library only, because the worker of a background task starts with it. A command leads its own session and
process group. On Linux the process table also shows descendants that have left both; elsewhere on POSIX only the group
is known; Windows has a program for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """A line of the process table. `start_time` distinguishes it from a later process with the same number."""

    pid: int
    parent: int
    group: int
    session: int
    start_time: str


def end_tree_now(leader: int, grace_s: float) -> None:
    """Terminate the tree under `leader`; kill it after `grace_s` seconds. Blocks until it is gone or was killed."""
    if sys.platform == "win32":
        end_windows_tree(leader)
        return
    # Before the signal: afterwards orphans have another parent and cannot be found.
    others = find_escaped(leader)
    send_signal(leader, others, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        if is_tree_gone(leader, others):
            return
        time.sleep(_PAUSE_S)
    send_signal(leader, others | find_escaped(leader), signal.SIGKILL)


def is_group_alive(leader: int) -> bool:
    """Return whether the session or the group of `leader` has a member. Zombies do not count where they are visible."""
    table = _read_process_table()
    if table is None:
        return _group_exists(leader)
    return any(leader in (member.group, member.session) for member in table)


def is_tree_gone(leader: int, others: Iterable[ProcessEntry]) -> bool:
    """Return whether no process of the tree is left."""
    return not is_group_alive(leader) and not any(_is_alive(member) for member in others)


def send_signal(leader: int, others: Iterable[ProcessEntry], signal_number: int) -> None:
    """Send a signal to the group of `leader` and to `others`; processes that are gone are skipped."""
    if sys.platform != "win32":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal_number)
    for member in others:
        if _is_alive(member):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(member.pid, signal_number)


def find_escaped(leader: int) -> frozenset[ProcessEntry]:
    """Find the processes of the tree that a signal to the group of `leader` does not reach."""
    table = _read_process_table() or []
    tree, size = {leader}, 0
    while size != len(tree):
        size = len(tree)
        tree |= {member.pid for member in table if member.parent in tree or member.session == leader}
    return frozenset(member for member in table if member.pid in tree and member.group != leader)


def read_start_mark(pid: int) -> str:
    """Return what distinguishes the process from a later one with its number; empty if it is unknown or gone."""
    member = _read_process(pid) if sys.platform == "linux" else None
    return member.start_time if member is not None else ""


def end_windows_tree(leader: int) -> None:
    """Kill the tree under `leader`. Windows has no termination request that console programs receive, so no grace."""
    with suppress(OSError):
        subprocess.run(
            ["taskkill", "/T", "/F", "/PID", str(leader)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=10,
        )


def _group_exists(leader: int) -> bool:
    if sys.platform == "win32":
        return False
    try:
        os.killpg(leader, 0)
    except OSError:
        # Also if it is not permitted: a process that cannot be signalled need not be waited for.
        return False
    return True


def _read_process_table() -> list[ProcessEntry] | None:
    """Return every living process; None where there is no `/proc` in the form of Linux."""
    if sys.platform != "linux":
        return None
    try:
        numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return None
    return [member for number in numbers if (member := _read_process(number)) is not None]


def _read_process(pid: int) -> ProcessEntry | None:
    """Return the process with this number; None if there is none, or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    # The second field is the name in parentheses, which may itself contain spaces and parentheses.
    fields = line.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    return ProcessEntry(pid, int(fields[1]), int(fields[2]), int(fields[3]), fields[19])


def _is_alive(member: ProcessEntry) -> bool:
    now = _read_process(member.pid)
    return now is not None and now.start_time == member.start_time
