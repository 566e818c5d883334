"""What a server answers below `/api`: the WebSockets of the clients, and the JSON endpoints (wire spec 13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
from aiohttp import WSCloseCode, web
from anyio.abc import TaskGroup

from kimi.application.settings.flags import Flags
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.start import ReloadingSettings, load_settings
from kimi.interfaces.bootstrap.store import build_session_catalog
from kimi.interfaces.web.clients.socket import ClientSocket
from kimi.interfaces.web.endpoints import IDS, Endpoints
from kimi.interfaces.web.refusal import Refusal
from kimi.interfaces.web.sessions.directories import AllowedDirectories
from kimi.interfaces.web.sessions.hosted_sessions import IDLE_TIMEOUT_S, AdaptSession, HostedSessions

MAX_SOCKETS: Final = 64
WIND_DOWN_TIMEOUT_S: Final = 1.5
"""How long cancelled turns may take to tell their clients, in seconds."""


class WebService:
    """The sessions of a server with all their clients. Its tasks run in `tasks`."""

    def __init__(
        self,
        flags: Flags,
        app: App,
        directories: AllowedDirectories,
        tasks: TaskGroup,
        *,
        time_left: Callable[[], float],
        adapt: AdaptSession = lambda container: None,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        settings = ReloadingSettings(flags, app.environ(), app.settings(), load_settings)
        catalog = build_session_catalog(app.settings().share_dir)
        self._app = app
        self._time_left = time_left
        self._sessions = HostedSessions(
            app, settings, catalog, directories, tasks,
            time_left=time_left, adapt=adapt, idle_timeout_s=idle_timeout_s,
        )  # fmt: skip
        self._endpoints = Endpoints(self._sessions, settings, catalog, app.environ())
        self._sockets: set[ClientSocket] = set()
        self._router = web.UrlDispatcher()
        self._router.add_get("/api/sessions/{id}/wire", self._open_socket)
        self._endpoints.add_routes(self._router)
        tasks.start_soon(self._sessions.close_idle)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request of somebody who may ask. Raises HTTPException for an unknown address, and Refusal."""
        found = await self._router.resolve(request)
        request[IDS] = found
        return await found.handler(request)

    async def _open_socket(self, request: web.Request) -> web.StreamResponse:
        if len(self._sockets) >= MAX_SOCKETS:
            raise Refusal("too_many", "Too many clients are connected; close one and try again.")
        client = ClientSocket(request)
        self._sockets.add(client)
        try:
            return await client.serve(self._sessions, request[IDS]["id"])
        finally:
            self._sockets.discard(client)

    async def close(self) -> None:
        """End the turns, tell the clients, and close the sessions."""
        self._endpoints.close()
        self._sessions.stop()
        with anyio.move_on_after(WIND_DOWN_TIMEOUT_S):
            await self._sessions.wait_for_turns()
        for one in list(self._sockets):
            one.close(int(WSCloseCode.GOING_AWAY))
        with anyio.move_on_after(max(0.0, self._time_left())):
            await self._sessions.close_all()
        await self._app.http().close()
