"""A client of the wire, and what it watches on every line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeAlias

from jsonschema import Draft202012Validator

from kimi.interfaces.conformance.ledger import Ledger, Mismatch, expect, shorten
from kimi.interfaces.conformance.peer import Json, Peer, dig
from kimi.interfaces.conformance.scenario import Stage
from kimi.interfaces.conformance.wire.order import OrderRules

Answer: TypeAlias = Callable[[Json], Json | None]
"""Return the result for a request's parameters; None: it is not answered."""

CLIENT: Final[Json] = {"name": "conformance", "version": "1"}
TURN_END_SINCE: Final = 2
"""The version whose turns end with TurnEnd; before, with the response to the prompt."""
ALL_CAPABILITIES: Final[Json] = {"supports_question": True, "supports_plan_mode": True}


class WirePeer(Peer):
    """A client with the methods of the wire."""

    def __init__(self, stage: Stage, connection: Any) -> None:
        watcher = LineWatcher(stage.ledger, stage.target.version)
        super().__init__(connection, stage.target.timeout_s, watcher.look)
        self.watcher = watcher
        self._model = stage.model
        self._version = stage.target.version

    async def initialize(self, **params: Any) -> Json:
        """Shake hands, as a client with capabilities unless `params` say otherwise; return the result."""
        if self._version == 0:
            return {}
        asked: Json = {"protocol_version": "1.10", "client": CLIENT, **params}
        return await self.result("initialize", asked)

    async def prompt(self, user_input: object, answer: Answer | None = None) -> Json:
        """Send a prompt and read to its response; requests are answered by `answer`."""
        return await self.read_turn(await self.call("prompt", {"user_input": user_input}), answer)

    async def read_turn(self, call_id: object, answer: Answer | None = None) -> Json:
        """Read to the response with this id, answering requests on the way."""
        while True:
            message = await self.next()
            if "method" not in message and message.get("id") == call_id:
                return message
            if message.get("method") == "request" and answer is not None:
                result = answer(message["params"])
                if result is not None:
                    await self.answer(message, result)

    async def until(self, kind: str) -> Json:
        """Read until an event or request of this type; return the message."""
        try:
            while True:
                message = await self.next()
                if "method" in message and dig(message, "params", "type") == kind:
                    return message
        except Mismatch as mismatch:
            raise Mismatch(f"no {kind}: {mismatch}") from None

    async def _settle(self) -> None:
        self._model.release()
        for call_id in (*self.list_open("prompt"), *self.list_open("replay")):
            await self.call("cancel")
            await self.response(call_id)

    def known(self, *kinds: str) -> list[str]:
        """Return those of the types that the server's version has, of those that the first version had and TurnEnd."""
        return [kind for kind in kinds if kind != "TurnEnd" or self._version >= TURN_END_SINCE]

    def mark(self) -> int:
        """Return a position for `types` and `payloads`."""
        return len(self.received)

    def types(self, since: int = 0) -> list[str]:
        """Return the types of the events and requests that were read."""
        return [params["type"] for params in self.happenings(since)]

    def payloads(self, kind: str, since: int = 0) -> list[Json]:
        """Return the payloads of a type."""
        return [params["payload"] for params in self.happenings(since) if params["type"] == kind]

    def happenings(self, since: int = 0) -> list[Json]:
        """Return the parameters of the events and requests that were read, but for those without a type."""
        found = [one["params"] for one in self.received[since:] if "method" in one and dig(one, "params", "type")]
        return [params for params in found if isinstance(params.get("payload"), dict)]

    def text(self, since: int = 0) -> str:
        """Return the text of the assistant."""
        return "".join(part["text"] for part in self.payloads("ContentPart", since) if part["type"] == "text")


async def start(stage: Stage, *arguments: str) -> WirePeer:
    """Start the server, without a handshake."""
    peer = WirePeer(stage, await stage.open(*arguments))
    stage.adopt(peer)
    return peer


async def start_ready(stage: Stage, *arguments: str, **params: Any) -> WirePeer:
    """Start the server and shake hands with all capabilities."""
    peer = await start(stage, *arguments)
    await peer.initialize(**{"capabilities": ALL_CAPABILITIES, **params})
    return peer


async def probe_wire(stage: Stage) -> tuple[int, str, str, frozenset[str]]:
    """Return the version that the server speaks and its name."""
    peer = await start(stage)
    answer = await peer.request("initialize", {"protocol_version": "1.10", "client": CLIENT})
    if dig(answer, "error", "code") == -32601:
        return 0, "1.0", "a server without handshake", frozenset()
    shown = dig(answer, "result", "protocol_version")
    expect(shown is not None, f"it names no protocol_version, but says {shorten(json.dumps(answer))}")
    found = re.fullmatch(r"1\.(\d{1,4})", str(shown), re.ASCII)
    if found is None:
        raise Mismatch(f"its protocol_version is {shorten(repr(shown))}, and the suite is for 1.0 to 1.10")
    name, version = (dig(answer, "result", "server", key) for key in ("name", "version"))
    return int(found[1]), str(shown), shorten(f"{name} {version}", 200), frozenset()


class LineWatcher:
    """Judges the watched items on each line, and the order of the events."""

    def __init__(self, ledger: Ledger, version: int) -> None:
        self._ledger = ledger
        self.order = OrderRules(has_turn_end=version >= TURN_END_SINCE)

    def look(self, line: bytes, message: Json | None, wrong_id: str) -> None:
        """Look at a line as it arrives."""
        watch = self._ledger.watch
        watch("W-01", message is not None and _is_one_line(line), "a line is not one JSON object and one \\n")
        if message is None:
            return
        if "method" not in message:
            watch("W-19", *_check_response(message))
            watch("W-24", not wrong_id, wrong_id)
            self.order.note_response(message)
        else:
            watch("W-89", *_check_payload(message))
            is_request = message["method"] == "request"
            if is_request:
                same = isinstance(message.get("id"), str) and message["id"] == dig(message, "params", "payload", "id")
                watch("W-101", same, "the id of a request is not that of its payload")
            self.order.note(message["params"], is_request=is_request)
        watch("W-88", not self.order.violations, "; ".join(self.order.violations[-1:]))


def _is_one_line(line: bytes) -> bool:
    return line.endswith(b"\n") and not line.endswith(b"\r\n") and line.count(b"\n") == 1


def _check_response(message: Json) -> tuple[bool, str]:
    if "id" not in message:
        return False, "a message has neither method nor id"
    if ("result" in message) == ("error" in message):
        return False, "a response has both or none of `result` and `error`"
    if "error" in message:
        shape = isinstance(dig(message, "error", "code"), int) and isinstance(dig(message, "error", "message"), str)
        if not shape or message["error"].get("data", "absent") is not None:
            return False, f"an error is {shorten(json.dumps(message['error']))}, not code, message and data null"
    return True, ""


def _check_payload(message: Json) -> tuple[bool, str]:
    params = message.get("params")
    if message["method"] not in ("event", "request") or not isinstance(dig(params, "payload"), dict):
        return False, f"no event or request: {shorten(json.dumps(message))}"
    kind = str(dig(params, "type"))
    validator = _validator(kind)
    if validator is None:
        return True, ""  # newer than the kit
    problems = [one.message for one in validator.iter_errors(dig(params, "payload"))]  # pyright: ignore
    return not problems, f"{kind}: {shorten('; '.join(map(str, problems)))}"


@cache
def _validator(kind: str) -> Draft202012Validator | None:
    definitions = _definitions()
    known = kind in definitions
    return Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": definitions}) if known else None


@cache
def _definitions() -> Json:
    text = files("kimi.interfaces.conformance").joinpath("wire", "messages.json").read_text(encoding="utf-8")
    definitions: Json = json.loads(text)["$defs"]
    return definitions


def check_error(response: Json, code: int, message: str | None = None) -> None:
    """Expect an error with this code, and this text if one is given."""
    found = dig(response, "error", "code")
    expect(found == code, f"no error {code}, but {shorten(json.dumps(response))}")
    if message is not None:
        told = dig(response, "error", "message")
        expect(told == message, f"the error's message is {told!r}, not {message!r}")


def check_status(response: Json, status: str = "finished") -> None:
    """Expect the result of a prompt or replay with this status."""
    shown = dig(response, "result", "status")
    expect(shown == status, f"the answer is {shorten(json.dumps(response))}, not {status!r}")


def approve(params: Json) -> Json | None:
    """Answer as a client that approves everything."""
    return build_approval(params, "approve")


def build_approval(params: Json, response: str, feedback: str = "") -> Json:
    """Return the answer to an approval request."""
    return {"request_id": params["payload"]["id"], "response": response, "feedback": feedback}


def build_tool_result(params: Json, text: str = "done") -> Json:
    """Return the answer to a ToolCallRequest."""
    value = {"is_error": False, "output": text, "message": "m", "display": [{"type": "brief", "text": "b"}]}
    return {"tool_call_id": params["payload"]["id"], "return_value": value}
