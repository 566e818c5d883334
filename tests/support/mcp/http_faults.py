"""HTTP servers that are faulty MCP servers: every request gets the same status, or a session fails later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

Respond = Callable[[dict[str, Any]], "tuple[int, dict[str, Any] | None]"]
"""A JSON-RPC message -> status and body."""


@asynccontextmanager
async def http_server(respond: Respond, heads: list[str] | None = None) -> AsyncGenerator[str, None]:
    """Run a server on the loopback interface and yield its URL; the head of every request is appended to `heads`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                if heads is not None:
                    heads.append(head)
                length = next(
                    (int(line[15:]) for line in head.splitlines() if line.lower().startswith("content-length:")), 0
                )
                body = await reader.readexactly(length)
                status, answer = respond(json.loads(body)) if body else (405, None)
                content = b"" if answer is None else json.dumps(answer).encode()
                writer.write(
                    f"HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nMcp-Session-Id: s\r\n"
                    f"Content-Length: {len(content)}\r\n\r\n".encode()
                    + content
                )
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()


@asynccontextmanager
async def event_server(respond: Respond, told: str = "/messages") -> AsyncGenerator[str, None]:
    """Run a server of the older transport and yield its URL. Answers are events, and `told` is the announced path for
    messages; when it is empty the events end at once."""
    listener: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if head.startswith("GET"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                if told:
                    writer.write(f"event: endpoint\ndata: {told}\n\n".encode())
                    listener.append(writer)
                    await reader.read()
            else:
                length = next(
                    int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length:")
                )
                status, answer = respond(json.loads(await reader.readexactly(length)))
                writer.write(f"HTTP/1.1 {status} Said\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                if answer is not None:
                    listener[-1].write(f"data: {json.dumps(answer)}\n\n".encode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/sse"
    finally:
        server.close()


def always(status: int) -> Respond:
    """Answer every request with this status."""
    return lambda message: (status, {"error": "no"})


def working(calls: Callable[[dict[str, Any]], tuple[int, dict[str, Any] | None]]) -> Respond:
    """Begin a session that lists `echo`; `calls` answers the calls and may set another status."""

    def respond(message: dict[str, Any]) -> tuple[int, dict[str, Any] | None]:
        if "id" not in message:
            return 202, None
        match message["method"]:
            case "initialize":
                result: dict[str, Any] = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "h", "version": "1"},
                }
            case "tools/list":
                result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                return calls(message)
            case _:
                error = {"code": -32601, "message": "no"}
                return 200, {"jsonrpc": "2.0", "id": message["id"], "error": error}
        return 200, {"jsonrpc": "2.0", "id": message["id"], "result": result}

    return respond
