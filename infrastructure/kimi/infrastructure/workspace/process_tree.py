"""Ends a process with all of its descendants, without blocking the event loop."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable

import anyio
import anyio.to_thread

from kimi.infrastructure.workspace.process_table import (
    ProcessEntry,
    end_windows_tree,
    find_escaped,
    is_tree_gone,
    send_signal,
)

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.05


async def end_tree(leader: int, grace_s: float) -> None:
    """Terminate the tree under `leader`; kill it after `grace_s` seconds. Returns when it is gone or was killed.

    Call it before the leader is reaped if possible: until then no other process can get its number.
    """
    if sys.platform == "win32":
        await anyio.to_thread.run_sync(end_windows_tree, leader)
        return
    # Before the signal: afterwards orphans have another parent and cannot be found.
    others = find_escaped(leader)
    send_signal(leader, others, signal.SIGTERM)
    with anyio.move_on_after(grace_s):
        await _wait_until_gone(leader, others)
        return
    send_signal(leader, others | find_escaped(leader), signal.SIGKILL)


async def _wait_until_gone(leader: int, others: Iterable[ProcessEntry]) -> None:
    pause = _FIRST_PAUSE_S
    while not is_tree_gone(leader, others):
        await anyio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_S)
