"""What every `ToolSource` must do (tools spec 4), over servers of several kinds and the fake."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

from kimi.application.ports import (
    Elicitation,
    ElicitationAnswer,
    SourceCallFailed,
    SourceTimedOut,
    SourceUnavailable,
    ToolSource,
)
from kimi.application.settings.settings import McpServer
from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import TextPart
from kimi.domain.tools.tool import ToolReturnValue
from tests.support.mcp.entries import raw_server
from tests.support.mcp.fake_source import Elicit, FakeServer, FakeToolSource
from tests.support.mcp.stage import connected, decline, text_of, view
from tests.support.program.pace import slowdown

pytestmark = pytest.mark.anyio

TOOLS = ["echo", "fail", "slow", "ask"]
IN_MEMORY = ["fastmcp-legacy", "fastmcp-auto", "mcp-legacy", "mcp-auto"]
KINDS = ["fake", "stdio", "http", "sse", *IN_MEMORY]
ASKING = ["fake", "stdio", "http", "sse", "fastmcp-legacy", "mcp-legacy"]
"""Those where a server may ask of itself: over the newer handshake it may not."""


def said(text: str, *, is_error: bool = False) -> ToolReturnValue:
    """A result of one text."""
    return ToolReturnValue(is_error, (TextPart(text),), "")


async def _echo(arguments: JsonObject, elicit: Elicit) -> ToolReturnValue:
    return said(str(arguments.get("text", "")))


async def _fail(arguments: JsonObject, elicit: Elicit) -> ToolReturnValue:
    return said("it went wrong", is_error=True)


async def _slow(arguments: JsonObject, elicit: Elicit) -> ToolReturnValue:
    with anyio.move_on_after(1.5):
        await anyio.sleep(float(arguments.get("text", "30")))
        return said(str(arguments["text"]))
    raise SourceTimedOut


async def _ask(arguments: JsonObject, elicit: Elicit) -> ToolReturnValue:
    answer = await elicit(Elicitation("Who are you?", {"properties": {"name": {"type": "string"}}}))
    return said(" ".join([answer.action, *(answer.content or {}).values()]))


def fake() -> FakeToolSource:
    """The fake with the tools of the suite."""
    tools = {"echo": _echo, "fail": _fail, "slow": _slow, "ask": _ask}
    return FakeToolSource({"s": FakeServer(tools), "dead": FakeServer({}, "failed", "It is dead.")})


@asynccontextmanager
async def source_of(kind: str, directory: Path, call_timeout_ms: int = 60_000) -> AsyncGenerator[ToolSource, None]:
    """A source of that kind with the servers `s` and `dead`, settled. Slow calls of the fake have 1.5 s."""
    dead = McpServer(name="dead", command="no-such-program")
    if kind == "fake":
        source = fake()
        source.start()
        yield source
    elif kind == "stdio":
        async with connected(directory, raw_server("s", tools=TOOLS, timeout_ms=call_timeout_ms), dead) as source:
            yield source
    else:
        from fastmcp.client.transports import FastMCPTransport

        from tests.support.mcp.library_server import over_http, with_bare_mcp, with_fastmcp

        server = with_bare_mcp() if kind.startswith("mcp") else with_fastmcp()
        near = McpServer(name="s", url="http://127.0.0.1:9/mcp", transport="http", timeout_ms=call_timeout_ms)
        if kind in ("http", "sse"):
            async with over_http(with_fastmcp(), kind) as url:
                near = near.model_copy(update={"url": url, "transport": kind})
                async with connected(directory, near, dead) as source:
                    yield source
            return

        def way(wanted: McpServer) -> FastMCPTransport | None:
            return FastMCPTransport(server) if wanted.name == "s" else None

        async with connected(directory, near, dead, transport=way, modes=[kind.partition("-")[2]]) as source:
            yield source


@pytest.fixture(params=KINDS)
async def source(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[ToolSource, None]:
    """Every kind in turn."""
    async with source_of(request.param, tmp_path) as made:
        yield made


@pytest.mark.spec("T-140")
async def test_a_server_is_connected_and_another_has_failed(source: ToolSource) -> None:
    assert [server.name for server in source.servers()] == ["s", "dead"]
    good, dead = view(source, "s"), view(source, "dead")
    assert (good.state, good.reason) == ("connected", "")
    assert [(tool.name, tool.description) for tool in good.tools] == [(name, f"Does {name}.") for name in TOOLS]
    assert all(tool.server == "s" and tool.parameters["type"] == "object" for tool in good.tools)
    assert (dead.state, dead.tools) == ("failed", ())
    assert dead.reason


@pytest.mark.spec("T-140")
async def test_calls_return_results_or_errors(source: ToolSource) -> None:
    assert await source.call("s", "echo", {"text": "ünï"}, decline) == said("ünï")
    failed = await source.call("s", "fail", {}, decline)
    assert failed.is_error
    assert "it went wrong" in text_of(failed)


async def test_a_result_may_be_long(source: ToolSource) -> None:
    text = "ü" * 1024 * 1024
    assert await source.call("s", "echo", {"text": text}, decline) == said(text)
    assert await source.call("s", "echo", {"text": "still there"}, decline) == said("still there")


@pytest.mark.spec("T-140")
async def test_calls_run_side_by_side(source: ToolSource, request: pytest.FixtureRequest) -> None:
    if "stdio" in request.node.name:
        return  # one thread serves there
    is_slow_over = False

    async def call_slow() -> None:
        nonlocal is_slow_over
        with suppress(SourceTimedOut):  # the fake's
            await source.call("s", "slow", {"text": "30"}, decline)
        is_slow_over = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call_slow)
        await anyio.sleep(0.1)
        with anyio.fail_after(20):
            assert await source.call("s", "echo", {"text": "quick"}, decline) == said("quick")
        assert not is_slow_over
        tasks.cancel_scope.cancel()


@pytest.mark.spec("T-140")
@pytest.mark.parametrize("kind", KINDS)
async def test_call_raises_after_its_timeout(kind: str, tmp_path: Path) -> None:
    async with source_of(kind, tmp_path, 500) as source:
        with anyio.fail_after(10), pytest.raises(SourceTimedOut):
            await source.call("s", "slow", {"text": "2"}, decline)
        assert view(source, "s").state == "connected"


@pytest.mark.spec("T-140")
async def test_a_cancelled_call_leaves_the_connection(source: ToolSource) -> None:
    with anyio.move_on_after(0.1):
        await source.call("s", "slow", {"text": "0.4"}, decline)
    assert view(source, "s").state == "connected"
    with anyio.fail_after(10):  # over stdio one thread serves, which is still busy
        assert await source.call("s", "echo", {"text": "still"}, decline) == said("still")


@pytest.mark.spec("T-140")
async def test_call_to_unconnected_server_raises(source: ToolSource) -> None:
    for name in ("dead", "unknown"):
        with pytest.raises(SourceUnavailable):
            await source.call(name, "echo", {}, decline)


@pytest.mark.spec("T-140")
@pytest.mark.parametrize("kind", ASKING)
async def test_a_server_may_ask_during_a_call(kind: str, tmp_path: Path) -> None:
    asked: list[Elicitation] = []

    async def answer(wanted: Elicitation) -> ElicitationAnswer:
        asked.append(wanted)
        await anyio.sleep(2.2)  # longer than the call may take: the person's time does not count
        return ElicitationAnswer("accept", {"name": "Ada"})

    async with source_of(kind, tmp_path, 2000) as source:
        assert text_of(await source.call("s", "ask", {}, answer)) == "accept Ada"
        assert [wanted.message for wanted in asked] == ["Who are you?"]
        assert asked[0].schema is not None
        assert list(asked[0].schema["properties"]) == ["name"]
        assert text_of(await source.call("s", "ask", {}, decline)) == "decline"


@pytest.mark.spec("T-140")
async def test_reload_replaces_the_servers(source: ToolSource) -> None:
    before = source.version
    source.reload([McpServer(name="new", command="no-such-program")])
    await source.wait_for_first_connect()
    assert source.version > before
    assert [server.name for server in source.servers()] == ["new"]
    with pytest.raises(SourceUnavailable):
        await source.call("s", "echo", {}, decline)


@pytest.mark.spec("T-140")
async def test_ended_source_refuses_calls_and_end_is_repeatable(source: ToolSource) -> None:
    patience_s = slowdown()  # a second on a quiet machine
    source.request_stop()
    source.request_stop()
    await source.stop_and_wait(3)
    await source.stop_and_wait(3)
    source.start()
    source.reload([McpServer(name="s", command="no-such-program")])
    with anyio.fail_after(patience_s):
        await source.wait_for_first_connect()
    with pytest.raises(SourceCallFailed):
        await source.call("s", "echo", {}, decline)


async def test_before_the_start_everything_is_pending(tmp_path: Path) -> None:
    from kimi.application.settings.settings import McpSettings
    from kimi.infrastructure.mcp.tool_source import McpToolSource
    from tests.support.mcp.stage import place_in

    real = McpToolSource(McpSettings(servers=(raw_server("s"), raw_server("dead"))), place_in(tmp_path))
    for source in (fake(), real):
        assert [server.state for server in source.servers()] == ["pending", "pending"]
        with pytest.raises(SourceUnavailable):
            await source.call("s", "echo", {}, decline)
    await real.stop_and_wait(1)
    real.start()
    assert [server.state for server in real.servers()] == ["pending", "pending"]


@pytest.mark.parametrize("kind", ["fake", "real"])
async def test_waiting_for_servers_ends_with_the_source(kind: str, tmp_path: Path) -> None:
    source: ToolSource
    if kind == "fake":
        source = fake()
        source.hold = anyio.Event()
    else:
        from kimi.application.settings.settings import McpSettings
        from kimi.infrastructure.mcp.tool_source import McpToolSource
        from tests.support.mcp.stage import place_in

        source = McpToolSource(McpSettings(servers=(raw_server("s", silent=True),)), place_in(tmp_path))
    source.start()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(source.wait_for_first_connect)
            await anyio.sleep(0.05)
            source.request_stop()
        await source.wait_for_first_connect()
        await source.stop_and_wait(3)
