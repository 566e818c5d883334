"""Broken lines for an ACP agent: its messages, a server in this process, and what must hold afterwards."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import anyio

from kimi.interfaces.acp.sessions.open_sessions import OpenSession
from kimi.interfaces.acp.transport.update_outbox import UpdateOutbox
from kimi.interfaces.bootstrap.containers import SessionContainer
from kimi.interfaces.bootstrap.injector import providers
from tests.support.acp.client import acp_server
from tests.support.program.wire_process import Json, Place
from tests.support.robustness.expectations import Ledger, expect_of_agent
from tests.support.robustness.mutations import MakeMessage
from tests.support.robustness.talkative import WORDS, TalkativeModel, opening
from tests.support.robustness.visit import Visitor, check_stored
from tests.support.robustness.wire_visit import COMMANDS, make_id

METHODS: Final = (
    "initialize", "authenticate", "session/new", "session/list", "session/load", "session/resume", "session/fork",
    "session/close", "session/delete", "session/prompt", "session/cancel", "session/set_mode", "session/set_model",
    "session/set_config_option", "_session/steering", "_x", "$/cancel_request", "nope", "",
)  # fmt: skip
MAX_SESSIONS: Final = 12
"""So many sessions are kept: each of them is stored, listed, and takes a moment to open."""


@dataclass
class AgentGrammar:
    """The messages that an editor sends, over the sessions that it knows."""

    visitor: Visitor
    work_dir: str
    sessions: list[str] = field(default_factory=list[str])

    @property
    def makers(self) -> list[MakeMessage]:
        """The makers of all kinds of messages; what is there more than once comes more often."""
        replies = [self._reply] * 3
        return [self._initialize, *[self._prompt] * 3, self._cancel, self._control, self._open, *replies]

    def _request(self, source: Random, method: str, params: Json) -> Json:
        message: Json = {"jsonrpc": "2.0", "id": make_id(source, self.visitor), "method": method, "params": params}
        for name in ("jsonrpc", "id", "params"):
            if source.random() < 0.03:
                del message[name]
        return message

    def _session(self, source: Random) -> str:
        return source.choice(self.sessions) if source.random() < 0.95 else source.choice(("none", "", "../x", "a/b"))

    def _initialize(self, source: Random) -> Json:
        capabilities: Json = {"_meta": {"kimi": {"slashCommands": source.random() < 0.8}}}
        if source.random() < 0.5:
            capabilities["elicitation"] = {"form": {}}
        return self._request(source, "initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})

    def _prompt(self, source: Random) -> Json:
        text = source.choice(WORDS if source.random() < 0.85 else COMMANDS)
        blocks = [{"type": "text", "text": text}, {"type": "resource_link", "uri": "file:///x", "name": "x"}]
        params = {"sessionId": self._session(source), "prompt": blocks[: source.randint(1, 2)]}
        return self._request(source, "session/prompt", params)

    def _cancel(self, source: Random) -> Json:
        if source.random() < 0.3:
            params = {"requestId": f"r{source.randint(1, 300)}"}
            return {"jsonrpc": "2.0", "method": "$/cancel_request", "params": params}
        return {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": self._session(source)}}

    def _control(self, source: Random) -> Json:
        name = self._session(source)
        located: Json = {"sessionId": name, "cwd": self.work_dir, "mcpServers": []}
        choices: tuple[tuple[str, Json], ...] = (
            ("session/set_mode", {"sessionId": name, "modeId": source.choice(("default", "plan", "afk"))}),
            ("session/set_config_option", {"sessionId": name, "configId": "mode", "value": "default"}),
            ("session/set_model", {"sessionId": name, "modelId": "none"}),
            ("_session/steering", {"sessionId": name, "prompt": [{"type": "text", "text": "left"}]}),
            ("session/load", located),
            ("session/resume", located),
            ("session/close", {"sessionId": name}),
            ("authenticate", {"methodId": "login"}),
            (source.choice(METHODS), {"x": 1}),
        )
        return self._request(source, *source.choice(choices))

    def _open(self, source: Random) -> Json:
        located: Json = {"cwd": self.work_dir, "mcpServers": []}
        kind = source.random()
        if kind < 0.1:
            return self._request(source, "session/new", located)
        if kind < 0.15:
            return self._request(source, "session/fork", located | {"sessionId": self._session(source)})
        return self._request(source, "session/list", {}) if kind < 0.3 else self._cancel(source)

    def _reply(self, source: Random) -> Json:
        requests = self.visitor.requests
        asked = source.choice(requests) if requests and source.random() < 0.9 else {"id": 10**6}
        return {"jsonrpc": "2.0", "id": asked["id"], **_reply_members(source)}


def _reply_members(source: Random) -> Json:
    if source.random() < 0.1:
        return {"error": source.choice(("no", None, {"code": 1, "message": "no"}, {}, 5))}
    options = ("approve", "reject", "q0_opt_0", "approve_for_session", "x")
    outcomes: tuple[Json, ...] = (
        {"outcome": {"outcome": "selected", "optionId": source.choice(options)}},
        {"outcome": {"outcome": "cancelled"}},
        {"action": "accept", "content": {"q0": "A"}},
    )
    return {"result": source.choice(outcomes)}


async def visit_agent(source: Random, root: Path, lines: int) -> Ledger:
    """Write about so many broken lines to agents that share their stored sessions; return the ledger."""
    place = Place(root).script("text: unused")
    total = Ledger(expect_of_agent)
    while total.lines < lines:
        ledger = Ledger(expect_of_agent)
        with anyio.fail_after(60):
            await _visit_once(source, place, ledger, min(500, lines - total.lines))
        total.add(ledger)
        for directory in place.session_dirs():
            check_stored(directory)
    return total


def use_talkative_model(container: SessionContainer, session: OpenSession) -> None:
    """Let a session use the talkative model; an adapter of containers."""
    cast("Any", container).open_model.override(providers.Object(opening(TalkativeModel())))


async def _visit_once(source: Random, place: Place, ledger: Ledger, lines: int) -> None:
    to_server, incoming = anyio.create_memory_object_stream[bytes](10_000)
    visitor = Visitor(source, ledger, to_server)
    grammar = AgentGrammar(visitor, str(place.work))
    sessions = grammar.sessions
    server = acp_server(place, adapt=use_talkative_model)
    located: Json = {"cwd": str(place.work), "mcpServers": []}

    async def cancel() -> None:
        for name in sessions:
            message = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": name}}
            await visitor.send(b"\n" + json.dumps(message).encode() + b"\n")

    async def probe() -> None:
        await visitor.settle(cancel)
        answer = await visitor.ask("session/resume", located | {"sessionId": sessions[-1]})
        if "error" in answer:
            assert answer["error"]["code"] == -32002, answer  # it was deleted, or has nothing to be stored
            sessions[-1] = (await visitor.ask("session/new", located))["result"]["sessionId"]
        blocks = [{"type": "text", "text": "hello"}]
        answer = await visitor.ask("session/prompt", {"sessionId": sessions[-1], "prompt": blocks})
        assert answer.get("result", {}).get("stopReason") == "end_turn", answer

    async with to_server, incoming, anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, incoming.receive, UpdateOutbox(visitor.write, 1 << 24, lambda: None))
        assert "result" in await visitor.ask("initialize", {"protocolVersion": 1})
        for _ in range(2):
            sessions.append((await visitor.ask("session/new", located))["result"]["sessionId"])
        while ledger.lines < lines:
            await visitor.send_spoilt(grammar.makers, source.randint(1, 40))
            assert (await visitor.ask("nope", {}))["error"]["code"] == -32601
            if visitor.last_session not in sessions:
                sessions[:-1] = [*sessions[:-1], visitor.last_session][-MAX_SESSIONS:]
            if source.random() < 0.3:
                await probe()
        await visitor.send_spoilt(grammar.makers, 5)  # they may still be in progress at the end of the input
        ledger.end()
        await to_server.send(b"")
    ledger.check()
