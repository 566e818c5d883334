"""The methods of the ACP agent: they call the use-cases for a client's requests (acp spec 1.3 to 1.15)."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final, TypeAlias, cast

import anyio
import anyio.to_thread

from kimi.application.control.switch_model import resolve_chosen_model
from kimi.application.ports import NewId, SessionCatalog
from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import UserInput
from kimi.domain.errors import StateError
from kimi.interfaces.acp.auth import LOGIN_METHOD_ID
from kimi.interfaces.acp.handshake import Handshake
from kimi.interfaces.acp.sessions import options
from kimi.interfaces.acp.sessions.live_session import LiveSession
from kimi.interfaces.acp.sessions.open_sessions import OpenSession, OpenSessions
from kimi.interfaces.acp.sessions.prompt_queue import QueuedPrompt
from kimi.interfaces.acp.sessions.session_location import SessionLocation, parse_location
from kimi.interfaces.acp.sessions.stored_sessions import build_page, locate_stored_session
from kimi.interfaces.acp.transport.errors import (
    REQUEST_CANCELLED,
    RpcError,
    invalid_params,
    to_rpc_error,
)
from kimi.interfaces.acp.transport.lines import current_request, is_request_id
from kimi.interfaces.acp.updates.prompt_content import InvalidPrompt, parse_prompt_blocks
from kimi.interfaces.rpc.messages import INVALID_PARAMS, INVALID_REQUEST

logger = logging.getLogger(__name__)

RpcParams: TypeAlias = Mapping[str, Any]
RpcMethod: TypeAlias = Callable[[RpcParams], Awaitable[JsonObject]]

MAX_CONCURRENT_TURNS: Final = 64
"""How many turns may run at a time; further prompts wait."""

_CANCELLED_RESULT: Final = {"stopReason": "cancelled"}


class AcpAgent:
    """Answers one client: holds its handshake, its open sessions and its requests under way."""

    def __init__(self, handshake: Handshake, sessions: OpenSessions, catalog: SessionCatalog, new_id: NewId) -> None:
        self._handshake = handshake
        self._sessions = sessions
        self._catalog = catalog
        self._new_id = new_id
        self._turn_slots = anyio.Semaphore(MAX_CONCURRENT_TURNS)
        self._cancel_callbacks: dict[Any, Callable[[], None]] = {}

    # --- the table ------------------------------------------------------------------------------------------------

    def request_handlers(self, build_error: Callable[[RpcError], Exception]) -> Mapping[str, RpcMethod]:
        """Return the request handlers by method name. Each converts its errors with `build_error` and raises them."""
        methods: dict[str, RpcMethod] = {
            "authenticate": self._authenticate,
            "session/new": self._create_session,
            "session/load": self._load_session,
            "session/resume": self._resume_session,
            "session/fork": self._fork_session,
            "session/list": self._list_sessions,
            "session/close": self._close_session,
            "session/delete": self._delete_session,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_config_option,
            "session/set_model": self._set_model,
            "_session/steering": self._steer,
        }
        return {name: self._wrap_method(method, build_error) for name, method in methods.items()}

    def notification_handlers(self) -> Mapping[str, Callable[[RpcParams], None]]:
        """Return the notification handlers by method name."""
        return {"session/cancel": self._cancel_prompts, "$/cancel_request": self._cancel_request}

    def _wrap_method(self, method: RpcMethod, build_error: Callable[[RpcError], Exception]) -> RpcMethod:
        async def answer(params: RpcParams) -> JsonObject:
            request = current_request()
            with anyio.CancelScope() as scope:
                self._cancel_callbacks[request.id] = scope.cancel
                try:
                    self._handshake.require_initialized()
                    if not isinstance(cast("object", params), dict):
                        raise invalid_params("params: must be an object")
                    return await method(params)
                except Exception as error:
                    raise build_error(to_rpc_error(error, self._handshake.auth_methods())) from None
                finally:
                    self._cancel_callbacks.pop(request.id, None)
            # Reached only after a cancel: the scope absorbs it, and every other way out returns or raises.
            raise build_error(RpcError(REQUEST_CANCELLED, "Request cancelled"))

        return answer

    # --- authentication -------------------------------------------------------------------------------------------

    async def _authenticate(self, params: RpcParams) -> JsonObject:
        if params.get("methodId") != LOGIN_METHOD_ID:
            raise RpcError(INVALID_PARAMS, "Invalid params", {"method_id": "Unknown auth method"})
        self._handshake.require_credentials()
        return {}

    # --- opening and closing sessions -----------------------------------------------------------------------------

    async def _create_session(self, params: RpcParams) -> JsonObject:
        self._handshake.require_credentials()
        session = self._build_session(self._new_id(), parse_location(params))
        async with self._sessions.open_session(session) as live:
            return {"sessionId": session.id, **_build_opening_result(session, live, is_new=True)}

    async def _load_session(self, params: RpcParams) -> JsonObject:
        async with self._sessions.lock_changes(_require_text(params, "sessionId")):
            session = await self._resolve_session(params)
            async with self._sessions.open_session(session) as live:
                await live.replay()
                return _build_opening_result(session, live)

    async def _resume_session(self, params: RpcParams) -> JsonObject:
        async with self._sessions.lock_changes(_require_text(params, "sessionId")):
            session = await self._resolve_session(params)
            async with self._sessions.open_session(session) as live:
                return _build_opening_result(session, live)

    async def _fork_session(self, params: RpcParams) -> JsonObject:
        self._handshake.require_credentials()
        source_id, location = _require_text(params, "sessionId"), parse_location(params)
        async with self._sessions.lock_changes(source_id):
            new_id, location = await self._copy_session(source_id, location)
        # No lock on the copy: the client learns its id from the answer, so no other request can name it yet.
        session = self._build_session(new_id, location)
        async with self._sessions.open_session(session) as live:
            return {"sessionId": new_id, **_build_opening_result(session, live)}

    def _build_session(self, session_id: str, location: SessionLocation) -> OpenSession:
        handshake = self._handshake
        return OpenSession(
            session_id, location, handshake.client_capabilities, handshake.client, handshake.current_settings()
        )

    async def _resolve_session(self, params: RpcParams) -> OpenSession:
        """Return the session that load or resume names: one that is already open, or one from the store."""
        self._handshake.require_credentials()
        session_id, location = _require_text(params, "sessionId"), parse_location(params)
        session = self._sessions.find(session_id)
        if session is None:
            location = await anyio.to_thread.run_sync(locate_stored_session, self._catalog, session_id, location)
            return self._build_session(session_id, location)
        if session.location.cwd != location.cwd:
            raise invalid_params("session belongs to another directory", cwd=location.cwd)
        if session.prompt_queue.is_empty:
            await self._sessions.update_location(session, location)
        return session

    async def _copy_session(self, source_id: str, location: SessionLocation) -> tuple[str, SessionLocation]:
        """Copy a session as it is now; return the id and the location of the copy."""
        from kimi.application.sessions.fork_session import fork  # start-up time

        source = self._sessions.find(source_id)
        if source is not None and source.location.cwd == location.cwd:
            async with self._sessions.use_session(source) as live, source.copy_lock:
                if live.conversation.turn is not None:
                    raise RpcError(INVALID_REQUEST, "A turn of this session is running; fork it afterwards.")
                live.conversation.events.flush()  # the copy is made from the files
                new_id = await fork(self._sessions.find_store(source), live.conversation.files, self._new_id)
            return new_id, replace(location, stored_work_dir=source.location.stored_work_dir)
        location = await anyio.to_thread.run_sync(locate_stored_session, self._catalog, source_id, location)
        store = self._sessions.find_store(self._build_session(source_id, location))
        files = await store.open(source_id)
        if files is None:
            raise RpcError(INVALID_PARAMS, "Session not found")
        try:
            return await fork(store, files, self._new_id), location
        finally:
            files.close()

    async def _list_sessions(self, params: RpcParams) -> JsonObject:
        cwd: object = params.get("cwd")
        if cwd is not None:
            if not isinstance(cwd, str) or not os.path.isabs(cwd):
                raise invalid_params("cwd must be an absolute path", cwd=cwd)
            cwd = os.path.abspath(cwd)
        stored = await anyio.to_thread.run_sync(self._catalog.list_sessions, cwd)
        return build_page(stored, params.get("cursor"))

    def _forbid_cancel(self) -> None:
        """Make the current request impossible to cancel: half of it would leave a session without an owner."""
        self._cancel_callbacks.pop(current_request().id, None)

    async def _close_session(self, params: RpcParams) -> JsonObject:
        self._forbid_cancel()
        session_id = _require_text(params, "sessionId")
        async with self._sessions.lock_changes(session_id):
            await self._sessions.close(session_id)
        return {}

    async def _delete_session(self, params: RpcParams) -> JsonObject:
        self._forbid_cancel()
        session_id = _require_text(params, "sessionId")
        async with self._sessions.lock_changes(session_id):
            await self._remove_session(session_id)
        return {}

    async def _remove_session(self, session_id: str) -> None:
        session = self._sessions.find(session_id)
        owners = {path for path in await anyio.to_thread.run_sync(self._catalog.find_work_dirs, session_id) if path}
        if session is not None:
            owners.add(session.location.stored_work_dir or session.location.cwd)
            await self._sessions.close(session_id)
        for path in owners:
            await self._sessions.find_store(self._build_session(session_id, SessionLocation(path))).delete(session_id)

    # --- prompts --------------------------------------------------------------------------------------------------

    async def _prompt(self, params: RpcParams) -> JsonObject:
        session = self._sessions.get(_require_text(params, "sessionId"))
        user_input = _parse_prompt(params)
        ticket = session.prompt_queue.enqueue()  # before the first await: a cancel that follows must find it
        # From here on `$/cancel_request` ends the prompt, not the handler: its answer is a stop reason, not an error.
        self._cancel_callbacks[current_request().id] = ticket.cancel
        try:
            return await self._run_prompt(session, ticket, user_input)
        finally:
            session.prompt_queue.remove(ticket)

    async def _run_prompt(
        self, session: OpenSession, queued_prompt: QueuedPrompt, prompt_input: UserInput
    ) -> JsonObject:
        live: LiveSession | None = None
        async with AsyncExitStack() as held:
            # `wait_scope` cancels only the waiting. `held` outlives it, so that the slot and the session stay taken
            # until the turn has ended.
            with queued_prompt.wait_scope:
                await session.prompt_queue.wait_for_turn(queued_prompt)
                await held.enter_async_context(self._turn_slots)
                live = await held.enter_async_context(self._sessions.use_session(session))
                async with (
                    session.copy_lock
                ):  # a copy is being made; nothing is awaited from here until the turn begins
                    pass
            # `is_cancelled`: a cancel after the last wait in the scope does not interrupt anything.
            if live is None or queued_prompt.is_cancelled:
                return _CANCELLED_RESULT
            self._sessions.refresh_settings(session, live)
            self._handshake.require_credentials(resolve_chosen_model(live.conversation))
            current_request().after_answer.append(live.schedule_sync)  # also when the turn fails
            return await live.run_prompt(queued_prompt, prompt_input)

    def _cancel_prompts(self, params: RpcParams) -> None:
        session_id: object = params.get("sessionId")
        session = self._sessions.find(session_id) if isinstance(session_id, str) else None
        if session is None:
            logger.info("cancel of a session that is not open: %r", session_id)
        else:
            session.prompt_queue.cancel_all()

    def _cancel_request(self, params: RpcParams) -> None:
        request_id: object = params.get("requestId")
        cancel = self._cancel_callbacks.get(request_id) if is_request_id(request_id) else None
        if cancel is not None:
            cancel()

    async def _steer(self, params: RpcParams) -> JsonObject:
        from kimi.application.control.steer import steer  # start-up time

        session = self._sessions.get(_require_text(params, "sessionId"))
        user_input = _parse_prompt(params)
        live = self._sessions.find_live(session)
        try:
            if live is None:
                raise StateError("The session is suspended")
            live.check_content(user_input)
            steer(live.conversation, user_input)
        except StateError:
            return {"outcome": "promptRequired", "reason": "noRunningTurn"}
        return {"outcome": "injected"}

    # --- options and modes ----------------------------------------------------------------------------------------

    async def _set_mode(self, params: RpcParams) -> JsonObject:
        session, mode_id = self._sessions.get(_require_text(params, "sessionId")), _require_text(params, "modeId")
        async with self._sessions.use_session(session) as live:
            options.set_mode(live.conversation, mode_id)
            live.acknowledge_client_change()
        return {}

    async def _set_config_option(self, params: RpcParams) -> JsonObject:
        session, option_id = self._sessions.get(_require_text(params, "sessionId")), _require_text(params, "configId")
        async with self._sessions.use_session(session) as live:
            options.set_option(live.conversation, option_id, params.get("value"))
            live.acknowledge_client_change()
            return {"configOptions": options.build_config_options(live.conversation)}

    async def _set_model(self, params: RpcParams) -> JsonObject:
        session, model_id = self._sessions.get(_require_text(params, "sessionId")), _require_text(params, "modelId")
        async with self._sessions.use_session(session) as live:
            options.set_legacy_model(live.conversation, model_id)
            live.acknowledge_client_change()
            current_request().after_answer.append(live.send_options)
        return {}


def _build_opening_result(session: OpenSession, live: LiveSession, *, is_new: bool = False) -> JsonObject:
    """Return the part of the answer that describes the session, and schedule the updates that follow the answer."""
    current_request().after_answer.append(live.send_commands)
    if not is_new:
        current_request().after_answer.append(live.send_state)
    if session.has_lost_model:
        session.has_lost_model = False
        current_request().after_answer.append(live.send_options)
    return options.build_session_options(live.conversation)


def _require_text(params: RpcParams, name: str) -> str:
    value: object = params.get(name)
    if not isinstance(value, str):
        raise invalid_params(f"{name}: must be a string")
    return value


def _parse_prompt(params: RpcParams) -> UserInput:
    try:
        return parse_prompt_blocks(params.get("prompt"))
    except InvalidPrompt as error:
        raise invalid_params(str(error)) from None
