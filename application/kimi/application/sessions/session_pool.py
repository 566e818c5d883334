"""The pool of open sessions of a process: each live one in its own task, a limited number at a time."""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

import anyio
import anyio.abc

from kimi.domain.errors import TooManySessions

logger = logging.getLogger(__name__)
T = TypeVar("T")

MAX_LIVE_SESSIONS: Final = 64

SessionOpener: TypeAlias = Callable[[], AbstractAsyncContextManager[T]]
"""Opens the live object of a session. It is entered and left in the same task, and called again after a suspension."""


@dataclass(slots=True)
class _SessionSlot(Generic[T]):
    """An open session, which is live, or suspended until its next use.

    `lock` is held while the session is started or stopped. `is_occupied` is True from the beginning of the start to
    the end of the stop, `live` is set in between. `users` counts the tasks that use the session or wait for it.
    """

    opener: SessionOpener[T]
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    live: T | None = None
    was_live: bool = False
    is_occupied: bool = False
    users: int = 0
    last_used: int = 0
    stop_requested: anyio.Event = field(default_factory=anyio.Event)
    stopped: anyio.Event = field(default_factory=anyio.Event)


class SessionPool(Generic[T]):
    """The open sessions of a process. The live object of a session is a `T`, chosen by the driver.

    At most `limit` sessions are live. When one more is needed, the least recently used of the sessions that are
    `is_idle` and unused is suspended: it is closed, and its next use opens it again. Live sessions run in `tasks`; one
    that fails there is closed and opened again by its next use, without an effect on others.
    """

    def __init__(
        self, tasks: anyio.abc.TaskGroup, is_idle: Callable[[T], bool], limit: int = MAX_LIVE_SESSIONS
    ) -> None:
        self._tasks = tasks
        self._is_idle = is_idle
        self._limit = limit
        self._entries: dict[str, _SessionSlot[T]] = {}
        self._use_counter = itertools.count(1)

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._entries

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all open sessions, suspended ones included."""
        return tuple(self._entries)

    def find_live(self, session_id: str) -> T | None:
        """Return the live object of the session; None when it is suspended or not open."""
        entry = self._entries.get(session_id)
        return entry.live if entry else None

    def list_live(self) -> Sequence[T]:
        """Return the live objects of all sessions that are not suspended."""
        return [entry.live for entry in self._entries.values() if entry.live is not None]

    @asynccontextmanager
    async def open_session(self, session_id: str, opener: SessionOpener[T]) -> AsyncGenerator[T, None]:
        """Open a session if it is not open yet, and use it.

        Raises what entering the context of `opener` raises; the session is then not open. Raises TooManySessions when
        the limit is reached and no live session can be suspended.
        """
        entry = self._entries.setdefault(session_id, _SessionSlot(opener))
        try:
            async with self.use_session(session_id) as live:
                yield live
        finally:
            # Removed only if it was never live and no other task waits for it; a waiting task tries to start it.
            if not (entry.was_live or entry.users) and self._entries.get(session_id) is entry:
                del self._entries[session_id]

    @asynccontextmanager
    async def use_session(self, session_id: str) -> AsyncGenerator[T, None]:
        """Use an open session, which stays live while the context is open.

        Raises KeyError when the session is not open; otherwise as `open_session`.
        """
        entry = self._entries[session_id]
        # Counted before the lock is awaited, so that the session is not suspended in between.
        entry.users += 1
        entry.last_used = next(self._use_counter)
        try:
            async with entry.lock:
                live = entry.live if entry.live is not None else await self._start_live(session_id, entry)
            yield live
        finally:
            entry.users -= 1

    async def suspend(self, session_id: str) -> None:
        """Suspend a session; its next use opens it again. Does nothing when the session is not open."""
        entry = self._entries.get(session_id)
        if entry is not None:
            async with entry.lock:
                await _stop_live_session(entry)

    async def close(self, session_id: str) -> bool:
        """Close a session and wait until it has ended; return False when it is not open."""
        # Removed first, so that no task can begin to use it; one that waits for the lock gets a KeyError.
        entry = self._entries.pop(session_id, None)
        if entry is None:
            return False
        async with entry.lock:
            await _stop_live_session(entry)
        return True

    async def close_all(self) -> None:
        """Close all sessions concurrently."""
        async with anyio.create_task_group() as closing:
            for session_id in self.ids:
                closing.start_soon(self.close, session_id)

    async def _start_live(self, session_id: str, entry: _SessionSlot[T]) -> T:
        await self._free_slot()
        # Both waits, for the lock and for a slot, may have let `close` remove the session.
        if self._entries.get(session_id) is not entry:
            raise KeyError(session_id)
        # No await since a slot was found free, so the limit holds even if several sessions start at once.
        entry.is_occupied = True
        entry.stop_requested, entry.stopped = anyio.Event(), anyio.Event()
        try:
            return await self._tasks.start(_run_live_session, session_id, entry)
        except BaseException:
            entry.is_occupied = False
            raise

    async def _free_slot(self) -> None:
        """Suspend sessions until one more may be live. Raises TooManySessions when none can be suspended."""
        while sum(entry.is_occupied for entry in self._entries.values()) >= self._limit:
            idle_slot = min(filter(self._can_suspend, self._entries.values()), key=_last_used, default=None)
            if idle_slot is None:
                raise TooManySessions
            async with idle_slot.lock:
                if self._can_suspend(idle_slot):  # another task may have used it during the wait for the lock
                    await _stop_live_session(idle_slot)

    def _can_suspend(self, entry: _SessionSlot[T]) -> bool:
        return entry.live is not None and not entry.users and self._is_idle(entry.live)


async def _run_live_session(
    session_id: str, entry: _SessionSlot[T], *, task_status: anyio.abc.TaskStatus[T] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Open a session, keep it live until it is asked to stop, and close it, all in one task.

    A context manager with a cancel scope must be left in the task that entered it.
    """
    started = False
    try:
        async with entry.opener() as live:
            entry.live, entry.was_live = live, True
            started = True
            task_status.started(live)
            await entry.stop_requested.wait()
    except Exception:
        if not started:
            raise  # goes to the caller of `tasks.start`; a later failure must not cancel the other sessions
        logger.exception("session %s failed and was closed", session_id)
    finally:
        entry.live, entry.is_occupied = None, False
        entry.stopped.set()


async def _stop_live_session(entry: _SessionSlot[T]) -> None:
    entry.stop_requested.set()
    if entry.is_occupied:
        await entry.stopped.wait()


def _last_used(entry: _SessionSlot[T]) -> int:
    return entry.last_used
