"""Broken lines for the wire: its messages, a server in this process, and what must hold afterwards."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import anyio

from kimi.application.conversation.conversation import Conversation
from kimi.application.sessions.open_session import SessionSelector
from kimi.application.settings.flags import Flags
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import open_conversation
from kimi.interfaces.bootstrap.start import load_settings
from kimi.interfaces.wire.run import build_wire_server
from tests.support.program.wire_process import Json, Place
from tests.support.robustness.expectations import Ledger, expect_on_wire
from tests.support.robustness.mutations import ODD_IDS, MakeMessage
from tests.support.robustness.talkative import WORDS, TalkativeModel, opening
from tests.support.robustness.visit import Visitor, check_stored

METHODS: Final = ("initialize", "prompt", "cancel", "replay", "steer", "set_plan_mode", "event", "request", "nope", "")
COMMANDS: Final = (
    "/clear", "/compact", "/plan", "/afk on", "/nope", "/skill:x", "/btw hello", "/import .env", "/add-dir x",
)  # fmt: skip


def wire_messages(visitor: Visitor) -> list[MakeMessage]:
    """Return the makers of the messages that a client of the wire sends."""

    def request(source: Random, method: str, params: object) -> Json:
        message: Json = {"jsonrpc": "2.0", "id": make_id(source, visitor), "method": method, "params": params}
        for name in ("jsonrpc", "id", "params"):
            if source.random() < 0.03:
                del message[name]
        return message

    def initialize(source: Random) -> Json:
        params: Json = {"protocol_version": source.choice(("1.10", "1.1", "9", ""))}
        optional: Json = {
            "client": {"name": "visitor", "version": "1"},
            "capabilities": {"supports_question": True, "supports_plan_mode": source.random() < 0.5},
            "external_tools": [{"name": "ext", "description": "x", "parameters": {"type": "object"}}],
            "hooks": [{"id": "h", "event": source.choice(("Stop", "PreToolUse", "x")), "matcher": "", "timeout": 1}],
            "slash_commands": source.random() < 0.8,
        }
        names = [name for name in optional if source.random() < (0.1 if name == "hooks" else 0.7)]
        return request(source, "initialize", params | {name: optional[name] for name in names})

    def prompt(source: Random) -> Json:
        text = source.choice(WORDS if source.random() < 0.85 else COMMANDS)
        parts = [{"type": "text", "text": text}, {"type": "text", "text": "more"}]
        return request(source, "prompt", {"user_input": text if source.random() < 0.8 else parts})

    def cancel(source: Random) -> Json:
        return request(source, "cancel", {})

    def control(source: Random) -> Json:
        choices: tuple[tuple[str, Json], ...] = (
            ("steer", {"user_input": "left"}),
            ("set_plan_mode", {"enabled": source.random() < 0.3}),
            ("replay", {}),
            (source.choice(METHODS), {"x": 1}),
        )
        return request(source, *source.choice(choices))

    def reply(source: Random) -> Json:
        asked = source.choice(visitor.requests) if visitor.requests and source.random() < 0.9 else _UNKNOWN
        return {"jsonrpc": "2.0", "id": asked["id"], **_reply_members(source, asked)}

    return [initialize, prompt, prompt, prompt, cancel, cancel, control, reply, reply, reply]


_UNKNOWN: Final[Json] = {"id": "never", "params": {"type": "ApprovalRequest", "payload": {}}}


def make_id(source: Random, visitor: Visitor) -> object:
    """Return the id of a request: mostly a new one, sometimes a used one, sometimes an odd one."""
    kind = source.random()
    number = visitor.next_number()
    if kind < 0.05:
        return f"r{max(1, number - source.randint(1, 8))}"
    return source.choice(ODD_IDS) if kind < 0.1 else f"r{number}" if kind < 0.8 else number


def _reply_members(source: Random, asked: Json) -> Json:
    if source.random() < 0.1:
        return {"error": source.choice(("no", None, {"code": 1, "message": "no"}, {}, 5))}
    kind, call_id = asked["params"]["type"], asked["id"]
    value: Json = {"is_error": False, "output": "done", "message": "", "display": []}
    results: Json = {
        "ApprovalRequest": {"request_id": call_id, "response": source.choice(("approve", "reject"))},
        "ToolCallRequest": {"tool_call_id": call_id, "return_value": value},
        "QuestionRequest": {"request_id": call_id, "answers": {"Which?": "A"}},
        "HookRequest": {"request_id": call_id, "action": source.choice(("allow", "block")), "reason": ""},
    }
    return {"result": results.get(source.choice((kind, kind, kind, *results)))}


async def visit_wire(source: Random, root: Path, lines: int) -> Ledger:
    """Write about so many broken lines to a server over one stored session, in several visits; return the ledger."""
    place = Place(root).script("text: unused")
    environ = place.full_environ()
    settings = load_settings(Flags(work_dir=str(place.work), ui="wire"), environ)
    total = Ledger(expect_on_wire)
    history: int | None = None
    while total.lines < lines:
        app = App(
            settings=providers.Object(settings),
            environ=providers.Object(environ),
            open_model=providers.Object(opening(TalkativeModel())),
        )
        ledger = Ledger(expect_on_wire)
        async with open_conversation(app, SessionSelector("visited")) as conversation:
            if history is not None:
                assert len(conversation.history.messages) == history, "what was stored is what was there"
            with anyio.fail_after(60):
                await _visit_once(source, app, conversation, ledger, min(500, lines - total.lines))
            history = len(conversation.history.messages)
        for directory in place.session_dirs():
            check_stored(directory)
        total.add(ledger)
    return total


async def _visit_once(source: Random, app: App, conversation: Conversation, ledger: Ledger, lines: int) -> None:
    to_server, incoming = anyio.create_memory_object_stream[bytes](10_000)
    visitor = Visitor(source, ledger, to_server)
    server = build_wire_server(app, conversation, visitor.write)
    makers = wire_messages(visitor)
    cancel = partial(visitor.ask, "cancel", {})
    async with to_server, incoming, anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, incoming.receive)
        while ledger.lines < lines:
            await visitor.send_spoilt(makers, source.randint(1, 40))
            assert (await visitor.ask("nope", {}))["error"]["code"] == -32601
            if source.random() < 0.3:
                await visitor.settle(cancel)
                # Without hooks, which it would have to answer; with questions, which few random clients take.
                able: Json = {"protocol_version": "1.10", "hooks": [], "capabilities": {"supports_question": True}}
                await visitor.ask("initialize", able)
                assert "result" in await visitor.ask("prompt", {"user_input": "hello"})
        await visitor.send_spoilt(makers, 5)  # they may still be in progress at the end of the input
        ledger.end()
        await to_server.send(b"")
    assert not set(ledger.codes) & {-32603}, ledger.codes
    ledger.check()
