"""The client's end of JSON-RPC over a connection; it keeps the traffic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias, cast

from kimi.interfaces.conformance.connection import Connection
from kimi.interfaces.conformance.ledger import LINE_CHARS, TRAFFIC_LINES, Mismatch, expect, shorten

Json: TypeAlias = dict[str, Any]
"""A message: the JSON edge."""

Watch: TypeAlias = Callable[[bytes, "Json | None"], None]
"""Look at a line that was received: its bytes, and its object if it is one."""


class Peer:
    """Sends messages and reads the server's, which a task collects as they come."""

    def __init__(self, connection: Connection, timeout_s: float, watch: Watch | None = None) -> None:
        self.connection = connection
        self.timeout_s = timeout_s
        self.received: list[Json] = []
        """What was read, in order."""
        self.raw: list[bytes] = []
        """All lines that arrived, also those that were not read yet."""
        self._traffic: list[str] = []
        self._watch = watch
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._reader = asyncio.ensure_future(self._collect())
        self._last_id = 0

    # --- sending ------------------------------------------------------------------------------------------------

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._traffic.append(f"→ {shorten(data.decode('utf-8', 'replace').rstrip(chr(10)))}")
        await self.connection.send(data)

    async def send(self, *messages: object) -> None:
        """Send messages in one go, each in a line."""
        await self.send_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def build_call(self, method: str, params: Json | None = None) -> Json:
        """Return a request with a new id."""
        self._last_id += 1
        message: Json = {"jsonrpc": "2.0", "id": f"k{self._last_id}", "method": method}
        return message if params is None else {**message, "params": params}

    async def call(self, method: str, params: Json | None = None) -> str:
        """Send a request; return its id."""
        message = self.build_call(method, params)
        await self.send(message)
        return message["id"]

    async def answer(self, request: Json, result: object) -> None:
        """Answer a request of the server."""
        await self.send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    # --- reading ------------------------------------------------------------------------------------------------

    def stop_reading(self) -> None:
        """Leave what the server writes in the pipe."""
        self._may_read.clear()

    def read_again(self) -> None:
        """Read again after `stop_reading`."""
        self._may_read.set()

    async def next(self, timeout_s: float | None = None) -> Json:
        """Return the next message. Raises Mismatch if none arrives in time or the output ends."""
        limit = self.timeout_s if timeout_s is None else timeout_s
        try:
            line = await asyncio.wait_for(self._queue.get(), limit)
        except TimeoutError:
            raise Mismatch(f"nothing arrived within {limit:g} s") from None
        if not line:
            self._queue.put_nowait(b"")
            raise Mismatch("the server closed its output")
        message = parse_object(line)
        expect(message is not None, f"a line is no JSON object: {shorten(repr(line))}")
        assert message is not None
        self.received.append(message)
        return message

    async def response(self, call_id: object) -> Json:
        """Read until the response with this id, and return it."""
        try:
            while True:
                message = await self.next()
                if "method" not in message and message.get("id") == call_id:
                    return message
        except Mismatch as mismatch:
            raise Mismatch(f"no response with the id {call_id!r}: {mismatch}") from None

    async def request(self, method: str, params: Json | None = None) -> Json:
        """Send a request and return its response."""
        return await self.response(await self.call(method, params))

    async def result(self, method: str, params: Json | None = None) -> Json:
        """Send a request and return its result. Raises Mismatch for an error."""
        response = await self.request(method, params)
        expect(isinstance(response.get("result"), dict), f"`{method}` was answered {shorten(json.dumps(response))}")
        return response["result"]

    async def quiet(self, seconds: float) -> bool:
        """Whether no message arrives for so many seconds."""
        with suppress(Mismatch):
            await self.next(seconds)
            return False
        return True

    async def rest(self) -> list[Json]:
        """Return all messages until the server closes its output."""
        start = len(self.received)
        while True:
            try:
                await self.next()
            except Mismatch as mismatch:
                if "closed" in str(mismatch):
                    return self.received[start:]
                raise

    # --- the end --------------------------------------------------------------------------------------------------

    async def wait(self, timeout_s: float | None = None) -> int:
        """Return the exit status. Raises Mismatch if the process does not end in time."""
        limit = self.timeout_s if timeout_s is None else timeout_s
        try:
            return await asyncio.wait_for(self.connection.wait(), limit)
        except TimeoutError:
            raise Mismatch(f"the process did not end within {limit:g} s") from None

    async def finish(self) -> int:
        """Close the input, read the rest, and return the exit status."""
        await self.connection.end_input()
        await self.rest()
        return await self.wait()

    async def close(self) -> None:
        """End the connection, and the process where there is one."""
        self._reader.cancel()
        with suppress(asyncio.CancelledError, Mismatch):
            await self._reader
        await self.connection.close()

    def show_traffic(self) -> tuple[str, ...]:
        """Return the last lines in both directions."""
        return tuple(self._traffic[-TRAFFIC_LINES:])

    async def _collect(self) -> None:
        while True:
            await self._may_read.wait()
            try:
                line = await self.connection.receive()
            except (Mismatch, ConnectionError):
                line = b""
            if line:
                self.raw.append(line)
                self._traffic.append(f"← {shorten(line.decode('utf-8', 'replace').rstrip(chr(10)), LINE_CHARS)}")
                if self._watch is not None:
                    self._watch(line, parse_object(line))
            self._queue.put_nowait(line)
            if not line:
                return


def parse_object(line: bytes) -> Json | None:
    """Return the JSON object in a line, or None."""
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return cast("Json", value) if isinstance(value, dict) else None


def dig(value: Any, *keys: str) -> Any:
    """Return a member within members; None where one of them is missing or no object."""
    for key in keys:
        value = cast("Json", value).get(key) if isinstance(value, dict) else None
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
