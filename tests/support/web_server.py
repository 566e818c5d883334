"""A web server on the loopback interface with a handler for each path."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from aiohttp import web

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass
class WebServer:
    """The address of the server, and the received requests with their bodies."""

    port: int
    requests: list[web.BaseRequest] = field(default_factory=list[web.BaseRequest])
    bodies: list[bytes] = field(default_factory=list[bytes])

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        """Return the URL of a path."""
        return f"http://{host}:{self.port}{path}"


def page(body: bytes | str, content_type: str = "text/html; charset=utf-8", status: int = 200) -> Handler:
    """Return a handler that always sends the same answer."""
    data = body.encode() if isinstance(body, str) else body

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=data, status=status, headers={"Content-Type": content_type} if content_type else {})

    return answer


def moved(target: str, status: int = 302) -> Handler:
    """Return a handler that redirects."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": target})

    return answer


@asynccontextmanager
async def web_server(pages: Mapping[str, Handler]) -> AsyncGenerator[WebServer, None]:
    """Run a server with these handlers; other paths are not found."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        served.bodies.append(await request.read())
        served.requests.append(request)
        handler = pages.get(request.path)
        return await handler(request) if handler else web.Response(status=404, text="nothing here")

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served = WebServer(runner.addresses[0][1])
    try:
        yield served
    finally:
        await runner.cleanup()
