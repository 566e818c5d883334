"""Who is let in, and attacks of those who are not (wire spec 13.5)."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from kimi.interfaces.web import access, server, service
from kimi.interfaces.web.run import WebOptions, make_rules
from tests.support.fakes import FakeModel
from tests.support.program.wire_process import Place
from tests.support.web.hosting import Closed, SocketClient, WebClient, hosting, play

pytestmark = pytest.mark.anyio

WRONG = "w" * 43
OPEN = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.write_config("_echo")
    return place


async def raw(web: WebClient, text: str) -> bytes:
    """Send bytes to the server; return all that comes until it closes or for a second."""
    async with await anyio.connect_tcp("127.0.0.1", int(web.base.rpartition(":")[2])) as stream:
        await stream.send(text.encode("latin-1"))
        found = b""
        with anyio.move_on_after(1):
            try:
                while True:
                    found += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
        return found


# --- the token ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("W-161")
async def test_the_link_sets_a_cookie_that_lets_the_page_in(place: Place) -> None:
    async with hosting(place) as web:
        link = f"/?token={web.token}"
        async with web.http.get(web.base + link, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            cookie = answer.cookies[f"kimi_web_{web.base.rpartition(':')[2]}"]
            assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert answer.headers["Cache-Control"] == "no-store"
        sent = {"Cookie": f"{cookie.key}={cookie.value}"}
        async with web.http.get(f"{web.base}/", headers=sent) as page:
            assert (page.status, page.content_type) == (200, "text/html")
        for origin, status in ((web.base, 101), ("http://evil.example", 403), (None, 403)):
            more = {} if origin is None else {"Origin": origin}
            key = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
            async with web.http.get(f"{web.base}/api/sessions/x/wire", headers=sent | more | OPEN | key) as opened:
                assert opened.status == status


@pytest.mark.spec("W-161")
@pytest.mark.parametrize("path", ["/", "/page/index.html", "/api/info", "/api/sessions", "/api/sessions/x/wire", "/no"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": None},
        {"Authorization": f"Bearer {WRONG}"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic dDp0"},
        {"Authorization": None, "Cookie": f"kimi_web={WRONG}"},
        {"Authorization": "Bearer \u00fc"},
    ],
)
async def test_nothing_is_answered_without_the_token(place: Place, path: str, headers: dict[str, Any]) -> None:
    async with hosting(place) as web:
        status, body = await web.ask("GET", path, **headers)
        assert status == 401
        assert web.token not in json.dumps(body)


async def test_a_token_in_another_place_than_the_link_lets_nobody_in(place: Place) -> None:
    async with hosting(place) as web:
        for path in (f"/api/info?token={web.token}", f"/page/index.html?token={web.token}"):
            assert (await web.ask("GET", path, Authorization=None))[0] == 401
        status, _ = await web.ask("GET", "/?token=wrong", Authorization=None)
        assert status == 401


@pytest.mark.spec("W-162")
async def test_who_guesses_tokens_is_told_to_wait_but_the_right_one_still_works(place: Place) -> None:
    async with hosting(place) as web:
        statuses = [
            (await web.ask("GET", "/api/info", Authorization=f"Bearer {WRONG}"))[0]
            for _ in range(access.MAX_WRONG_TOKENS + 5)
        ]
        assert statuses[0] == 401
        assert statuses[-1] == 429
        assert (await web.ask("GET", "/api/info"))[0] == 200


@pytest.mark.spec("W-181")
async def test_each_port_that_a_browser_sees_has_a_login_of_its_own(place: Place) -> None:
    """Tunnels lead the same port of two machines to two ports of one, whose cookies browsers mix."""
    async with hosting(place) as web:
        cookies: list[str] = []
        for host in ("127.0.0.1:5494", "127.0.0.1:5495", "box.localhost", "localhost"):
            link = f"{web.base}/?token={web.token}"
            async with web.http.get(link, headers={"Host": host}, allow_redirects=False) as login:
                cookies += [one.split("=")[0] for one in login.headers.getall("Set-Cookie", [])]
        assert cookies == ["kimi_web_5494", "kimi_web_5495", "kimi_web"]
        for host, status in (("127.0.0.1:5494", 200), ("127.0.0.1:5495", 401)):
            sent: dict[str, str | None] = {"Authorization": None, "Cookie": f"kimi_web_5494={web.token}", "Host": host}
            assert (await web.ask("GET", "/api/info", **sent))[0] == status


def test_a_token_has_256_random_bits() -> None:
    tokens = {access.make_token() for _ in range(100)}
    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {43}


# --- where a request comes from -----------------------------------------------------------------------------------


@pytest.mark.spec("W-163")
@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("127.0.0.1:1", True), ("localhost", True), ("LOCALHOST:80", True), ("[::1]:5494", True), ("my.tail.net", True),
        ("evil.example", False), ("127.0.0.1.evil.example", False), ("localhost.evil.example", False), ("", False),
        ("192.168.1.5", False), ("a@localhost", False), ("localhost/x", False), ("localhost:x", False),
        ("127.0.0.1, evil.example", False), ("[::1", False), ("my.tail.net.evil.example", False), ("::1", False),
    ],
)  # fmt: skip
async def test_only_known_names_of_the_server_are_answered(place: Place, host: str, is_allowed: bool) -> None:
    async with hosting(place, names=["my.tail.net"]) as web:
        status, _ = await web.ask("GET", "/api/info", Host=host)
    assert (status == 200) is is_allowed
    assert status in (200, 400, 403)


def test_a_server_for_other_machines_has_any_address_but_no_unknown_name() -> None:
    rules = access.AccessRules("t", "0.0.0.0", access.normalise_names(["Box.Example."]))
    assert [rules.allows_host(host) for host in ("10.0.0.3:80", "box.example", "box.example.", "evil.example")] == [
        True, True, True, False,
    ]  # fmt: skip


@pytest.mark.spec("W-182")
def test_names_are_known_as_browsers_send_them() -> None:
    names = access.normalise_names(["B\u00fccher.Example.", "[FD7A::0:1]", "100.64.0.7", "my-box_1"])
    assert names == {"xn--bcher-kva.example", "fd7a::1", "100.64.0.7", "my-box_1"}


@pytest.mark.spec("W-182")
def test_the_server_answers_to_the_name_that_its_link_has() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        rules = make_rules(WebOptions(host="Desk.local", allowed_hosts=["box.example"]), WRONG, listening)
    allowed = [rules.allows_host(name) for name in ("desk.local:5494", "box.example", "192.168.1.5", "evil.example")]
    assert allowed == [True, True, False, False]


@pytest.mark.spec("W-164")
@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1", "http://localhost:1", "file://", "http://[", ""]
)
async def test_no_other_site_can_change_anything(place: Place, method: str, origin: str) -> None:
    async with hosting(place) as web:
        path = "/api/sessions" if method == "POST" else "/api/sessions/x"
        sent: dict[str, str | None] = {"Origin": origin, "Authorization": None, "Cookie": cookie_of(web)}
        status, body = await web.ask(method, path, {"work_dir": str(place.work)}, **sent)
        assert (status, body["error"]["code"]) == (403, "forbidden")
        assert (await web.ask("GET", "/api/info", Origin=origin))[0] == 403


def cookie_of(web: WebClient) -> str:
    return f"kimi_web_{web.base.rpartition(':')[2]}={web.token}"


@pytest.mark.spec("W-164")
async def test_a_browser_changes_things_only_with_json_and_its_own_origin(place: Place) -> None:
    async with hosting(place) as web:
        sent: dict[str, str | None] = {"Authorization": None, "Cookie": cookie_of(web)}
        body = {"work_dir": str(place.work)}
        assert (await web.ask("POST", "/api/sessions", body, **sent))[0] == 403
        assert (await web.ask("POST", "/api/sessions", body, **sent, Origin=web.base))[0] == 201
        cross: dict[str, str | None] = {**sent, "Origin": web.base, "Sec-Fetch-Site": "cross-site"}
        assert (await web.ask("POST", "/api/sessions", body, **cross))[0] == 403
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            headers = web.headers(**sent, Origin=web.base, **{"Content-Type": kind})
            async with web.http.post(f"{web.base}/api/sessions", data=json.dumps(body), headers=headers) as answer:
                assert answer.status == 415


@pytest.mark.spec("W-163", "W-164")
async def test_a_page_behind_a_proxy_with_tls_is_the_same_origin(place: Place) -> None:
    async with hosting(place, names=["box.example"]) as web:
        sent: dict[str, str | None] = {"Authorization": None, "Cookie": f"kimi_web={web.token}", "Host": "box.example"}
        body = {"work_dir": str(place.work)}
        assert (await web.ask("POST", "/api/sessions", body, **sent, Origin="https://box.example"))[0] == 201
        assert (await web.ask("POST", "/api/sessions", body, **sent, Origin="https://other.example"))[0] == 403


@pytest.mark.spec("W-165")
@pytest.mark.parametrize("path", ["/", "/page/index.html", "/api/info", "/api/nothing", "/api/sessions/x/status"])
@pytest.mark.parametrize("token", [None, "right"])
async def test_every_answer_forbids_browsers_what_the_page_does_not_need(
    place: Place, path: str, token: str | None
) -> None:
    async with hosting(place) as web:
        headers = web.headers() if token else {}
        async with web.http.get(web.base + path, headers=headers) as answer:
            assert {name: answer.headers.get(name) for name in access.SECURITY_HEADERS} == access.SECURITY_HEADERS
            assert answer.headers["Cache-Control"] in ("no-store", "no-cache")
            assert "aiohttp" not in answer.headers["Server"]
    policy = access.SECURITY_HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


# --- files of the page --------------------------------------------------------------------------------------------


@pytest.mark.spec("W-166")
@pytest.mark.parametrize(
    "path",
    [
        "/page/../access.py", "/page/%2e%2e/access.py", "/page/..%2faccess.py", "/page/..%5caccess.py",
        "/page//etc/passwd",
        "/page/%2fetc%2fpasswd", "/page/index.html%00.js", "/page/index.html/", "/page/./../__init__.py", "/page/",
        "/page/%252e%252e/access.py", "/page/.hidden", "/../../etc/passwd", "/page/....//access.py", "/access.py",
    ],
)  # fmt: skip
async def test_no_path_leads_out_of_the_files_of_the_page(place: Place, path: str) -> None:
    async with hosting(place) as web:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        answer = await raw(web, f"{head}Authorization: Bearer {web.token}\r\n\r\n")
    assert answer.split(b" ")[1] in (b"404", b"400", b"405")
    assert b"import " not in answer
    assert b"root:" not in answer


async def test_a_file_of_the_page_is_not_sent_again_while_it_is_the_same(place: Place) -> None:
    async with hosting(place) as web:
        async with web.http.get(f"{web.base}/", headers=web.headers()) as first:
            tag = first.headers["ETag"]
        async with web.http.get(f"{web.base}/", headers=web.headers(**{"If-None-Match": tag})) as again:
            assert (again.status, await again.read()) == (304, b"")


@pytest.mark.spec("W-166")
@pytest.mark.parametrize(
    "session_id", ["..", "%2e%2e", "..%2f..%2fetc", "a%00b", "x" * 300, "%5c..%5c", "%ff%fe", "a%0d%0ab", "%20"]
)
async def test_no_id_of_a_session_leads_out_of_the_store(place: Place, session_id: str) -> None:
    async with hosting(place) as web:
        for end in ("/status", "/files?query=a", ""):
            method = "GET" if end else "DELETE"
            head = f"{method} /api/sessions/{session_id}{end} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            answer = await raw(web, f"{head}Authorization: Bearer {web.token}\r\n\r\n")
            assert answer.split(b" ")[1] in (b"400", b"404", b"405")
    assert list(place.share.rglob("context.jsonl")) == []


# --- frames and floods --------------------------------------------------------------------------------------------


@pytest.fixture
async def client(place: Place) -> Any:
    async with hosting(place, play(FakeModel([]))) as web, web.connect(await web.new_session(place)) as client:
        await client.until("Current")
        yield client


@pytest.mark.spec("W-167")
@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", -32700), ("[]", -32600), ('"x"', -32600), ('{"jsonrpc":"1.0","id":"a","method":"cancel"}', -32600),
        ('{"id":1.5,"method":"cancel"}', -32600), ('{"id":"a","method":"nope"}', -32601), ("[" * 100_000, -32700),
        ('{"id":"a","method":"prompt","params":{"user_input":[{"type":"virus"}]}}', -32602), ("NaN", -32700),
        ('{"id":"a","method":"steer","params":{"user_input":"x"}}', -32000), ('{"id":"nobody"}', -32600),
    ],
)  # fmt: skip
async def test_a_malformed_message_is_answered_and_the_next_one_served(
    client: SocketClient, message: str, code: int
) -> None:
    await client.send(message)
    line = await client.next_line()
    assert line["error"]["code"] == code
    assert (await client.initialize())["protocol_version"] == "1.10"


@pytest.mark.spec("W-167")
async def test_a_message_that_is_too_large_ends_the_connection_only(place: Place) -> None:
    async with hosting(place) as web:
        session = await web.new_session(place)
        async with web.connect(session) as steady:
            async with web.connect(session) as hostile:
                await hostile.until("Current")
                with suppress(OSError):
                    await hostile.send("x" * (33 * 1024 * 1024))
                with pytest.raises(Closed):
                    await hostile.next_line()
            assert (await steady.initialize())["protocol_version"] == "1.10"


@pytest.mark.parametrize(
    "frame", [b"\x82\x80\0\0\0\0", b"\xff\xff", b"\x83\x80\0\0\0\0", b"\x81\xff" + b"\x7f" + b"\xff" * 7]
)
async def test_a_malformed_frame_ends_the_connection_only(place: Place, frame: bytes) -> None:
    async with hosting(place) as web:
        session = await web.new_session(place)
        head = {"Authorization": f"Bearer {web.token}", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **OPEN}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        asked = f"GET /api/sessions/{session}/wire HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n"
        async with web.connect(session) as steady:
            answer = await raw(web, asked + frame.decode("latin-1"))
            assert answer.startswith(b"HTTP/1.1 101")
            assert b"\x88" in answer  # a close frame
            assert (await steady.initialize())["protocol_version"] == "1.10"


@pytest.mark.spec("W-180")
async def test_who_has_no_token_cannot_keep_the_user_out(place: Place) -> None:
    """Neither with connections that ask nothing, nor with requests whose bodies never come."""
    lasting = b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    async with hosting(place) as web:
        port = int(web.base.rpartition(":")[2])
        for sent in (b"", b"GET / HT", lasting):
            taken = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(server.MAX_CONNECTIONS + 20)]
            for stream in taken:
                with suppress(anyio.BrokenResourceError):
                    await stream.send(sent or b"\r\n")
            with anyio.fail_after(5):
                assert (await web.ask("GET", "/api/info"))[0] == 200
            for stream in taken:
                await stream.aclose()


@pytest.mark.parametrize("sent", ["GET / HTTP/9\r\n\r\n", "GET / HTTP/1.1\r\nX: " + "a" * 9000])
async def test_strangers_cannot_fill_the_log(place: Place, caplog: pytest.LogCaptureFixture, sent: str) -> None:
    async with hosting(place) as web:
        assert (await raw(web, sent)).split()[1] == b"400"
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


@pytest.mark.spec("W-180")
async def test_a_connection_that_has_shown_the_token_is_not_closed_for_strangers(place: Place) -> None:
    async with hosting(place) as web:
        asked = f"GET /api/info HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {web.token}\r\n\r\n".encode()
        port = int(web.base.rpartition(":")[2])
        async with await anyio.connect_tcp("127.0.0.1", port) as mine:
            await mine.send(asked)
            assert (await mine.receive()).startswith(b"HTTP/1.1 200")
            strangers = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(server.MAX_STRANGERS + 20)]
            for stream in strangers[:5]:
                with anyio.fail_after(5), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await stream.receive()
            await mine.send(asked)
            assert (await mine.receive()).startswith(b"HTTP/1.1 200")
            for stream in strangers:
                await stream.aclose()


@pytest.mark.spec("W-167")
async def test_a_flood_of_calls_is_read_slowly_and_answered_in_full(client: SocketClient) -> None:
    for _ in range(600):
        await client.send('{"jsonrpc":"2.0","id":"x","method":"cancel"}')
    started = anyio.current_time()
    for _ in range(600):
        assert (await client.next_line())["error"]["code"] == -32000
    assert anyio.current_time() - started > 0.5


async def test_only_so_many_clients_are_served(place: Place) -> None:
    async with hosting(place) as web:
        session = await web.new_session(place)
        sockets = [
            await web.http.ws_connect(f"{web.base}/api/sessions/{session}/wire", headers=web.headers())
            for _ in range(service.MAX_SOCKETS)
        ]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await web.http.ws_connect(f"{web.base}/api/sessions/{session}/wire", headers=web.headers())
        assert refused.value.status == 503
        for one in sockets:
            await one.close()
        async with web.connect(session) as client:
            await client.until("Current")
