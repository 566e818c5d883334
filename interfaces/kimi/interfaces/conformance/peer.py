"""The client's end of JSON-RPC over a connection; it keeps the traffic."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

from kimi.interfaces.conformance.connection import Connection
from kimi.interfaces.conformance.ledger import TRAFFIC_LINES, WRONG_SHAPE, Mismatch, describe, expect, shorten

MAX_RECEIVED_BYTES: Final = 256 * 1024 * 1024
MAX_RECEIVED_LINES: Final = 500_000
ERROR_LINES: Final = 8

Json: TypeAlias = dict[str, Any]
"""A message: the JSON edge."""

Watch: TypeAlias = Callable[[bytes, "Json | None", str], None]
"""Look at a line that was received: its bytes, its object if it is one, and what is wrong with the id of a response."""


class Silence(Mismatch):
    """Nothing arrived in time."""


class Ended(Mismatch):
    """No more lines will come."""


class Peer:
    """Sends messages and reads the server's, which a task collects as they come.

    Lines that are no objects are left to `watch`. A server that sends without end is read no further than a limit.
    """

    def __init__(self, connection: Connection, timeout_s: float, watch: Watch | None = None) -> None:
        self.connection = connection
        self.timeout_s = timeout_s
        self.received: list[Json] = []
        """What was read, in order."""
        self.raw: list[bytes] = []
        """All lines that arrived, also those that were not read yet."""
        self._traffic: deque[str] = deque(maxlen=TRAFFIC_LINES)
        self._watch = watch
        self._queue: asyncio.Queue[Json | None] = asyncio.Queue()
        self._end = ""
        self._size = 0
        self._silences = 0
        self._methods: dict[str, str] = {}
        self._open_ids: Counter[str] = Counter()
        self._must_settle = False
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._reader = asyncio.ensure_future(self._collect())
        self._last_id = 0

    # --- sending ------------------------------------------------------------------------------------------------

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are. A turn that a failed check has left open is ended first."""
        if self._must_settle:
            self._must_settle = False
            with suppress(Mismatch):
                await self._settle()
        self._traffic.append(_show("→", data))
        for line in data.splitlines():
            self._note_sent(line)
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
        """Return the next message. Raises Silence if none arrives in time, Ended if none will come.

        A server that was silent twice is waited for a tenth of the time, so that one that hangs does not take hours.
        """
        limit = self.timeout_s if timeout_s is None else timeout_s
        if timeout_s is None and self._silences > 1:
            limit = min(limit, max(1, limit / 10))
        try:
            message = await asyncio.wait_for(self._queue.get(), limit)
        except TimeoutError:
            self._silences += timeout_s is None
            raise Silence(f"nothing arrived within {limit:g} s") from None
        if message is None:
            self._queue.put_nowait(None)
            raise Ended(self._end)
        self._silences = 0
        self.received.append(message)
        return message

    def recover(self) -> None:
        """Take what has arrived as read after a failed check; what is sent next ends the open turn first."""
        self._must_settle = True
        while not self._queue.empty():
            message = self._queue.get_nowait()
            if message is None:
                self._queue.put_nowait(None)
                return
            self.received.append(message)

    async def response(self, call_id: object) -> Json:
        """Read until the response with this id, and return it."""
        try:
            while True:
                message = await self.next()
                if "method" not in message and message.get("id") == call_id:
                    return message
        except Mismatch as mismatch:
            raise Mismatch(f"no response with the id {call_id!r}: {mismatch}") from None

    async def responses(self, *call_ids: str) -> dict[str, Json]:
        """Read until there is a response with each of these ids; return them in the order of their arrival."""
        found: dict[str, Json] = {}
        while len(found) < len(call_ids):
            message = await self.next()
            if "method" not in message and message.get("id") in call_ids:
                found[message["id"]] = message
        return found

    async def request(self, method: str, params: Json | None = None) -> Json:
        """Send a request and return its response."""
        return await self.response(await self.call(method, params))

    async def result(self, method: str, params: Json | None = None) -> Json:
        """Send a request and return its result. Raises Mismatch for an error."""
        response = await self.request(method, params)
        expect(isinstance(response.get("result"), dict), f"`{method}` was answered {shorten(json.dumps(response))}")
        return response["result"]

    async def quiet(self, seconds: float) -> bool:
        """Whether no message arrives for so many seconds. Raises Ended if none can come."""
        try:
            await self.next(seconds)
        except Silence:
            return True
        return False

    async def has_nothing_to_say(self, method: str) -> bool:
        """Whether nothing comes before the response to a request of this method, nor for a moment after it."""
        call = self.build_call(method)
        await self.send(call)
        return (await self.next()).get("id") == call["id"] and await self.quiet(0.1)

    async def rest(self) -> list[Json]:
        """Return all messages until the server closes its output."""
        start = len(self.received)
        with suppress(Ended):
            while True:
                await self.next()
        return self.received[start:]

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
        """Return the last lines in both directions; when the server has ended, also what it wrote to stderr."""
        errors = self.connection.latest_errors() if self._end else b""
        told = errors.decode("utf-8", "replace").splitlines()[-ERROR_LINES:]
        return (*self._traffic, *(f"stderr: {shorten(line)}" for line in told))

    async def _collect(self) -> None:
        while not self._end:
            await self._may_read.wait()
            try:
                line = await self.connection.receive()
            except (Mismatch, OSError) as error:
                self._end = describe(error)
                break
            if not line:
                self._end = "the server closed its output"
            elif self._size > MAX_RECEIVED_BYTES or len(self.raw) >= MAX_RECEIVED_LINES:
                self._end = f"the server sends without end: {self._size} bytes in {len(self.raw)} lines"
            else:
                self._take(line)
        self._queue.put_nowait(None)

    def _take(self, line: bytes) -> None:
        self._size += len(line)
        self.raw.append(line)
        self._traffic.append(_show("←", line))
        message = parse_object(line)
        if self._watch is not None:
            with suppress(*WRONG_SHAPE):  # what it cannot be judged by has failed an item about its shape already
                self._watch(line, message, "" if message is None else self._check_id(message))
        if message is not None:
            self._queue.put_nowait(message)

    def _note_sent(self, line: bytes) -> None:
        """Remember the id of a request, also of one that is broken: it may be answered once."""
        try:
            message = json.loads(line.decode("utf-8-sig", "replace"))
        except (ValueError, RecursionError):
            return
        if dig(message, "method") is not None and dig(message, "id") is not None:
            key = json.dumps(message["id"])
            self._open_ids[key] += 1
            self._methods[key] = str(message["method"])

    def list_open(self, method: str) -> list[str]:
        """Return the ids of the requests of a method that no response has come to."""
        keys = [key for key, count in self._open_ids.items() if count > 0 and self._methods[key] == method]
        return [json.loads(key) for key in keys]

    def method_of(self, call_id: object) -> str | None:
        """Return the method of the request with this id."""
        return self._methods.get(json.dumps(call_id))

    async def _settle(self) -> None:
        """End the turns that are open; nothing is known of them here."""

    def _check_id(self, message: Json) -> str:
        """Say what is wrong with the id of a response: each answers one request that was sent. Null fits errors."""
        if "method" in message or message.get("id") is None:
            return ""
        key = json.dumps(message["id"])
        self._open_ids[key] -= 1
        return "" if self._open_ids[key] >= 0 else f"a response has the id {shorten(key)}, and no open request has it"


def _show(arrow: str, data: bytes) -> str:
    return f"{arrow} {shorten(data[: 1024 * 1024].decode('utf-8', 'replace').rstrip(chr(10)))}"


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
