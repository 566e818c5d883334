"""MCP servers that attack their client: each attack costs bounded memory and ends with a reason (tools spec 4.9)."""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from kimi.application.ports import Elicitation, ElicitationAnswer, SourceAnswerRefused, SourceTimedOut
from kimi.application.settings.settings import McpServer
from kimi.domain.tools.tool import ToolReturnValue
from kimi.infrastructure.http.json_limits import MAX_VALUES
from kimi.infrastructure.mcp.transport.lenient import MAX_LISTED_TOOLS
from kimi.infrastructure.mcp.transport.server_log import MAX_BYTES
from tests.support.mcp.hostile_http import byte_server, response_head, session_answer
from tests.support.mcp.logins import log_in
from tests.support.mcp.stage import QUICK, connected, decline, text_of, view
from tests.support.program.memory import peak_growth
from tests.support.program.processes import comes_true

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).parents[2] / "support" / "mcp" / "hostile_server.py"
MIB = 1024 * 1024
TOO_LARGE = "It sent a message of more than 16 MiB."
TOO_MANY = f"It sent a message of more than {MAX_VALUES} values."
TOO_LONG = "It sent a message of more than 100000 lines."
TOO_DEEP = "It sent a message nested too deeply."


def hostile(timeout_ms: int = 20_000, **options: object) -> McpServer:
    """Return the entry of the hostile server."""
    arguments = ("-S", str(PROGRAM), json.dumps(options))
    return McpServer(name="s", command=sys.executable, args=arguments, timeout_ms=timeout_ms)


async def eventually(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until `condition` is true; fails when it does not become so."""
    assert await anyio.to_thread.run_sync(comes_true, condition, seconds)


@pytest.mark.spec("R-220")
@pytest.mark.parametrize(
    ("tool", "size", "reason"),
    [
        ("text", 24 * MIB, TOO_LARGE),
        ("endless", 0, TOO_LARGE),
        ("wide", 15 * MIB, TOO_MANY),
        ("blocks", 15 * MIB, TOO_MANY),
        ("deep", 100_000, TOO_DEEP),
    ],
)
async def test_refused_message_ends_its_call_and_link_with_a_reason(
    tmp_path: Path, tool: str, size: int, reason: str
) -> None:
    async with connected(tmp_path, hostile()) as source:
        await source.call("s", "echo", {}, decline)
        with peak_growth() as growth:
            with pytest.raises(SourceAnswerRefused) as refused:
                await source.call("s", tool, {"size": size}, decline)
            await eventually(lambda: view(source, "s").state != "connected")
        assert str(refused.value) == view(source, "s").reason == reason
        assert growth.mebibytes < 100
        await eventually(lambda: view(source, "s").state == "connected")
        assert text_of(await source.call("s", "echo", {}, decline)) == "done"


async def test_long_text_within_the_limit_arrives_at_bounded_cost(tmp_path: Path) -> None:
    async with connected(tmp_path, hostile()) as source:
        await source.call("s", "echo", {}, decline)
        with peak_growth() as growth:
            result = await source.call("s", "text", {"size": 15 * MIB}, decline)
        assert len(text_of(result)) > 15 * MIB
        assert growth.mebibytes < 150


async def test_dripping_line_ends_with_the_timeout_of_the_call(tmp_path: Path) -> None:
    async with connected(tmp_path, hostile(timeout_ms=300)) as source:
        with pytest.raises(SourceTimedOut):
            await source.call("s", "drip", {}, decline)


@pytest.mark.spec("R-221")
@pytest.mark.parametrize(("listing", "offered"), [("many", 2000), ("pages", 2000), ("loop", 13), ("huge", 13)])
async def test_list_of_tools_without_an_end_is_cut(tmp_path: Path, listing: str, offered: int) -> None:
    with peak_growth() as growth:
        async with connected(tmp_path, hostile(listing=listing, count=20_000)) as source:
            assert view(source, "s").state == "connected"
            assert len(view(source, "s").tools) == offered <= MAX_LISTED_TOOLS
    assert growth.mebibytes < 200  # the library itself may be loaded meanwhile


async def test_million_tools_in_one_message_are_refused_with_a_reason(tmp_path: Path) -> None:
    async with connected(tmp_path, hostile(listing="many", count=1_000_000)) as source:
        assert (view(source, "s").state, view(source, "s").reason) == ("failed", TOO_LARGE)


async def test_flood_of_errors_is_kept_to_the_size_of_the_log(tmp_path: Path) -> None:
    async with connected(tmp_path, hostile()) as source:
        with peak_growth() as growth:
            await source.call("s", "errors", {"size": 100 * MIB}, decline)
        assert growth.mebibytes < 50
    logs = tmp_path / "share" / "logs" / "mcp"
    assert all(path.stat().st_size <= MAX_BYTES for path in logs.iterdir())
    assert {path.name for path in logs.iterdir()} == {"s.log", "s.log.1"}


@pytest.mark.parametrize(("tool", "size"), [("changes", 20_000), ("notes", 20_000), ("garbage", 15 * MIB)])
async def test_flood_of_notifications_leaves_the_loop_free(tmp_path: Path, tool: str, size: int) -> None:
    async with connected(tmp_path, hostile(timeout_ms=60_000)) as source:
        await source.call("s", "echo", {}, decline)
        longest = 0.0

        async def watch() -> None:
            nonlocal longest
            while True:
                begun = time.monotonic()
                await anyio.sleep(0.01)
                longest = max(longest, time.monotonic() - begun)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            with peak_growth() as growth:
                assert text_of(await source.call("s", tool, {"size": size}, decline)) == "done"
            assert growth.mebibytes < 100
            tasks.cancel_scope.cancel()
        assert longest < 2
        assert view(source, "s").state == "connected"


async def test_flood_of_questions_asks_the_user_four_at_a_time(tmp_path: Path) -> None:
    at_once = most = 0

    async def answer(wanted: Elicitation) -> ElicitationAnswer:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await anyio.sleep(0.2)
        at_once -= 1
        return ElicitationAnswer("decline")

    async with connected(tmp_path, hostile()) as source:
        assert text_of(await source.call("s", "questions", {"size": 1000}, answer)) == "done"
    assert most == 4


async def test_server_that_reads_no_answer_is_given_up(tmp_path: Path) -> None:
    async with connected(tmp_path, hostile(timeout_ms=60_000)) as source:
        with peak_growth() as growth:
            call = source.call("s", "requests", {}, decline)
            await _expect_refusal(call, "It does not read what it is sent.")
        assert growth.mebibytes < 250


async def _expect_refusal(call: Awaitable[ToolReturnValue], reason: str) -> None:
    with pytest.raises(SourceAnswerRefused) as refused:
        await call
    assert str(refused.value) == reason


async def _endless(block: bytes) -> AsyncIterator[bytes]:
    while True:
        yield block


@pytest.mark.spec("R-222")
@pytest.mark.parametrize(
    ("kind", "begin", "block", "reason"),
    [
        ("application/json", b'{"a":"', b"x" * 65_536, TOO_LARGE),
        ("application/json", b'{"a":[', b"0," * 32_768, TOO_LARGE),
        ("text/event-stream", b"data: ", b"x" * 65_536, TOO_LARGE),
        ("text/event-stream", b"data: x\n", b"data: x\n" * 8192, TOO_LONG),
        ("text/event-stream", b"data: x\r", b"data: x\r" * 8192, TOO_LONG),
        ("text/event-stream", b"data: x\r\n", b"data: x\r\n" * 8000, TOO_LONG),
        ("text/event-stream", b"", b"data: [\r" + b"data: 0,\r" * 10_000, TOO_LONG),
    ],
)
async def test_endless_body_ends_its_call_with_a_reason(
    tmp_path: Path, kind: str, begin: bytes, block: bytes, reason: str
) -> None:
    async def answer(path: str, message: dict[str, Any] | None) -> AsyncIterator[bytes]:
        begun = session_answer(message)
        if begun is not None:
            yield begun
            return
        yield response_head(kind=kind) + begin
        async for more in _endless(block):
            yield more

    async with (
        byte_server(answer) as url,
        connected(tmp_path, McpServer(name="s", url=url, transport="http"), times=QUICK) as source,
    ):
        with peak_growth() as growth, pytest.raises(SourceAnswerRefused) as refused:
            await source.call("s", "echo", {}, decline)
        assert str(refused.value) == reason
        assert growth.mebibytes < 100


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_body_of_too_many_values_is_refused_unparsed(tmp_path: Path, kind: str) -> None:
    async def answer(path: str, message: dict[str, Any] | None) -> AsyncIterator[bytes]:
        begun = session_answer(message)
        if begun is not None:
            yield begun
            return
        before, after = (b"data: ", b"\n\n") if kind == "text/event-stream" else (b"", b"")
        yield response_head(kind=kind) + before + b'{"jsonrpc":"2.0","id":9,"result":{"a":['
        for _ in range(200):
            yield b"{}," * 21_845
        yield b"0]}}" + after

    async with (
        byte_server(answer) as url,
        connected(tmp_path, McpServer(name="s", url=url, transport="http")) as source,
    ):
        with peak_growth() as growth, pytest.raises(SourceAnswerRefused) as refused:
            await source.call("s", "echo", {}, decline)
        assert str(refused.value) == TOO_MANY
        assert growth.mebibytes < 100


async def test_compressed_body_is_measured_after_decompression(tmp_path: Path) -> None:
    bomb = gzip.compress(b'{"a":"' + b"x" * (200 * MIB))

    async def answer(path: str, message: dict[str, Any] | None) -> AsyncIterator[bytes]:
        begun = session_answer(message)
        yield begun if begun is not None else response_head(more={"Content-Encoding": "gzip"}) + bomb

    async with (
        byte_server(answer) as url,
        connected(tmp_path, McpServer(name="s", url=url, transport="http")) as source,
    ):
        with peak_growth() as growth, pytest.raises(SourceAnswerRefused) as refused:
            await source.call("s", "echo", {}, decline)
        assert str(refused.value) == TOO_LARGE
        assert growth.mebibytes < 100


async def test_compressed_answer_is_understood(tmp_path: Path) -> None:
    async def answer(path: str, message: dict[str, Any] | None) -> AsyncIterator[bytes]:
        begun = session_answer(message)
        if begun is not None or message is None:
            yield begun or b""
            return
        result = {"content": [{"type": "text", "text": "small"}]}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        yield response_head(more={"Content-Encoding": "gzip"}) + gzip.compress(body)

    async with (
        byte_server(answer) as url,
        connected(tmp_path, McpServer(name="s", url=url, transport="http")) as source,
    ):
        assert text_of(await source.call("s", "echo", {}, decline)) == "small"


async def test_endless_body_of_the_older_transport_is_refused(tmp_path: Path) -> None:
    async def answer(path: str, message: dict[str, Any] | None) -> AsyncIterator[bytes]:
        yield response_head(kind="text/event-stream") + b"event: endpoint\ndata: /messages\n\ndata: "
        async for more in _endless(b"x" * 65_536):
            yield more

    server = "s"
    async with byte_server(answer) as url:
        with peak_growth() as growth:
            async with connected(tmp_path, McpServer(name=server, url=url, transport="sse")) as source:
                assert (view(source, server).state, view(source, server).reason) == ("failed", TOO_LARGE)
    assert growth.mebibytes < 150  # the library itself may be loaded meanwhile


@pytest.mark.parametrize("place", ["/.well-known/", "/token"])
async def test_answer_about_a_login_without_an_end_is_refused(tmp_path: Path, place: str) -> None:
    origin, asked = "", list[str]()

    async def answer(path: str, message: dict[str, Any] | None) -> AsyncIterator[bytes]:
        asked.append(path)
        if path.startswith(place):
            yield response_head(kind="text/event-stream") + b'{"a":"'
            async for more in _endless(b"x" * 65_536):
                yield more
        elif path.startswith("/.well-known/"):
            named = {
                "authorization_endpoint": "/authorize",
                "token_endpoint": "/token",
                "registration_endpoint": "/register",
            }
            known = {"issuer": origin, "resource": f"{origin}/mcp", "authorization_servers": [origin]}
            yield response_head() + json.dumps(known | {key: origin + at for key, at in named.items()}).encode()
        else:
            yield response_head(401)

    async with byte_server(answer) as url:
        origin = url.removesuffix("/mcp")
        await log_in(str(tmp_path / "share"), url, "old", "refresh", 1.0)
        server = McpServer(name="s", url=url, transport="http", auth="oauth")
        with peak_growth() as growth:
            async with connected(tmp_path, server) as source:
                assert view(source, "s").state in ("failed", "unauthorized")
                assert view(source, "s").reason
        assert any(path.startswith(place) for path in asked)
        assert growth.mebibytes < 150  # the library itself may be loaded meanwhile


async def test_streams_that_end_at_once_are_not_opened_without_a_limit(tmp_path: Path) -> None:
    opened = 0

    async def answer(path: str, message: dict[str, Any] | None) -> AsyncIterator[bytes]:
        nonlocal opened
        opened += message is None
        begun = None if message is None else session_answer(message)
        yield begun or response_head(kind="text/event-stream") + b"id: 1\nretry: 0\ndata: \n\n"

    server = McpServer(name="s", transport="http", timeout_ms=2000)
    async with (
        byte_server(answer) as url,
        connected(tmp_path, server.model_copy(update={"url": url})) as source,
    ):
        with pytest.raises(SourceTimedOut):
            await source.call("s", "echo", {}, decline)
        assert opened < 20
