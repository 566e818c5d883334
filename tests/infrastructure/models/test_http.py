"""The HTTP client: connections, proxies, TLS, faults."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import anyio
import pytest

from kimi.domain.errors import ConfigError
from kimi.infrastructure.models.http import HttpError, HttpLayer, HttpLimits, HttpTimeout, checked_host, tls_context
from kimi.infrastructure.models.proxy import checked_proxy, proxy_for
from tests.provider_server import ProviderServer, Recorded, Reply, error_reply, provider, text_events, text_reply

pytestmark = pytest.mark.anyio

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

# A certificate for localhost with its key, made for these tests only; valid for a hundred years.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBnDCCAUGgAwIBAgIUR+7+cHs6cHCveJ/SV2lVIBAuBd8wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTEyMTM0MFoYDzIxMjYxMDI4
MTIxMzQwWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARM3TnyUqx2CyDQHWs98cye5xLJtKBI6QNeYahlycJIha0KV2UvqYTx
+dZC1uCmcGoL9bYssYf+H32rNa1Qdy7Yo28wbTAdBgNVHQ4EFgQU+ei2PVht2CvA
Xz0XCGR1qYPylu4wHwYDVR0jBBgwFoAU+ei2PVht2CvAXz0XCGR1qYPylu4wDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSQAwRgIhAIAY78ZQ8gbqSeLTGJkVdmqok9pq9hcWH1omjcdti2lMAiEA
tf2AU3IayHcjL/I+7Z1HVs3dMr4qAJbe8BB8Rab5hfE=
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg9llttMtbQSfk0Tkx
CkpSS91yk191RNBAum+XKktwv+qhRANCAARM3TnyUqx2CyDQHWs98cye5xLJtKBI
6QNeYahlycJIha0KV2UvqYTx+dZC1uCmcGoL9bYssYf+H32rNa1Qdy7Y
-----END PRIVATE KEY-----
"""


@asynccontextmanager
async def tcp_server(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    """A server of one's own; gives its port."""
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
    """Reads one request and writes the blocks, a moment apart."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for block in blocks:
            writer.write(block)
            await writer.drain()
            await asyncio.sleep(0.01)

    return serve


@asynccontextmanager
async def layer(environ: dict[str, str] | None = None, limits: HttpLimits | None = None) -> AsyncGenerator[HttpLayer]:
    http = HttpLayer(environ or {}, limits)
    try:
        yield http
    finally:
        await http.close()


async def get(http: HttpLayer, url: str, body: bytes = b"") -> tuple[int, bytes]:
    async with http.request("POST", url, [], [body]) as response:
        return response.status, await response.read(1 << 30)


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
async def test_responses(blocks: list[bytes], status: int, body: bytes) -> None:
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
async def test_broken_responses(blocks: list[bytes]) -> None:
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


async def test_a_connection_serves_again_only_after_its_answer_has_come() -> None:
    async with provider([error_reply(500, "x" * 1000)] * 2 + [STALLED, text_reply("a")]) as server, layer() as http:
        await get(http, server.base_url)
        await get(http, server.base_url)
        assert server.connections == 1
        async with http.request("POST", server.base_url, []) as response:
            assert await response.block()
        await server.requests[2].gone.wait()
        await get(http, server.base_url)
        assert server.connections == 2


async def test_a_released_answer_gives_its_connection_back_once_it_has_ended() -> None:
    slow = replace(text_reply("a"), event_delay_s=0.02)
    async with provider([slow]) as server, layer() as http:
        for _ in range(2):
            async with http.request("POST", server.base_url, []) as response:
                assert await response.block()
                response.release()
            await anyio.sleep(0.3)
        assert server.connections == 1


async def test_a_released_answer_that_does_not_end_is_closed_with_the_layer() -> None:
    async with provider([STALLED]) as server:
        async with layer() as http, http.request("POST", server.base_url, []) as response:
            assert await response.block()
            response.release()
        with anyio.fail_after(5):
            await server.requests[0].gone.wait()


async def test_a_released_answer_that_does_not_end_is_given_up_in_the_end() -> None:
    async with provider([STALLED]) as server, layer() as http:
        async with http.request("POST", server.base_url, []) as response:
            assert await response.block()
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


async def test_closing_the_layer_ends_what_is_running() -> None:
    async with provider([Reply(fault="mute")]) as server, layer() as http, anyio.create_task_group() as group:

        async def fails() -> None:
            with pytest.raises(HttpError):
                await get(http, server.base_url)

        group.start_soon(fails)
        await server.asked.wait()
        await http.close()


async def test_a_connection_that_is_not_made_in_time() -> None:
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


async def test_nothing_is_sent_that_was_not_asked_for() -> None:
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
async def test_a_header_says_more_about_the_user_than_the_address(
    headers: list[tuple[str, str]], expected: str
) -> None:
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
async def test_a_host_that_cannot_exist(host: str) -> None:
    async with layer() as http:
        with pytest.raises(HttpError):
            await get(http, f"http://{host}/")


async def test_a_refused_connection_is_told_in_plain_words() -> None:
    async with tcp_server(answers()) as port:
        closed = port
    for environ, text in (
        ({}, "cannot connect: "),
        ({"ALL_PROXY": f"127.0.0.1:{closed}"}, "cannot connect to the pro"),
    ):
        async with layer(environ) as http:
            with pytest.raises(HttpError, match=text + ".*Connection refused"):
                await get(http, f"http://127.0.0.1:{closed}/")


def run_python(code: str) -> None:
    """Run code in a process of its own; it must end well."""
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


def test_nothing_is_imported_before_it_is_needed() -> None:
    run_python("""
import sys
from kimi.application.settings import ModelSettings
from kimi.infrastructure.models.http import HttpLayer
from kimi.infrastructure.models.open import open_model
http = HttpLayer({})
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
from kimi.infrastructure.models.http import HttpLayer
http = HttpLayer({"ALL_PROXY": "socks5://127.0.0.1:1"})
try:
    http.warm("http://127.0.0.1:1")
except ConfigError as error:
    assert "kimi-wire[socks]" in str(error)
else:
    raise AssertionError
""")


# --- proxies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "url", "expected"),
    [
        ({}, "http://a", None),
        ({"http_proxy": "http://p:1"}, "http://a", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, "http://a", "http://p:1"),
        ({"http_proxy": "http://low:1", "HTTP_PROXY": "http://up:1"}, "http://a", "http://low:1"),
        ({"HTTPS_PROXY": "p:1"}, "https://a", "http://p:1"),
        ({"HTTPS_PROXY": "p:1"}, "http://a", None),
        ({"ALL_PROXY": "http://p/"}, "http://a", "http://p:80"),
        ({"ALL_PROXY": "socks://p"}, "https://a", "socks5://p:1080"),
        ({"ALL_PROXY": "SOCKS4a://p"}, "https://a", "socks4://p:1080"),
        ({"all_proxy": "socks5h://u:p%40w@p:9"}, "http://a", "socks5://u:p%40w@p:9"),
        ({"ALL_PROXY": "https://p"}, "http://a", "https://p:443"),
        ({"ALL_PROXY": "http://[::1]"}, "http://a", "http://[::1]:80"),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "*"}, "http://a", None),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "b, a.example"}, "http://a.example", None),
        ({"ALL_PROXY": "p:1", "no_proxy": "example"}, "http://a.example", None),
        ({"ALL_PROXY": "p:1", "no_proxy": ".example"}, "http://a.example", None),
        ({"ALL_PROXY": "p:1", "no_proxy": "*.example"}, "http://A.Example", None),
        ({"ALL_PROXY": "p:1", "no_proxy": "ample"}, "http://a.example", "http://p:1"),
        ({"ALL_PROXY": "p:1", "no_proxy": "a:81"}, "http://a", "http://p:1"),
        ({"ALL_PROXY": "p:1", "no_proxy": "a:80"}, "http://a", None),
        ({"ALL_PROXY": "p:1", "no_proxy": "10.0.0.0/8"}, "http://10.2.3.4", None),
        ({"ALL_PROXY": "p:1", "no_proxy": "10.0.0.0/8"}, "http://name", "http://p:1"),
        ({"ALL_PROXY": "p:1", "no_proxy": "::1"}, "http://[::1]:8", None),
        ({"ALL_PROXY": "p:1", "no_proxy": "[::1]"}, "http://[::1]:8", None),
        ({"ALL_PROXY": "p:1", "no_proxy": ""}, "http://a", "http://p:1"),
    ],
)
def test_the_proxy_of_the_environment(environ: dict[str, str], url: str, expected: str | None) -> None:
    assert proxy_for(url, environ) == expected


@pytest.mark.parametrize("url", ["ftp://secret@p", "http://", "http://p:x", "://p"])
def test_unusable_proxies_are_refused_without_showing_them(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        checked_proxy(url)
    assert "secret" not in str(raised.value)


def socks_server(target: int, replies: dict[str, bytes] | None = None, seen: list[bytes] | None = None) -> Serve:
    """A SOCKS5 proxy that leads every connection to the port `target` of this machine."""

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
    """An HTTP proxy that knows CONNECT only."""

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
    return urlsplit(server.base_url).port or 0


async def test_through_a_socks_proxy_names_are_resolved_there() -> None:
    seen: list[bytes] = []
    async with provider([text_reply("a")]) as server, tcp_server(socks_server(port_of(server), seen=seen)) as port:
        async with layer({"ALL_PROXY": f"socks://u:p%20w@127.0.0.1:{port}"}) as http:
            for _ in range(2):
                assert (await get(http, "http://somewhere.invalid/v1"))[0] == 200
        assert seen == [b"somewhere.invalid"]
        assert server.requests[0].headers["host"] == "somewhere.invalid"


@pytest.mark.parametrize("proxy", ["socks5://u:wrong@127.0.0.1:{}", "socks5://127.0.0.1:{}"])
async def test_a_socks_proxy_may_refuse(proxy: str) -> None:
    refusal = {"a.invalid": b"\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00"}
    async with tcp_server(socks_server(1, refusal)) as port, layer({"ALL_PROXY": proxy.format(port)}) as http:
        with pytest.raises(HttpError, match="proxy"):
            await get(http, "http://a.invalid/")


async def test_a_name_with_other_letters_is_encoded() -> None:
    async with provider([text_reply("a")]) as server, layer({"http_proxy": server.base_url}) as http:
        await get(http, "http://bücher.invalid/x")
        assert server.requests[0].path == "http://xn--bcher-kva.invalid/x"


async def test_plain_http_through_a_proxy_is_asked_for_by_its_whole_address() -> None:
    async with provider([text_reply("a")]) as server:
        async with layer({"http_proxy": f"http://u:p@127.0.0.1:{port_of(server)}"}) as http:
            await get(http, "http://a.invalid:81/x?y")
        request: Recorded = server.requests[0]
    assert request.path == "http://a.invalid:81/x?y"
    assert request.headers["host"] == "a.invalid:81"
    assert request.headers["proxy-authorization"] == "Basic dTpw"


# --- TLS ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "certificate.pem"
    path.write_text(CERTIFICATE + KEY)
    return path


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def test_the_named_certificates_are_trusted_and_others_are_not(certificate: Path) -> None:
    async with tcp_server(answers(OK), server_context(certificate)) as port:
        async with layer({"SSL_CERT_FILE": str(certificate)}) as http:
            assert await get(http, f"https://localhost:{port}/") == (200, b"ok")
        async with layer() as http:
            with pytest.raises(HttpError, match=r"certificate is not trusted \(self"):
                await get(http, f"https://localhost:{port}/")


async def test_certificates_are_looked_at_through_proxies_too(certificate: Path) -> None:
    async with tcp_server(answers(OK), server_context(certificate)) as target:
        for serve, proxy in ((connect_server(target, []), "http"), (socks_server(target), "socks5")):
            async with tcp_server(serve) as port, layer({"ALL_PROXY": f"{proxy}://127.0.0.1:{port}"}) as http:
                with pytest.raises(HttpError, match="certificate is not trusted"):
                    await get(http, "https://localhost/")


async def test_leaving_a_stream_under_tls_closes_the_connection(certificate: Path) -> None:
    gone = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
        with suppress(ConnectionError):
            await reader.read(1)
        gone.set()

    trust = {"SSL_CERT_FILE": str(certificate)}
    async with tcp_server(endless, server_context(certificate)) as port, layer(trust) as http:
        async with http.request("POST", f"https://localhost:{port}/", []) as response:
            assert await response.block() == b"ok"
        with anyio.fail_after(5):
            await gone.wait()


async def test_https_through_tunnels(certificate: Path) -> None:
    seen: list[bytes] = []
    trust = {"SSL_CERT_FILE": str(certificate)}
    tls = server_context(certificate)
    async with tcp_server(answers(OK), server_context(certificate)) as target:
        routes = [
            (connect_server(target, seen), None, "HTTPS_PROXY", "http://u:p@127.0.0.1:{}", "https://localhost/"),
            (connect_server(target, seen), tls, "HTTPS_PROXY", "https://localhost:{}", "https://localhost:444/"),
            (socks_server(target), None, "ALL_PROXY", "socks5://127.0.0.1:{}", "https://localhost/"),
        ]
        for serve, context, variable, proxy, url in routes:
            async with tcp_server(serve, context) as port, layer({**trust, variable: proxy.format(port)}) as http:
                assert await get(http, url) == (200, b"ok")
    assert seen[0].startswith(b"CONNECT localhost:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dTpw\r\n" in seen[0]
    assert seen[1].startswith(b"CONNECT localhost:444 ")


async def test_a_refused_tunnel() -> None:
    refusing = connect_server(1, [], b"407 Log in")
    async with tcp_server(refusing) as port, layer({"HTTPS_PROXY": f"127.0.0.1:{port}"}) as http:
        with pytest.raises(HttpError, match="407 Log in"):
            await get(http, "https://localhost/")


def test_a_certificate_file_that_cannot_be_used(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for path in (empty, tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match="SSL_CERT_FILE"):
            tls_context({"SSL_CERT_FILE": str(path)})


def test_warming_up_twice_is_no_more_than_once() -> None:
    http = HttpLayer({})
    http.warm("https://a")
    http.warm()


@pytest.mark.parametrize(
    "url", ["", "http://", "ftp://a", "http://a b/", "http://a/\r\nX: y", "http://a:99999/", "http://[::1/"]
)
def test_unusable_urls(url: str) -> None:
    with pytest.raises(ConfigError):
        checked_host(url)
