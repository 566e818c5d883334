"""The sessions that a client has open: each with its place, its settings and its queue of prompts."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import anyio
import anyio.abc

from kimi.application.control.switch_model import current_choice, restore_model
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.model_choice import aliases
from kimi.application.ports import SessionStore, ToolCallContext
from kimi.application.sessions.open_session import Choice
from kimi.application.sessions.session_pool import Sessions
from kimi.application.settings.settings import ModelSettings, Settings
from kimi.domain.client import Client
from kimi.domain.errors import ConfigError
from kimi.domain.permissions.approval import Policy
from kimi.interfaces.acp.client_capabilities import ClientAbilities
from kimi.interfaces.acp.sessions.live_session import LiveSession, serve_session
from kimi.interfaces.acp.sessions.prompt_queue import Lane
from kimi.interfaces.acp.sessions.session_settings import CurrentSettings, SessionPlace, app_at, settings_at
from kimi.interfaces.acp.transport.client import ClientSide
from kimi.interfaces.acp.transport.errors import session_not_open
from kimi.interfaces.bootstrap.agent_toolset import replace_workspace
from kimi.interfaces.bootstrap.containers import App, Session, negotiation, open_conversation
from kimi.interfaces.process import trim_memory
from kimi.interfaces.process.process import set_session_id

logger = logging.getLogger(__name__)

TIDY_S: Final = 0.2
"""How long after the end of a session its memory is given back."""


@dataclass(slots=True)
class OpenSession:
    """A session that the client has open, live or suspended."""

    id: str
    place: SessionPlace
    abilities: ClientAbilities
    client: Client
    base: Settings
    """The settings of the process, as they were when it was opened or last refreshed."""
    lane: Lane = field(default_factory=Lane)
    policy: Policy | None = None
    """What it was when the session was suspended."""
    lost_model: bool = False
    """Is the model that it had last no longer configured?"""
    opened_at: float = field(default_factory=time.time)
    settings: Settings = field(init=False)
    """Its own, made of `base` and `place`."""

    def __post_init__(self) -> None:
        self.settle()

    def settle(self) -> None:
        """`base` or `place` has changed."""
        self.settings = settings_at(self.base, self.place)


Adapt = Callable[[Session, OpenSession], None]
"""Overrides members of a session's container, before anything is made, for whoever embeds the server."""


def adapt_nothing(container: Session, session: OpenSession) -> None:
    """Everything is as it was configured."""


class OpenSessions:
    """All open sessions of one client. Opening, suspending and closing them goes through here."""

    def __init__(
        self,
        shared: App,
        current: CurrentSettings,
        client: ClientSide,
        tasks: anyio.abc.TaskGroup,
        *,
        time_left: Callable[[], float],
        adapt: Adapt,
    ) -> None:
        self._shared = shared
        self._current = current
        self._client = client
        self._time_left = time_left
        self._adapt = adapt
        self._tasks = tasks
        self._tidying = False
        self._open: dict[str, OpenSession] = {}
        self._changing: dict[str, anyio.Lock] = {}
        self._live = Sessions[LiveSession](tasks, lambda live: live.is_idle)

    def find(self, session_id: str) -> OpenSession | None:
        """The open session with this id."""
        return self._open.get(session_id)

    def get(self, session_id: str) -> OpenSession:
        """The open session with this id. Raises Refused when it is not open."""
        session = self._open.get(session_id)
        if session is None:
            raise session_not_open(session_id)
        return session

    def all(self) -> list[OpenSession]:
        """Every open session."""
        return list(self._open.values())

    def live(self, session: OpenSession) -> LiveSession | None:
        """What is live of it; None while it is suspended."""
        return self._live.live(session.id)

    @asynccontextmanager
    async def changing(self, session_id: str) -> AsyncGenerator[None, None]:
        """Open, close, copy or delete a session, one after the other in the order in which the client asked for it.

        Else a session that is loaded while it closes would be open for the client and gone here.
        """
        lock = self._changing.setdefault(session_id, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._changing.pop(session_id, None)

    @asynccontextmanager
    async def added(self, session: OpenSession) -> AsyncGenerator[LiveSession, None]:
        """Open a session and use it; what fails meanwhile closes it again, unless it was open before.

        Raises what `open_conversation` raises, TooManySessions; it is not open then.
        """
        was_open = session.id in self._open
        try:
            async with self._live.opened(session.id, lambda: self._opened(session)) as live:
                self._open[session.id] = session
                yield live
        except BaseException:
            if not was_open:
                with anyio.CancelScope(shield=True):
                    await self.close(session.id)
            raise

    @asynccontextmanager
    async def using(self, session: OpenSession) -> AsyncGenerator[LiveSession, None]:
        """Use an open session; a suspended one is opened again. Raises Refused when it was closed meanwhile."""
        try:
            async with self._live.using(session.id) as live:
                yield live
        except KeyError:
            if session.id in self._open:
                raise
            raise session_not_open(session.id) from None

    async def equip(self, session: OpenSession, place: SessionPlace) -> None:
        """Let a session have the roots and servers of `place` from its next use on; a busy one keeps its own."""
        live = self.live(session)
        wanted = replace(session.place, roots=place.roots, servers=place.servers)
        if wanted != session.place and (live is None or live.is_idle):
            session.place = wanted
            session.settle()
            await self._live.suspend(session.id)

    async def close(self, session_id: str) -> None:
        """Cancel what runs, wait until its prompts are answered, and close it. Nothing for one that is not open."""
        session = self._open.pop(session_id, None)
        if session is not None:
            session.lane.cancel()
            await session.lane.emptied()
            await self._live.close(session_id)
            if not self._tidying:
                self._tidying = True
                self._tasks.start_soon(self._tidy)

    async def _tidy(self) -> None:
        """Give the memory of closed sessions back: histories may be large, and are parts of circles."""
        await anyio.sleep(TIDY_S)  # what has served the session is gone by then, and so are others that close now
        self._tidying = False
        trim_memory.give_back()

    async def close_all(self) -> None:
        """Close all sessions, side by side."""
        async with anyio.create_task_group() as closing:
            for session in self.all():
                closing.start_soon(self.close, session.id)

    def store(self, session: OpenSession) -> SessionStore:
        """Where the sessions of its work dir are stored."""
        return app_at(self._shared, lambda: session.settings, session.place.stored_in).store()

    def stop(self) -> None:
        """The client is gone: cancel everything, refuse what waits for an answer."""
        for live in self._live.all_live():
            live.conversation.waiting.close()
        for session in self.all():
            session.lane.cancel()

    # --- a session's settings -------------------------------------------------------------------------------------

    def refresh(self, session: OpenSession, live: LiveSession) -> None:
        """Give a session that is idle the settings as they are now, if they have changed (A-30)."""
        base = self._current.get()
        if base is session.base or live.conversation.turn is not None:
            return
        session.base = base
        session.settle()
        chosen = chosen_model(live.conversation)
        if chosen is not None and chosen.usable:
            live.conversation.model = live.conversation.models().open(chosen)

    @asynccontextmanager
    async def _opened(self, session: OpenSession) -> AsyncGenerator[LiveSession, None]:
        app = app_at(self._shared, lambda: session.settings, session.place.stored_in)
        async with open_conversation(
            app,
            Choice(session.id),
            time_left=self._time_left,
            adapt=lambda container: self._prepare(container, session),
            ends_app=False,
            kept_dirs=session.base.additional_dirs,
        ) as conversation:
            set_session_id(conversation.id)
            negotiation(app, conversation)(session.client, ())
            _restore(session, conversation)
            async with serve_session(conversation, session.place.cwd, self._client, session.abilities) as live:
                yield live
                session.policy = conversation.policy

    def _prepare(self, container: Session, session: OpenSession) -> None:
        """Let the session work with the files and terminals of the client, as far as it offers them."""
        self._adapt(container, session)
        abilities = session.abilities
        if not (abilities.fs_read or abilities.fs_write or abilities.terminal):
            return
        from kimi.interfaces.acp.workspace.client_workspace import ClientWorkspace  # not needed for every client

        async def show(call: ToolCallContext, terminal_id: str) -> None:
            if (live := self.live(session)) is not None:
                await live.show_terminal(call, terminal_id)

        def roots() -> list[str]:
            directories = (*session.settings.additional_dirs, *container.files().state.additional_dirs)
            return [os.path.realpath(path) for path in (session.settings.work_dir, *directories)]

        local = container.workspace()
        workspace = ClientWorkspace(local, session.id, abilities, roots, self._client.call, show)
        replace_workspace(container, workspace)


def _restore(session: OpenSession, conversation: Conversation) -> None:
    """Model and mode as they were: those of the last time, or those that the suspended session had."""
    try:
        session.lost_model = not restore_model(conversation)
    except ConfigError as error:
        logger.warning("the model of the session cannot be used any more: %s", error)
        session.lost_model = True
    if session.policy is not None:
        kept = session.policy
        conversation.policy = replace(conversation.policy, yolo=kept.yolo, afk=kept.afk, plan=kept.plan)


def chosen_model(conversation: Conversation) -> ModelSettings | None:
    """The settings of the model that a conversation uses, with what was chosen about thinking."""
    choice, models = current_choice(conversation), conversation.models()
    settings = aliases(models).get(choice.alias) if choice is not None else models.started
    if settings is None or choice is None or conversation.choice is None:
        return settings
    thinking = choice.thinking if settings.thinking is not None else None
    return settings.model_copy(update={"thinking": thinking})
