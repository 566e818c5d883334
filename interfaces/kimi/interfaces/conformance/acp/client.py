"""An editor of the Agent Client Protocol, and what it watches on every line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from kimi.interfaces.conformance.connection import Connection
from kimi.interfaces.conformance.ledger import Mismatch, expect, shorten
from kimi.interfaces.conformance.peer import Json, Peer, dig
from kimi.interfaces.conformance.scenario import Stage

Serve: TypeAlias = Callable[[Json], Awaitable[Json | None]]
"""Answer a request of the agent by its parameters; None: it is not answered."""


class RefusedByEditor(Exception):
    """The editor answers a request of the agent with an error."""


class AcpPeer(Peer):
    """An editor without files and terminals; `serve` has what it does for each method of the agent."""

    def __init__(self, stage: Stage, connection: Connection) -> None:
        super().__init__(connection, stage.target.timeout_s, self._look)
        self._ledger = stage.ledger
        self._model = stage.model
        self._prompted: dict[str, str] = {}
        self.serve: dict[str, Serve] = {"session/request_permission": choose("approve")}
        self._work = str(stage.home.work)
        self._serving: list[asyncio.Task[None]] = []

    async def call(self, method: str, params: Json | None = None) -> str:
        return await super().call(method, {} if params is None else params)

    async def initialize(self, **capabilities: Any) -> Json:
        """Shake hands; return the result."""
        return await self.result("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})

    async def open_session(self, cwd: Path | str | None = None, **params: Any) -> str:
        """Make a session; return its id."""
        made = await self.result("session/new", {"cwd": str(cwd or self._work), "mcpServers": [], **params})
        return made["sessionId"]

    async def response(self, call_id: object) -> Json:
        """Read until the response with this id, serving the agent's requests on the way."""
        try:
            while True:
                message = await self.next()
                if "method" not in message and message.get("id") == call_id:
                    return message
                await self.serve_message(message)
        except Mismatch as mismatch:
            raise Mismatch(f"no response with the id {call_id!r}: {mismatch}") from None

    async def serve_message(self, message: Json) -> None:
        """Answer a request of the agent; other messages need nothing."""
        if "method" not in message or "id" not in message:
            return
        serve = self.serve.get(message["method"])
        if serve is None:
            error: Json = {"code": -32601, "message": "Method not found"}
            await self.send({"jsonrpc": "2.0", "id": message["id"], "error": error})
        elif message["method"] == "terminal/wait_for_exit":  # it may take long, and a cancel must be read meanwhile
            self._serving.append(asyncio.ensure_future(self._serve(serve, message)))
        else:
            await self._serve(serve, message)

    async def _serve(self, serve: Serve, message: Json) -> None:
        try:
            result = await serve(message["params"])
        except RefusedByEditor as refusal:
            error: Json = {"code": -32603, "message": str(refusal)}
            await self.send({"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
        if result is not None:
            await self.answer(message, result)

    async def _settle(self) -> None:
        self._model.release()
        for call_id in self.list_open("session/prompt"):
            await self.notify("session/cancel", {"sessionId": self._prompted.get(call_id, "")})
            await self.response(call_id)

    async def close(self) -> None:
        for task in self._serving:
            task.cancel()
        await super().close()

    async def until_call(self, method: str) -> Json:
        """Read until the agent calls this method, serving others; return the message."""
        while True:
            message = await self.next()
            if message.get("method") == method:
                return message
            await self.serve_message(message)

    async def until_update(self, kind: str, **members: object) -> Json:
        """Read until an update of this kind with these members; return it."""
        while True:
            message = await self.next()
            update = message.get("params", {}).get("update", {})
            if update.get("sessionUpdate") == kind and all(update.get(key) == value for key, value in members.items()):
                return update
            await self.serve_message(message)

    async def start_prompt(self, session: str, prompt: object) -> str:
        """Send a prompt, a text or blocks; return its id."""
        blocks = [text_block(prompt)] if isinstance(prompt, str) else prompt
        call_id = await self.call("session/prompt", {"sessionId": session, "prompt": blocks})
        self._prompted[call_id] = session
        return call_id

    async def prompt(self, session: str, prompt: object) -> Json:
        """Send a prompt and return its response."""
        return await self.response(await self.start_prompt(session, prompt))

    async def notify(self, method: str, params: Json) -> None:
        """Send a notification."""
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def mark(self) -> int:
        """Return a position for the methods below."""
        return len(self.received)

    def updates(self, since: int = 0, session: str | None = None) -> list[Json]:
        """Return the updates that were read, of one session or all."""
        found = [one["params"] for one in self.received[since:] if one.get("method") == "session/update"]
        return [one["update"] for one in found if session in (None, one["sessionId"])]

    def kinds(self, since: int = 0) -> list[str]:
        """Return the kinds of the updates."""
        return [update["sessionUpdate"] for update in self.updates(since)]

    def of_kind(self, kind: str, since: int = 0) -> list[Json]:
        """Return the updates of a kind."""
        return [update for update in self.updates(since) if update["sessionUpdate"] == kind]

    def text(self, since: int = 0, session: str | None = None) -> str:
        """Return the text of the agent."""
        chunks = [one for one in self.updates(since, session) if one["sessionUpdate"] == "agent_message_chunk"]
        return "".join(one["content"].get("text", "") for one in chunks)

    def calls(self, since: int = 0) -> dict[str, list[Json]]:
        """Return the updates of each tool call by its id, in order."""
        found: dict[str, list[Json]] = {}
        for update in self.updates(since):
            if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
                found.setdefault(update["toolCallId"], []).append(update)
        return found

    def final(self, since: int = 0) -> list[Json]:
        """Return each tool call with the last value of every member."""
        return [{key: value for one in updates for key, value in one.items()} for updates in self.calls(since).values()]

    def asked(self, method: str, since: int = 0) -> list[Json]:
        """Return the parameters of the agent's calls of a method."""
        return [one["params"] for one in self.received[since:] if one.get("method") == method]

    def _look(self, line: bytes, message: Json | None, wrong_id: str) -> None:
        """Judge a line as it arrives: one object, and a message of the protocol's schema."""
        watch = self._ledger.watch
        one = message is not None and message.get("jsonrpc") == "2.0" and line.endswith(b"\n")
        watch("A-02", bool(one), "a line is no message of JSON-RPC")
        watch("A-07", not wrong_id, wrong_id)
        if "A-112" in self._ledger.findings and message is not None:
            from kimi.interfaces.conformance.acp.shapes import find_problem

            problem = find_problem(message, self.method_of(message.get("id")))
            watch("A-112", problem is None, problem or "")


async def start(stage: Stage, *arguments: str) -> AcpPeer:
    """Start the agent, without a handshake."""
    peer = AcpPeer(stage, await stage.open(*arguments))
    stage.adopt(peer)
    return peer


async def start_ready(stage: Stage, **capabilities: Any) -> AcpPeer:
    """Start the agent and shake hands."""
    peer = await start(stage)
    await peer.initialize(**capabilities)
    return peer


async def probe_acp(stage: Stage) -> tuple[int, str, str, frozenset[str]]:
    """Return the version, the agent's name and its capabilities."""
    peer = await start(stage)
    result = await peer.initialize()
    name, release = (dig(result, "agentInfo", key) for key in ("name", "version"))
    return (
        1,
        shorten(str(result.get("protocolVersion")), 20),
        shorten(f"{name} {release}", 200),
        frozenset(_list_parts(result)),
    )


def _list_parts(result: Json) -> list[str]:
    session: Json = dig(result, "agentCapabilities", "sessionCapabilities") or {}
    parts = [f"sessionCapabilities.{name}" for name, value in session.items() if value is not None]
    parts += ["loadSession"] if dig(result, "agentCapabilities", "loadSession") else []
    steering = dig(result, "_meta", "steering", "supported")
    return parts + (["_meta.steering"] if steering else [])


def text_block(text: str) -> Json:
    """Return a block of text."""
    return {"type": "text", "text": text}


def choose(option: str) -> Serve:
    """Return what answers every permission with this option."""

    async def serve(params: Json) -> Json:
        del params
        return {"outcome": {"outcome": "selected", "optionId": option}}

    return serve


async def stay_silent(params: Json) -> None:
    """Never answer."""
    del params


def check_error(response: Json, code: int) -> Json:
    """Expect an error with this code; return it."""
    found = dig(response, "error", "code")
    expect(found == code, f"no error {code}, but {shorten(json.dumps(response))}")
    return response["error"]


def check_stop(response: Json, reason: str = "end_turn") -> None:
    """Expect that a prompt stopped for this reason."""
    expect(
        dig(response, "result", "stopReason") == reason,
        f"the prompt was answered {shorten(json.dumps(response))}, not {reason}",
    )
