"""An HTTP server on the loopback interface that answers with the bytes it is told to, without an end if need be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

Answer = Callable[[str, "dict[str, Any] | None"], "AsyncIterator[bytes]"]
"""The path of a request and its message, if it has one -> the bytes of the whole response."""


@asynccontextmanager
async def byte_server(answer: Answer) -> AsyncGenerator[str, None]:
    """Run a server and yield its URL. Each response ends its connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lengths = [line[15:] for line in head.lower().splitlines() if line.startswith("content-length:")]
            body = await reader.readexactly(int(lengths[0])) if lengths else b""
            message = json.loads(body) if body.startswith(b"{") else None
            async for block in answer(head.split()[1], message):
                writer.write(block)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()


def response_head(status: int = 200, kind: str = "application/json", more: Mapping[str, str] | None = None) -> bytes:
    """Return the head of a response whose body ends with the connection."""
    headers = {"Content-Type": kind, "Mcp-Session-Id": "s", "Connection": "close", **(more or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode()


def session_answer(message: dict[str, Any] | None) -> bytes | None:
    """Return the response to what begins a session that lists `echo`, or None for a call."""
    if message is None:
        return response_head(405)
    if "id" not in message:
        return response_head(202)
    match message["method"]:
        case "initialize":
            info = {"name": "h", "version": "1"}
            result: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}
        case "tools/list":
            result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        case _:
            return None
    return response_head() + json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
