"""An ACP server in the test's process and a raw client for it that sees every line in order."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from kimi.application.ports import OpenModel
from kimi.application.settings.flags import Flags
from kimi.interfaces.acp.run import AcpServer
from kimi.interfaces.acp.sessions.open_sessions import AdaptContainer, OpenSession, adapt_nothing
from kimi.interfaces.acp.transport.update_outbox import UpdateOutbox
from kimi.interfaces.bootstrap.containers import App, SessionContainer
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.start import load_settings
from tests.support.acp.schema import check_agent_message
from tests.support.fakes import FakeModel
from tests.support.program.wire_process import Json, Place

PATIENCE_S = 10.0
"""Seconds that a test waits for a line before it fails."""


@dataclass
class AcpClient:
    """The client's end. `lines` keeps all messages that were read, `raw` all bytes that arrived."""

    _to_server: MemoryObjectSendStream[bytes]
    _from_server: MemoryObjectReceiveStream[Json]
    lines: list[Json] = field(default_factory=list[Json])
    raw: list[bytes] = field(default_factory=list[bytes])
    serve: Callable[[Json], Awaitable[Json | None]] | None = None
    """Answers requests of the agent: returns the members of the answer, None for no answer."""
    _number: int = 0
    _asked: dict[object, str] = field(default_factory=dict[object, str])

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self._to_server.send(data)

    async def send(self, *messages: Json) -> None:
        """Send messages in one piece."""
        await self.send_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def next_line(self) -> Json:
        """Return the next message of the agent."""
        with anyio.fail_after(PATIENCE_S):
            line = await self._from_server.receive()
        self.lines.append(line)
        return line

    def message(self, method: str, params: Json | None = None) -> Json:
        """Return a request without sending it."""
        self._number += 1
        self._asked[self._number] = method
        head: Json = {"jsonrpc": "2.0", "id": self._number, "method": method}
        return head if params is None else {**head, "params": params}

    async def request(self, method: str, params: Json | None = None) -> int:
        """Send a request; return its id."""
        message = self.message(method, params)
        await self.send(message)
        return message["id"]

    async def notify(self, method: str, params: Json) -> None:
        """Send a notification."""
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def answer_of(self, call_id: object) -> Json:
        """Read until the answer to this request; return it."""
        for line in self.lines:
            if "method" not in line and line.get("id") == call_id:
                return line
        while True:
            line = await self.next_line()
            if "method" not in line and line.get("id") == call_id:
                return line
            if "method" in line and "id" in line and self.serve is not None:
                members = await self.serve(line)
                if members is not None:
                    await self.send({"jsonrpc": "2.0", "id": line["id"], **members})

    async def ask(self, method: str, params: Json | None = None) -> Json:
        """Send a request and read to its answer; return it."""
        return await self.answer_of(await self.request(method, params))

    async def result(self, method: str, params: Json | None = None) -> Json:
        """Send a request that must succeed; return its result."""
        answer = await self.ask(method, params)
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, method: str, params: Json | None = None) -> Json:
        """Send a request that must fail; return its error."""
        answer = await self.ask(method, params)
        assert "error" in answer, answer
        return answer["error"]

    async def shake_hands(self, **capabilities: object) -> Json:
        """Send `initialize` with these client capabilities; return the result."""
        return await self.result("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})

    async def new_session(self, place: Place, **params: object) -> str:
        """Open a session in the place's work directory; return its id."""
        return (await self.result("session/new", {"cwd": str(place.work), "mcpServers": [], **params}))["sessionId"]

    async def say(self, session_id: str, *texts: str) -> Json:
        """Send a prompt of text blocks; return the answer."""
        return await self.ask("session/prompt", prompt(session_id, *texts))

    async def until(self, found: Callable[[Json], bool]) -> Json:
        """Read until a message matches; return it."""
        while not found(line := await self.next_line()):
            pass
        return line

    async def until_update(self, kind: str) -> Json:
        """Read until an update of this kind; return it."""
        return (await self.until(lambda line: kind_of(line) == kind))["params"]["update"]

    async def until_method(self, method: str) -> Json:
        """Read until a message of the agent with this method; return it."""
        return await self.until(lambda line: line.get("method") == method)

    async def quiet(self) -> bool:
        """Whether nothing arrives for a moment."""
        with anyio.move_on_after(0.2):
            self.lines.append(await self._from_server.receive())
            return False
        return True

    def check(self) -> None:
        """Assert that the protocol allows every message of the agent (A-112)."""
        for line in b"".join(self.raw).splitlines():
            message = json.loads(line)
            check_agent_message(
                message, answers=self._asked.get(message.get("id")) if "method" not in message else None
            )

    def updates(self, kind: str | None = None, session_id: str | None = None) -> list[Json]:
        """Return the updates read so far, of this kind and session."""
        return [
            line["params"]["update"]
            for line in self.lines
            if line.get("method") == "session/update"
            and kind in (None, kind_of(line))
            and session_id in (None, line["params"]["sessionId"])
        ]

    def said(self, session_id: str | None = None) -> str:
        """Return all text of the agent so far."""
        chunks = self.updates("agent_message_chunk", session_id)
        return "".join(update["content"].get("text", "") for update in chunks)

    async def end_input(self) -> None:
        """End the input."""
        await self.send_bytes(b"")


def kind_of(line: Json) -> str | None:
    """Return the kind of the update in a message; None if it is no update."""
    return line["params"]["update"]["sessionUpdate"] if line.get("method") == "session/update" else None


def prompt(session_id: str, *texts: str) -> Json:
    """Return the params of a prompt of text blocks."""
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text} for text in texts]}


def using(model: FakeModel | Callable[[OpenSession], FakeModel]) -> AdaptContainer:
    """Return an adapter of containers whose sessions use this model."""

    def adapt(container: SessionContainer, session: OpenSession) -> None:
        chosen = model if isinstance(model, FakeModel) else model(session)
        cast("Any", container).open_model.override(providers.Object(_opening(chosen)))

    return adapt


def _opening(model: FakeModel) -> OpenModel:
    return lambda session_id, client: model


def acp_server(
    place: Place,
    *,
    adapt: AdaptContainer = adapt_nothing,
    flags: dict[str, Any] | None = None,
) -> AcpServer:
    """Return a server for the configuration of a place."""
    environ = place.full_environ()
    given = Flags(work_dir=str(place.work), ui="acp", **(flags or {}))
    app = App(settings=providers.Object(load_settings(given, environ)), environ=providers.Object(environ))
    return AcpServer(given, app, time_left=lambda: 3.0, adapt=adapt)


@asynccontextmanager
async def acp_client(
    place: Place, *, adapt: AdaptContainer = adapt_nothing, flags: dict[str, Any] | None = None
) -> AsyncGenerator[AcpClient, None]:
    """Run a server for the configuration of a place and yield its client; the input ends on leaving."""
    server = acp_server(place, adapt=adapt, flags=flags)
    to_server, incoming = anyio.create_memory_object_stream[bytes](1000)
    outgoing, from_server = anyio.create_memory_object_stream[Json](100_000)
    client = AcpClient(to_server, from_server)

    async def write(data: bytes) -> None:
        client.raw.append(data)
        for line in data.splitlines():
            outgoing.send_nowait(json.loads(line))

    async with to_server, incoming, outgoing, from_server, anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, incoming.receive, UpdateOutbox(write, 1 << 24, lambda: None))
        try:
            yield client
        finally:
            with anyio.CancelScope(shield=True):
                await client.end_input()
    client.check()
