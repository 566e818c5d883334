"""Looks at other processes through `/proc`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether the process with this id runs. A zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def marked(word: str) -> list[int]:
    """Return the running processes with `word` in their environment."""
    return [int(place.name) for place in Path("/proc").iterdir() if place.name.isdecimal() and _bears(place, word)]


def _bears(place: Path, word: str) -> bool:
    try:
        environment = (place / "environ").read_bytes()
    except OSError:
        return False
    return word.encode() in environment and is_alive(int(place.name))


def comes_true(condition: Callable[[], bool], patience_s: float = 5.0) -> bool:
    """Whether `condition` becomes true within `patience_s` seconds. Blocks meanwhile."""
    deadline = time.monotonic() + patience_s
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_true  # not asked again: a process may be at rest now and busy a moment later


def all_gone(word: str) -> bool:
    """Whether no process has `word` in its environment. A killed process may need a moment to disappear."""
    return comes_true(lambda: not marked(word))


def started(program: str) -> subprocess.Popen[bytes]:
    """Start a Python program as a child in a session of its own."""
    return subprocess.Popen([sys.executable, "-c", program], start_new_session=True)


def children() -> set[int]:
    """Return the children of this process, including zombies."""
    return {
        int(place.name) for place in Path("/proc").iterdir() if place.name.isdecimal() and _parent(place) == os.getpid()
    }


def find_below(pid: int) -> list[int]:
    """Return the children of a process, by `ps`, which knows nothing of the code under test."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], stdout=subprocess.PIPE, check=False)
    return [int(word) for word in found.stdout.split() if is_alive(int(word))]


def _parent(place: Path) -> int:
    try:
        return int((place / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
