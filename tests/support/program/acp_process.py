"""A real `kimi acp` process and a raw client for it that sees every line of JSON."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from tests.support.program import program
from tests.support.program.wire_process import Json, Place, WireProcess

Serve: TypeAlias = Callable[[Json], Json | None]
"""Answers a request of the agent: returns the members of the answer, None for no answer."""


class AcpProcess(WireProcess):
    """A running agent. `lines` keeps every message that was read."""

    next_number = 0

    def request(self, method: str, params: Json | None = None) -> int:
        """Send a request; return its id."""
        self.next_number += 1
        message: Json = {"jsonrpc": "2.0", "id": self.next_number, "method": method}
        self.send(message if params is None else message | {"params": params})
        return self.next_number

    def notify(self, method: str, params: Json) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def answer_of(self, call_id: object, serve: Serve | None = None) -> Json:
        """Read until the answer to this request; `serve` answers the agent's requests meanwhile."""
        while True:
            line = self.next_line()
            if "method" not in line and line.get("id") == call_id:
                return line
            if "method" in line and "id" in line and serve is not None and (members := serve(line)) is not None:
                self.send({"jsonrpc": "2.0", "id": line["id"], **members})

    def ask(self, method: str, params: Json | None = None, serve: Serve | None = None) -> Json:
        """Send a request and read to its answer; return it."""
        return self.answer_of(self.request(method, params), serve)

    def result(self, method: str, params: Json | None = None, serve: Serve | None = None) -> Json:
        """Send a request that must succeed; return its result."""
        answer = self.ask(method, params, serve)
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method: str, params: Json | None = None) -> Json:
        """Send a request that must fail; return its error."""
        answer = self.ask(method, params)
        assert "error" in answer, answer
        return answer["error"]

    def shake_hands(self, **capabilities: object) -> Json:
        """Send `initialize` with these client capabilities; return the result."""
        return self.result("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})

    def new_session(self, place: Place, **params: object) -> str:
        """Open a session in the place's work directory; return its id."""
        return self.result("session/new", {"cwd": str(place.work), "mcpServers": [], **params})["sessionId"]

    def say(self, session_id: str, text: str, serve: Serve | None = None) -> Json:
        """Send a prompt with a text; return the answer."""
        return self.ask("session/prompt", text_prompt(session_id, text), serve)

    def until_update(self, kind: str) -> Json:
        """Read until an update of this kind; return it."""
        while True:
            line = self.next_line()
            if line.get("method") == "session/update" and line["params"]["update"]["sessionUpdate"] == kind:
                return line["params"]["update"]

    def until_method(self, method: str) -> Json:
        """Read until a message of the agent with this method; return it."""
        while True:
            line = self.next_line()
            if line.get("method") == method:
                return line

    def updates(self, kind: str | None = None, session_id: str | None = None) -> list[Json]:
        """Return the updates read so far, of this kind and session."""
        return [
            line["params"]["update"]
            for line in self.lines
            if line.get("method") == "session/update"
            and kind in (None, line["params"]["update"]["sessionUpdate"])
            and session_id in (None, line["params"]["sessionId"])
        ]

    @property
    def said(self) -> str:
        """Return all text of the agent so far."""
        return "".join(update["content"].get("text", "") for update in self.updates("agent_message_chunk"))


def text_prompt(session_id: str, *texts: str) -> Json:
    """Return the params of a prompt of text blocks."""
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text} for text in texts]}


def choose(option: str) -> Serve:
    """Return a client that chooses this option in every permission request."""
    return lambda request: {"result": {"outcome": {"outcome": "selected", "optionId": option}}}


@contextmanager
def acp_process(
    place: Place, *before: str, command: Sequence[str] = ("acp",), cold: bool = False
) -> Generator[AcpProcess, None, None]:
    """Run a `kimi acp` process; kill it on leaving if it still runs."""
    process = AcpProcess(program.start([*before, *command], place.work, place.full_environ(), cold=cold))
    try:
        yield process
    finally:
        process.close()
