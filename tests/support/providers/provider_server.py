"""A model provider on the loopback interface: chat completions as server-sent events, with faults on demand.

In a test:

    async with provider([text_reply("hello")]) as server:
        ...  # server.base_url, server.requests

As a program, for tests of whole processes and for benchmarks; the first line of its output is the base URL:

    python -m tests.support.providers.provider_server --chunks 20000         # an encoded stream
    python -m tests.support.providers.provider_server --replies replies.json  # replies, see `reply_from_json`

It implements a small part of HTTP/1.1 with the standard library only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

Json: TypeAlias = dict[str, Any]
Event: TypeAlias = "Json | bytes"
"""A chunk, or the raw payload of an event."""

DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Reply:
    """How one request is answered.

    `framing` is how many bytes each HTTP chunk holds: None for one event per chunk, 0 for a body that ends with
    the connection instead of chunks. With `fault` the server does not go on after `fault_after` events: it stalls
    until the client goes away, closes the connection, or resets it; "refuse" closes without any answer, and
    "mute" never answers at all.
    """

    events: Sequence[Event] = ()
    done: bool = True
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    framing: int | None = None
    head_delay_s: float = 0
    event_delay_s: float = 0
    fault: Literal["stall", "close", "reset", "refuse", "mute"] | None = None
    fault_after: int = 0
    line_end: bytes = b"\n"
    named: bool = False
    """Whether the `type` of an event is also sent as its name."""


@dataclass(slots=True)
class Recorded:
    """A received request. `gone` is set when the client closed the connection before it had its answer."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Json:
        """The body as JSON."""
        return json.loads(self.body)


class ProviderServer:
    """Answers with the queued replies in order, then repeats the last one."""

    def __init__(self, replies: Iterable[Reply] = ()) -> None:
        self.replies: deque[Reply] = deque(replies)
        self.requests: list[Recorded] = []
        self.asked = asyncio.Event()
        """Set when the first request has arrived."""
        self.connections = 0
        self.base_url = ""
        self.choose: Callable[[Recorded], Reply] | None = None
        """When set, it chooses the reply instead of the queue."""
        self._encoded: dict[int, tuple[Reply, bytes]] = {}

    def add(self, *replies: Reply) -> None:
        """Queue more replies."""
        self.replies.extend(replies)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        number = self.connections
        self.connections += 1
        request: Recorded | None = None
        try:
            while (request := await _read_request(reader, number)) is not None:
                self.requests.append(request)
                self.asked.set()
                if not await self._answer(request, self._reply(request), reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            if request is not None:
                request.gone.set()
        finally:
            writer.transport.abort()

    def _reply(self, request: Recorded) -> Reply:
        if self.choose is not None:
            return self.choose(request)
        if not self.replies:
            return Reply(status=500, body=b'{"error":{"message":"no reply is queued"}}')
        return self.replies.popleft() if len(self.replies) > 1 else self.replies[0]

    async def _answer(
        self, request: Recorded, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Send a reply; return whether the connection can be used again."""
        if reply.fault == "refuse":
            return False
        if reply.fault == "mute":
            return await _wait_for_end(request, reader)
        if reply.head_delay_s:
            await asyncio.sleep(reply.head_delay_s)
        if reply.body is not None:
            writer.write(_head(reply, f"Content-Length: {len(reply.body)}") + reply.body)
            await writer.drain()
            return True
        return await self._stream(request, reply, reader, writer)

    async def _stream(
        self, request: Recorded, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        writer.write(_head(reply, "Transfer-Encoding: chunked" if reply.framing != 0 else "Connection: close"))
        if reply.fault is None and not reply.event_delay_s:
            writer.write(self._body(reply))
            await _drain_or_notice(request, reader, writer)
            return reply.framing != 0
        limit = reply.fault_after if reply.fault else len(_payloads(reply))
        watcher = asyncio.ensure_future(_wait_for_end(request, reader))
        try:
            for block in _blocks(_payloads(reply)[:limit], reply):
                writer.write(_framed(block, reply))
                await writer.drain()
                await asyncio.sleep(reply.event_delay_s)
                if request.gone.is_set():
                    return False
            return await self._end(reply, watcher, writer)
        finally:
            watcher.cancel()
            await asyncio.wait([watcher])

    async def _end(self, reply: Reply, watcher: asyncio.Future[bool], writer: asyncio.StreamWriter) -> bool:
        if reply.fault == "stall":
            return await watcher
        if reply.fault is None:
            writer.write(b"0\r\n\r\n" if reply.framing != 0 else b"")
            await writer.drain()
            return reply.framing != 0 and not watcher.done()
        if reply.fault == "reset":
            writer.transport.abort()
        return False

    def _body(self, reply: Reply) -> bytes:
        """Return the whole body, which is encoded once per reply."""
        known = self._encoded.get(id(reply))
        if known is None:
            blocks = _blocks(_payloads(reply), reply)
            end = b"0\r\n\r\n" if reply.framing != 0 else b""
            known = self._encoded[id(reply)] = (reply, b"".join(_framed(block, reply) for block in blocks) + end)
        return known[1]


def _payloads(reply: Reply) -> list[bytes]:
    events = [event if isinstance(event, bytes) else dumps(event) for event in reply.events]
    return [*events, DONE] if reply.done else events


def _blocks(payloads: Sequence[bytes], reply: Reply) -> list[bytes]:
    end = reply.line_end
    events = [_name(payload, reply) + b"data: " + payload + end + end for payload in payloads]
    if not reply.framing:
        return events
    body, size = b"".join(events), reply.framing
    return [body[start : start + size] for start in range(0, len(body), size)]


def _name(payload: bytes, reply: Reply) -> bytes:
    """Return the line that names an event by the type at its beginning."""
    if not reply.named or not payload.startswith(b'{"type":"'):
        return b""
    return b"event: " + payload.split(b'"', 4)[3] + reply.line_end


def _framed(block: bytes, reply: Reply) -> bytes:
    return block if reply.framing == 0 else b"%x\r\n%s\r\n" % (len(block), block)


def _head(reply: Reply, framing: str) -> bytes:
    kind = "application/json" if reply.body is not None else "text/event-stream"
    headers = {"Content-Type": kind, **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} Said", framing, *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Recorded | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    request_line, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = request_line.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Recorded(method, path, headers, body, connection)


async def _wait_for_end(request: Recorded, reader: asyncio.StreamReader) -> bool:
    """Wait until the client closes the connection; return False: the connection cannot be used again."""
    with suppress(ConnectionError):
        await reader.read(1)
    request.gone.set()
    return False


async def _drain_or_notice(request: Recorded, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await writer.drain()
    except ConnectionError:
        request.gone.set()
        raise


@asynccontextmanager
async def provider(replies: Iterable[Reply] = (), port: int = 0) -> AsyncGenerator[ProviderServer]:
    """Run a server while the context is open."""
    server = ProviderServer(replies)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(server.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", port, limit=1 << 26)
    server.base_url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- replies ----------------------------------------------------------------------------------------------------


def dumps(value: object) -> bytes:
    """Encode as compact JSON with raw non-ASCII characters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def chunk(delta: Json | None = None, *, finish: str | None = None, usage: Json | None = None, **more: Any) -> Json:
    """Return one chat-completions chunk."""
    choice: Json = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    body: Json = {"id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**body, "choices": [choice], **({} if usage is None else {"usage": usage}), **more}


def text_events(*pieces: str) -> list[Event]:
    """Return the events of text in pieces."""
    return [chunk({"content": piece}) for piece in pieces]


def call_delta(
    index: int | None, arguments: str | None, *, call_id: str | None = None, name: str | None = None
) -> Json:
    """Return a chunk with one piece of a tool call; None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    call = {"index": index, "id": call_id, "type": "function", "function": function}
    return chunk({"tool_calls": [{key: value for key, value in call.items() if value is not None}]})


def call_events(index: int, call_id: str, name: str, arguments: str, piece: int = 8) -> list[Event]:
    """Return the events of a tool call whose arguments are sent in pieces of `piece` characters."""
    pieces = [arguments[start : start + piece] for start in range(0, len(arguments), piece)]
    return [call_delta(index, "", call_id=call_id, name=name), *(call_delta(index, one) for one in pieces)]


USAGE: Json = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def end_events(finish: str = "stop", usage: Json | None = USAGE) -> list[Event]:
    """Return the finish reason, then the usage in a chunk without choices."""
    last: list[Event] = [chunk(finish=finish)]
    return last if usage is None else [*last, {"id": "chat-1", "choices": [], "usage": usage}]


def text_reply(*pieces: str, usage: Json | None = USAGE, **more: Any) -> Reply:
    """Return a reply with text."""
    return replace(Reply([*text_events(*pieces), *end_events(usage=usage)]), **more)


def call_reply(*calls: tuple[str, str, str], text: str = "", usage: Json | None = USAGE, **more: Any) -> Reply:
    """Return a reply with tool calls: (id, name, arguments)."""
    events = text_events(text) if text else []
    for index, (call_id, name, arguments) in enumerate(calls):
        events += call_events(index, call_id, name, arguments)
    return replace(Reply([*events, *end_events("tool_calls", usage)]), **more)


def error_reply(status: int, message: str = "", **headers: str) -> Reply:
    """Return an error status with a JSON body; underscores in header names become dashes."""
    body = dumps({"error": {"message": message, "type": "some_error"}}) if message else b""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, body=body, headers=named)


def reply_from_json(data: Json) -> Reply:
    """Return the reply for an entry of a file.

    Keys, all optional: `think`, `text` (each a string or a list of pieces), `calls` (list of [id, name,
    arguments]), `usage`, `status` with `message` and `headers`, and the faults of `Reply` (`fault`, `fault_after`,
    `head_delay_s`, `event_delay_s`, `framing`).
    """
    options = {
        key: data[key] for key in ("fault", "fault_after", "head_delay_s", "event_delay_s", "framing") if key in data
    }
    if "status" in data:
        return replace(error_reply(data["status"], data.get("message", ""), **data.get("headers", {})), **options)
    events: list[Event] = [chunk({"reasoning_content": piece}) for piece in _pieces(data.get("think", []))]
    reply = call_reply(*map(tuple, data.get("calls", [])), usage=data.get("usage", USAGE), **options)
    return replace(reply, events=[*events, *text_events(*_pieces(data.get("text", []))), *reply.events])


def _pieces(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


# --- as a program -----------------------------------------------------------------------------------------------


def stream_reply(chunks: int, framing: int | None) -> Reply:
    """Return a reply with `chunks` pieces of text of about 20 characters, for benchmarks."""
    return text_reply(*(f"piece number {number:06d} " for number in range(chunks)), framing=framing)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.providers.provider_server", description="A provider for tests."
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--replies", type=Path, help="a JSON list of replies; the last one is repeated")
    parser.add_argument("--chunks", type=int, default=5, help="without --replies: pieces of text per answer")
    parser.add_argument("--framing", type=int, default=None, help="bytes per HTTP chunk; default one event each")
    return parser.parse_args()


async def _run(options: argparse.Namespace) -> None:
    if options.replies is None:
        replies = [stream_reply(options.chunks, options.framing)]
    else:
        replies = [reply_from_json(item) for item in json.loads(options.replies.read_text("utf-8"))]
    async with provider(replies, options.port) as server:
        print(server.base_url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_run(_arguments()))
