"""The HTTP client: the proxies of the environment."""

from __future__ import annotations

import pytest

from kimi.domain.errors import ConfigError
from kimi.infrastructure.http.client import HttpError
from kimi.infrastructure.http.proxy import find_proxy, normalize_proxy_url
from tests.support.providers.http_servers import get, layer, port_of, socks_server, tcp_server
from tests.support.providers.provider_server import Recorded, provider, text_reply

pytestmark = pytest.mark.anyio


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
def test_proxy_is_taken_from_the_environment(environ: dict[str, str], url: str, expected: str | None) -> None:
    assert find_proxy(url, environ) == expected


@pytest.mark.parametrize("url", ["ftp://secret@p", "http://", "http://p:x", "://p"])
def test_unusable_proxies_are_refused_without_showing_them(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        normalize_proxy_url(url)
    assert "secret" not in str(raised.value)


async def test_socks_proxy_resolves_names_remotely() -> None:
    seen: list[bytes] = []
    async with provider([text_reply("a")]) as server, tcp_server(socks_server(port_of(server), seen=seen)) as port:
        async with layer({"ALL_PROXY": f"socks://u:p%20w@127.0.0.1:{port}"}) as http:
            for _ in range(2):
                assert (await get(http, "http://somewhere.invalid/v1"))[0] == 200
        assert seen == [b"somewhere.invalid"]
        assert server.requests[0].headers["host"] == "somewhere.invalid"


@pytest.mark.parametrize("proxy", ["socks5://u:wrong@127.0.0.1:{}", "socks5://127.0.0.1:{}"])
async def test_socks_proxy_refusal_is_reported(proxy: str) -> None:
    refusal = {"a.invalid": b"\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00"}
    async with tcp_server(socks_server(1, refusal)) as port, layer({"ALL_PROXY": proxy.format(port)}) as http:
        with pytest.raises(HttpError, match="proxy"):
            await get(http, "http://a.invalid/")


async def test_international_host_name_is_encoded() -> None:
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
