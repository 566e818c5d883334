"""The methods of the ACP agent: from what a client asks for to use-cases (acp spec 1.3 to 1.15)."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final, TypeAlias, cast

import anyio
import anyio.to_thread

from kimi.application.control.steer import steer
from kimi.application.ports import NewId, SessionCatalog
from kimi.application.sessions.fork_session import fork
from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import UserInput
from kimi.domain.errors import StateError
from kimi.domain.history.session import SessionSummary
from kimi.interfaces.acp.auth import LOGIN
from kimi.interfaces.acp.handshake import Handshake
from kimi.interfaces.acp.sessions import options
from kimi.interfaces.acp.sessions.live_session import LiveSession
from kimi.interfaces.acp.sessions.open_sessions import OpenSession, OpenSessions, chosen_model
from kimi.interfaces.acp.sessions.prompt_queue import Ticket
from kimi.interfaces.acp.sessions.session_settings import SessionPlace, place_in
from kimi.interfaces.acp.sessions.stored_sessions import page_of, where_stored
from kimi.interfaces.acp.transport.errors import (
    CANCELLED,
    Refused,
    invalid_params,
    refusal_for,
)
from kimi.interfaces.acp.transport.lines import incoming
from kimi.interfaces.acp.updates.content import BadPrompt, user_input
from kimi.interfaces.rpc.jsonrpc import INVALID_PARAMS, INVALID_REQUEST

logger = logging.getLogger(__name__)

Params: TypeAlias = Mapping[str, Any]
Method: TypeAlias = Callable[[Params], Awaitable[JsonObject]]

MAX_TURNS: Final = 64
"""How many turns may run at a time; the prompts of further ones wait."""

_CANCELLED: Final = {"stopReason": "cancelled"}


class AcpAgent:
    """One client: its handshake, its open sessions, its requests that are under way."""

    def __init__(self, handshake: Handshake, sessions: OpenSessions, catalog: SessionCatalog, new_id: NewId) -> None:
        self._handshake = handshake
        self._sessions = sessions
        self._catalog = catalog
        self._new_id = new_id
        self._turns = anyio.Semaphore(MAX_TURNS)
        self._cancels: dict[Any, Callable[[], None]] = {}

    # --- the table ------------------------------------------------------------------------------------------------

    def requests(self) -> Mapping[str, Method]:
        """The methods that are answered, by name, each with its errors turned into `Refused`."""
        methods: dict[str, Method] = {
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_config_option,
            "session/set_model": self._set_model,
            "_session/steering": self._steer,
        }
        return {name: self._guarded(method) for name, method in methods.items()}

    def notifications(self) -> Mapping[str, Callable[[Params], None]]:
        """The notifications that are heeded, by name."""
        return {"session/cancel": self._cancel, "$/cancel_request": self._cancel_request}

    def _guarded(self, method: Method) -> Method:
        async def answer(params: Params) -> JsonObject:
            request = incoming()
            with anyio.CancelScope() as scope:
                self._cancels[_key(request.id)] = scope.cancel
                try:
                    self._handshake.check()
                    if not isinstance(cast("object", params), dict):
                        raise invalid_params("params: must be an object")
                    return await method(params)
                except Exception as error:
                    raise refusal_for(error, self._handshake.methods()) from None
                finally:
                    self._cancels.pop(_key(request.id), None)
            raise Refused(CANCELLED, "Request cancelled")

        return answer

    # --- authentication -------------------------------------------------------------------------------------------

    async def _authenticate(self, params: Params) -> JsonObject:
        if params.get("methodId") != LOGIN:
            raise Refused(INVALID_PARAMS, "Invalid params", {"method_id": "Unknown auth method"})
        self._handshake.gate()
        return {}

    # --- opening and closing sessions -----------------------------------------------------------------------------

    async def _new(self, params: Params) -> JsonObject:
        self._handshake.gate()
        session = self._session(self._new_id(), place_in(params))
        async with self._sessions.added(session) as live:
            return {"sessionId": session.id, **_opened(session, live, is_new=True)}

    async def _load(self, params: Params) -> JsonObject:
        async with self._sessions.changing(_text(params, "sessionId")):
            session = await self._stored(params)
            async with self._sessions.added(session) as live:
                await live.replay()
                return _opened(session, live)

    async def _resume(self, params: Params) -> JsonObject:
        async with self._sessions.changing(_text(params, "sessionId")):
            session = await self._stored(params)
            async with self._sessions.added(session) as live:
                return _opened(session, live)

    async def _fork(self, params: Params) -> JsonObject:
        self._handshake.gate()
        source_id, place = _text(params, "sessionId"), place_in(params)
        async with self._sessions.changing(source_id):
            new_id, place = await self._forked(source_id, place)
        session = self._session(new_id, place)
        async with self._sessions.added(session) as live:
            return {"sessionId": new_id, **_opened(session, live)}

    def _session(self, session_id: str, place: SessionPlace) -> OpenSession:
        handshake = self._handshake
        return OpenSession(session_id, place, handshake.abilities, handshake.client, handshake.settings())

    async def _stored(self, params: Params) -> OpenSession:
        """The session that load or resume names: one that is open already, or one from the store."""
        self._handshake.gate()
        session_id, place = _text(params, "sessionId"), place_in(params)
        session = self._sessions.find(session_id)
        if session is None:
            place = await anyio.to_thread.run_sync(where_stored, self._catalog, session_id, place)
            return self._session(session_id, place)
        if session.place.cwd != place.cwd:
            raise invalid_params("session belongs to another directory", cwd=place.cwd)
        if session.lane.is_empty:
            await self._sessions.equip(session, place)
        return session

    async def _forked(self, source_id: str, place: SessionPlace) -> tuple[str, SessionPlace]:
        """A copy of a session, as it is now: its id and place."""
        source = self._sessions.find(source_id)
        if source is not None and source.place.cwd == place.cwd:
            async with self._sessions.using(source) as live:
                if live.conversation.turn is not None:
                    raise Refused(INVALID_REQUEST, "A turn of this session is running; fork it afterwards.")
                live.conversation.flush()
                new_id = await fork(self._sessions.store(source), live.conversation.files, self._new_id)
            return new_id, replace(place, stored_in=source.place.stored_in)
        place = await anyio.to_thread.run_sync(where_stored, self._catalog, source_id, place)
        store = self._sessions.store(self._session(source_id, place))
        files = await store.open(source_id)
        if files is None:
            raise Refused(INVALID_PARAMS, "Session not found")
        try:
            return await fork(store, files, self._new_id), place
        finally:
            files.close()

    async def _list(self, params: Params) -> JsonObject:
        cwd: object = params.get("cwd")
        if cwd is not None:
            if not isinstance(cwd, str) or not os.path.isabs(cwd):
                raise invalid_params("cwd must be an absolute path", cwd=cwd)
            cwd = os.path.abspath(cwd)
        stored = await anyio.to_thread.run_sync(self._catalog.list, cwd)
        known = {one.id for one in stored}
        shown = [one for one in self._unstored() if one.id not in known and cwd in (None, one.work_dir)]
        return page_of([*stored, *shown], params.get("cursor"))

    def _unstored(self) -> Iterable[SessionSummary]:
        for session in self._sessions.all():
            yield SessionSummary(session.id, session.place.cwd, "Untitled", session.opened_at)

    def _keep_going(self) -> None:
        """The request that is being answered cannot be cancelled: half of it would leave a session to nobody."""
        self._cancels.pop(_key(incoming().id), None)

    async def _close(self, params: Params) -> JsonObject:
        self._keep_going()
        session_id = _text(params, "sessionId")
        async with self._sessions.changing(session_id):
            await self._sessions.close(session_id)
        return {}

    async def _delete(self, params: Params) -> JsonObject:
        self._keep_going()
        session_id = _text(params, "sessionId")
        async with self._sessions.changing(session_id):
            await self._removed(session_id)
        return {}

    async def _removed(self, session_id: str) -> None:
        session = self._sessions.find(session_id)
        owners = {path for path in await anyio.to_thread.run_sync(self._catalog.work_dirs, session_id) if path}
        if session is not None:
            owners.add(session.place.stored_in or session.place.cwd)
            await self._sessions.close(session_id)
        for path in owners:
            await self._sessions.store(self._session(session_id, SessionPlace(path))).delete(session_id)

    # --- prompts --------------------------------------------------------------------------------------------------

    async def _prompt(self, params: Params) -> JsonObject:
        session = self._sessions.get(_text(params, "sessionId"))
        given = _user_input(params)
        ticket = session.lane.enter()  # before anything is awaited: a cancel that follows finds it
        self._cancels[_key(incoming().id)] = ticket.cancel
        try:
            return await self._run(session, ticket, given)
        finally:
            session.lane.leave(ticket)

    async def _run(self, session: OpenSession, ticket: Ticket, given: UserInput) -> JsonObject:
        live: LiveSession | None = None
        async with AsyncExitStack() as held:
            with ticket.before:
                await session.lane.turn_comes(ticket)
                await held.enter_async_context(self._turns)
                live = await held.enter_async_context(self._sessions.using(session))
            if live is None or ticket.cancelled:
                return _CANCELLED
            self._sessions.refresh(session, live)
            self._handshake.gate(chosen_model(live.conversation))
            result = await live.run(ticket, given)
            incoming().afterwards.append(live.save)
            return result

    def _cancel(self, params: Params) -> None:
        session_id: object = params.get("sessionId")
        session = self._sessions.find(session_id) if isinstance(session_id, str) else None
        if session is None:
            logger.info("cancel of a session that is not open: %r", session_id)
        else:
            session.lane.cancel()

    def _cancel_request(self, params: Params) -> None:
        cancel = self._cancels.get(_key(params.get("requestId")))
        if cancel is not None:
            cancel()

    async def _steer(self, params: Params) -> JsonObject:
        session = self._sessions.get(_text(params, "sessionId"))
        given = _user_input(params)
        live = self._sessions.live(session)
        try:
            if live is None:
                raise StateError("The session is suspended")
            live.check_content(given)
            steer(live.conversation, given)
        except StateError:
            return {"outcome": "promptRequired", "reason": "noRunningTurn"}
        return {"outcome": "injected"}

    # --- options and modes ----------------------------------------------------------------------------------------

    async def _set_mode(self, params: Params) -> JsonObject:
        session, mode_id = self._sessions.get(_text(params, "sessionId")), _text(params, "modeId")
        async with self._sessions.using(session) as live:
            options.set_mode(live.conversation, mode_id)
            live.set_told()
        return {}

    async def _set_config_option(self, params: Params) -> JsonObject:
        session, option_id = self._sessions.get(_text(params, "sessionId")), _text(params, "configId")
        async with self._sessions.using(session) as live:
            options.set_option(live.conversation, option_id, params.get("value"))
            live.set_told()
            return {"configOptions": options.config_options(live.conversation)}

    async def _set_model(self, params: Params) -> JsonObject:
        session, model_id = self._sessions.get(_text(params, "sessionId")), _text(params, "modelId")
        async with self._sessions.using(session) as live:
            options.set_legacy_model(live.conversation, model_id)
            live.set_told()
            incoming().afterwards.append(live.tell_options)
        return {}


def _opened(session: OpenSession, live: LiveSession, *, is_new: bool = False) -> JsonObject:
    """What the answer says of the session; what follows the answer is put down."""
    incoming().afterwards.append(live.tell_commands)
    if not is_new:
        incoming().afterwards.append(live.tell_state)
    if session.lost_model:
        session.lost_model = False
        incoming().afterwards.append(live.tell_options)
    return options.session_options(live.conversation)


def _text(params: Params, name: str) -> str:
    value: object = params.get(name)
    if not isinstance(value, str):
        raise invalid_params(f"{name}: must be a string")
    return value


def _user_input(params: Params) -> UserInput:
    try:
        return user_input(params.get("prompt"))
    except BadPrompt as error:
        raise invalid_params(str(error)) from None


def _key(call_id: object) -> object:
    """The id of a request as a key; JSON allows ids of any type."""
    return call_id if isinstance(call_id, (str, int, float, type(None))) else repr(call_id)
