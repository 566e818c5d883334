"""Ending a process with everything it has started, without blocking the event loop."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable

import anyio
import anyio.to_thread

from kimi.infrastructure.workspace.process_table import Member, end_windows_tree, escaped, is_gone, send

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.05


async def end_tree(leader: int, grace_s: float) -> None:
    """Ask the tree under `leader` to end; after `grace_s` seconds make it. Returns when it is gone or was killed.

    Call it before the leader is reaped, if that can be helped: until then its number belongs to nobody else.
    """
    if sys.platform == "win32":
        await anyio.to_thread.run_sync(end_windows_tree, leader)
        return
    others = escaped(leader)
    send(leader, others, signal.SIGTERM)
    with anyio.move_on_after(grace_s):
        await _gone(leader, others)
        return
    send(leader, others | escaped(leader), signal.SIGKILL)


async def _gone(leader: int, others: Iterable[Member]) -> None:
    pause = _FIRST_PAUSE_S
    while not is_gone(leader, others):
        await anyio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_S)
