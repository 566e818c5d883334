"""Providers against a recording server: what they are told about the program, and refusals that concern it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kimi.application.settings.settings import ModelSettings
from kimi.domain.errors import APIStatusError, ConfigError
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.http.headers import format_user_agent
from kimi.infrastructure.models.provider_types import make_model_opener, open_model
from tests.support.providers.chat_client import ask, client
from tests.support.providers.provider_server import error_reply, provider

pytestmark = pytest.mark.anyio


@pytest.mark.spec("R-91", "R-276")
@pytest.mark.parametrize("kind", ["kimi", "openai_legacy", "openai_responses", "anthropic", "gemini"])
@pytest.mark.parametrize("host", ["api.moonshot.ai", "api.kimi.com", "api.test"])
async def test_every_provider_is_told_the_programs_own_name_and_no_device(tmp_path: Path, kind: str, host: str) -> None:
    """The server plays a proxy, so that a vendor's host can be asked without leaving this machine."""
    async with provider([error_reply(400, "no")]) as server:
        environ = {"KIMI_SHARE_DIR": str(tmp_path), "http_proxy": server.base_url}
        http = HttpClient(environ)
        settings = ModelSettings(provider_name="p", type=kind, model="M", base_url=f"http://{host}/v1", api_key="k")
        model = make_model_opener(settings, http, "2.0.0", environ)("s", lambda: "Zed 1")
        assert model is not None
        with pytest.raises(APIStatusError):
            await ask(model)
        await http.close()
    headers = server.requests[0].headers
    assert headers["host"] == host
    assert headers["user-agent"] == "kimi-wire/2.0.0 (Zed 1)"
    assert not [name for name in headers if name.startswith("x-msh-") or "kimi_cli" in headers[name].lower()]
    assert not (tmp_path / "device_id").exists()


@pytest.mark.spec("R-276")
async def test_an_endpoint_that_wants_other_headers_gets_the_configured_ones() -> None:
    async with client() as c:
        await ask(c.model(custom_headers={"user-agent": "mine/1", "X-Team": "a"}))
        sent = c.server.requests[0].headers
    assert (sent["user-agent"], sent["x-team"]) == ("mine/1", "a")


@pytest.mark.spec("R-275")
@pytest.mark.parametrize("kind", ["kimi", "anthropic", "openai_legacy"])
async def test_a_refusal_of_a_subscription_says_what_can_be_done(kind: str) -> None:
    refused = [error_reply(403, "only available for certain agents"), error_reply(403, "no")]
    async with provider(refused) as server:
        http = HttpClient({"http_proxy": server.base_url})
        fields: dict[str, Any] = {"provider_name": "p", "type": kind, "model": "M", "api_key": "k"}
        plan = ModelSettings(base_url="http://api.kimi.com/coding/v1", **fields)
        with pytest.raises(APIStatusError) as found:
            await ask(open_model(plan, "s", http, lambda: "kimi-wire/2", {}))
        with pytest.raises(APIStatusError) as other:
            await ask(open_model(ModelSettings(base_url="http://api.test/v1", **fields), "s", http, lambda: "", {}))
        await http.close()
    text = str(found.value)
    assert "only available for certain agents" in text
    assert "api.kimi.com is the endpoint of a subscription" in text
    assert "run 'kimi setup' and choose Kimi" in text
    assert "subscription" not in str(other.value)


@pytest.mark.spec("R-271")
async def test_a_model_that_lacks_its_key_is_not_opened() -> None:
    async with client() as c:
        fields: dict[str, Any] = {"provider_name": "p", "model": "M", "type": "kimi"}
        login = ModelSettings(base_url=c.server.base_url, oauth=True, key_variable="KIMI_API_KEY", **fields)
        known = ModelSettings(base_url="https://api.moonshot.ai/v1", key_page="https://keys.test", **fields)
        for settings in (login, known):
            assert make_model_opener(settings, c.http, "2", {})("s", lambda: "") is None
            with pytest.raises(ConfigError, match="run 'kimi setup'"):
                open_model(settings, "s", c.http, lambda: "", {})
        own = ModelSettings(base_url="http://lan.test/v1", **fields)
        assert make_model_opener(own, c.http, "2", {})("s", lambda: "") is not None
        assert c.server.requests == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "kimi-wire/2"),
        ("Zed 1.0", "kimi-wire/2 (Zed 1.0)"),
        (" (Zed 1.0)", "kimi-wire/2 (Zed 1.0)"),
        ("Zed\r\nX-Evil: 1 1.0", "kimi-wire/2 (ZedX-Evil: 1 1.0)"),
        ("Zédé 月 1.0", "kimi-wire/2 (Zd  1.0)"),
        ("月", "kimi-wire/2"),
        ("x" * 500, f"kimi-wire/2 ({'x' * 200})"),
    ],
)
async def test_any_client_name_makes_a_valid_header(given: str, expected: str) -> None:
    async with client() as c:
        await ask(c.model(agent=format_user_agent("2", given)))
        assert c.server.requests[0].headers["user-agent"] == expected
        assert "x-evil" not in c.server.requests[0].headers


async def test_a_user_agent_that_was_not_reduced_is_reduced() -> None:
    async with client() as c:
        await ask(c.model(agent="kimi-wire/2 (Zédé\r\nX-Evil: 1" + "x" * 500))
        sent = c.server.requests[0].headers
    assert sent["user-agent"] == ("kimi-wire/2 (ZdX-Evil: 1" + "x" * 500)[:240]
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
        assert [r.headers["user-agent"] for r in c.server.requests] == ["kimi-wire/2", "kimi-wire/2 (Zed 1)"]
