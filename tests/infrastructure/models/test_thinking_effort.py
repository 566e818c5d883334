"""How much a model is asked to think: the field of each provider type, and where there is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import user_message
from kimi.domain.errors import ConfigError
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.anthropic.messages import build_thinking_fields
from kimi.infrastructure.models.gemini.body import build_thinking_config
from kimi.infrastructure.models.openai.responses import OpenAiResponsesModel
from kimi.infrastructure.models.provider_types import PROVIDER_TYPES, open_model
from tests.support.providers.chat_client import client
from tests.support.settings_loading import load, one_model

pytestmark = pytest.mark.anyio

CAN = frozenset({"thinking"})


def thinker(type_: str, effort: str | None, model: str = "m", **more: Any) -> ModelSettings:
    given = {"capabilities": CAN, "thinking": True, "base_url": "http://127.0.0.1:1", "api_key": "k", **more}
    return ModelSettings.model_validate(
        {"alias": "a", "provider_name": "p", "type": type_, "model": model, "thinking_effort": effort, **given}
    )


@pytest.mark.spec("R-320")
@pytest.mark.parametrize(("effort", "sent"), [(None, "high"), ("minimal", "minimal"), ("xhigh", "xhigh")])
async def test_chat_completions_send_the_configured_effort(effort: str | None, sent: str) -> None:
    async with client() as c:
        body = await c.body("openai_legacy", capabilities=CAN, thinking=True, thinking_effort=effort)
        assert body["reasoning_effort"] == sent
        body = await c.body("openai_legacy", capabilities=CAN, thinking=False, thinking_effort=effort)
        assert body["reasoning_effort"] is None


@pytest.mark.spec("R-320")
@pytest.mark.parametrize(("effort", "sent"), [(None, "high"), ("low", "low")])
async def test_responses_send_the_configured_effort(effort: str | None, sent: str) -> None:
    model = OpenAiResponsesModel(thinker("openai_responses", effort), HttpClient({}), lambda: "")
    assert json.loads(model.encode_body("", [user_message("hi")], (), 0))["reasoning"]["effort"] == sent


@pytest.mark.spec("R-320")
@pytest.mark.parametrize(
    ("effort", "adaptive", "budget"),
    [(None, "high", 32_000), ("low", "low", 4_096), ("medium", "medium", 16_000), ("max", "max", 60_000 * 2 // 3)],
)
def test_messages_send_the_effort_or_a_budget(effort: str | None, adaptive: str, budget: int) -> None:
    new = build_thinking_fields(thinker("anthropic", effort, "claude-opus-4-6"), 60_000)
    assert new["output_config"] == {"effort": adaptive}
    old = build_thinking_fields(thinker("anthropic", effort, "claude-sonnet-4-5"), 60_000)
    assert old == {"thinking": {"type": "enabled", "budget_tokens": budget}}


@pytest.mark.spec("R-320")
@pytest.mark.parametrize(("effort", "level", "budget"), [(None, "high", 24_576), ("low", "low", 2_048)])
def test_gemini_sends_a_level_or_a_budget(effort: str | None, level: str, budget: int) -> None:
    new = build_thinking_config(thinker("gemini", effort, "gemini-3-pro"))
    assert new == {"includeThoughts": True, "thinkingLevel": level}
    old = build_thinking_config(thinker("gemini", effort, "gemini-2.5-flash"))
    assert old == {"includeThoughts": True, "thinkingBudget": budget}


@pytest.mark.spec("R-320")
@pytest.mark.parametrize("type_", [name for name, row in PROVIDER_TYPES.items() if row.effort_levels])
def test_every_level_of_a_type_can_be_sent(type_: str) -> None:
    for effort in PROVIDER_TYPES[type_].effort_levels:
        for name in ("claude-opus-4-6", "claude-sonnet-4-5", "gemini-3-pro", "gemini-2.5-pro"):
            settings = thinker(type_, effort, name, env={"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "l"})
            assert open_model(settings, "", HttpClient({}), lambda: "", {}).name == name
            fields = {"anthropic": build_thinking_fields(settings, 50_000)} if type_ == "anthropic" else {}
            config = {"gemini": build_thinking_config(settings)} if type_ in ("gemini", "vertexai") else {}
            assert None not in [*fields.values(), *config.values()]


@pytest.mark.spec("R-320")
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (thinker("kimi", "low"), "models.a.thinking_effort: providers of the type kimi have no levels of thinking;"),
        (thinker("_echo", "low"), "providers of the type _echo have no levels"),
        (thinker("anthropic", "minimal"), "the levels of the type anthropic are low, medium, high, max."),
        (thinker("openai_legacy", "low", capabilities=[]), "not known to think; add 'thinking' to its capabilities."),
    ],
)
def test_an_effort_that_cannot_be_sent_is_refused(settings: ModelSettings, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        open_model(settings, "", HttpClient({}), lambda: "", {})


@pytest.mark.spec("R-320")
def test_a_configured_effort_switches_thinking_on() -> None:
    config = one_model(
        provider={"type": "openai_legacy"}, model={"thinking_effort": "low", "capabilities": ["thinking"]}
    )
    for settings in (load(config).model, load(config).models["m"]):
        assert settings is not None
        assert (settings.thinking, settings.thinking_effort) == (True, "low")
        assert settings.effort_levels == ("minimal", "low", "medium", "high", "xhigh")
    off = load(config, thinking=False).model
    assert off is not None
    assert off.thinking is False
