"""Newline-framed JSON-RPC 2.0 on bytes: lines, messages, the ordered outbox (wire spec 1.1 to 1.4)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Any, Final, NoReturn, TypeAlias, cast

import anyio
from pydantic_core import from_json, to_json

from kimi.application.codec.envelope import encode_json, replace_surrogates

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

PIECE_BYTES: Final = 1024 * 1024
"""How many bytes of the outbox are joined for one write, unless one line alone has more."""

RpcId: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class RpcCall:
    """A request (`id` is set) or a notification (`id` is None)."""

    method: str
    params: Any
    id: RpcId | None


@dataclass(frozen=True, slots=True)
class RpcReply:
    """A response to one of our requests. `error` is None when absent or null; `has_result` tells null from absent."""

    id: RpcId
    result: Any
    has_result: bool
    error: Any


@dataclass(frozen=True, slots=True)
class RpcFault:
    """A line that is no message: the error to answer with, `id` null."""

    code: int
    message: str


InboundMessage: TypeAlias = RpcCall | RpcReply | RpcFault


class LineSplitter:
    """Cuts a byte stream into lines; a line over `limit` bytes is dropped as it arrives and reported as None."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # One buffer that grows: the blocks of a very long line, kept one by one, would leave holes in the memory.
        self._partial_line = bytearray()
        self._line_size = 0
        self._is_first_line = True

    def feed(self, block: bytes) -> Iterator[bytes | None]:
        """The lines that `block` completes, without their line end; a byte-order mark before the first is dropped."""
        *ends, rest = block.split(b"\n")
        for end in ends:
            self._line_size += len(end)
            yield self._complete_line(end)
        self._line_size += len(rest)
        if self._line_size > self._limit:
            self._partial_line = bytearray()
        else:
            self._partial_line += rest

    def end(self) -> Iterator[bytes | None]:
        """The last line, when the stream ended without a line end."""
        if self._line_size:
            yield self._complete_line(b"")

    def _complete_line(self, end: bytes) -> bytes | None:
        line = (
            (bytes(self._partial_line + end) if self._partial_line else end) if self._line_size <= self._limit else None
        )
        if self._partial_line:
            self._partial_line = bytearray()
        self._line_size = 0
        if self._is_first_line and line is not None:
            line = line.removeprefix(b"\xef\xbb\xbf")
        self._is_first_line = False
        return line


def parse_json(line: bytes) -> Any:
    """The value of a line of JSON. Undecodable bytes and lone surrogates become U+FFFD.

    Raises ValueError: not JSON, `NaN` or `Infinity`, or nested too deeply.
    """
    try:
        return from_json(line, allow_inf_nan=False)
    except ValueError:
        pass
    # The fast parser refuses what we must repair: bad UTF-8 and lone surrogates.
    try:
        return replace_surrogates(json.loads(line.decode("utf-8", "replace"), parse_constant=_reject_constant))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def parse_message(line: bytes) -> InboundMessage | None:
    """The message in a line; None for a blank one (wire spec 1.3)."""
    if not line.strip():
        return None
    try:
        value = parse_json(line)
    except ValueError:
        return RpcFault(PARSE_ERROR, "Invalid JSON format")
    if not isinstance(value, dict):
        return _INVALID_REQUEST_FAULT
    message = cast("dict[str, Any]", value)
    if message.get("jsonrpc", "2.0") != "2.0":
        return _INVALID_REQUEST_FAULT
    return _parse_call(message) if "method" in message else _parse_reply(message)


_INVALID_REQUEST_FAULT: Final = RpcFault(INVALID_REQUEST, "Invalid request")


def _parse_call(message: dict[str, Any]) -> InboundMessage:
    method, call_id = message["method"], message.get("id")
    if not isinstance(method, str) or (call_id is not None and not _is_id(call_id)):
        return _INVALID_REQUEST_FAULT
    return RpcCall(method, message.get("params"), call_id)


def _parse_reply(message: dict[str, Any]) -> InboundMessage:
    reply_id = message.get("id")
    if not _is_id(reply_id):
        return _INVALID_REQUEST_FAULT
    return RpcReply(cast("RpcId", reply_id), message.get("result"), "result" in message, message.get("error"))


def _is_id(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def encode_result(call_id: RpcId, result: object) -> bytes:
    """A success response; it has no `error` key."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode_json(call_id), encode_json(result))


def encode_error(call_id: RpcId | None, code: int, message: str) -> bytes:
    """An error response; it has no `result` key and `data` is null."""
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":%b,"data":null}}' % (
        encode_json(call_id),
        code,
        encode_json(message),
    )


def encode_notification(method: bytes, params: bytes) -> bytes:
    """A notification; `params` is JSON."""
    return b'{"jsonrpc":"2.0","method":"%b","params":%b}' % (method, params)


def encode_request(method: bytes, request_id: str, params: bytes) -> bytes:
    """A request of ours; `params` is JSON."""
    return b'{"jsonrpc":"2.0","method":"%b","id":%b,"params":%b}' % (method, to_json(request_id), params)


def frame_message(message: bytes) -> bytes:
    """`message` with its line end, and without the separators at which some readers split lines (W-06)."""
    if not message.isascii():
        # Looking for one byte is ten times as fast as looking for two.
        if b"\xe2" in message:
            message = message.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
        if b"\xc2" in message:
            message = message.replace(b"\xc2\x85", b"\\u0085")
    return message + b"\n"


class Outbox:
    """The one way out: lines in order, written in pieces of what has gathered.

    `put` never waits, so responses always get in; whoever produces much waits for `room`. After a failed write, or
    `fail`, `broken` is set, `on_broken` was called once, and lines go nowhere.
    """

    def __init__(
        self, write: Callable[[bytes], Awaitable[None]], high_water: int, on_broken: Callable[[], None]
    ) -> None:
        self._write = write
        self._high_water = high_water
        self._on_broken = on_broken
        self._lines: list[bytes] = []
        self._size: int = 0
        self._arrived = anyio.Event()
        self._written = anyio.Event()
        self._writing = False
        self.is_broken = False

    def put(self, line: bytes) -> None:
        """Queue a line, line end included."""
        if self.is_broken:
            return
        self._lines.append(line)
        self._size += len(line)
        self._arrived.set()

    async def wait_for_capacity(self) -> None:
        """Wait until less than the high-water mark is queued."""
        while self._size > self._high_water and not self.is_broken:
            await self._written.wait()

    async def flush(self) -> None:
        """Wait until everything is written, or cannot be."""
        while (not self._is_empty() or self._writing) and not self.is_broken:
            await self._written.wait()

    @property
    def is_write_stuck(self) -> bool:
        """Is a write under way? After `run` was cancelled: one that nobody reads."""
        return self._writing and not self.is_broken

    def fail(self) -> None:
        """The other side is gone. Idempotent."""
        if self.is_broken:
            return
        self.is_broken = True
        self._lines.clear()
        self._size = 0
        self._on_broken()
        self._notify_written()

    async def run(self) -> None:
        """Write until cancelled."""
        while not self.is_broken:
            if self._is_empty():
                self._arrived = anyio.Event()
                await self._arrived.wait()
            self._writing = True
            try:
                await self._write(self.take_piece())  # unnamed, or it would be kept until the next one is there
            except OSError:
                self.fail()
                return
            self._writing = False
            self._notify_written()

    def _is_empty(self) -> bool:
        return not self._lines

    def take_piece(self) -> bytes:
        """The next piece of what waits; it waits no longer.

        All of it in one would be there twice, and while a slow reader takes it as much again gathers.
        """
        count = len(self._lines) if self._size <= PIECE_BYTES else max(1, _count_fitting(self._lines))
        block = b"".join(self._lines[:count])
        del self._lines[:count]
        self._size -= len(block)
        return block

    def _notify_written(self) -> None:
        self._written.set()
        self._written = anyio.Event()


def _count_fitting(lines: Sequence[bytes]) -> int:
    """How many of the first lines are no larger than a piece together."""
    return sum(1 for _ in takewhile(PIECE_BYTES.__ge__, accumulate(map(len, lines))))
