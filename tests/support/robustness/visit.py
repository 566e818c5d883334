"""A client that writes broken lines to a server in its process, and checks each answer (wire spec 1, acp spec 5.1)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectSendStream

from tests.support.program.wire_process import Json, read_lines
from tests.support.robustness.expectations import Ledger
from tests.support.robustness.mutations import MakeMessage, cut, make_line

PATIENCE_S: Final = 30.0
"""Seconds after which a server that does not answer has failed."""


@dataclass
class Visitor:
    """The client's end: sends what the grammar makes, and keeps what came in a ledger."""

    source: Random
    ledger: Ledger
    to_server: MemoryObjectSendStream[bytes]
    requests: list[Json] = field(default_factory=list[Json])
    """The last requests of the server, which the grammar answers rightly, wrongly, twice or not at all."""
    last_session: str = "none"
    answers: dict[object, Json] = field(default_factory=dict[object, Json])
    _came: anyio.Event = field(default_factory=anyio.Event)
    _numbers: int = 0

    async def write(self, data: bytes) -> None:
        """Take what the server writes: whole lines of valid JSON."""
        assert data.endswith(b"\n")
        for line in data.split(b"\n")[:-1]:
            message: Json = json.loads(line.decode("utf-8"), parse_constant=_refuse)
            assert message["jsonrpc"] == "2.0"
            self.ledger.receive(message)
            if "method" in message and "id" in message:
                self.requests = [*self.requests[-5:], message]
            elif "method" not in message:
                self._note_answer(message)

    def _note_answer(self, message: Json) -> None:
        if isinstance(message["id"], str) and message["id"].startswith("probe"):
            self.answers[message["id"]] = message
        result: Json = message.get("result") or {}
        self.last_session = result.get("sessionId", self.last_session)
        self._came.set()
        self._came = anyio.Event()

    def next_number(self) -> int:
        """Return a number that was not returned before."""
        self._numbers += 1
        return self._numbers

    async def send(self, data: bytes) -> None:
        """Send bytes in blocks of any size; now and then let the server work in between."""
        self.ledger.send(data)
        for block in cut(self.source, data):
            await self.to_server.send(block)
            for _ in range(self.source.choice((0, 1, 5, 30, 100))):
                await anyio.lowlevel.checkpoint()

    async def send_spoilt(self, makers: list[MakeMessage], count: int) -> None:
        """Send so many lines of the grammar."""
        await self.send(b"".join(make_line(self.source, makers) for _ in range(count)))

    async def ask(self, method: str, params: Json) -> Json:
        """Send a whole request and return its answer."""
        call_id = f"probe {self.next_number()}"
        message = {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}
        data = b"\n" + json.dumps(message).encode() + b"\n"  # the line before may lack its end
        self.ledger.send(data)
        await self.to_server.send(data)
        await self.until(lambda: call_id in self.answers)
        return self.answers.pop(call_id)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for answers until this is true."""
        try:
            with anyio.fail_after(PATIENCE_S):
                while not condition():
                    await self._came.wait()
        except TimeoutError:
            self.ledger.check()
            raise

    async def settle(self, cancel: Callable[[], Awaitable[object]]) -> None:
        """Cancel what runs until every request has its answer."""
        while self.ledger.open_ids:
            await cancel()
            with anyio.move_on_after(0.05):
                await self.until(lambda: not self.ledger.open_ids)


def check_stored(directory: Path) -> None:
    """Assert that the files of a session are whole lines of JSON, and that each tool call in them has one result."""
    files = [directory / name for name in ("context.jsonl", "wire.jsonl") if (directory / name).exists()]
    for path in files:
        assert not path.read_bytes() or path.read_bytes().endswith(b"\n"), path
        lines = read_lines(path)
        if path.name == "context.jsonl":
            asked = Counter(call["id"] for line in lines for call in line.get("tool_calls") or ())
            answered = Counter(line["tool_call_id"] for line in lines if line["role"] == "tool")
            assert asked == answered, (path, asked - answered, answered - asked)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} on stdout")
