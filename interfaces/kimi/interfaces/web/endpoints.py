"""The JSON endpoints: what there is, and what is done with sessions beside their conversations (wire spec 13.6)."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, cast

import anyio
import anyio.to_thread
from aiohttp import web
from pydantic_core import from_json

from kimi.application.codec.envelope import encode_json
from kimi.application.control.approval_modes import MODES
from kimi.application.control.session_title import MAX_TITLE, set_title
from kimi.application.ports import SessionCatalog, SessionFiles
from kimi.application.sessions.fork_session import fork
from kimi.domain.errors import StateError, UnknownSession
from kimi.domain.history.session import SessionState, shorten_title
from kimi.domain.permissions.path_rules import is_within
from kimi.interfaces.bootstrap.shell import list_git_files, walk_files
from kimi.interfaces.bootstrap.start import ReloadingSettings
from kimi.interfaces.completion.work_dir_files import WorkDirFiles
from kimi.interfaces.rpc.wire_calls import PROTOCOL_VERSION
from kimi.interfaces.version import __version__
from kimi.interfaces.web.refusal import Refusal
from kimi.interfaces.web.sessions.hosted_session import HostedSession
from kimi.interfaces.web.sessions.hosted_sessions import HostedSessions
from kimi.interfaces.web.sessions.session_list import SessionList
from kimi.interfaces.web.sessions.session_status import (
    change_options,
    describe_models,
    describe_session,
    describe_tasks,
    stop_task,
)

MAX_FILES: Final = 50
MAX_SEARCHED_DIRECTORIES: Final = 8
"""Of how many work directories the names of all files are kept for the next search."""

DELETED: Final = 4410
"""The code with which the clients of a session are closed that is removed."""

IDS: Final = web.RequestKey("ids", Mapping[str, str])
"""The ids in the address of a request: `id` of a session, `task` of a background task."""


class Endpoints:
    """Answers the requests below `/api` that are no WebSocket."""

    def __init__(
        self,
        sessions: HostedSessions,
        settings_source: ReloadingSettings,
        catalog: SessionCatalog,
        environ: Mapping[str, str],
    ) -> None:
        self._sessions = sessions
        self._settings_source = settings_source
        self._environ = environ
        self._list = SessionList(sessions, catalog)
        self._files: dict[str, WorkDirFiles] = {}
        """What is known of the files of the work directories that were searched last."""
        self._searches = anyio.CapacityLimiter(1)  # each may take seconds, and a page asks with every key

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        router.add_get("/api/info", self._get_info)
        router.add_get("/api/directories", self._list_directories)
        router.add_get("/api/sessions", self._list_sessions)
        router.add_post("/api/sessions", self._create_session)
        router.add_patch("/api/sessions/{id}", self._change_session)
        router.add_delete("/api/sessions/{id}", self._delete_session)
        router.add_post("/api/sessions/{id}/fork", self._fork_session)
        router.add_get("/api/sessions/{id}/files", self._find_files)
        router.add_get("/api/sessions/{id}/status", self._get_status)
        router.add_patch("/api/sessions/{id}/options", self._change_options)
        router.add_get("/api/sessions/{id}/tasks", self._list_tasks)
        router.add_post("/api/sessions/{id}/tasks/{task}/stop", self._stop_task)

    # --- the server -----------------------------------------------------------------------------------------------

    async def _get_info(self, request: web.Request) -> web.Response:
        settings = self._settings_source.get()
        return respond(
            {
                "version": __version__,
                "protocol_version": PROTOCOL_VERSION,
                "models": describe_models(settings),
                "default_model": settings.model.alias if settings.model is not None else None,
                "directories": self._sessions.directories.roots,
                "work_dir": os.path.realpath(settings.work_dir),
                "modes": MODES,
            }
        )

    async def _list_directories(self, request: web.Request) -> web.Response:
        path = request.query.get("path") or self._sessions.directories.roots[0]
        found, parent, names = await anyio.to_thread.run_sync(self._sessions.directories.list_below, path)
        return respond({"path": found, "parent": parent, "directories": names})

    # --- sessions -------------------------------------------------------------------------------------------------

    async def _list_sessions(self, request: web.Request) -> web.Response:
        archived = request.query.get("archived", "false") == "true"
        return respond({"sessions": await self._list.find(request.query.get("query", ""), archived=archived)})

    async def _create_session(self, request: web.Request) -> web.Response:
        path = read_text(await read_object(request), "work_dir")
        work_dir = await anyio.to_thread.run_sync(self._sessions.directories.resolve, path)
        return respond({"id": self._sessions.create(work_dir)}, 201)

    async def _change_session(self, request: web.Request) -> web.Response:
        body, session_id = await read_object(request), request[IDS]["id"]
        title = read_text(body, "title") if "title" in body else None
        archived = body.get("archived")
        if not isinstance(archived, bool | None) or not body.keys() <= {"title", "archived"}:
            raise Refusal("invalid", "`title` must be a text and `archived` true or false; there is nothing else.")
        hosted = self._sessions.find_live(session_id)
        if hosted is not None:
            if title is not None:
                set_title(hosted.conversation, title)
            if archived is not None:
                hosted.conversation.session.update_state(lambda state: replace(state, set_archived=archived))
            hosted.announce_change()
        else:
            async with self._open_files(session_id) as files:
                files.save_state(_change_state(files.state, title, archived))
        self._list.forget()
        return web.Response(status=204)

    async def _delete_session(self, request: web.Request) -> web.Response:
        session_id = request[IDS]["id"]
        hosted = self._sessions.find_live(session_id)
        if hosted is not None and hosted.conversation.turn is not None:
            raise StateError("A turn of this session is running; stop it first.")
        if hosted is not None:
            hosted.close_clients(DELETED)
        if not await self._sessions.delete(session_id):
            raise UnknownSession("There is no such session.")
        self._list.forget()
        return web.Response(status=204)

    async def _fork_session(self, request: web.Request) -> web.Response:
        body, session_id = await read_object(request), request[IDS]["id"]
        turn = body.get("turn")
        if not isinstance(turn, int | None) or isinstance(turn, bool):
            raise Refusal("invalid", "`turn` must be the number of a prompt.")
        work_dir = await self._sessions.find_work_dir(session_id)
        store = self._sessions.open_store(work_dir)
        hosted = self._sessions.find_live(session_id)
        if hosted is not None:
            if hosted.conversation.turn is not None:
                raise StateError("A turn of this session is running; fork it afterwards.")
            hosted.conversation.events.flush()  # the copy is made from the files
            new_id = await fork(store, hosted.conversation.files, self._sessions.new_id, turn)
        else:
            async with self._open_files(session_id) as files:
                new_id = await fork(store, files, self._sessions.new_id, turn)
        self._list.forget()
        return respond({"id": new_id}, 201)

    @asynccontextmanager
    async def _open_files(self, session_id: str) -> AsyncGenerator[SessionFiles, None]:
        """Open the files of a session that is not open here. Raises UnknownSession, SessionBusy."""
        work_dir = await self._sessions.find_work_dir(session_id, must_exist=False)
        files = await self._sessions.open_store(work_dir).open(session_id)
        if files is None:
            raise UnknownSession("There is no such session.")
        try:
            yield files
        finally:
            files.close()

    async def _find_files(self, request: web.Request) -> web.Response:
        work_dir = await self._sessions.find_work_dir(request[IDS]["id"])
        typed = request.query.get("query", "")
        found = await anyio.to_thread.run_sync(self._match_files, work_dir, typed, limiter=self._searches)
        return respond({"files": found})

    def _match_files(self, work_dir: str, typed: str) -> Sequence[str]:
        """Return the files that `typed` may mean, none outside of the work directory. Blocks."""
        directory = typed.rpartition("/")[0]
        if "\0" in typed or os.path.isabs(typed) or ".." in typed.replace("\\", "/").split("/"):
            return ()
        root = os.path.realpath(work_dir)
        if not is_within(os.path.realpath(os.path.join(root, directory)), [root]):
            return ()  # a link leads out
        files = self._files.pop(work_dir, None)
        if files is None:
            files = WorkDirFiles(work_dir, walk_files, lambda path: list_git_files(path, self._environ))
        self._files[work_dir] = files
        if len(self._files) > MAX_SEARCHED_DIRECTORIES:
            del self._files[next(iter(self._files))]
        return files.find_matching(typed)[:MAX_FILES]

    def close(self) -> None:
        """Stop what searches for files."""
        for files in self._files.values():
            files.close()

    # --- a session that is open here ------------------------------------------------------------------------------

    def _find_open(self, request: web.Request) -> HostedSession:
        hosted = self._sessions.find_live(request[IDS]["id"])
        if hosted is None:
            raise UnknownSession("This session is not open here; connect to it first.")
        return hosted

    async def _get_status(self, request: web.Request) -> web.Response:
        return respond(describe_session(self._find_open(request)))

    async def _change_options(self, request: web.Request) -> web.Response:
        body = await read_object(request)
        hosted = self._find_open(request)
        change_options(hosted, body)
        return respond(describe_session(hosted))

    async def _list_tasks(self, request: web.Request) -> web.Response:
        return respond({"tasks": describe_tasks(self._find_open(request))})

    async def _stop_task(self, request: web.Request) -> web.Response:
        await read_object(request)
        stop_task(self._find_open(request), request[IDS]["task"])
        return web.Response(status=204)


def _change_state(state: SessionState, title: str | None, archived: bool | None) -> SessionState:
    named = state if title is None else replace(state, custom_title=shorten_title(title, MAX_TITLE))
    return named if archived is None else replace(named, set_archived=archived)


def respond(value: object, status: int = 200) -> web.Response:
    """Return an answer of JSON."""
    return web.Response(body=encode_json(value), status=status, content_type="application/json")


async def read_object(request: web.Request) -> dict[str, Any]:
    """Return the object in the body. Raises Refusal."""
    if request.content_type != "application/json":
        raise Refusal("invalid", "The body must be JSON, and its type application/json.", 415)
    try:
        found: Any = from_json(await request.read())
    except ValueError:
        raise Refusal("invalid", "The body is not JSON.") from None
    if not isinstance(found, dict):
        raise Refusal("invalid", "The body must be an object.")
    return cast("dict[str, Any]", found)


def read_text(body: Mapping[str, Any], name: str) -> str:
    """Return a text of the body. Raises Refusal."""
    found = body.get(name)
    if not isinstance(found, str):
        raise Refusal("invalid", f"`{name}` must be a text.")
    return found
