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

import anyio
import anyio.to_thread
import fastmcp
import pytest
from fastmcp import FastMCP
from fastmcp.server.dependencies import get_http_headers

from tests.support.acp.client import AcpClient, acp_client, prompt
from tests.support.mcp.entries import RAW
from tests.support.program.wire_process import Json, Place, alive, eventually
from tests.support.providers.scripts import call, step

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


def program(name: str, env: dict[str, str] | None = None, **options: Any) -> Json:
    """The entry of a server that is a program with two tools: its environment, and where it runs."""
    pairs = [{"name": key, "value": value} for key, value in (env or {}).items()]
    told = json.dumps({"tools": ["env", "where"], **options})
    return {"name": name, "command": sys.executable, "args": ["-S", str(RAW), told], "env": pairs}


def output_of(client: AcpClient, call_id: str) -> str:
    """What a call gave back."""
    ended = [update for update in client.updates("tool_call_update") if update["toolCallId"].endswith(call_id)][-1]
    assert ended["status"] == "completed", ended
    return ended["content"][0]["content"]["text"]


async def approve(request: Json) -> Json:
    """A client that says yes."""
    return {"result": {"outcome": {"outcome": "selected", "optionId": "approve"}}}


@pytest.mark.spec("A-105")
async def test_servers_of_each_transport_get_the_client_settings(tmp_path: Path) -> None:
    names = ("env", "where", "seen_http", "seen_sse")
    place = Place(tmp_path).script(step(*(call(f"call_{name}", name, {}) for name in names)), step("text: Done."))
    key = [{"name": "X-Key", "value": "old"}, {"name": "X-Key", "value": "k1"}]
    async with remote("http") as http, remote("sse") as sse, acp_client(place) as client:
        client.serve = approve
        await client.shake_hands()
        servers = [
            program("local", {"WORD": "first ✓"}),
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


@pytest.mark.spec("A-108", "T-134")
async def test_session_servers_are_separate_and_end_with_the_session(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    where = call("call_where", "where", {})
    place = Place(tmp_path).script(step(where), *[step(where), step("text: Done.")] * 3)
    async with acp_client(place) as client:
        client.serve = approve
        await client.shake_hands()
        first = await client.new_session(place, mcpServers=[program("local", pid=str(mine))])
        second = await client.new_session(place)
        third = await client.new_session(place, mcpServers=[program("local", pid=str(theirs))])
        for session_id in (first, second, third):
            await client.say(session_id, "go")
        ended = {s: client.updates("tool_call_update", s)[-1] for s in (first, second, third)}
        assert [ended[s]["status"] for s in (first, second, third)] == ["completed", "failed", "completed"]
        assert "not found" in ended[second]["content"][0]["content"]["text"]
        await client.result("session/close", {"sessionId": first})
        assert await anyio.to_thread.run_sync(eventually, lambda: not alive(int(mine.read_text())), 3)
        assert alive(int(theirs.read_text()))
    assert not alive(int(theirs.read_text()))


@pytest.mark.spec("A-106")
async def test_dead_or_hanging_servers_fail_no_turn_and_are_named(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.config = "[mcp.client]\nfirst_turn_wait_ms = 1000\n"
    place.script(step("text: Done."))
    async with acp_client(place) as client:
        await client.shake_hands()
        dead: Json = {"name": "dead", "command": "no-such-program", "args": [], "env": []}
        mute = program("mute", silent=True, pid=str(tmp_path / "pid"))
        session_id = await client.new_session(place, mcpServers=[mute, dead])
        assert await anyio.to_thread.run_sync(eventually, (tmp_path / "pid").exists, 15)  # the library is loaded
        started = anyio.current_time()
        assert (await client.say(session_id, "go"))["result"]["stopReason"] == "end_turn"
        assert 0.9 < anyio.current_time() - started < 8
        assert "Done." in client.said()
    shown = [one["toolCallId"] for one in client.updates("tool_call") if one["title"] == "Connecting MCP servers"]
    texts = [
        *(one["content"][0]["content"]["text"] for one in client.updates("tool_call") if one.get("content")),
        *(one["content"][0]["content"]["text"] for one in client.updates("tool_call_update")),
    ]
    assert {one["toolCallId"] for one in client.updates("tool_call_update")} <= set(shown)
    assert "\n".join(texts).split("\n") == [
        "These MCP servers could not be connected; their tools are missing: dead",
        "These MCP servers have not answered yet; their tools are missing so far: mute",
    ]


@pytest.mark.spec("A-69")
async def test_a_prompt_is_cancelled_while_servers_connect(tmp_path: Path) -> None:
    place = Place(tmp_path).script(step("text: one"), step("text: two"))
    async with acp_client(place) as client:
        await client.shake_hands()
        session_id = await client.new_session(place, mcpServers=[program("mute", silent=True)])
        number = await client.request("session/prompt", prompt(session_id, "go"))
        shown = await client.until_update("tool_call")
        assert shown["title"] == "Connecting MCP servers"
        await client.notify("session/cancel", {"sessionId": session_id})
        with anyio.fail_after(3):
            answer = await client.answer_of(number)
        assert answer["result"]["stopReason"] == "cancelled"
        ended = client.updates("tool_call_update")[-1]
        assert ended["toolCallId"] == shown["toolCallId"]
        assert ended["status"] in ("completed", "failed")


@pytest.mark.spec("A-49")
async def test_closing_a_session_ends_its_turn_and_its_servers(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    place = Place(tmp_path).script(step(call("call_slow", "slow", {"text": "30"})), step("text: Done."))
    async with acp_client(place) as client:
        await client.shake_hands()
        servers = [program("local", tools=["slow"], pid=str(pid))]
        session_id = await client.new_session(place, mcpServers=servers)
        number = await client.request("session/prompt", prompt(session_id, "go"))
        request = await client.until_method("session/request_permission")
        await client.send({"jsonrpc": "2.0", "id": request["id"], **await approve(request)})
        await client.until(lambda line: line.get("params", {}).get("update", {}).get("status") == "in_progress")
        closing = await client.request("session/close", {"sessionId": session_id})
        with anyio.fail_after(5):
            assert (await client.answer_of(number))["result"]["stopReason"] == "cancelled"
            assert (await client.answer_of(closing))["result"] == {}
        assert await anyio.to_thread.run_sync(eventually, lambda: not alive(int(pid.read_text())), 3)
        assert client.updates("tool_call_update", session_id)[-1]["status"] == "failed"
