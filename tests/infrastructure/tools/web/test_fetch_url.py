"""FetchURL against pages on the loopback interface."""

from __future__ import annotations

import gzip
import socket
import sys
import zlib

import anyio
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from hypothesis import given
from hypothesis import strategies as st

from kimi.application.settings.settings import ServiceSettings
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.tools.tool import BriefBlock, ToolReturnValue
from kimi.infrastructure.http.client import HttpClient, HttpLimits, PrivateAddressError
from kimi.infrastructure.http.pinned_resolver import FilteringResolver
from kimi.infrastructure.tools.web.fetch_url import (
    EMPTY_BODY_MESSAGE,
    FULL_CONTENT_MESSAGE,
    MAIN_CONTENT_MESSAGE,
    NO_CONTENT_MESSAGE,
    SERVICE_CONTENT_MESSAGE,
    FetchUrlTool,
)
from kimi.infrastructure.web.addresses import is_public
from kimi.infrastructure.web.page_fetcher import MAX_BYTES, FetchedPage, PageDenied, PageFetcher
from kimi.infrastructure.web.page_text import decode_page, extract_main_text, is_text
from kimi.infrastructure.web.vendor_service import VendorService
from tests.support.program.memory import peak_growth
from tests.support.tool_calls import call, call_context, effect_of
from tests.support.web_server import WebServer, moved, page, web_server

pytestmark = pytest.mark.anyio

PARAGRAPH = "The main text of this page says what it is about, in sentences that are long enough to be found. "
ARTICLE = f"""<html><head><title>About cats</title></head><body><nav><a href="/">Home</a></nav>
<article><h1>About cats</h1><p>{PARAGRAPH * 8}</p><table><tr><td>legs</td><td>four</td></tr></table></article>
<footer>Imprint</footer></body></html>"""


LATIN = f"<html><body><article><p>{'Größe und Länge sind lang genug. ' * 20}</p></article></body></html>"


def only_first(address: str) -> bool:
    """Stands for "public" in these tests: 127.0.0.1 is, the other loopback addresses are not."""
    return address == "127.0.0.1"


def tool(limits: HttpLimits | None = None) -> FetchUrlTool:
    """Fetches by itself."""
    return FetchUrlTool(PageFetcher({}, only_first, limits or HttpLimits()).fetch)


async def fetched(pages: WebServer, path: str) -> ToolReturnValue:
    return await call(tool(), {"url": pages.url(path)})


async def _stall(request: web.BaseRequest) -> web.StreamResponse:
    await anyio.sleep(30)
    return web.Response()


async def _endless(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    sent = 0
    while sent < 4 * MAX_BYTES:
        await response.write(b"x" * 65_536)
        sent += 65_536
    return response


@pytest.mark.spec("T-86")
async def test_each_response_kind_is_converted() -> None:
    pages = {
        "/html": page(ARTICLE),
        "/latin": page(LATIN.encode("latin-1"), "text/html; charset=iso-8859-1"),
        "/text": page("just text\n", "text/plain"),
        "/markdown": page("# Title", "text/markdown; charset=utf-8"),
        "/json": page('{"a": 1}', "application/json"),
        "/feed": page("<feed/>", "application/atom+xml"),
        "/cp1252": page("naïve".encode("cp1252"), "text/plain; charset=windows-1252"),
        "/odd": page("odd", "text/plain; charset=no-such-thing"),
        "/image": page(b"\x89PNG", "image/png"),
        "/empty": page("", "text/html"),
        "/script": page("<html><body><script>go()</script></body></html>"),
    }
    async with web_server(pages) as server:
        html = await fetched(server, "/html")
        assert html.message == MAIN_CONTENT_MESSAGE
        assert PARAGRAPH.strip() in str(html.output)
        assert "legs" in str(html.output)
        assert "title: About cats" in str(html.output)
        assert "Imprint" not in str(html.output)
        assert "Größe" in str((await fetched(server, "/latin")).output)
        for path, text in {
            "/text": "just text\n",
            "/markdown": "# Title",
            "/json": '{"a": 1}',
            "/feed": "<feed/>",
            "/cp1252": "naïve",
            "/odd": "odd",
        }.items():
            whole = await fetched(server, path)
            assert (whole.output, whole.message, whole.is_error) == (text, FULL_CONTENT_MESSAGE, False)

        image = await fetched(server, "/image")
        assert image.message == "Failed to fetch URL: the content type 'image/png' is not text."
        assert image.display == (BriefBlock("Unsupported content type"),)
        empty = await fetched(server, "/empty")
        assert (empty.output, empty.message, empty.is_error) == ("", EMPTY_BODY_MESSAGE, False)
        assert empty.display == (BriefBlock("Empty response body"),)
        script = await fetched(server, "/script")
        assert (script.message, script.display) == (NO_CONTENT_MESSAGE, (BriefBlock("No content extracted"),))
        missing = await fetched(server, "/nothing")
        assert missing.message == (
            "Failed to fetch URL. Status: 404. This may indicate the page is not accessible or the server is down."
        )
        assert missing.display == (BriefBlock("HTTP 404 error"),)
        assert server.requests[0].headers["User-Agent"].startswith("Mozilla/5.0")

        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        refused = await call(tool(), {"url": f"http://127.0.0.1:{port}/"})
        assert refused.message == (
            "Failed to fetch URL due to network error: cannot connect: Connection refused. "
            "This may indicate the URL is invalid or the server is unreachable."
        )
        assert refused.display == (BriefBlock("Network error"),)

    async with web_server({"/slow": _stall}) as server:
        late = await call(tool(HttpLimits(read_s=0.05)), {"url": server.url("/slow")})
        assert late.message == "Failed to fetch URL: request timed out. The server may be slow or unreachable."
        assert late.display == (BriefBlock("Request timed out"),)

    pages = {"/fetch": page("# From the service", "text/markdown"), "/html": page(ARTICLE)}
    async with web_server(pages) as server:
        by_service = await through_service(server, "/fetch")
        assert (by_service.output, by_service.message) == ("# From the service", SERVICE_CONTENT_MESSAGE)
        (asked,) = server.requests
        assert (asked.headers["Accept"], asked.headers["Authorization"]) == ("text/markdown", "Bearer sk-x")
        assert asked.headers["X-Msh-Tool-Call-Id"] == "call"
        assert server.bodies == [f'{{"url": "{server.url("/html")}"}}'.encode()]
        fallen_back = await through_service(server, "/gone")
        assert fallen_back.message == MAIN_CONTENT_MESSAGE


async def through_service(server: WebServer, path: str) -> ToolReturnValue:
    """The page `/html`, for which the service at `path` is asked first."""
    http = HttpClient({})
    service = VendorService(ServiceSettings(base_url=server.url(path), api_key="sk-x"), http, "test/1")
    try:
        return await call(FetchUrlTool(PageFetcher({}, only_first).fetch, service.fetch), {"url": server.url("/html")})
    finally:
        await http.close()


BLOCKED = ("Failed to fetch URL: the address is not public.", (BriefBlock("Blocked address"),))


async def outcome(url: str, fetcher: PageFetcher | None = None) -> tuple[str, object]:
    result = await call(FetchUrlTool((fetcher or PageFetcher({})).fetch), {"url": url})
    assert result.is_error
    return result.message, result.display


@pytest.mark.spec("T-87")
async def test_only_public_addresses_are_reached() -> None:
    for url in (
        "http://127.0.0.1/",
        "http://10.1.2.3/",
        "http://192.168.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://[fd00::1]/",
        "http://[fe80::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://224.0.0.1/",
        "http://0.0.0.0/",
        "http://localhost:1/",
    ):
        assert await outcome(url) == BLOCKED, url
    for url in ("http://127.1/", "http://2130706433/", "http://0x7f.1/", "http://017700000001/"):
        message, _ = await outcome(url)  # spellings of 127.0.0.1: refused as such, or as private
        assert message.startswith("Failed to fetch URL"), url
        assert "Connection refused" not in message, url
    for url in ("file:///etc/passwd", "ftp://example.com/", "gopher://x/", "javascript:1"):
        message, _ = await outcome(url)
        assert message.startswith("Failed to fetch URL: only http and https addresses can be fetched"), url

    class Names(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            return [_resolved(host, "93.184.216.34"), _resolved(host, "10.0.0.5")]

        async def close(self) -> None: ...

    with pytest.raises(PrivateAddressError):
        await FilteringResolver(is_public, Names()).resolve("public.example")

    async with web_server({"/file": moved("file:///etc/passwd"), "/again": moved("/file")}) as first:
        message, _ = await outcome(first.url("/file"), PageFetcher({}, only_first))
        assert "only http and https" in message
        first.requests.clear()
        rebound = PageFetcher({}, lambda address: not first.requests)
        assert await outcome(first.url("/again"), rebound) == BLOCKED
        assert len(first.requests) == 1


@pytest.mark.spec("R-223")
@pytest.mark.parametrize("target", ["http://127.0.0.2:{}/here", "http://localhost:{}/here", "http://127.0.0.1:1/x"])
async def test_redirect_to_another_host_is_told_and_not_followed(target: str) -> None:
    async with web_server({"/here": page("never", "text/plain")}) as server:
        there = target.format(server.port)
        async with web_server({"/there": moved(there)}) as first:
            message, display = await outcome(first.url("/there"), PageFetcher({}, None))
        assert message.startswith(f"Failed to fetch URL: the page redirects to another host: {there} . The user")
        assert display == (BriefBlock("Redirects to another host"),)
        assert server.requests == []


def _resolved(host: str, address: str) -> ResolveResult:
    return ResolveResult(hostname=host, host=address, port=80, family=socket.AF_INET, proto=0, flags=0)


@pytest.mark.parametrize("host", ["１２７.０.０.１", "127。0。0。1", "①②⑦.⓪.⓪.①", "127.0.0.1.", "ⓛocalhost"])
async def test_address_in_other_notation_is_checked_like_any_other(host: str) -> None:
    async with web_server({"/": page("inside", "text/plain")}) as server:
        assert await outcome(server.url(host=host), PageFetcher({})) == BLOCKED
        assert server.requests == []
        proxy = PageFetcher({"HTTP_PROXY": server.url()})
        assert await outcome(f"http://{host}/", proxy) == BLOCKED
        assert server.requests == []


@pytest.mark.parametrize("url", ["http://local\xadhost/", "http://example.com\\x/", "http://a\\@x/"])
async def test_url_rejected_by_the_library_is_an_error(url: str) -> None:
    message, _ = await outcome(url, PageFetcher({}))
    assert message.startswith("Failed to fetch URL due to network error: ")


async def test_private_addresses_can_be_allowed() -> None:
    async with web_server({"/": page("inside", "text/plain")}) as server:
        result = await call(FetchUrlTool(PageFetcher({}, None).fetch), {"url": server.url(host="localhost")})
    assert result.output == "inside"


async def test_local_name_is_refused_before_a_proxy_is_asked() -> None:
    async with web_server({}) as proxy:
        environ = {"HTTP_PROXY": proxy.url()}
        assert await outcome("http://localhost/", PageFetcher(environ)) == BLOCKED
        assert proxy.requests == []


@given(st.ip_addresses())
def test_an_address_that_is_not_global_is_never_public(address: object) -> None:
    if not getattr(address, "is_global", False):
        assert not is_public(str(address))


@pytest.mark.parametrize("address", ["192.0.0.192", "168.63.129.16", "::ffff:168.63.129.16"])
def test_the_services_of_a_cloud_for_its_machines_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["fec0::1", "feff::1"])
def test_deprecated_private_ranges_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("charset", ["hex", "rot13", "idna", "punycode", "undefined", "zip", '"utf-8"', "", "\x0b"])
async def test_unknown_charset_is_ignored(charset: str) -> None:
    found = FetchedPage(200, "text/plain", charset or None, "wo\u0308rd".encode())
    assert decode_page(found) == "wo\u0308rd"
    assert is_text(found)


@pytest.mark.parametrize("target", ["http://[::1", "//[x", "http://h:99999/", "http://a b/"])
async def test_redirect_to_an_invalid_url_is_an_error(target: str) -> None:
    async with web_server({"/": moved(target)}) as server:
        lost = await fetched(server, "/")
    assert lost.message.startswith("Failed to fetch URL due to network error: ")
    assert "cannot be understood" in lost.message


@pytest.mark.spec("T-88")
async def test_size_and_redirects_are_limited() -> None:
    chain = {f"/{n}": moved(f"/{n + 1}", 301 + n % 2) for n in range(6)}
    async with web_server({**chain, "/5": page("arrived", "text/plain")}) as server:
        assert (await fetched(server, "/0")).output == "arrived"
    async with web_server({**chain, "/6": page("too far", "text/plain")}) as server:
        far = await fetched(server, "/0")
        assert far.message == "Failed to fetch URL: more than 5 redirects."
        assert len(server.requests) == 6
    async with web_server({"/": _endless}) as server:
        large = await fetched(server, "/")
        assert large.message == "Failed to fetch URL: the page is larger than 10 MiB."
        assert large.display == (BriefBlock("Page too large"),)
    exact = page("y" * MAX_BYTES, "text/plain")
    async with web_server({"/": exact}) as server:
        assert not (await fetched(server, "/")).is_error


async def test_redirect_drops_credentials_and_cookies() -> None:
    async def cookie(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "/b", "Set-Cookie": "k=v"})

    async with web_server({"/a": cookie, "/b": page("text", "text/plain")}) as server:
        url = server.url("/a").replace("http://", "http://me:secret@")
        assert (await call(tool(), {"url": url})).output == "text"
        first, second = server.requests
        assert "Authorization" in first.headers
        assert "Authorization" not in second.headers
        assert "Cookie" not in second.headers


async def test_a_long_page_is_cut_visibly() -> None:
    async with web_server({"/": page("word " * 20_000, "text/plain")}) as server:
        long = await fetched(server, "/")
    assert len(str(long.output)) == 50_000
    assert str(long.output).endswith("[...truncated]")
    assert long.message == f"{FULL_CONTENT_MESSAGE} Output is truncated to fit in the message."


@pytest.mark.parametrize(
    ("url", "sent", "host"),
    [
        (" https://Example.COM/a?q=1#b\n", "https://example.com/a?q=1#b", "example.com"),
        ("http://example.com.:80/", "http://example.com./", "example.com"),
        ("https://example.com:8443/", "https://example.com:8443/", "example.com:8443"),
        ("https://example.com:80/", "https://example.com:80/", "example.com:80"),
        ("https://user:word@host.example/", "https://user:word@host.example/", "host.example"),
        ("https://google.com@evil.example/", "https://google.com@evil.example/", "evil.example"),
        ("http://evil.example#@google.com/", "http://evil.example/#@google.com/", "evil.example"),
        ("https://bücher.example/ö", "https://xn--bcher-kva.example/%C3%B6", "xn--bcher-kva.example"),
        ("https://а.example/", "https://xn--80a.example/", "xn--80a.example"),
        ("http://１.２.３.４/", "http://1.2.3.4/", "1.2.3.4"),
        ("http://[2606:4700:0::1111]:8080/", "http://[2606:4700::1111]:8080/", "[2606:4700::1111]:8080"),
        ("http://2130706433/", "http://2130706433/", "2130706433"),
    ],
)
async def test_host_that_is_connected_to_is_asked_about(url: str, sent: str, host: str) -> None:
    assert await effect_of(tool(), {"url": url}) == ProposedAction(
        "fetch url",
        f"Fetch URL `{sent}` from {host}",
        (BriefBlock(sent),),
        kind="web",
        subject=host,
        remember_as=f"fetch:{host}",
    )


async def test_each_address_is_asked_about_if_configured() -> None:
    asking = FetchUrlTool(PageFetcher({}).fetch, asks_each_address=True)
    asked = await effect_of(asking, {"url": "https://example.com/a"})
    assert asked is not None
    assert (asked.subject, asked.remember_as) == ("example.com", "fetch url https://example.com/a")
    async with tool().prepare({"url": "https://example.com/a"}, call_context("FetchURL")) as prepared:
        assert prepared.subject == "https://example.com/a"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "http://",
        "http:///x",
        "http://good.example\\@evil.example/",
        "http://good.example\t.evil.example/",
        "http://x\u202e.example/",
        "http://example.com:99999/",
        f"http://example.com/{'x' * 20_000}",
    ],
)
async def test_address_that_cannot_be_fetched_reaches_nobody_and_asks_nothing(url: str) -> None:
    async def never(url: str, call_id: str = "") -> FetchedPage:
        raise AssertionError(url)

    async def never_by_service(url: str, call_id: str) -> str:
        raise AssertionError(url)

    refusing = FetchUrlTool(never, never_by_service)
    assert await effect_of(refusing, {"url": url}) is None
    refused = await call(refusing, {"url": url})
    assert refused.is_error
    assert refused.message.startswith("Failed to fetch URL")


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_page_is_measured_after_decompression(coding: str) -> None:
    packer = zlib.compressobj(9, wbits=31 if coding == "gzip" else 15)
    bomb = b"".join((*(packer.compress(b"x" * 1024 * 1024) for _ in range(200)), packer.flush()))
    headers = {"Content-Type": "text/plain", "Content-Encoding": coding}

    async def packed(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=bomb, headers=headers)

    async with web_server({"/": packed}) as server:
        with peak_growth() as growth:
            large = await fetched(server, "/")
        assert large.message == "Failed to fetch URL: the page is larger than 10 MiB."
        assert growth.mebibytes < 60


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "x-unknown"])
async def test_page_in_another_coding_costs_no_more_than_its_bytes(coding: str) -> None:
    bomb = gzip.compress(gzip.compress(b"x" * (50 * 1024 * 1024)))
    headers = {"Content-Type": "text/plain", "Content-Encoding": coding}

    async def packed(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=bomb, headers=headers)

    async with web_server({"/": packed}) as server:
        with peak_growth() as growth:
            found = await fetched(server, "/")
        assert growth.mebibytes < 60
    assert len(str(found.output)) <= 50_000


async def test_text_extraction_times_out() -> None:
    html = b"<p " + b" ".join(b"a%d=1" % number for number in range(100_000)) + b">x"
    with pytest.raises(PageDenied, match=r"not found within 0\.2 seconds"):
        await extract_main_text(FetchedPage(200, "text/html", None, html), 0.2)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits")
async def test_text_extraction_process_has_a_cpu_limit() -> None:
    program = (
        "import resource; from kimi.infrastructure.web.extract_text import limit_cpu_time; limit_cpu_time(); "
        "print(resource.getrlimit(resource.RLIMIT_CPU))"
    )
    assert (await anyio.run_process([sys.executable, "-P", "-c", program])).stdout == b"(60, 60)\n"


async def test_missing_library_is_reported_with_install_advice() -> None:
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "trafilatura"}
    sys.modules["trafilatura"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        async with web_server({"/": page(ARTICLE)}) as server:
            result = await fetched(server, "/")
    finally:
        del sys.modules["trafilatura"]
        sys.modules.update(kept)
    assert "pip install trafilatura" in result.message
    assert result.display == (BriefBlock("Library missing"),)
