"""The JSON endpoints: what there is, and what is done with sessions beside their conversations (wire spec 13.6)."""

from __future__ import annotations

from typing import Any, cast

import anyio.to_thread
from aiohttp import web
from pydantic_core import from_json

from kimi.application.ports import SessionCatalog
from kimi.interfaces.bootstrap.opening import ReloadingSettings
from kimi.interfaces.web.hosted_sessions import HostedSessions
from kimi.interfaces.web.refusal import Refusal


class Endpoints:
    """Answers the requests below `/api` that are no WebSocket."""

    def __init__(self, sessions: HostedSessions, settings_source: ReloadingSettings, catalog: SessionCatalog) -> None:
        self._sessions = sessions
        self._settings_source = settings_source
        self._catalog = catalog

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        router.add_post("/api/sessions", self._create_session)

    async def _create_session(self, request: web.Request) -> web.Response:
        body = await read_object(request)
        path = read_text(body, "work_dir")
        work_dir = await anyio.to_thread.run_sync(self._sessions.directories.resolve, path)
        return web.json_response({"id": self._sessions.create(work_dir)}, status=201)


async def read_object(request: web.Request) -> dict[str, Any]:
    """Return the object in the body. Raises Refusal."""
    if request.content_type != "application/json":
        raise Refusal("invalid", "The body must be JSON, and its type application/json.", 415)
    try:
        found: Any = from_json(await request.read() or b"{}")
    except ValueError:
        raise Refusal("invalid", "The body is not JSON.") from None
    if not isinstance(found, dict):
        raise Refusal("invalid", "The body must be an object.")
    return cast("dict[str, Any]", found)


def read_text(body: dict[str, Any], name: str) -> str:
    """Return a text of the body. Raises Refusal."""
    found = body.get(name)
    if not isinstance(found, str):
        raise Refusal("invalid", f"`{name}` must be a text.")
    return found
