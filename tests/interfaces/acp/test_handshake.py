"""The handshake and who may open a session (acp spec 1.3, 5.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kimi.application.settings.settings import ModelSettings
from kimi.interfaces.acp.auth import build_auth_methods, is_model_usable, resolve_own_command
from kimi.interfaces.acp.client_capabilities import ClientCapabilities, parse_client_capabilities
from kimi.interfaces.version import __version__
from tests.support.acp.client import acp_client, prompt
from tests.support.program.wire_process import Json, Place

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path).script("text: Hello")


@pytest.mark.spec("A-21", "A-24")
async def test_every_version_is_answered_with_ours_and_handshake_is_repeatable(place: Place) -> None:
    async with acp_client(place) as client:
        for version in (0, 1, 2, 99, "2025-01-01", None):
            result = await client.result("initialize", {"protocolVersion": version})
            assert result["protocolVersion"] == 1
            assert result["agentInfo"] == {"name": "Kimi Code CLI", "title": "Kimi Code CLI", "version": __version__}
        await client.new_session(place)
        again = await client.shake_hands(auth={"terminal": True})
        assert again["authMethods"][0]["type"] == "terminal"
        await client.new_session(place)


@pytest.mark.spec("A-23")
@pytest.mark.parametrize(
    "raw",
    [None, "bogus", 5, [], {}, {"fs": "bogus", "terminal": "yes", "auth": [], "elicitation": {}, "session": 1}],
)
async def test_capabilities_that_are_missing_or_malformed_count_as_none(place: Place, raw: object) -> None:
    assert parse_client_capabilities(raw) == ClientCapabilities()
    async with acp_client(place) as client:
        result = await client.result("initialize", {"protocolVersion": 1, "clientCapabilities": raw})
        assert "type" not in result["authMethods"][0]
        await client.new_session(place)


def test_all_capabilities_are_read() -> None:
    raw: Json = {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "terminal": True,
        "auth": {"terminal": True},
        "elicitation": {"form": {}},
        "session": {"compaction": {}, "plan": {}},
    }
    assert parse_client_capabilities(raw) == ClientCapabilities(*[True] * 7)


@pytest.mark.spec("A-25")
async def test_requests_before_the_handshake_are_refused(place: Place) -> None:
    async with acp_client(place) as client:
        for method in ("session/new", "session/prompt", "authenticate", "session/list"):
            error = await client.error(method, {"cwd": str(place.work)})
            assert (error["code"], error["message"]) == (-32600, "Connection not initialized")
        await client.shake_hands()
        await client.new_session(place)


@pytest.mark.spec("A-26")
async def test_login_method_has_the_form_the_client_supports(place: Place) -> None:
    async with acp_client(place) as client:
        (plain,) = (await client.shake_hands())["authMethods"]
        (typed,) = (await client.shake_hands(auth={"terminal": True}))["authMethods"]
    assert (plain["id"], typed["id"]) == ("login", "login")
    assert "type" not in plain
    assert (typed["type"], typed["args"]) == ("terminal", ["--setup"])
    assert typed["env"] == {"KIMI_SHARE_DIR": str(place.share)}
    for method in (plain, typed):
        old = method["_meta"]["terminal-auth"]
        assert old["type"] == "terminal"
        assert old["args"][-1] == "setup"
        assert Path(old["command"]).is_absolute()
        assert old["env"] == {"KIMI_SHARE_DIR": str(place.share)}


def test_login_command_repeats_the_start_command(tmp_path: Path) -> None:
    script = tmp_path / "kimi"
    script.write_text("#!/bin/sh\n", encoding="utf-8")
    assert resolve_own_command(str(script), "/python") == ["/python", str(script)]
    script.chmod(0o755)
    assert resolve_own_command(str(script), "/python") == [str(script)]
    assert resolve_own_command("/x/kimi/__main__.py", "/python") == ["/python", "-P", "-m", "kimi"]
    assert resolve_own_command("-c", "/python") == ["/python", "-P", "-m", "kimi"]
    (method,) = build_auth_methods(ClientCapabilities(), {}, ["/bin/kimi"])
    assert method["_meta"]["terminal-auth"]["command"] == "/bin/kimi"
    assert method["_meta"]["terminal-auth"]["args"] == ["setup"]


@pytest.mark.parametrize(
    ("more", "usable"),
    [
        ({}, False),
        ({"api_key": "k"}, True),
        ({"oauth": True}, False),
        ({"oauth": True, "base_url": "http://localhost:11434/v1"}, False),
        ({"oauth": True, "api_key": "k"}, True),
        ({"custom_headers": {"Authorization": "Bearer x"}}, True),
        ({"base_url": "http://localhost:11434/v1"}, True),
        ({"base_url": "", "api_key": "k"}, False),
        ({"type": "_echo", "base_url": ""}, True),
    ],
)
def test_provider_settings_decide_whether_credentials_exist(more: dict[str, Any], usable: bool) -> None:
    fields: Json = {"provider_name": "p", "type": "kimi", "model": "m", "base_url": "https://api.test/v1", **more}
    assert is_model_usable(ModelSettings(**fields)) is usable
    assert not is_model_usable(None)


def without_key(place: Place) -> None:
    text = place.share.joinpath("config.toml").read_text(encoding="utf-8")
    place.share.joinpath("config.toml").write_text(text.replace('"sk-test-secret"', '""'), encoding="utf-8")


@pytest.mark.spec("A-27", "A-30")
async def test_sessions_are_refused_until_credentials_are_written(tmp_path: Path) -> None:
    place = Place(tmp_path).provider("https://api.test/v1")
    with_key = place.share.joinpath("config.toml").read_text(encoding="utf-8")
    async with acp_client(place) as client:
        methods = (await client.shake_hands(auth={"terminal": True}))["authMethods"]
        session_id = await client.new_session(place)
        without_key(place)
        opening: Json = {"sessionId": session_id, "cwd": str(place.work), "mcpServers": []}
        refused: list[tuple[str, Json]] = [
            ("session/new", {"cwd": str(place.work)}),
            ("session/load", opening),
            ("session/resume", opening),
            ("session/fork", opening),
            ("session/prompt", prompt(session_id, "hi")),
            ("authenticate", {"methodId": "login"}),
        ]
        for method, params in refused:
            error = await client.error(method, params)
            assert (error["code"], error["message"]) == (-32000, "Authentication required"), method
            assert error["data"]["authMethods"] == methods
        assert await client.result("session/list") == {"sessions": []}
        place.share.joinpath("config.toml").write_text(with_key + "\n", encoding="utf-8")
        await client.new_session(place)
        assert await client.result("authenticate", {"methodId": "login"}) == {}


@pytest.mark.spec("A-28", "A-29")
async def test_an_api_key_is_enough(tmp_path: Path) -> None:
    place = Place(tmp_path).provider("https://api.test/v1", "kimi")
    async with acp_client(place) as client:
        await client.shake_hands()
        await client.new_session(place)
        assert await client.result("authenticate", {"methodId": "login"}) == {}
        error = await client.error("authenticate", {"methodId": "other"})
        assert (error["code"], error["data"]) == (-32602, {"method_id": "Unknown auth method"})
        without_key(place)
        assert (await client.error("authenticate", {"methodId": "login"}))["code"] == -32000


async def test_missing_model_is_reported(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with acp_client(place) as client:
        await client.shake_hands()
        error = await client.error("session/new", {"cwd": str(place.work)})
        assert error["code"] == -32000
        assert error["data"]["details"].startswith("No model is configured: run 'kimi setup' in a terminal")


async def test_logout_is_not_supported(place: Place) -> None:
    async with acp_client(place) as client:
        result = await client.shake_hands()
        assert "auth" not in result["agentCapabilities"]
        error = await client.error("logout", {})
        assert (error["code"], error["data"]) == (-32601, {"method": "logout"})
