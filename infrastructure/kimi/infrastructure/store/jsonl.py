"""Sessions on disk, in the layout that is shared with the reference (runtime spec 4, wire spec 8)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

import anyio

from kimi.application.codec.envelope import encode_json
from kimi.domain.errors import InvalidSessionId, SessionBusy, StoreFailed
from kimi.domain.history.session import SessionSummary, check_session_id
from kimi.infrastructure.store.files.disk import (
    make_private_directory,
    remove_empty_directories,
    remove_file,
    replace_file,
    wrap_os_errors,
)
from kimi.infrastructure.store.files.lock import FileLock
from kimi.infrastructure.store.layout import (
    CONTEXT_FILE,
    LOCK_FILE,
    NEW_SUFFIX,
    OLD_METADATA_FILE,
    PLANS_DIRECTORY,
    STATE_FILE,
    find_context_file,
    normalize_path,
    session_directory,
    sessions_directory,
)
from kimi.infrastructure.store.session_files import JsonlSession
from kimi.infrastructure.store.state import decode_state, read_json_object, with_legacy_metadata

LOCK_WAIT_S = 5.0
_LOCK_RETRY_S = 0.05


class JsonlStore:
    """The sessions of one work directory below a share directory; see the port `SessionStore`.

    `lock_wait_s` is how long `open` and `delete` wait for a session that another process holds. `adopted` are sessions
    of other work directories that are opened too: the work directory of each, by id.
    """

    def __init__(
        self,
        share_dir: str,
        work_dir: str,
        *,
        lock_wait_s: float = LOCK_WAIT_S,
        adopted: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._share_dir = share_dir
        self._work_dir = normalize_path(work_dir)
        self._root = sessions_directory(share_dir, work_dir)
        self._lock_wait_s = lock_wait_s
        self._adopted = adopted

    async def create(self, session_id: str) -> JsonlSession:
        """Create a session; its directory is made with its first record."""
        directory = self._find_directory(check_session_id(session_id))
        return JsonlSession(
            session_id, directory, FileLock(os.path.join(directory, LOCK_FILE)), on_removed=self._forget_last
        )

    async def open(self, session_id: str) -> JsonlSession | None:
        """Open an existing session, or return None. Raises SessionBusy, StoreFailed, InvalidSessionId."""
        lock = await self._acquire_lock(session_id)
        if lock is None:
            return None
        directory = self._find_directory(session_id)
        try:
            with wrap_os_errors("open", directory):
                _migrate(directory)
            return JsonlSession(session_id, directory, lock, on_removed=self._forget_last)
        except BaseException:
            lock.release()
            raise

    def last_session_id(self) -> str | None:
        """The session that was marked last, else the one that was written last (R-57)."""
        from kimi.infrastructure.store import kimi_json  # start-up time

        marked = kimi_json.read_last_session_id(self._share_dir, self._work_dir)
        if marked is not None and self._exists(marked):
            return marked
        return next((summary.id for summary in self.list_sessions()), None)

    async def mark_last(self, session_id: str) -> None:
        """Remember the session in `kimi.json`. Raises StoreFailed."""
        from kimi.infrastructure.store import kimi_json  # start-up time

        work_dir = self._find_work_dir(check_session_id(session_id))
        await kimi_json.mark_last_session(self._share_dir, work_dir, session_id)

    def list_sessions(self) -> Sequence[SessionSummary]:
        """The sessions that are not empty, newest first."""
        from kimi.infrastructure.store.session_listing import list_summaries  # start-up time

        return list_summaries(self._root, self._work_dir)

    async def delete(self, session_id: str) -> bool:
        """Remove a session and its plan. Raises SessionBusy, also while a background task of it runs.

        Raises StoreFailed when files of other programs are in it.
        """
        from kimi.infrastructure.store.files.removal import refuse_link, remove_plan, remove_session  # start-up time
        from kimi.infrastructure.store.session_inspection import has_running_task

        directory = self._find_directory(check_session_id(session_id))
        refuse_link(directory)  # before the lock, whose file would be made where the link leads
        lock = await self._acquire_lock(session_id)
        if lock is None:
            return False
        try:
            if has_running_task(directory):
                raise SessionBusy(f"A background task of session {session_id} still runs; stop it and try again.")
            plan = decode_state(read_json_object(os.path.join(directory, STATE_FILE)) or {}).plan_slug
            with wrap_os_errors("remove", directory):
                remove_session(directory)
        finally:
            lock.release()
        remove_plan(os.path.join(self._share_dir, PLANS_DIRECTORY), plan)
        remove_empty_directories([directory])
        self._forget_last(session_id)
        return True

    def _exists(self, session_id: str) -> bool:
        try:
            check_session_id(session_id)
        except InvalidSessionId:
            return False
        root = sessions_directory(self._share_dir, self._find_work_dir(session_id))
        return find_context_file(root, session_id) is not None

    def _find_directory(self, session_id: str) -> str:
        return session_directory(sessions_directory(self._share_dir, self._find_work_dir(session_id)), session_id)

    def _find_work_dir(self, session_id: str) -> str:
        return self._adopted.get(session_id, self._work_dir)

    async def _acquire_lock(self, session_id: str) -> FileLock | None:
        """Acquire the lock of an existing session; None if there is no such session."""
        check_session_id(session_id)
        directory = self._find_directory(session_id)
        lock = FileLock(os.path.join(directory, LOCK_FILE))
        deadline = time.monotonic() + self._lock_wait_s
        while self._exists(session_id):
            if _try_lock(lock, directory):
                # The session is looked for again under the lock: its last owner may have removed it just before the
                # release.
                if self._exists(session_id):
                    return lock
                lock.release()
            elif time.monotonic() >= deadline:
                raise SessionBusy(_format_busy(session_id, lock.read_owner()))
            else:
                await anyio.sleep(_LOCK_RETRY_S)
        return None

    def _forget_last(self, session_id: str) -> None:
        """No longer the last session of the work dir, if it was."""
        from kimi.infrastructure.store import kimi_json  # start-up time

        work_dir = self._find_work_dir(session_id)
        with suppress(StoreFailed):
            if kimi_json.read_last_session_id(self._share_dir, work_dir) == session_id:
                kimi_json.set_last_session_id(self._share_dir, work_dir, None, only_if=session_id)


def _migrate(directory: str) -> None:
    """Bring files of older versions into the present layout and remove the rest of a crash. Raises OSError."""
    context = os.path.join(directory, CONTEXT_FILE)
    if not os.path.exists(context):
        os.replace(directory + ".jsonl", context)
    for name in (CONTEXT_FILE, STATE_FILE):
        remove_file(os.path.join(directory, name + NEW_SUFFIX))
    old_path, state_path = os.path.join(directory, OLD_METADATA_FILE), os.path.join(directory, STATE_FILE)
    old = read_json_object(old_path)
    if old is not None:
        replace_file(state_path, encode_json(with_legacy_metadata(read_json_object(state_path) or {"version": 1}, old)))
        os.unlink(old_path)


def _try_lock(lock: FileLock, directory: str) -> bool:
    with wrap_os_errors("open", directory):
        try:
            make_private_directory(directory)  # the oldest layout has none
            return lock.try_acquire()
        except FileNotFoundError:  # its owner is removing it
            return False


def _format_busy(session_id: str, owner: int | None) -> str:
    if owner == os.getpid():
        return f"Session {session_id} is already open in this process; close it there first."
    by = f" (process {owner})" if owner else ""
    return f"Session {session_id} is open in another process{by}; end it there or start another session."
