"""The HTTP client: TLS, also through proxies."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from kimi.domain.errors import ConfigError
from kimi.infrastructure.http.client import HttpError, make_tls_context
from tests.support.providers.http_servers import answers, connect_server, get, layer, socks_server, tcp_server

pytestmark = pytest.mark.anyio

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


async def test_certificates_are_verified_through_proxies(certificate: Path) -> None:
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
            assert await response.read_block() == b"ok"
        with anyio.fail_after(5):
            await gone.wait()


async def test_https_works_through_tunnels(certificate: Path) -> None:
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


async def test_refused_tunnel_is_reported() -> None:
    refusing = connect_server(1, [], b"407 Log in")
    async with tcp_server(refusing) as port, layer({"HTTPS_PROXY": f"127.0.0.1:{port}"}) as http:
        with pytest.raises(HttpError, match="407 Log in"):
            await get(http, "https://localhost/")


def test_unusable_certificate_file_is_reported(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for path in (empty, tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match="SSL_CERT_FILE"):
            make_tls_context({"SSL_CERT_FILE": str(path)})


@pytest.mark.spec("R-331")
def test_aiohttp_reads_the_certificates_of_the_system_with_its_first_connection(certificate: Path) -> None:
    """In a process of its own, where the client is the one that imports aiohttp."""
    code = f"""
import asyncio, ssl, sys
from kimi.infrastructure.http.client import HttpClient
read = ssl.SSLContext.set_default_verify_paths
HttpClient({{}}).warm()
print("aiohttp" in sys.modules, ssl.SSLContext.set_default_verify_paths is read)
import aiohttp

async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write({OK!r})

async def main():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain({str(certificate)!r})
    server = await asyncio.start_server(serve, "localhost", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    async with aiohttp.ClientSession() as session, session.get(f"https://localhost:{{port}}/") as response:
        print(response.status, await response.text())

asyncio.run(main())
"""
    for trust in (certificate, certificate.with_name("nothing")):
        environ = {**os.environ, "SSL_CERT_FILE": str(trust), "SSL_CERT_DIR": ""}
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
        if trust.exists():
            assert done.stdout.splitlines() == ["True True", "200 ok"], done.stderr
        else:
            assert "CERTIFICATE_VERIFY_FAILED" in done.stderr


def test_other_threads_get_the_certificates_at_once(certificate: Path) -> None:
    code = """
import ssl, threading
from kimi.infrastructure.http.late_certificates import certificates_when_used
counts = []
def count():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_default_verify_paths()
    counts.append(context.cert_store_stats()["x509"])
with certificates_when_used():
    count()
    other = threading.Thread(target=count)
    other.start()
    other.join()
count()
print(counts)
"""
    environ = {**os.environ, "SSL_CERT_FILE": str(certificate), "SSL_CERT_DIR": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[0, 1, 1]"
