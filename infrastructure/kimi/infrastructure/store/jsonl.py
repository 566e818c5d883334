"""Sessions on disk, in the layout that is shared with the reference (runtime spec 4, wire spec 8)."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress

import anyio

from kimi.application.codec.envelope import encode_json
from kimi.domain.errors import InvalidSessionId, SessionBusy, StoreFailed
from kimi.domain.history.session import SessionSummary, checked_session_id
from kimi.infrastructure.store import kimi_json
from kimi.infrastructure.store.files import removal
from kimi.infrastructure.store.files.disk import failing_as, make_private_directory, remove_file, replace_file
from kimi.infrastructure.store.files.lock import FileLock
from kimi.infrastructure.store.layout import (
    CONTEXT,
    FRESH,
    LOCK,
    OLD_METADATA,
    STATE,
    normal_path,
    work_dir_directory,
)
from kimi.infrastructure.store.listing import context_path, summaries
from kimi.infrastructure.store.session_files import JsonlSession
from kimi.infrastructure.store.state import read_raw, with_old_metadata

LOCK_WAIT_S = 5.0
_PAUSE_S = 0.05


class JsonlStore:
    """The sessions of one work dir below a share directory; see the port `SessionStore`.

    `lock_wait_s` is how long `open` and `delete` wait for a session that another process holds.
    """

    def __init__(self, share_dir: str, work_dir: str, *, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self._share_dir = share_dir
        self._work_dir = normal_path(work_dir)
        self._root = work_dir_directory(share_dir, work_dir)
        self._lock_wait_s = lock_wait_s

    async def create(self, session_id: str) -> JsonlSession:
        """A new session; its directory is made with its first record."""
        directory = os.path.join(self._root, checked_session_id(session_id))
        return JsonlSession(session_id, directory, FileLock(os.path.join(directory, LOCK)), emptied=self._forget)

    async def open(self, session_id: str) -> JsonlSession | None:
        """An existing session, or None. Raises SessionBusy, StoreFailed, InvalidSessionId."""
        lock = await self._locked(session_id)
        if lock is None:
            return None
        directory = os.path.join(self._root, session_id)
        try:
            with failing_as("open", directory):
                self._migrate(session_id, directory)
            return JsonlSession(session_id, directory, lock, emptied=self._forget)
        except BaseException:
            lock.release()
            raise

    def last(self) -> str | None:
        """The session that was marked last, else the one that was written last (R-57)."""
        marked = kimi_json.last_session_id(self._share_dir, self._work_dir)
        if marked is not None and self._exists(marked):
            return marked
        return next((summary.id for summary in self.list()), None)

    def mark_last(self, session_id: str) -> None:
        """Remember the session in `kimi.json`. Raises StoreFailed."""
        kimi_json.set_last_session_id(self._share_dir, self._work_dir, checked_session_id(session_id))

    def list(self) -> Sequence[SessionSummary]:
        """The sessions that are not empty, newest first."""
        return summaries(self._root, self._work_dir)

    async def delete(self, session_id: str) -> bool:
        """Remove a session. Raises SessionBusy, and StoreFailed when files of other programs are in it."""
        lock = await self._locked(session_id)
        if lock is None:
            return False
        directory = os.path.join(self._root, session_id)
        try:
            with failing_as("remove", directory):
                removal.remove_session(directory)
        finally:
            lock.release()
        removal.remove_directories([directory])
        self._forget(session_id)
        return True

    def _exists(self, session_id: str) -> bool:
        try:
            return context_path(self._root, checked_session_id(session_id)) is not None
        except InvalidSessionId:
            return False

    async def _locked(self, session_id: str) -> FileLock | None:
        """The lock of an existing session; None when there is no such session."""
        checked_session_id(session_id)
        directory = os.path.join(self._root, session_id)
        lock = FileLock(os.path.join(directory, LOCK))
        deadline = time.monotonic() + self._lock_wait_s
        while self._exists(session_id):
            if _try_lock(lock, directory):
                if self._exists(session_id):
                    return lock
                lock.release()
            elif time.monotonic() >= deadline:
                raise SessionBusy(_busy(session_id, lock.owner()))
            else:
                await anyio.sleep(_PAUSE_S)
        return None

    def _migrate(self, session_id: str, directory: str) -> None:
        """Bring what older versions left into today's layout; remove what a crash left. Raises OSError."""
        context = os.path.join(directory, CONTEXT)
        if not os.path.exists(context):
            os.replace(os.path.join(self._root, session_id + ".jsonl"), context)
        for name in (CONTEXT, STATE):
            remove_file(os.path.join(directory, name + FRESH))
        old_path, state_path = os.path.join(directory, OLD_METADATA), os.path.join(directory, STATE)
        old = read_raw(old_path)
        if old is not None:
            replace_file(state_path, encode_json(with_old_metadata(read_raw(state_path) or {"version": 1}, old)))
            os.unlink(old_path)

    def _forget(self, session_id: str) -> None:
        """No longer the last session of the work dir, if it was."""
        with suppress(StoreFailed):
            if kimi_json.last_session_id(self._share_dir, self._work_dir) == session_id:
                kimi_json.set_last_session_id(self._share_dir, self._work_dir, None, only_if=session_id)


def _try_lock(lock: FileLock, directory: str) -> bool:
    with failing_as("open", directory):
        try:
            make_private_directory(directory)  # the oldest layout has none
            return lock.try_acquire()
        except FileNotFoundError:  # its owner removes it at this moment
            return False


def _busy(session_id: str, owner: int | None) -> str:
    if owner == os.getpid():
        return f"Session {session_id} is already open in this process; close it there first."
    by = f" (process {owner})" if owner else ""
    return f"Session {session_id} is open in another process{by}; end it there or start another session."
