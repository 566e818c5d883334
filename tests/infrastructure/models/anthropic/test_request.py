"""`anthropic` against a recording server: the request around the messages (runtime spec 3.5)."""

from __future__ import annotations

import pytest

from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import user_message
from kimi.domain.errors import ConfigError
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.anthropic.messages import compute_max_tokens, has_adaptive_thinking
from kimi.infrastructure.models.provider_types import open_model
from tests.support.providers.anthropic_client import HISTORY, MARK, TOOLS, ask, client

pytestmark = pytest.mark.anyio


@pytest.mark.spec("R-77")
async def test_request_has_the_documented_form() -> None:
    async with client() as c:
        await ask(c.model(thinking=False), tools=TOOLS)
        request = c.server.requests[0]
    assert request.json == {
        "model": "M",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello", **MARK}]}],
        "system": [{"type": "text", "text": "be kind", **MARK}],
        "tools": [
            {"name": "Glob", "description": "Finds files.", "input_schema": TOOLS[0].parameters},
            {"name": "Shell", "description": "Runs a command.", "input_schema": TOOLS[1].parameters, **MARK},
        ],
        "max_tokens": 50_000,
        "stream": True,
        "metadata": {"user_id": "session-1"},
        "thinking": {"type": "disabled"},
    }
    assert request.path == "/v1/messages"
    sent = {name: request.headers.get(name) for name in ("x-api-key", "anthropic-version", "user-agent")}
    assert sent == {"x-api-key": "key-1", "anthropic-version": "2023-06-01", "user-agent": "kimi-wire/2"}
    assert "anthropic-beta" not in request.headers


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_base_url_may_have_any_suffix(suffix: str) -> None:
    async with client() as c:
        await ask(c.model(base_url=c.server.base_url.removesuffix("/v1") + suffix))
        assert c.server.requests[0].path == "/v1/messages"


async def test_unset_key_session_system_and_tools_are_omitted() -> None:
    async with client() as c:
        settings = ModelSettings(provider_name="p", type="anthropic", model="M", base_url=c.server.base_url)
        async with open_model(settings, "", c.http, lambda: "", {}).stream("", HISTORY, [], 0) as items:
            assert [item async for item in items]
        assert set(c.server.requests[0].json) == {"model", "messages", "max_tokens", "stream"}
        assert "x-api-key" not in c.server.requests[0].headers


async def test_configured_headers_override_defaults() -> None:
    async with client() as c:
        await ask(c.model(custom_headers={"Anthropic-Version": "2099-01-01", "Authorization": "Bearer t"}))
        sent = c.server.requests[0].headers
    assert (sent["anthropic-version"], sent["authorization"]) == ("2099-01-01", "Bearer t")


@pytest.mark.spec("R-77")
@pytest.mark.parametrize(
    ("model", "adaptive"),
    [
        ("claude-opus-4-6", True),
        ("claude-sonnet-4-6-20260115", True),
        ("claude-opus-5", True),
        ("claude-haiku-5-1", True),
        ("anthropic.claude-opus-4-7-v1:0", True),
        ("claude-sonnet-4-5-20250929", False),
        ("claude-opus-4-20250514", False),
        ("claude-opus-4-1", False),
        ("claude-3-7-sonnet-latest", False),
        ("claude-3-5-haiku-20241022", False),
        ("kimi-k2", False),
    ],
)
async def test_model_version_determines_thinking_format(model: str, adaptive: bool) -> None:
    assert has_adaptive_thinking(model) is adaptive
    async with client() as c:
        body = await c.body(model=model, thinking=True)
        beta = c.server.requests[0].headers.get("anthropic-beta")
    if adaptive:
        assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
        assert body["output_config"] == {"effort": "high"}
        assert beta is None
        return
    assert body["thinking"]["type"] == "enabled"
    assert body["thinking"]["budget_tokens"] == (
        32_000 if body["max_tokens"] == 50_000 else body["max_tokens"] * 2 // 3
    )
    assert "output_config" not in body
    assert beta == "interleaved-thinking-2025-05-14"


@pytest.mark.parametrize(
    ("capabilities", "thinking", "kind"),
    [
        (frozenset({"thinking"}), True, "enabled"),
        (frozenset({"thinking"}), False, "disabled"),
        (frozenset({"thinking"}), None, "disabled"),
        (frozenset({"always_thinking"}), False, "enabled"),
        (frozenset[str](), False, "disabled"),
        (frozenset[str](), True, None),
        (frozenset[str](), None, None),
    ],
)
async def test_thinking_is_sent_only_when_supported(
    capabilities: frozenset[str], thinking: bool | None, kind: str | None
) -> None:
    if kind is None and thinking is True:
        kind = "disabled"
    async with client() as c:
        body = await c.body(capabilities=capabilities, thinking=thinking)
    assert body.get("thinking", {}).get("type") == kind


@pytest.mark.parametrize(
    ("model", "window", "tokens", "expected"),
    [
        ("claude-opus-4-6", 200_000, 0, 50_000),
        ("claude-opus-4-6", 200_000, 170_000, 28_976),
        ("claude-opus-4-6", 200_000, 300_000, 1),
        ("claude-opus-4-1-20250805", 200_000, 0, 32_000),
        ("claude-opus-4-20250514", 200_000, 0, 32_000),
        ("claude-opus-4-5-20251101", 200_000, 0, 50_000),
        ("claude-3-5-haiku-20241022", 200_000, 0, 8192),
        ("claude-3-haiku-20240307", 200_000, 0, 4096),
        ("claude-3-7-sonnet-20250219", 200_000, 0, 50_000),
    ],
)
def test_the_answer_fits_model_and_window(model: str, window: int, tokens: int, expected: int) -> None:
    settings = ModelSettings(provider_name="p", type="anthropic", model=model, max_context_size=window)
    assert compute_max_tokens(settings, tokens) == expected
    configured = settings.model_copy(update={"max_completion_tokens": 64_000})
    assert compute_max_tokens(configured, tokens) == max(1, min(64_000, window - tokens - 1024))


async def test_thinking_budget_shrinks_and_is_disabled_when_the_window_is_full() -> None:
    async with client() as c:
        model = c.model(thinking=True)
        for tokens, budget in ((0, 32_000), (170_000, 28_976 * 2 // 3), (197_900, 1024)):
            await ask(model, tokens=tokens)
            body = c.server.requests[-1].json
            assert body["thinking"] == {"type": "enabled", "budget_tokens": budget}
            assert budget < body["max_tokens"]
        await ask(model, tokens=198_500)
        assert c.server.requests[-1].json["thinking"] == {"type": "disabled"}


async def test_the_estimate_counts_every_character_of_chinese() -> None:
    async with client() as c:
        model = c.model(max_context_size=10_000)
        for history in ([user_message("月" * 4000)], [user_message("x" * 16_000)]):
            await ask(model, history)
        sent = [request.json["max_tokens"] for request in c.server.requests]
    assert sent == [10_000 - (4000 + len("be kind") // 4 + 1024)] * 2


async def test_functions_of_other_providers_are_left_out() -> None:
    async with client() as c:
        await ask(c.model(), tools=[ToolSpec("$web_search", "", {})])
        assert "tools" not in c.server.requests[0].json


def test_invalid_base_url_is_refused_at_the_start() -> None:
    settings = ModelSettings(provider_name="p", type="anthropic", model="M", base_url="ftp://x")
    with pytest.raises(ConfigError):
        open_model(settings, "s", HttpClient({}), lambda: "", {})
