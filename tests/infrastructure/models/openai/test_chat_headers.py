"""`kimi` against a recording server: the headers about the device and the program, and to whom they go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kimi.application.settings.settings import ModelSettings
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.http.headers import build_device_headers, format_user_agent, is_vendor_host
from kimi.infrastructure.models.openai.kimi_profile import make_kimi_profile
from kimi.infrastructure.models.provider_types import make_model_opener, open_model
from tests.support.providers.chat_client import ask, client
from tests.support.providers.provider_server import provider, text_reply

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("host", "is_vendor"),
    [
        ("api.moonshot.ai", True),
        ("api.moonshot.cn", True),
        ("kimi.com", True),
        ("API.KIMI.COM", True),
        ("api.kimi.com.evil.example", False),
        ("notkimi.com", False),
        ("127.0.0.1", False),
    ],
)
@pytest.mark.spec("R-91")
def test_device_headers_are_for_the_vendor_only_and_can_be_switched_off(
    tmp_path: Path, host: str, is_vendor: bool
) -> None:
    environ = {"KIMI_SHARE_DIR": str(tmp_path)}
    assert is_vendor_host(host) is is_vendor
    sent = make_kimi_profile(environ, send_device_headers=True).build_headers(host, "KimiCLI/2.0.0 (x)")
    assert bool(sent) is is_vendor
    assert make_kimi_profile(environ, send_device_headers=False).build_headers(host, "KimiCLI/2.0.0") == {}
    assert (tmp_path / "device_id").exists() is is_vendor


@pytest.mark.spec("R-91")
@pytest.mark.parametrize(
    ("host", "more", "expected"),
    [
        ("api.moonshot.ai", {}, True),
        ("api.moonshot.ai", {"device_headers": False}, False),
        ("api.moonshot.ai.example", {}, False),
    ],
)
async def test_device_headers_are_sent_only_to_the_vendor_host(
    tmp_path: Path, host: str, more: dict[str, Any], expected: bool
) -> None:
    """The server plays a proxy, so that a vendor's host can be asked without leaving this machine."""
    async with provider([text_reply("ok")]) as server:
        environ = {"KIMI_SHARE_DIR": str(tmp_path), "http_proxy": server.base_url}
        http = HttpClient(environ)
        settings = ModelSettings(provider_name="p", type="kimi", model="M", base_url=f"http://{host}/v1", **more)
        await ask(open_model(settings, "s", http, lambda: "KimiCLI/2.0.0 (Zed 1)", environ))
        await http.close()
    request = server.requests[0]
    assert request.path == f"http://{host}/v1/chat/completions"
    assert request.headers["host"] == host
    assert (request.headers.get("x-msh-version") == "2.0.0") is expected
    assert any(name.startswith("x-msh-") for name in request.headers) is expected


def test_the_device_headers_are_ascii_and_the_id_stays(tmp_path: Path) -> None:
    environ = {"KIMI_SHARE_DIR": str(tmp_path / "share")}
    first, second = build_device_headers("2.0.0", environ), build_device_headers("2.0.0", environ)
    assert first == second
    names = ("Platform", "Version", "Device-Name", "Device-Model", "Os-Version", "Device-Id")
    assert list(first) == [f"X-Msh-{name}" for name in names]
    assert first["X-Msh-Version"] == "2.0.0"
    assert all(value and value.isascii() and value.isprintable() for value in first.values())


def test_device_id_that_cannot_be_stored_is_still_sent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert build_device_headers("2.0.0", {"KIMI_SHARE_DIR": str(tmp_path / "file")})["X-Msh-Device-Id"].isalnum()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "KimiCLI/2"),
        ("Zed 1.0", "KimiCLI/2 (Zed 1.0)"),
        (" (Zed 1.0)", "KimiCLI/2 (Zed 1.0)"),
        ("Zed\r\nX-Evil: 1 1.0", "KimiCLI/2 (ZedX-Evil: 1 1.0)"),
        ("Zédé 月 1.0", "KimiCLI/2 (Zd  1.0)"),
        ("月", "KimiCLI/2"),
        ("x" * 500, f"KimiCLI/2 ({'x' * 200})"),
    ],
)
async def test_any_client_name_makes_a_valid_header(given: str, expected: str) -> None:
    async with client() as c:
        await ask(c.model(agent=format_user_agent("2", given)))
        assert c.server.requests[0].headers["user-agent"] == expected
        assert "x-evil" not in c.server.requests[0].headers


async def test_a_user_agent_that_was_not_reduced_is_reduced() -> None:
    async with client() as c:
        await ask(c.model(agent="KimiCLI/2 (Zédé\r\nX-Evil: 1" + "x" * 500))
        sent = c.server.requests[0].headers
    assert sent["user-agent"] == ("KimiCLI/2 (ZdX-Evil: 1" + "x" * 500)[:240]
    assert "x-evil" not in sent


async def test_the_user_agent_is_asked_at_every_request() -> None:
    async with client() as c:
        name = ""
        settings = ModelSettings(provider_name="p", type="kimi", model="M", base_url=c.server.base_url)
        model = make_model_opener(settings, c.http, "2", {})("s", lambda: name)
        assert model is not None
        await ask(model)
        name = "Zed 1"
        await ask(model)
        assert [r.headers["user-agent"] for r in c.server.requests] == ["KimiCLI/2", "KimiCLI/2 (Zed 1)"]
