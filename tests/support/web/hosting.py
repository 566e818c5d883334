"""A server of `kimi web` in this process, clients of it over real sockets, and a line between them that can be cut."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
import anyio
from anyio.abc import TaskGroup

from kimi.application.ports import OpenModel
from kimi.application.settings.flags import Flags
from kimi.interfaces.bootstrap.containers import App, SessionContainer
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.start import load_settings
from kimi.interfaces.web.access import AccessRules
from kimi.interfaces.web.run import WebOptions, allow_directories
from kimi.interfaces.web.server import WebServer
from kimi.interfaces.web.service import WebService
from kimi.interfaces.web.sessions.directories import AllowedDirectories
from tests.support.fakes import FakeModel
from tests.support.program.wire_process import Json, Place

PATIENCE_S = 10.0
"""Seconds that a test waits for a message before it fails."""

TOKEN = "t" * 43


@dataclass
class WebClient:
    """Asks a server as its page does, unless other headers are given."""

    base: str
    token: str
    http: aiohttp.ClientSession

    def headers(self, **more: str | None) -> dict[str, str]:
        """Return the headers of a program with the token; None leaves one out."""
        given: dict[str, str | None] = {"Authorization": f"Bearer {self.token}", **more}
        return {name: value for name, value in given.items() if value is not None}

    async def ask(self, method: str, path: str, body: object = None, **headers: str | None) -> tuple[int, Any]:
        """Return the status and the value of an answer; its text if it is no JSON."""
        async with self.http.request(
            method, self.base + path, headers=self.headers(**headers), allow_redirects=False, json=body
        ) as response:
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else text

    async def new_session(self, place: Place) -> str:
        """Make a session in the place's work directory; return its id."""
        status, made = await self.ask("POST", "/api/sessions", {"work_dir": str(place.work)})
        assert status == 201, made
        return made["id"]

    @asynccontextmanager
    async def connect(
        self, session_id: str, after: str | None = "start", *, base: str | None = None, **query: str
    ) -> AsyncGenerator[SocketClient, None]:
        """Connect to a session; with `base` over another address."""
        asked = {**({} if after is None else {"after": after}), **query}
        address = f"{base or self.base}/api/sessions/{session_id}/wire"
        async with self.http.ws_connect(address, params=asked, headers=self.headers(), max_msg_size=0) as opened:
            yield SocketClient(opened)


@dataclass
class SocketClient:
    """One client of a session. `lines` keeps all messages that it was sent, `position` the last one's."""

    socket: aiohttp.ClientWebSocketResponse
    lines: list[Json] = field(default_factory=list[Json])
    position: str = ""
    _unread: list[Json] = field(default_factory=list[Json])
    _number: int = 0

    async def next_line(self) -> Json:
        """Return the next message. Raises Closed when the connection has ended."""
        while not self._unread:
            with anyio.fail_after(PATIENCE_S):
                received = await self.socket.receive()
            if received.type is not aiohttp.WSMsgType.TEXT:
                raise Closed(self.socket.close_code)
            found: Any = json.loads(received.data)
            self._unread += cast("list[Json]", found) if isinstance(found, list) else [found]
        line = self._unread.pop(0)
        self.lines.append(line)
        self.position = line.get("position", self.position)
        if line.get("method") == "connection":
            self.position = line["params"]["payload"].get("position", self.position)
        return line

    async def until(self, kind: str) -> Json:
        """Read until an event, request or message of the connection of this type; return its payload."""
        while True:
            line = await self.next_line()
            if "method" in line and line["params"]["type"] == kind:
                return line["params"]["payload"]

    async def call(self, method: str, params: Json | None = None) -> str:
        """Send a request; return its id."""
        self._number += 1
        call_id = f"c{self._number}"
        message: Json = {"jsonrpc": "2.0", "id": call_id, "method": method}
        await self.send(message if params is None else {**message, "params": params})
        return call_id

    async def send(self, message: object) -> None:
        """Send a message."""
        await self.socket.send_str(message if isinstance(message, str) else json.dumps(message))

    async def response(self, call_id: str | None) -> Json:
        """Read until the response with this id; return it."""
        while True:
            line = await self.next_line()
            if "method" not in line and line.get("id") == call_id:
                return line

    async def ask(self, method: str, params: Json | None = None) -> Json:
        """Send a request and return its response."""
        return await self.response(await self.call(method, params))

    async def prompt(self, text: object) -> str:
        """Send a prompt; return the id of the call."""
        return await self.call("prompt", {"user_input": text})

    async def initialize(self, **params: Any) -> Json:
        """Send `initialize`; return its result."""
        asked = {"protocol_version": "1.10", "client": {"name": "test"}, **params}
        return (await self.ask("initialize", asked))["result"]

    async def answer(self, request_id: str, result: object) -> None:
        """Answer a request."""
        await self.send({"jsonrpc": "2.0", "id": request_id, "result": result})

    async def quiet(self, seconds: float = 0.2) -> bool:
        """Whether nothing arrives for a moment."""
        with anyio.move_on_after(seconds):
            await self.next_line()
            return False
        return True

    @property
    def common(self) -> list[Json]:
        """The messages that every client of the session gets, each with its position."""
        return [line for line in self.lines if "position" in line]

    @property
    def types(self) -> list[str]:
        """The types of all messages so far that are no answers, in order."""
        return [line["params"]["type"] for line in self.lines if "method" in line]

    @property
    def text(self) -> str:
        """All text of the assistant so far."""
        parts = [line["params"]["payload"] for line in self.lines if line.get("method") == "event"]
        return "".join(part["text"] for part in parts if part.get("type") == "text")


class Closed(Exception):
    """The connection has ended, with this code."""

    @property
    def code(self) -> object:
        """The code of the close frame; 1006 if there was none."""
        return self.args[0]


def play(*models: FakeModel) -> Callable[[SessionContainer], None]:
    """Return an adapter of containers: each session that is opened uses the next of these models, the last one on."""
    left = list(models)

    def adapt(container: SessionContainer) -> None:
        chosen = left.pop(0) if len(left) > 1 else left[0]
        cast("Any", container).open_model.override(providers.Object(_opening(chosen)))

    return adapt


def _opening(model: FakeModel) -> OpenModel:
    return lambda session_id, client: model


def listen() -> socket.socket:
    """Return a listening socket on a free port of the loopback interface."""
    found = socket.create_server(("127.0.0.1", 0))
    found.setblocking(False)
    return found


@asynccontextmanager
async def hosting(
    place: Place,
    adapt: Callable[[SessionContainer], None] = lambda container: None,
    *,
    idle_timeout_s: float = 600.0,
    directories: Sequence[str] = (),
    names: Sequence[str] = (),
    host: str = "127.0.0.1",
    headers: Mapping[str, str] | None = None,
) -> AsyncGenerator[WebClient, None]:
    """Run a server for the configuration of a place, and yield a client of it; it is stopped on leaving."""
    environ = place.full_environ()
    flags = Flags(work_dir=str(place.work), ui="wire")
    app = App(settings=providers.Object(load_settings(flags, environ)), environ=providers.Object(environ))
    listening = listen()
    port = listening.getsockname()[1]
    rules = AccessRules(TOKEN, host, frozenset(names))
    allowed: AllowedDirectories = allow_directories(WebOptions(directories=directories), app.settings())

    async def open_service(tasks: TaskGroup) -> WebService:
        return WebService(flags, app, allowed, tasks, time_left=lambda: 3.0, adapt=adapt, idle_timeout_s=idle_timeout_s)

    server = WebServer(rules, open_service)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, listening)
        await server.ready.wait()
        async with aiohttp.ClientSession(headers=headers) as http:
            try:
                yield WebClient(f"http://127.0.0.1:{port}", TOKEN, http)
            finally:
                server.stop()
                with anyio.CancelScope(shield=True):
                    await server.ended.wait()


class Line:
    """A line to a server that can be cut: what was sent meanwhile is lost, and so are new connections."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self.base = ""

    @asynccontextmanager
    async def laid(self) -> AsyncGenerator[Line, None]:
        """Open the line while the context is open."""
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        """Cut all connections, without a word to either side's protocol."""
        self._is_cut = True
        for writer in self._writers:
            cast("asyncio.Transport", writer.transport).abort()

    def mend(self) -> None:
        """Let new connections through."""
        self._is_cut = False

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            cast("asyncio.Transport", writer.transport).abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        ends = {writer, far_writer}
        self._writers |= ends
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            self._writers -= ends


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while block := await reader.read(65_536):
            writer.write(block)
            await writer.drain()
    writer.close()
