"""A bridge from WebSocket to a server over stdio: what `kimi web` offers, as little as the kit needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiohttp import web

from kimi.interfaces.conformance.connection import Connection, OpenConnection


class Bridge:
    """Makes a session for each POST, and serves its wire; everything needs the token."""

    def __init__(self, open_connection: OpenConnection, environ: dict[str, str], token: str) -> None:
        self._open = open_connection
        self._environ = environ
        self._token = token
        self.work_dirs: list[str] = []
        self.port = 0

    async def make(self, request: web.Request) -> web.Response:
        """Serve `POST /api/sessions`."""
        if not self._is_allowed(request):
            return web.json_response({"error": {"code": "unauthorized", "message": "No token."}}, status=401)
        self.work_dirs.append((await request.json())["work_dir"])
        return web.json_response({"id": str(len(self.work_dirs) - 1)}, status=201)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve the wire of a session."""
        if not self._is_allowed(request):
            return web.Response(status=401)
        number = request.match_info.get("number")
        work_dir = Path(self.work_dirs[int(number)]) if number is not None else Path.cwd()
        work_dir.mkdir(parents=True, exist_ok=True)
        connection = await self._open((work_dir, self._environ), ())
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        sending = asyncio.ensure_future(self._send_lines(connection, socket))
        try:
            async for frame in socket:
                await connection.send(frame.data.encode() + b"\n")
        finally:
            sending.cancel()
            await connection.close()
        return socket

    async def _send_lines(self, connection: Connection, socket: web.WebSocketResponse) -> None:
        with suppress(ConnectionError):
            while line := await connection.receive():
                await socket.send_str(line.decode().removesuffix("\n"))
        await socket.close()

    def _is_allowed(self, request: web.Request) -> bool:
        return request.headers.get("Authorization") == f"Bearer {self._token}"


@asynccontextmanager
async def bridge(open_connection: OpenConnection, environ: dict[str, str], token: str) -> AsyncGenerator[Bridge, None]:
    """Run a bridge on the loopback interface."""
    served = Bridge(open_connection, environ, token)
    app = web.Application()
    app.router.add_post("/api/sessions", served.make)
    app.router.add_get("/api/sessions/{number}/wire", served.serve)
    app.router.add_get("/plain", served.serve)
    runner = web.AppRunner(app, shutdown_timeout=5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served.port = runner.addresses[0][1]
    try:
        yield served
    finally:
        await runner.cleanup()
