"""The HTTP server: who is let in, the files of the page, and the end of it all (wire spec 13).

What this module imports is all that the first page waits for. What is below `/api` is imported after it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import anyio
import anyio.to_thread
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler
from anyio.abc import TaskGroup

from kimi.interfaces.web.access import SECURITY_HEADERS, AccessRules, name_cookie
from kimi.interfaces.web.page_files import PageFiles
from kimi.interfaces.web.refusal import Refusal, explain

if TYPE_CHECKING:
    from kimi.interfaces.web.service import WebService

MAX_CONNECTIONS: Final = 256
MAX_STRANGERS: Final = 128
"""How many connections may be open that have not shown the token; another one takes the place of the oldest."""

STRANGER_TIMEOUT_S: Final = 15.0
"""How long a connection may take until its first request that is let in, in seconds."""

MAX_BODY_BYTES: Final = 1024 * 1024
_LOGIN_PAGE: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>kimi</title>'
    "<p>Open the link that <code>kimi web</code> has printed: it holds the token.</p></html>"
)
_SAFE_METHODS: Final = ("GET", "HEAD")
_THEME_COOKIE: Final = "kimi_theme"
_THEMES: Final = ("light", "dark")

_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

OpenService: TypeAlias = "Callable[[TaskGroup], Awaitable[WebService]]"
"""Returns what answers below `/api`; its tasks run in the given group."""


class WebServer:
    """Serves the page, the JSON endpoints and the WebSockets on one listening socket. Serves once."""

    def __init__(self, access: AccessRules, open_service: OpenService) -> None:
        self._access = access
        self._open_service = open_service
        self._service: WebService | None = None
        self._opened = anyio.Event()
        self._page = PageFiles()
        self._stopping = anyio.Event()
        self._strangers: dict[RequestHandler, asyncio.TimerHandle] = {}
        """The connections that have not shown the token yet, oldest first, each with what will close it."""
        self.ready = anyio.Event()
        self.ended = anyio.Event()

    def stop(self) -> None:
        """End the service. Idempotent."""
        self._stopping.set()

    async def serve(self, listening: socket.socket) -> None:
        """Serve until `stop`; what is below `/api` as soon as it is opened, the page at once."""
        async with anyio.create_task_group() as tasks:
            runner = web.AppRunner(
                self._build_application(),
                handle_signals=False,
                logger=_connection_logger,
                access_log=None,
                shutdown_timeout=0.2,
            )
            await runner.setup()
            accept = cast("web.Server", runner.server)
            listener = await asyncio.get_running_loop().create_server(lambda: self._accept(accept), sock=listening)
            self.ready.set()
            tasks.start_soon(self._open, tasks)
            try:
                await self._stopping.wait()
            finally:
                with anyio.CancelScope(shield=True):
                    listener.close()
                    if self._service is not None:
                        await self._service.close()
                    await runner.cleanup()
            tasks.cancel_scope.cancel()
        self.ended.set()

    async def _open(self, tasks: TaskGroup) -> None:
        self._service = await self._open_service(tasks)
        self._opened.set()

    # --- connections ----------------------------------------------------------------------------------------------

    def _accept(self, server: web.Server) -> asyncio.Protocol:
        if len(self._strangers) >= MAX_STRANGERS:
            self._drop(next(iter(self._strangers)))  # who only connects must not keep the user out
        if len(server.connections) >= MAX_CONNECTIONS:
            return _RefusedConnection()
        handler = server()
        loop = asyncio.get_running_loop()
        self._strangers[handler] = loop.call_later(STRANGER_TIMEOUT_S, self._drop, handler)
        return handler

    def _drop(self, handler: RequestHandler) -> None:
        self._strangers.pop(handler).cancel()
        handler.force_close()

    def _keep(self, handler: RequestHandler) -> None:
        """No longer count the connection as a stranger's: it has shown the token."""
        if handler in self._strangers:
            self._strangers.pop(handler).cancel()

    # --- requests -------------------------------------------------------------------------------------------------

    def _build_application(self) -> web.Application:
        application = web.Application(middlewares=[self._guard], client_max_size=MAX_BODY_BYTES)
        application.on_response_prepare.append(_add_headers)
        application.router.add_get("/", self._send_page)
        application.router.add_get("/page/{name:.+}", self._send_page)
        application.router.add_route("*", "/api/{rest:.*}", self._ask_service)
        return application

    async def _ask_service(self, request: web.Request) -> web.StreamResponse:
        await self._opened.wait()
        if self._stopping.is_set():
            raise Refusal("too_many", "The server is ending.")
        return await cast("WebService", self._service).answer(request)

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Let in who may come in; answer every failure in one form."""
        try:
            if not self._access.allows_host(request.headers.get("Host")):
                raise Refusal("forbidden", "The server is not known by this name; see --allowed-host of 'kimi web'.")
            if request.path == "/" and "token" in request.query:
                return self._log_in(request)
            self._check_access(request)
            self._keep(request.protocol)
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return Refusal(
                "unknown" if error.status == 404 else "invalid", f"{error.reason}.", error.status
            ).build_response()
        except Exception as error:
            refusal = explain(error)
            if refusal.code == "unauthorized" and not request.path.startswith("/api/"):
                page = web.Response(text=_LOGIN_PAGE, content_type="text/html", status=refusal.status)
                page.force_close()
                return page
            return refusal.build_response()

    def _check_access(self, request: web.Request) -> None:
        credential = self._access.find_credential(request)
        if credential is None:
            if self._access.is_guessed_at:
                raise Refusal("unauthorized", "Too many wrong tokens have come; wait a minute.", 429)
            raise Refusal("unauthorized", "The token is missing or wrong; 'kimi web' has printed a link with it.")
        if not request.path.startswith("/api/"):
            return
        changes = request.method not in _SAFE_METHODS or request.path.endswith("/wire")
        if not self._access.allows_origin(request, is_required=changes and credential == "cookie"):
            raise Refusal("forbidden", "Only the page of this server may ask for this.")

    def _log_in(self, request: web.Request) -> web.Response:
        is_right = self._access.is_token(request.query["token"])
        if not is_right:
            self._check_access(request)  # a link of an earlier start, in a browser that is let in already
        self._keep(request.protocol)
        response = web.Response(status=303, headers={"Location": "/"})
        if is_right:
            response.set_cookie(
                name_cookie(request),
                self._access.token,
                httponly=True,
                samesite="Strict",
                path="/",
                max_age=30 * 24 * 3600,
                secure=request.headers.get("X-Forwarded-Proto") == "https",
            )
        return response

    async def _send_page(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name", "index.html")
        found = await anyio.to_thread.run_sync(self._page.find, name)
        if found is None:
            raise Refusal("unknown", "There is no such file.")
        content, tag = found.content, found.tag
        theme = request.cookies.get(_THEME_COOKIE)
        if name == "index.html" and theme in _THEMES:  # so that the first paint has the colours that were chosen
            content = content.replace(b"<html ", f'<html data-theme="{theme}" '.encode(), 1)
            tag = f'{tag[:-1]}-{theme}"'
        headers = {"ETag": tag, "Content-Type": found.type, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=content, headers=headers)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a failure of a connection is worth a line: strangers must not fill the log with what is no HTTP."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


_connection_logger: Final = logging.getLogger(f"{__name__}.connections")
_connection_logger.addFilter(_is_ours)


class _RefusedConnection(asyncio.Protocol):
    """Closes a connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    headers: Mapping[str, str] = SECURITY_HEADERS
    for name, value in headers.items():
        response.headers[name] = value
    response.headers["Server"] = "kimi"
    response.headers.setdefault("Cache-Control", "no-store")
