"""The sessions that a server has open, for all of its clients: opened when one asks, closed when nobody is there."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import anyio
import anyio.abc
import anyio.to_thread

from kimi.application.ports import NewId, SessionCatalog, SessionStore
from kimi.application.sessions.open_session import SessionSelector
from kimi.application.sessions.restore_session import RestoreOptions
from kimi.application.sessions.session_pool import SessionPool
from kimi.application.settings.settings import Settings
from kimi.domain.errors import UnknownSession
from kimi.interfaces.bootstrap.containers import App, SessionContainer
from kimi.interfaces.bootstrap.opening import bind_negotiation, derive_app, open_conversation
from kimi.interfaces.bootstrap.start import ReloadingSettings
from kimi.interfaces.process.log import set_session_id
from kimi.interfaces.web.sessions.directories import AllowedDirectories, ForbiddenDirectory
from kimi.interfaces.web.sessions.hosted_session import HostedSession, host_session

logger = logging.getLogger(__name__)

IDLE_TIMEOUT_S: Final = 600.0
"""How long a session stays open without a client and without work, in seconds."""

MAX_NEW_SESSIONS: Final = 100
"""How many sessions without a prompt are remembered; they are stored with the first one."""

AdaptSession: TypeAlias = Callable[[SessionContainer], None]
"""Overrides members of a session's container before anything is built, for programs that embed the server."""


class HostedSessions:
    """Opens sessions for clients and closes those that nobody uses."""

    def __init__(
        self,
        shared_app: App,
        settings_source: ReloadingSettings,
        catalog: SessionCatalog,
        directories: AllowedDirectories,
        tasks: anyio.abc.TaskGroup,
        *,
        time_left: Callable[[], float],
        adapt: AdaptSession = lambda container: None,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        self._shared_app = shared_app
        self._settings_source = settings_source
        self._catalog = catalog
        self.directories = directories
        self._time_left = time_left
        self._adapt = adapt
        self._idle_timeout_s = idle_timeout_s
        self._new_sessions: dict[str, str] = {}
        """The work directories of sessions that were made here and are not stored yet, by id."""
        self._pool = SessionPool[HostedSession](tasks, lambda hosted: hosted.is_idle)

    @property
    def new_id(self) -> NewId:
        """What makes the ids of new sessions."""
        return self._shared_app.new_id()

    # --- which sessions there are ---------------------------------------------------------------------------------

    def create(self, work_dir: str) -> str:
        """Return the id of a new session in this directory, which must be one that may be opened."""
        session_id = self.new_id()
        self._new_sessions[session_id] = work_dir
        while len(self._new_sessions) > MAX_NEW_SESSIONS:
            del self._new_sessions[next(iter(self._new_sessions))]
        return session_id

    async def find_work_dir(self, session_id: str, *, must_exist: bool = True) -> str:
        """Return the work directory of a session; that of one that is open here may be gone, too.

        Raises UnknownSession, InvalidSessionId, ForbiddenDirectory.
        """
        hosted = self.find_live(session_id)
        if hosted is not None:
            return hosted.work_dir
        return await anyio.to_thread.run_sync(self._find_closed, session_id, must_exist)

    def _find_closed(self, session_id: str, must_exist: bool) -> str:
        if (made_here := self._new_sessions.get(session_id)) is not None:
            return self.directories.resolve(made_here) if must_exist else made_here
        owners = [path for path in self._catalog.find_work_dirs(session_id) if path is not None]
        if not owners:
            raise UnknownSession("There is no such session.")
        allowed = [path for path in owners if self.directories.allows_session_of(path)]
        if not allowed:
            raise ForbiddenDirectory("The directory of this session may not be opened here.")
        there = next((path for path in allowed if os.path.isdir(path) or not must_exist), None)
        if there is None:
            raise ForbiddenDirectory(f"The directory of this session is gone: {allowed[0]}")
        return there

    def find_live(self, session_id: str) -> HostedSession | None:
        """Return the session if it is open here."""
        return self._pool.find_live(session_id)

    def list_live(self) -> Sequence[HostedSession]:
        """Return the sessions that are open here."""
        return self._pool.list_live()

    def open_store(self, work_dir: str) -> SessionStore:
        """Return the store of the sessions of a work directory."""
        return self._derive_app(work_dir).store()

    # --- opening and closing --------------------------------------------------------------------------------------

    @asynccontextmanager
    async def use(self, session_id: str) -> AsyncGenerator[HostedSession, None]:
        """Use a session, which is opened if it is not open yet, and stays open while the context is.

        Raises what `find_work_dir` raises, TooManySessions, and what `open_conversation` raises.
        """
        work_dir = await self.find_work_dir(session_id)
        async with self._pool.open_session(session_id, lambda: self._open(session_id, work_dir)) as hosted:
            hosted.last_used = anyio.current_time()
            yield hosted

    @asynccontextmanager
    async def _open(self, session_id: str, work_dir: str) -> AsyncGenerator[HostedSession, None]:
        app = self._derive_app(work_dir)
        async with open_conversation(
            app,
            SessionSelector(session_id),
            time_left=self._time_left,
            adapt_container=self._adapt,
            close_http=False,
            restore_options=RestoreOptions(persisted_dirs=app.settings().additional_dirs),
        ) as conversation:
            set_session_id(session_id)
            async with host_session(conversation, work_dir, bind_negotiation(app, conversation)) as hosted:
                yield hosted

    def _derive_app(self, work_dir: str) -> App:
        settings: Settings = self._settings_source.get().model_copy(update={"work_dir": work_dir})
        return derive_app(self._shared_app, lambda: settings, None)

    async def close_idle(self) -> None:
        """Close sessions that nobody uses, until cancelled. Their next client opens them again."""
        while True:
            await anyio.sleep(self._idle_timeout_s / 4)
            now = anyio.current_time()
            for hosted in self._pool.list_live():
                if hosted.is_idle and now - hosted.last_used >= self._idle_timeout_s:
                    logger.info("session %s is closed: nobody uses it", hosted.conversation.id)
                    await self._pool.suspend(hosted.conversation.id)

    async def delete(self, session_id: str) -> bool:
        """Close and remove a session. Raises what `find_work_dir` and the store raise."""
        work_dir = await self.find_work_dir(session_id, must_exist=False)
        await self._pool.close(session_id)
        was_new = self._new_sessions.pop(session_id, None) is not None
        return await self.open_store(work_dir).delete(session_id) or was_new

    def stop(self) -> None:
        """Refuse all requests and cancel all turns, because the server ends."""
        for hosted in self._pool.list_live():
            hosted.stop()

    async def wait_for_turns(self) -> None:
        """Wait until no turn runs."""
        for hosted in self._pool.list_live():
            await hosted.wait_for_turn()

    async def close_all(self) -> None:
        """Close all sessions concurrently."""
        await self._pool.close_all()
