"""The HTTP client: responses, connections, faults."""

from __future__ import annotations

import asyncio
import gzip
import socket
import subprocess
import sys
from dataclasses import replace

import aiohttp
import anyio
import pytest
from aiohttp.client_reqrep import ConnectionKey

from kimi.domain.errors import ConfigError
from kimi.infrastructure.http.client import HttpClient, HttpError, HttpLimits, HttpTimeout, parse_host
from kimi.infrastructure.http.session import translate_failure
from tests.support.providers.http_servers import answers, get, layer, port_of, tcp_server
from tests.support.providers.provider_server import Reply, error_reply, provider, text_events, text_reply

pytestmark = pytest.mark.anyio


# --- responses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "status", "body"),
    [
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], 200, b"ok"),
        ([b"HTTP/1.1 2", b"00 OK\r\nContent-Le", b"ngth: 2\r\n\r\no", b"k"], 200, b"ok"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n"], 200, b"ok"),
        ([b"HTTP/1.1 200 OK\r\n\r\n", b"o", b"k"], 200, b"ok"),
        ([b"HTTP/1.0 404 No\r\n\r\nok"], 404, b"ok"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], 200, b"ok"),
        ([b"HTTP/1.1 204 Nothing\r\n\r\n"], 204, b""),
        ([b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"ok")], 200, b"ok"),
    ],
)
async def test_valid_responses_are_read(blocks: list[bytes], status: int, body: bytes) -> None:
    async with tcp_server(answers(*blocks)) as port, layer() as http:
        assert await get(http, f"http://127.0.0.1:{port}/") == (status, body)


@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [b"HTTP/1.1 200 OK\r\nContent-Le"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok"],
        [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nnot gzip at all"],
        [b"SSH-2.0-OpenSSH_9.0\r\n"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\nok\r\n", b"zz\r\n"],
    ],
)
async def test_broken_responses_raise(blocks: list[bytes]) -> None:
    async with tcp_server(answers(*blocks)) as port, layer() as http:
        with pytest.raises(HttpError):
            await get(http, f"http://127.0.0.1:{port}/")


async def test_a_large_body_is_sent_whole_and_a_large_answer_waits_for_the_reader() -> None:
    body = bytes(range(256)) * 40_000
    async with provider([Reply(body=body)]) as server, layer() as http:
        async with http.request("POST", server.base_url, [], [b"a", body, b"z"]) as response:
            await anyio.sleep(0.05)
            assert await response.read(1 << 30) == body
        assert server.requests[0].body == b"a" + body + b"z"
        assert server.requests[0].headers["content-length"] == str(len(body) + 2)
        assert "transfer-encoding" not in server.requests[0].headers


async def test_an_early_refusal_is_read_although_the_body_was_not_sent() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Large\r\nContent-Length: 2\r\n\r\nno")
        await asyncio.sleep(5)

    async with tcp_server(refuse) as port, layer() as http:
        assert await get(http, f"http://127.0.0.1:{port}/", bytes(50_000_000)) == (413, b"no")


STALLED = Reply(text_events("a"), fault="stall", fault_after=1)


# --- connections --------------------------------------------------------------------------------------------------


async def test_connection_is_reused_only_after_its_response_ended() -> None:
    async with provider([error_reply(500, "x" * 1000)] * 2 + [STALLED, text_reply("a")]) as server, layer() as http:
        await get(http, server.base_url)
        await get(http, server.base_url)
        assert server.connections == 1
        async with http.request("POST", server.base_url, []) as response:
            assert await response.read_block()
        await server.requests[2].gone.wait()
        await get(http, server.base_url)
        assert server.connections == 2


async def test_released_response_returns_its_connection_after_its_end() -> None:
    slow = replace(text_reply("a"), event_delay_s=0.02)
    async with provider([slow]) as server, layer() as http:
        for _ in range(2):
            async with http.request("POST", server.base_url, []) as response:
                assert await response.read_block()
                response.release()
            await anyio.sleep(0.3)
        assert server.connections == 1


async def test_a_released_answer_that_does_not_end_is_closed_with_the_layer() -> None:
    async with provider([STALLED]) as server:
        async with layer() as http, http.request("POST", server.base_url, []) as response:
            assert await response.read_block()
            response.release()
        with anyio.fail_after(5):
            await server.requests[0].gone.wait()


async def test_released_endless_response_is_dropped_after_a_timeout() -> None:
    async with provider([STALLED]) as server, layer() as http:
        async with http.request("POST", server.base_url, []) as response:
            assert await response.read_block()
            response.release()
        with anyio.fail_after(10):
            await server.requests[0].gone.wait()


async def test_an_old_or_closed_connection_is_not_used_again() -> None:
    async with provider([text_reply("a")]) as server, layer(limits=HttpLimits(idle_s=0)) as http:
        await get(http, server.base_url)
        await anyio.sleep(0.01)
        await get(http, server.base_url)
        assert server.connections == 2
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with tcp_server(answers(ok)) as port, layer() as http:
        for _ in range(2):
            assert await get(http, f"http://127.0.0.1:{port}/") == (200, b"ok")
            await anyio.sleep(0.05)


async def test_closing_the_layer_ends_running_requests() -> None:
    async with provider([Reply(fault="mute")]) as server, layer() as http, anyio.create_task_group() as group:

        async def fails() -> None:
            with pytest.raises(HttpError):
                await get(http, server.base_url)

        group.start_soon(fails)
        await server.asked.wait()
        await http.close()


async def test_connection_attempt_times_out() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with tcp_server(silent) as port, layer(limits=HttpLimits(connect_s=0.1)) as http:
        with pytest.raises(HttpTimeout):
            await get(http, f"https://127.0.0.1:{port}/")


async def test_headers_are_sent_as_given_and_can_name_the_host() -> None:
    async with provider([text_reply("a")]) as server, layer() as http:
        for headers in ([("X-A", "ä")], [("Host", "other")]):
            async with http.request("POST", f"{server.base_url}/x?y=1", headers, [b"{}"]) as response:
                await response.read()
        first, second = server.requests
        assert first.path == "/v1/x?y=1"
        assert first.headers["host"] in server.base_url
        assert first.headers["x-a"].encode("latin-1").decode() == "ä"
        assert second.headers["host"] == "other"


async def test_only_given_headers_are_sent() -> None:
    cookie = Reply(body=b"ok", headers={"Set-Cookie": "a=b"})
    async with provider([cookie]) as server, layer() as http:
        for _ in range(2):
            async with http.request("POST", server.base_url, [("X-A", "b")], [b"{}"]) as response:
                await response.read()
        assert set(server.requests[1].headers) == {"host", "content-length", "x-a"}


async def test_a_redirect_is_not_followed() -> None:
    async with provider([Reply(status=307, body=b"there", headers={"Location": "/other"})]) as server, layer() as http:
        assert await get(http, server.base_url) == (307, b"there")
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("headers", "expected"), [([], "Basic dTpw"), ([("authorization", "Bearer x")], "Bearer x")], ids=["url", "header"]
)
async def test_authorization_header_overrides_url_credentials(headers: list[tuple[str, str]], expected: str) -> None:
    async with provider([text_reply("a")]) as server, layer() as http:
        async with http.request("POST", f"http://u:p@127.0.0.1:{port_of(server)}/", headers) as response:
            await response.read()
        assert server.requests[0].headers["authorization"] == expected


async def test_a_request_that_the_server_does_not_take_ends_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    limits = HttpLimits(connect_s=0.1, send_s=0.1, read_s=0.1)
    async with tcp_server(silent) as port, layer(limits=limits) as http:
        with pytest.raises(HttpTimeout):
            await get(http, f"http://127.0.0.1:{port}/", bytes(50_000_000))


async def test_cancelling_before_the_answer_closes_the_connection() -> None:
    async with provider([Reply(fault="mute")]) as server, layer() as http:
        with anyio.move_on_after(0.1) as scope:
            await get(http, server.base_url)
        assert scope.cancelled_caught
        with anyio.fail_after(5):
            await server.requests[0].gone.wait()


@pytest.mark.parametrize("host", ["a" * 70 + ".example", "a..b", "127.1"])
async def test_invalid_host_raises(host: str) -> None:
    async with layer() as http:
        with pytest.raises(HttpError):
            await get(http, f"http://{host}/")


async def test_refused_connection_has_a_readable_message() -> None:
    async with tcp_server(answers()) as port:
        closed = port
    for environ, text in (
        ({}, "cannot connect: "),
        ({"ALL_PROXY": f"127.0.0.1:{closed}"}, "cannot connect to the pro"),
    ):
        async with layer(environ) as http:
            with pytest.raises(HttpError, match=text + ".*Connection refused"):
                await get(http, f"http://127.0.0.1:{closed}/")


def test_unresolved_name_error_contains_the_host() -> None:
    key = ConnectionKey("proxy.test", 80, False, True, None, None, None)
    error = aiohttp.ClientConnectorDNSError(key, socket.gaierror(-2, "Name or service not known"))
    assert (
        str(translate_failure(error, HttpLimits())) == "the host proxy.test cannot be found: Name or service not known"
    )


def run_python(code: str) -> None:
    """Run code in a process of its own; it must end well."""
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


def test_nothing_is_imported_before_it_is_needed() -> None:
    run_python("""
import sys
from kimi.application.settings.settings import ModelSettings
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.provider_types import open_model
http = HttpClient({})
settings = ModelSettings(provider_name="p", type="kimi", model="m", base_url="http://127.0.0.1:1")
open_model(settings, "s", http, lambda: "", {})
assert not {"aiohttp", "ssl", "aiohttp_socks"} & set(sys.modules)
http.warm("http://127.0.0.1:1")
assert "aiohttp" in sys.modules
assert "aiohttp_socks" not in sys.modules
""")


def test_without_the_extra_a_socks_proxy_is_refused_with_its_name() -> None:
    run_python("""
import sys
sys.modules["aiohttp_socks"] = None  # as if it were not installed
from kimi.domain.errors import ConfigError
from kimi.infrastructure.http.client import HttpClient
http = HttpClient({"ALL_PROXY": "socks5://127.0.0.1:1"})
try:
    http.warm("http://127.0.0.1:1")
except ConfigError as error:
    assert "aiohttp-socks is missing" in str(error)
else:
    raise AssertionError
""")


def test_repeated_warming_is_allowed() -> None:
    http = HttpClient({})
    http.warm("https://a")
    http.warm()


@pytest.mark.parametrize(
    "url", ["", "http://", "ftp://a", "http://a b/", "http://a/\r\nX: y", "http://a:99999/", "http://[::1/"]
)
def test_unusable_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        parse_host(url)
