"""MCP servers that come with a session: real ones, over each transport (acp spec 4.4)."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import fastmcp
import pytest
from fastmcp import FastMCP
from fastmcp.server.dependencies import get_http_headers

from tests.acp_client import AcpClient, acp_client
from tests.e2e.process import Json, Place
from tests.e2e.scripts import call, step
from tests.servers.entries import RAW

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def remote(transport: Literal["http", "sse"]) -> AsyncGenerator[str, None]:
    """The URL of a server whose only tool, `seen_<transport>`, tells the header `x-key` of the request."""
    server = FastMCP("test")

    @server.tool(name=f"seen_{transport}")
    def _seen() -> str:
        """Tells what it was sent."""
        return f"{transport} with {get_http_headers(include_all=True).get('x-key')}"

    listening = socket.create_server(("127.0.0.1", 0))
    fastmcp.settings.show_server_banner = False
    uvicorn: Any = {"log_level": "critical", "lifespan": "on", "timeout_graceful_shutdown": 1}
    run = server.run_http_async(
        show_banner=False, transport=transport, path="/mcp", sockets=[listening], uvicorn_config=uvicorn
    )
    serving = asyncio.create_task(run)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        serving.cancel()
        await asyncio.wait([serving], timeout=5)
        listening.close()


def program(name: str, **env: str) -> Json:
    """The entry of a server that is a program with two tools: its environment, and where it runs."""
    pairs = [{"name": key, "value": value} for key, value in env.items()]
    tools = json.dumps({"tools": ["env", "where"]})
    return {"name": name, "command": sys.executable, "args": ["-S", str(RAW), tools], "env": pairs}


def output_of(client: AcpClient, call_id: str) -> str:
    """What a call gave back."""
    ended = [update for update in client.updates("tool_call_update") if update["toolCallId"].endswith(call_id)][-1]
    assert ended["status"] == "completed", ended
    return ended["content"][0]["content"]["text"]


async def approve(request: Json) -> Json:
    """A client that says yes."""
    return {"result": {"outcome": {"outcome": "selected", "optionId": "approve"}}}


@pytest.mark.spec("A-105")
async def test_servers_of_each_transport_get_what_the_client_said(tmp_path: Path) -> None:
    names = ("env", "where", "seen_http", "seen_sse")
    place = Place(tmp_path).script(step(*(call(f"call_{name}", name, {}) for name in names)), step("text: Done."))
    key = [{"name": "X-Key", "value": "old"}, {"name": "X-Key", "value": "k1"}]
    async with remote("http") as http, remote("sse") as sse, acp_client(place) as client:
        client.serve = approve
        await client.shake_hands()
        servers = [
            program("local", WORD="first ✓"),
            {"type": "http", "name": "web", "url": http, "headers": key},
            {"type": "sse", "name": "old web", "url": sse, "headers": key},
        ]
        session_id = await client.new_session(place, mcpServers=servers)
        await client.say(session_id, "go")
    assert json.loads(output_of(client, "/call_env"))["WORD"] == "first ✓"
    assert output_of(client, "/call_where") == str(place.work)
    assert output_of(client, "/call_seen_http") == "http with k1"
    assert output_of(client, "/call_seen_sse") == "sse with k1"
    titles = {update["title"] for update in client.updates("tool_call")}
    assert {"local: env", "web: seen_http", "old web: seen_sse"} <= titles
