"""The sessions that a client has open, each with its location, settings and prompt queue."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import anyio
import anyio.abc
import anyio.lowlevel

from kimi.application.control.switch_model import reload_model
from kimi.application.ports import SessionStore, ToolCallContext
from kimi.application.sessions.open_session import SessionSelector
from kimi.application.sessions.restore_session import (
    RestoreOptions,
    SuspendedState,
    capture_state,
    log_unrestored,
)
from kimi.application.sessions.session_pool import SessionPool
from kimi.application.settings.settings import Settings
from kimi.domain.client import Client
from kimi.interfaces.acp.client_capabilities import ClientCapabilities
from kimi.interfaces.acp.sessions.live_session import LiveSession, open_live_session
from kimi.interfaces.acp.sessions.prompt_queue import PromptQueue
from kimi.interfaces.acp.sessions.session_location import SessionLocation, derive_settings
from kimi.interfaces.acp.transport.errors import session_not_open
from kimi.interfaces.acp.transport.remote_client import RemoteClient
from kimi.interfaces.bootstrap.containers import App, SessionContainer
from kimi.interfaces.bootstrap.opening import bind_negotiation, derive_app, open_conversation, replace_workspace
from kimi.interfaces.bootstrap.start import ReloadingSettings
from kimi.interfaces.process import trim_memory
from kimi.interfaces.process.log import set_session_id

logger = logging.getLogger(__name__)

PREPARING_DELAY_S: Final = 0.1
"""How long no session must have been opened before first turns are prepared, in seconds."""

TRIM_DELAY_S: Final = 0.2
"""How long after the end of a session its memory is returned to the system, in seconds."""


@dataclass(slots=True)
class OpenSession:
    """A session that the client has open, live or suspended."""

    id: str
    location: SessionLocation
    capabilities: ClientCapabilities
    client: Client
    process_settings: Settings
    """The settings of the process when the session was opened or last refreshed."""
    prompt_queue: PromptQueue = field(default_factory=PromptQueue)
    copy_lock: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while the session's files are copied; no turn may begin then."""
    suspended_state: SuspendedState | None = None
    """The state to restore, from when the session was last suspended."""
    has_lost_model: bool = False
    """Whether the last model of the session could not be restored; the client is then sent the options."""
    settings: Settings = field(init=False)
    """The settings of the session, derived from `process_settings` and `location`."""

    def __post_init__(self) -> None:
        self.derive_settings()

    def derive_settings(self) -> None:
        """Derive `settings` again after `process_settings` or `location` has changed."""
        self.settings = derive_settings(self.process_settings, self.location)


AdaptContainer = Callable[[SessionContainer, OpenSession], None]
"""Overrides members of a session's container before anything is built, for programs that embed the server."""


def adapt_nothing(container: SessionContainer, session: OpenSession) -> None:
    """Override nothing."""


class OpenSessions:
    """Opens, suspends and closes the sessions of one client."""

    def __init__(
        self,
        shared_app: App,
        settings_source: ReloadingSettings,
        client: RemoteClient,
        tasks: anyio.abc.TaskGroup,
        *,
        time_left: Callable[[], float],
        adapt: AdaptContainer,
    ) -> None:
        self._shared_app = shared_app
        self._settings_source = settings_source
        self._client = client
        self._time_left = time_left
        self._adapt = adapt
        self._tasks = tasks
        self._is_trim_scheduled = False
        self._has_opened = anyio.Event()
        """Set while sessions are to be prepared."""
        self._open_sessions: dict[str, OpenSession] = {}
        self._change_locks: dict[str, anyio.Lock] = {}
        self._live_sessions = SessionPool[LiveSession](tasks, lambda live: live.is_idle)

    def find(self, session_id: str) -> OpenSession | None:
        """Return the open session with this id; None if there is none."""
        return self._open_sessions.get(session_id)

    def get(self, session_id: str) -> OpenSession:
        """Return the open session with this id. Raises RpcError if it is not open."""
        session = self._open_sessions.get(session_id)
        if session is None:
            raise session_not_open(session_id)
        return session

    def list_open(self) -> list[OpenSession]:
        """Return all open sessions."""
        return list(self._open_sessions.values())

    def find_live(self, session: OpenSession) -> LiveSession | None:
        """Return the live session; None while the session is suspended."""
        return self._live_sessions.find_live(session.id)

    @asynccontextmanager
    async def lock_changes(self, session_id: str) -> AsyncGenerator[None, None]:
        """Hold the lock under which a session is opened, closed, copied or deleted, in the order of the requests.

        Without it, a session that is loaded while it closes would be open for the client and closed here.
        """
        lock = self._change_locks.setdefault(session_id, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():  # it passes to the next waiter at once, so unlocked means that none waits
                self._change_locks.pop(session_id, None)

    @asynccontextmanager
    async def open_session(self, session: OpenSession) -> AsyncGenerator[LiveSession, None]:
        """Open a session and use it. A failure inside of the context closes it again, unless it was open before.

        Raises TooManySessions and what `open_conversation` raises; the session is not open then.
        """
        was_open = session.id in self._open_sessions
        try:
            async with self._live_sessions.open_session(session.id, lambda: self._open_live_session(session)) as live:
                self._open_sessions[session.id] = session
                yield live
        except BaseException:
            if not was_open:
                with anyio.CancelScope(shield=True):
                    await self.close(session.id)
            raise

    @asynccontextmanager
    async def use_session(self, session: OpenSession) -> AsyncGenerator[LiveSession, None]:
        """Use an open session; resume it if it is suspended. Raises RpcError if it was closed in the meantime."""
        try:
            async with self._live_sessions.use_session(session.id) as live:
                yield live
        except KeyError:
            if session.id in self._open_sessions:
                raise
            raise session_not_open(session.id) from None

    async def prepare_first_turns(self) -> None:
        """Prepare the first turns of sessions whenever none has been opened for a moment. Does not return.

        Many sessions may get their first prompts at the same moment, and each would wait for what the others make.
        """
        while True:
            await self._has_opened.wait()
            while self._has_opened.is_set():
                self._has_opened = anyio.Event()
                await anyio.sleep(PREPARING_DELAY_S)
            for session_id in tuple(self._open_sessions):
                self._prepare_first_turn(session_id)
                await anyio.lowlevel.checkpoint()  # one at a time, so that no request waits for all of them

    def _prepare_first_turn(self, session_id: str) -> None:
        # A function of its own: no session may be kept in memory by the loop that waits for the next one.
        live = self._live_sessions.find_live(session_id)
        try:
            if live is not None:
                live.prepare_first_turn()
        except Exception:  # the turn makes it again and reports the error
            logger.exception("preparing a turn failed")

    async def update_location(self, session: OpenSession, location: SessionLocation) -> None:
        """Set the roots and servers of a session for its next use; a busy session keeps its own."""
        live = self.find_live(session)
        wanted = replace(session.location, additional_dirs=location.additional_dirs, mcp_servers=location.mcp_servers)
        if wanted != session.location and (live is None or live.is_idle):
            session.location = wanted
            session.derive_settings()
            await self._live_sessions.suspend(session.id)

    async def close(self, session_id: str) -> None:
        """Cancel the session's prompts, wait until they are answered, and close it. Does nothing if it is not open."""
        # Removed before the first await, so that no later request finds it. The pool closes it only after the queue is
        # empty, because a prompt uses the live session until its answer.
        session = self._open_sessions.pop(session_id, None)
        if session is not None:
            session.prompt_queue.cancel_all()
            await session.prompt_queue.join()
            await self._live_sessions.close(session_id)
            if not self._is_trim_scheduled:
                self._is_trim_scheduled = True
                self._tasks.start_soon(self._trim_memory_later)

    async def _trim_memory_later(self) -> None:
        """Return the memory of closed sessions to the system: histories may be large and part of reference cycles."""
        # By then the tasks of the session are gone, and one trim serves all sessions that close at the same time.
        await anyio.sleep(TRIM_DELAY_S)
        self._is_trim_scheduled = False
        trim_memory.trim_memory()

    async def close_all(self) -> None:
        """Close all sessions concurrently."""
        async with anyio.create_task_group() as closing:
            for session in self.list_open():
                closing.start_soon(self.close, session.id)

    def find_store(self, session: OpenSession) -> SessionStore:
        """Return the store of the session's work directory."""
        return derive_app(self._shared_app, lambda: session.settings, session.location.stored_work_dir).store()

    def stop(self) -> None:
        """Refuse all pending requests and cancel all prompts, because the client is gone."""
        for live in self._live_sessions.list_live():
            live.conversation.events.pending_requests.close()
        for session in self.list_open():
            session.prompt_queue.cancel_all()

    # --- a session's settings -------------------------------------------------------------------------------------

    def refresh_settings(self, session: OpenSession, live: LiveSession) -> None:
        """Update the settings of an idle session if those of the process have changed (A-30)."""
        base = self._settings_source.get()
        if base is session.process_settings or live.conversation.turn is not None:
            return
        session.process_settings = base
        session.derive_settings()
        reload_model(live.conversation)

    @asynccontextmanager
    async def _open_live_session(self, session: OpenSession) -> AsyncGenerator[LiveSession, None]:
        app = derive_app(self._shared_app, lambda: session.settings, session.location.stored_work_dir)
        session.has_lost_model = False
        async with open_conversation(
            app,
            SessionSelector(session.id),
            time_left=self._time_left,
            adapt_container=lambda container: self._prepare_container(container, session),
            close_http=False,
            restore_options=RestoreOptions(
                report=lambda text: _note_lost_model(session, text),
                persisted_dirs=session.process_settings.additional_dirs,
                suspended=session.suspended_state,
            ),
        ) as conversation:
            set_session_id(conversation.id)
            bind_negotiation(app, conversation)(session.client, ())
            async with open_live_session(
                conversation, session.location.cwd, self._client, session.capabilities
            ) as live:
                self._has_opened.set()
                yield live
                session.suspended_state = capture_state(conversation)  # while it is open; the next opening restores it

    def _prepare_container(self, container: SessionContainer, session: OpenSession) -> None:
        """Make the session use the files and terminals of the client, as far as its capabilities go."""
        self._adapt(container, session)
        abilities = session.capabilities
        if not (abilities.fs_read or abilities.fs_write or abilities.terminal):
            return
        from kimi.interfaces.acp.workspace.client_workspace import ClientWorkspace  # start-up time

        async def show(call: ToolCallContext, terminal_id: str) -> None:
            if (live := self.find_live(session)) is not None:
                await live.show_terminal(call, terminal_id)

        async def join_events() -> None:
            if (live := self.find_live(session)) is not None:
                await live.conversation.events.join()

        def roots() -> list[str]:
            directories = (*session.settings.additional_dirs, *container.files().state.additional_dirs)
            return [os.path.realpath(path) for path in (session.settings.work_dir, *directories)]

        local = container.workspace()
        workspace = ClientWorkspace(local, session.id, abilities, roots, self._client.call, show, join_events)
        replace_workspace(container, workspace)


def _note_lost_model(session: OpenSession, text: str) -> None:
    session.has_lost_model = True
    log_unrestored(text)
