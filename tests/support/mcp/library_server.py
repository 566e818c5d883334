"""The contract's MCP server, written with fastmcp and with the bare `mcp` package, and served over HTTP."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

import anyio
import fastmcp
import fastmcp.server.context as fast
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError as PlainToolError
from pydantic import BaseModel

logging.getLogger("fastmcp").setLevel(logging.CRITICAL)


class Name(BaseModel):
    """What the server asks for."""

    name: str


def with_fastmcp() -> FastMCP:
    """Return the server of the contract suite."""
    server = FastMCP("test")

    @server.tool
    def echo(text: str = "") -> str:
        """Does echo."""
        return text

    @server.tool
    def fail() -> str:
        """Does fail."""
        raise ToolError("it went wrong")

    @server.tool
    async def slow(text: str = "30") -> str:
        """Does slow."""
        await anyio.sleep(float(text))
        return text

    @server.tool
    async def ask(context: fast.Context) -> str:
        """Does ask."""
        answer = await context.elicit("Who are you?", response_type=Name)
        return f"{answer.action} {answer.data.name}" if answer.action == "accept" else answer.action

    return server


def with_bare_mcp() -> MCPServer:
    """Return the same server, written with the package that fastmcp is built on."""
    server = MCPServer("test")

    @server.tool(structured_output=False)
    def echo(text: str = "") -> str:
        """Does echo."""
        return text

    @server.tool(structured_output=False)
    def fail() -> str:
        """Does fail."""
        raise PlainToolError("it went wrong")

    @server.tool(structured_output=False)
    async def slow(text: str = "30") -> str:
        """Does slow."""
        await anyio.sleep(float(text))
        return text

    @server.tool(structured_output=False)
    async def ask(context: Context) -> str:
        """Does ask."""
        answer = await context.elicit("Who are you?", Name)
        return f"{answer.action} {answer.data.name}" if answer.action == "accept" else answer.action

    return server


@asynccontextmanager
async def over_http(server: FastMCP, transport: Literal["http", "sse"] = "http") -> AsyncGenerator[str, None]:
    """Serve on the loopback interface while the context is open; yield the URL."""
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/{'sse' if transport == 'sse' else 'mcp'}"
    fastmcp.settings.show_server_banner = False
    serving = asyncio.create_task(
        server.run_http_async(
            show_banner=False,
            transport=transport,
            sockets=[listening],
            uvicorn_config={"log_level": "critical", "lifespan": "on", "timeout_graceful_shutdown": 1},
        )
    )
    try:
        yield url
    finally:
        serving.cancel()
        await asyncio.wait([serving], timeout=5)
        listening.close()
