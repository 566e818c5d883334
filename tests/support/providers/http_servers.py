"""The HTTP client, and servers and proxies that speak raw bytes to it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias
from urllib.parse import urlsplit

from kimi.infrastructure.http.client import HttpClient, HttpLimits
from tests.support.providers.provider_server import ProviderServer

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def tcp_server(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    """Run a server with this handler of connections; yield its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def handled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            return
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(handled(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)


def answers(*blocks: bytes) -> Serve:
    """Return a handler that reads one request and writes the blocks with short pauses."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for block in blocks:
            writer.write(block)
            await writer.drain()
            await asyncio.sleep(0.01)

    return serve


@asynccontextmanager
async def layer(environ: dict[str, str] | None = None, limits: HttpLimits | None = None) -> AsyncGenerator[HttpClient]:
    """Open the client in this environment; close it on leaving."""
    http = HttpClient(environ or {}, limits)
    try:
        yield http
    finally:
        await http.close()


async def get(http: HttpClient, url: str, body: bytes = b"") -> tuple[int, bytes]:
    """Send a POST; return status and body of the answer."""
    async with http.request("POST", url, [], [body]) as response:
        return response.status, await response.read(1 << 30)


def socks_server(target: int, replies: dict[str, bytes] | None = None, seen: list[bytes] | None = None) -> Serve:
    """Return a SOCKS5 proxy that connects every client to the port `target` of this machine."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        writer.write(b"\x05" + (b"\x02" if 2 in methods else b"\x00"))
        if 2 in methods:
            user = await reader.readexactly((await reader.readexactly(2))[1])
            password = await reader.readexactly((await reader.readexactly(1))[0])
            writer.write(b"\x01\x00" if (user, password) == (b"u", b"p w") else b"\x01\x01")
        head = await reader.readexactly(5)
        name = await reader.readexactly(head[4])
        if seen is not None:
            seen.append(name)
        await reader.readexactly(2)
        writer.write((replies or {}).get(name.decode(), b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x01"))
        await _relay(reader, writer, target)

    return serve


def connect_server(target: int, seen: list[bytes], status: bytes = b"200 Fine") -> Serve:
    """Return an HTTP proxy that supports only CONNECT."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 " + status + b"\r\nVia: x\r\n\r\n")
        await _relay(reader, writer, target)

    return serve


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int) -> None:
    other_reader, other_writer = await asyncio.open_connection("127.0.0.1", target)

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while block := await source.read(65_536):
            sink.write(block)
            await sink.drain()

    try:
        await asyncio.wait(
            [asyncio.ensure_future(copy(reader, other_writer)), asyncio.ensure_future(copy(other_reader, writer))],
            return_when=asyncio.FIRST_COMPLETED,
        )
    finally:
        other_writer.transport.abort()


def port_of(server: ProviderServer) -> int:
    """Return the port on which the server listens."""
    return urlsplit(server.base_url).port or 0
