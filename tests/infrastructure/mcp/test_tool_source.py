"""What goes wrong with MCP servers, one fault at a time (tools spec 4)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from kimi.application.ports import (
    Elicitation,
    ElicitationAnswer,
    SourceCallFailed,
    SourceDisconnected,
    SourceTimedOut,
    SourceTool,
    SourceUnavailable,
)
from kimi.application.settings.settings import McpServer, McpSettings
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import ToolReturnValue
from kimi.infrastructure.mcp.probe import list_offered_tools
from kimi.infrastructure.mcp.server_link import AnswerElicitation, LinkTimings, OpenSession, RemoteSession, ServerLink
from kimi.infrastructure.mcp.tool_source import McpToolSource
from kimi.infrastructure.mcp.transport.server_log import MAX_BYTES, ServerLog
from tests.support.mcp.entries import RAW, raw_server
from tests.support.mcp.http_faults import always, event_server, http_server, working
from tests.support.mcp.stage import QUICK, connected, decline, place_in, text_of, view
from tests.support.program.processes import comes_true, is_alive

pytestmark = pytest.mark.anyio


async def eventually(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until `condition` is true; fails when it does not become so."""
    assert await anyio.to_thread.run_sync(comes_true, condition, seconds)


async def test_faults_at_the_start_have_a_reason_each(tmp_path: Path) -> None:
    servers = [
        raw_server("silent", silent=True, connect_timeout_ms=300),
        raw_server("exits", exit=3),
        McpServer(name="missing", command="no-such-program"),
        McpServer(name="nowhere", command="python3", cwd="not/there"),
        McpServer(name="refused", url="http://127.0.0.1:9/mcp", transport="http"),
        McpServer(name="old", url="http://127.0.0.1:9/sse", transport="sse"),
        McpServer(name="broken", config_error="It has neither a command nor a URL."),
        McpServer(name="off", command="x", enabled=False),
        raw_server("good"),
    ]
    async with http_server(always(401)) as denied, http_server(always(500)) as ill:
        servers.append(McpServer(name="denied", url=denied, transport="http", auth="secret-token"))
        servers.append(McpServer(name="closed", url=denied, transport="http"))
        servers.append(McpServer(name="ill", url=ill, transport="http", headers={"X": "secret-header"}))
        async with connected(tmp_path, *servers) as source:
            found = {server.name: (server.state, server.reason) for server in source.servers()}
    assert found["silent"] == ("failed", "It did not answer within 0.3 s.")
    assert found["exits"] == ("failed", "It ended without an answer.")
    assert found["missing"] == ("failed", "'no-such-program' cannot be started: No such file or directory")
    assert found["nowhere"][0] == "failed"
    assert found["refused"] == found["old"] == ("failed", "It cannot be reached.")
    assert found["broken"] == ("failed", "It has neither a command nor a URL.")
    assert found["off"] == ("disabled", "It is switched off.")
    assert found["good"] == ("connected", "")
    assert found["denied"] == ("unauthorized", "It does not take the login that is configured (HTTP 401).")
    advice = 'give its entry "auth": "oauth", a token as "auth", or "headers".'
    assert found["closed"] == ("unauthorized", f"It wants a login (HTTP 401); {advice}")
    assert found["ill"] == ("failed", "It answered with HTTP status 500.")
    assert not any("secret" in reason for _, reason in found.values())


@pytest.mark.spec("W-139")
async def test_a_server_is_shown_as_connecting_from_the_start(tmp_path: Path) -> None:
    off = McpServer(name="off", command="true", enabled=False)
    source = McpToolSource(McpSettings(servers=(raw_server("s"), off)), place_in(tmp_path), timings=QUICK)
    assert [server.state for server in source.servers()] == ["pending", "disabled"]
    source.start()
    assert [server.state for server in source.servers()] == ["connecting", "disabled"]
    await source.stop_and_wait(3.0)


async def test_server_without_login_sends_no_message(tmp_path: Path) -> None:
    asked: list[object] = []

    def respond(message: dict[str, Any]) -> tuple[int, dict[str, Any] | None]:
        asked.append(message)
        return 401, None

    async with http_server(respond) as url:
        server = McpServer(name="far", url=url, transport="http", auth="oauth")
        async with connected(tmp_path, server) as source:
            assert view(source, "far").state == "unauthorized"
            assert view(source, "far").reason == "It wants a login; run: kimi mcp auth far"
    assert asked == []


async def test_failed_calls_raise_distinct_errors(tmp_path: Path) -> None:
    servers = raw_server("s", tools=["wrong", "fail", "crash"]), raw_server("impatient", tools=["slow"], timeout_ms=300)
    async with connected(tmp_path, *servers) as source:
        with pytest.raises(SourceCallFailed, match="wrong in every way") as failure:
            await source.call("s", "wrong", {}, decline)
        assert type(failure.value) is SourceCallFailed
        assert (await source.call("s", "fail", {}, decline)).is_error
        with pytest.raises(SourceTimedOut):
            await source.call("impatient", "slow", {"text": "0.6"}, decline)
        with pytest.raises(SourceDisconnected):
            await source.call("s", "crash", {}, decline)


@pytest.mark.spec("T-129")
async def test_a_server_that_crashes_is_started_again_three_times(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    slower = replace(QUICK, restart_pauses_s=(0.05, 0.1, 0.15))
    assert LinkTimings().restart_pauses_s == (0.5, 2.0, 8.0)
    server = raw_server("s", tools=["echo", "crash"], pid=str(note))
    async with connected(tmp_path, server, times=slower) as source:
        for crash in (1, 2, 3, 4):
            with pytest.raises(SourceDisconnected):
                await source.call("s", "crash", {}, decline)
            crashed = time.monotonic()
            with pytest.raises(SourceUnavailable):
                await source.call("s", "echo", {}, decline)
            if crash < 4:
                await eventually(lambda: view(source, "s").state == "reconnecting")
                assert [tool.name for tool in view(source, "s").tools] == ["echo", "crash"]
                await eventually(lambda: view(source, "s").state == "connected")
                assert time.monotonic() - crashed >= slower.restart_pauses_s[crash - 1]
                assert text_of(await source.call("s", "echo", {"text": "again"}, decline)) == "again"
        await eventually(lambda: view(source, "s").state == "failed")
        assert view(source, "s").reason == "The connection was lost."
        begun = time.monotonic()
        with pytest.raises(SourceUnavailable):
            await source.call("s", "echo", {}, decline)
        assert time.monotonic() - begun < 1
        assert len(note.read_text().split()) == 4, "one start and three more; no call was repeated"
        source.reload()
        await eventually(lambda: view(source, "s").state == "connected")


async def test_broken_http_server_is_reconnected(tmp_path: Path) -> None:
    statuses = [500, 404]

    def calls(message: dict[str, Any]) -> tuple[int, dict[str, Any] | None]:
        if statuses:
            return statuses.pop(0), None
        return 200, {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": "ok"}]}}

    async with (
        http_server(working(calls)) as url,
        connected(tmp_path, McpServer(name="h", url=url, transport="http")) as source,
    ):
        assert view(source, "h").state == "connected"
        for _ in range(2):
            await eventually(lambda: view(source, "h").state == "connected")
            with pytest.raises(SourceCallFailed):
                await source.call("h", "echo", {}, decline)
            await anyio.sleep(0.1)
        await eventually(lambda: view(source, "h").state == "connected")
        assert text_of(await source.call("h", "echo", {}, decline)) == "ok"


async def test_call_that_was_not_delivered_fails_at_once(tmp_path: Path) -> None:
    statuses = [500]

    def calls(message: dict[str, Any]) -> tuple[int, dict[str, Any] | None]:
        if statuses:
            return statuses.pop(0), None
        return 202, {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": "ok"}]}}

    async with (
        event_server(working(calls)) as url,
        connected(
            tmp_path, McpServer(name="s", url=url, transport="sse"), times=replace(QUICK, call_timeout_s=50)
        ) as source,
    ):
        with anyio.fail_after(10), pytest.raises(SourceDisconnected):
            await source.call("s", "echo", {}, decline)
        await eventually(lambda: view(source, "s").state == "reconnecting")
        await eventually(lambda: view(source, "s").state == "connected")
        assert text_of(await source.call("s", "echo", {}, decline)) == "ok"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("http://example.com/messages", "It wants messages to go to another host."),
        ("", "It does not say where messages go to; is it a server with the transport sse?"),
    ],
)
async def test_messages_are_sent_only_to_the_configured_host(tmp_path: Path, told: str, reason: str) -> None:
    async with (
        event_server(always(202), told) as url,
        connected(tmp_path, McpServer(name="s", url=url, transport="sse")) as source,
    ):
        assert (view(source, "s").state, view(source, "s").reason) == ("failed", reason)


async def test_headers_and_token_go_with_every_request(tmp_path: Path) -> None:
    heads: list[str] = []
    async with http_server(working(lambda message: (404, None)), heads) as url:
        headers = {"X-Key": "${KEY}"}
        place = place_in(tmp_path, {"KEY": "key-value", "TOKEN": "token-value"})
        server = McpServer(name="h", url=url, transport="http", headers=headers, auth="${TOKEN}")
        async with connected(tmp_path, server, place=place) as source:
            assert view(source, "h").state == "connected"
    assert len(heads) >= 3
    for head in heads:
        lines = {name.lower(): value for name, _, value in (line.partition(": ") for line in head.splitlines())}
        assert (lines["x-key"], lines["authorization"]) == ("key-value", "Bearer token-value")


async def test_header_with_invalid_characters_is_refused_without_showing_it(tmp_path: Path) -> None:
    heads: list[str] = []
    async with http_server(working(lambda message: (404, None)), heads) as url:
        near = McpServer(name="s", url=url, transport="http")
        servers = [
            near.model_copy(update={"name": "header", "headers": {"X-Key": "secret-one\nsecret-two"}}),
            near.model_copy(update={"name": "token", "auth": "secret-thrée"}),
            near.model_copy(update={"name": "ended", "auth": "secret-four\n"}),
        ]
        async with connected(tmp_path, *servers) as source:
            told = "of MCP server '{}' has a character that no HTTP header may have."
            assert view(source, "header").reason == f"The header 'X-Key' {told.format('header')}"
            assert view(source, "token").reason == f"The token {told.format('token')}"
            assert view(source, "ended").state == "connected"
    assert "authorization: bearer secret-four\r\n" in heads[0].lower()


async def test_server_refusing_the_handshake_is_asked_with_the_newer_one(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    unknown = {"code": -32022, "message": "unsupported", "data": {"supported": ["2099-01-01"], "requested": "x"}}
    server = raw_server("s", errors={"initialize": unknown, "server/discover": unknown}, pid=str(note))
    async with connected(tmp_path, server) as source:
        assert (view(source, "s").state, view(source, "s").reason) == ("failed", "unsupported")
    assert len(note.read_text().split()) == 2


async def test_a_server_that_knows_only_the_newer_handshake_stays_connected(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    async with connected(tmp_path, raw_server("s", modern=True, pid=str(note))) as source:
        await anyio.sleep(0.2)
        assert view(source, "s").state == "connected"
        assert text_of(await source.call("s", "echo", {"text": "hi"}, decline)) == "hi"
    assert len(note.read_text().split()) == 2, "one start for each handshake"


async def test_lone_surrogate_does_not_end_the_connection(tmp_path: Path) -> None:
    async def answer(wanted: Elicitation) -> ElicitationAnswer:
        return ElicitationAnswer("accept", {"name": "a\ud83db"})

    async with connected(tmp_path, raw_server("s", tools=["echo", "ask"])) as source:
        assert text_of(await source.call("s", "echo", {"text": "a\ud83db"}, decline)) == "a\ufffdb"
        assert text_of(await source.call("s", "ask", {}, answer)) == "accept a\ufffdb"
        assert view(source, "s").state == "connected"


async def test_garbage_and_floods_are_tolerated(tmp_path: Path) -> None:
    garbage = ["hello", '{"jsonrpc": "2.0", ', "[1, 2", "{}", "\x00\x01", '{"jsonrpc":"2.0","id":99,"result":{}}']
    async with connected(tmp_path, raw_server("s", garbage=garbage, noise=3_000_000)) as source:
        assert text_of(await source.call("s", "echo", {"text": "hi"}, decline)) == "hi"
        log = tmp_path / "share" / "logs" / "mcp" / "s.log"
        await eventually((log.parent / "s.log.1").exists)
        assert log.stat().st_size <= MAX_BYTES
        assert (log.parent / "s.log.1").stat().st_size <= MAX_BYTES
        assert {path.name for path in log.parent.iterdir()} == {"s.log", "s.log.1"}


async def test_thousand_tools_are_listed_and_filtered(tmp_path: Path) -> None:
    names = [f"tool_{number}" for number in range(1000)]
    chosen = {"enabled_tools": ("tool_1*", "other"), "disabled_tools": ("tool_11*",)}
    servers = raw_server("all", tools=names), raw_server("some", tools=names, **chosen)
    async with connected(tmp_path, *servers) as source:
        assert [tool.name for tool in view(source, "all").tools] == names
        expected = [name for name in names if name.startswith("tool_1") and not name.startswith("tool_11")]
        assert [tool.name for tool in view(source, "some").tools] == expected


async def test_fifty_megabyte_result_is_received_if_configured(tmp_path: Path) -> None:
    place = replace(place_in(tmp_path), max_message_bytes=64 * 1024 * 1024)
    async with connected(tmp_path, raw_server("s", tools=["big"]), place=place) as source:
        result = await source.call("s", "big", {"text": "50000000"}, decline)
        assert len(text_of(result)) == 50_000_000


@pytest.mark.spec("T-124")
async def test_invalid_tool_is_skipped_and_others_are_offered(tmp_path: Path) -> None:
    deep: JsonObject = {"type": "object"}
    for _ in range(150):
        deep = {"type": "object", "properties": {"a": deep}}
    recursive = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    tools: list[Any] = [
        {"name": "bad", "inputSchema": {"type": "objekt"}},
        {"name": "listed", "inputSchema": {"type": "array"}},
        {"name": "foreign", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}},
        {"name": "pattern", "inputSchema": {"type": "object", "properties": {"a": {"type": 5}}}},
        {"name": "deep", "inputSchema": deep},
        {"name": "required", "inputSchema": {"type": "object", "required": "a"}},
        {"name": "properties", "inputSchema": {"type": "object", "properties": {"a": 5}}},
        {"name": "half a pair \ud800"},
        {"name": "beside", "outputSchema": {"type": "array"}, "icons": 5, "execution": None, "_meta": []},
        {"name": "recursive", "inputSchema": recursive},
        {"name": "untyped", "inputSchema": {"properties": {}}},
        {"name": "twice", "description": "first"},
        {"name": "twice", "description": "second"},
        "echo",
    ]
    async with connected(tmp_path, raw_server("s", tools=tools)) as source:
        found = {tool.name: tool for tool in view(source, "s").tools}
    assert set(found) == {"beside", "recursive", "untyped", "twice", "echo"}
    assert found["twice"].description == "first"
    assert found["untyped"].parameters == {"type": "object", "properties": {}}


async def test_ten_working_servers_connect_beside_ten_broken_ones(tmp_path: Path) -> None:
    good = [raw_server(f"good{number}") for number in range(10)]
    faults: list[dict[str, Any]] = [{"exit": 1}, {"silent": True, "connect_timeout_ms": 1500}]
    bad = [raw_server(f"bad{number}", **faults[number % 2]) for number in range(10)]
    async with connected(tmp_path, *good, *bad) as source:
        states = {server.name: server.state for server in source.servers()}
        assert all(state == ("connected" if name.startswith("good") else "failed") for name, state in states.items())
        results = await asyncio.gather(
            *(source.call(server.name, "echo", {"text": server.name}, decline) for server in good)
        )
        assert [text_of(result) for result in results] == [server.name for server in good]


@pytest.mark.spec("T-130")
async def test_a_server_may_change_its_tools(tmp_path: Path) -> None:
    after = ["new", {"name": "grow", "description": "Another text."}]
    async with connected(tmp_path, raw_server("s", tools=["grow", "old"], tools_after=after)) as source:
        version = source.version
        await source.call("s", "grow", {}, decline)
        await eventually(lambda: [tool.name for tool in view(source, "s").tools] == ["new", "grow"])
        assert view(source, "s").tools[1].description == "Another text."
        assert source.version > version


async def test_call_timeout_pauses_while_questions_are_open(tmp_path: Path) -> None:
    class Asking:
        """A session whose calls ask two questions at once."""

        def __init__(self, elicit: AnswerElicitation) -> None:
            self.lost, self.tools_changed, self._elicit = asyncio.Event(), asyncio.Event(), elicit
            self.refusal: str | None = None

        async def list_tools(self) -> list[SourceTool]:
            return []

        async def call_tool(self, tool: str, arguments: JsonObject) -> ToolReturnValue:
            await asyncio.gather(*(self._elicit(Elicitation(seconds)) for seconds in ("0.01", "0.6")))
            return ToolReturnValue(False, "both", "")

    @asynccontextmanager
    async def open_session(server: McpServer, elicit: AnswerElicitation) -> AsyncGenerator[RemoteSession, None]:
        yield Asking(elicit)

    async def load() -> OpenSession:
        return open_session

    async def answer(wanted: Elicitation) -> ElicitationAnswer:
        await anyio.sleep(float(wanted.message))
        return ElicitationAnswer("decline")

    times = LinkTimings(call_timeout_s=0.3)
    link = ServerLink(McpServer(name="s", command="x"), times, load, lambda server, error: str(error), lambda: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.run)
        await link.first_attempt_done.wait()
        assert (await link.call("t", {}, answer)).output == "both"
        link.stop()


async def test_listed_tools_hide_nothing_from_a_terminal(tmp_path: Path) -> None:
    tools = [{"name": "a\x1b[2J", "description": "clears\x1b[2J\nthe \u202escreen"}]
    found = await list_offered_tools(raw_server("s", tools=tools), place_in(tmp_path))
    assert found == [("a\\x1b[2J", "clears\\x1b[2J\nthe \\u202escreen")]


async def test_sampling_is_refused_and_roots_are_listed(tmp_path: Path) -> None:
    async with connected(tmp_path, raw_server("s", tools=["sample", "roots"])) as source:
        assert "error" in json.loads(text_of(await source.call("s", "sample", {}, decline)))
        roots = json.loads(text_of(await source.call("s", "roots", {}, decline)))
        assert [root["uri"] for root in roots] == [(tmp_path / "work").as_uri(), tmp_path.as_uri()]


def write_server(path: Path, first: str) -> None:
    """Write a server whose first line is `first`."""
    path.write_text(f"import runpy\n{first}\nrunpy.run_path({str(RAW)!r}, run_name='__main__')\n")


@pytest.mark.spec("R-176")
@pytest.mark.parametrize(
    ("options", "is_run"),
    [
        ({}, False),
        ({"cwd": "sub"}, False),
        ({"env": {"PYTHONSAFEPATH": ""}}, True),
        ({"cwd": "../elsewhere"}, True),
    ],
)
async def test_module_of_the_project_runs_only_where_the_configuration_says_so(
    tmp_path: Path, options: dict[str, Any], is_run: bool
) -> None:
    place = place_in(tmp_path)
    for directory in (tmp_path / "work", tmp_path / "work" / "sub", tmp_path / "elsewhere"):
        directory.mkdir(exist_ok=True)
        write_server(directory / "server.py", f"open({str(tmp_path / 'ran')!r}, 'w')")
    server = McpServer(name="s", command=sys.executable, args=("-S", "-m", "server", "{}"), **options)
    async with connected(tmp_path, server, place=place) as source:
        assert view(source, "s").state == ("connected" if is_run else "failed")
    assert (tmp_path / "ran").exists() == is_run


@pytest.mark.spec("R-176")
async def test_script_outside_of_the_project_finds_its_own_modules(tmp_path: Path) -> None:
    (tmp_path / "own_module.py").write_text("")
    write_server(tmp_path / "main.py", "import own_module")
    server = McpServer(name="s", command=sys.executable, args=("-S", str(tmp_path / "main.py"), "{}"))
    async with connected(tmp_path, server) as source:
        assert view(source, "s").state == "connected"


@pytest.mark.spec("R-176")
async def test_program_is_not_looked_for_in_the_directory_it_runs_in(tmp_path: Path) -> None:
    place = place_in(tmp_path, {**os.environ, "PATH": f":.:bin:{os.environ['PATH']}"})
    for fake in ("my-server", "bin/my-server"):
        path = tmp_path / "work" / fake
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        path.chmod(0o755)
    async with connected(tmp_path, McpServer(name="s", command="my-server"), place=place) as source:
        assert view(source, "s").reason == "'my-server' cannot be started: No such file or directory"
    assert not (tmp_path / "ran").exists()


async def test_server_runs_in_its_working_directory(tmp_path: Path) -> None:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    async with connected(
        tmp_path, raw_server("a", tools=["where"]), raw_server("b", tools=["where"], cwd="sub")
    ) as source:
        assert text_of(await source.call("a", "where", {}, decline)) == str(tmp_path / "work")
        assert text_of(await source.call("b", "where", {}, decline)) == str(tmp_path / "work" / "sub")


@pytest.mark.parametrize("moment", ["connecting", "connected", "calling"])
async def test_source_can_end_at_any_moment(tmp_path: Path, moment: str) -> None:
    note = tmp_path / "pids"
    server = raw_server("s", tools=["slow"], stubborn=True, child=True, silent=moment == "connecting", pid=str(note))
    from kimi.application.settings.settings import McpSettings
    from kimi.infrastructure.mcp.tool_source import McpToolSource

    source = McpToolSource(McpSettings(servers=(server,)), place_in(tmp_path), timings=QUICK)
    source.start()
    await eventually(note.exists)
    outcome: list[BaseException] = []
    async with anyio.create_task_group() as tasks:
        if moment != "connecting":
            await source.wait_for_first_connect()
        if moment == "calling":
            tasks.start_soon(_noting, source.call("s", "slow", {}, decline), outcome)
            await anyio.sleep(0.05)
        begun = time.monotonic()
        await source.stop_and_wait(1.0)
        assert time.monotonic() - begun < 3
    assert [type(error) for error in outcome] == [SourceDisconnected] * (moment == "calling")
    (pid,) = [int(line) for line in note.read_text().split()]
    assert comes_true(lambda: not is_alive(pid))


async def _noting(call: Awaitable[ToolReturnValue], outcome: list[BaseException]) -> None:
    try:
        await call
    except SourceCallFailed as error:
        outcome.append(error)


async def test_expanded_secrets_are_registered_for_masking(tmp_path: Path) -> None:
    hidden: list[Collection[str]] = []
    environ = {**os.environ, "TOKEN": "the-token-value"}
    place = place_in(tmp_path, environ, hidden.append)
    server = raw_server("s", tools=["env"], env={"A_KEY": "${TOKEN}", "LEVEL": "1"})
    async with connected(tmp_path, server, place=place) as source:
        environment = json.loads(text_of(await source.call("s", "env", {}, decline)))
        assert environment["A_KEY"] == "the-token-value"
    assert hidden == [{"the-token-value"}]


async def test_no_reason_repeats_a_secret_that_came_from_a_variable(tmp_path: Path) -> None:
    place = place_in(tmp_path, {**os.environ, "TOKEN": "the-token-value"})
    told = {"initialize": {"code": -32603, "message": "the-token-value is refused"}}
    server = raw_server("s", errors=told, env={"A_KEY": "${TOKEN}"})
    async with connected(tmp_path, server, place=place) as source:
        assert (view(source, "s").state, view(source, "s").reason) == ("failed", "*** is refused")


def test_a_log_masks_secrets_and_survives_a_full_disk(tmp_path: Path) -> None:
    log = ServerLog(str(tmp_path / "logs"), "a/b c", ["sec-ret"])
    log.write(b"one sec-")
    log.write(b"ret two\nthree")
    log.close()
    log.write(b"four")
    log.close()
    path = tmp_path / "logs" / "a_b_c.log"
    assert path.read_text() == "one *** two\nthree\nfour\n"
    assert path.stat().st_mode & 0o777 == 0o600
    nowhere = ServerLog("/proc/nowhere", "x")
    nowhere.write(b"lost\n")
    nowhere.close()


def test_a_log_masks_a_secret_in_a_line_without_an_end(tmp_path: Path) -> None:
    log = ServerLog(str(tmp_path), "x", ["sec-ret"])
    for _ in range(3):
        log.write(b"." * 8190 + b"sec-")
        log.write(b"ret")
    log.close()
    text = (tmp_path / "x.log").read_text()
    assert text.count("***") == 3
    assert text.replace("***", "").replace("\n", "").strip(".") == ""
