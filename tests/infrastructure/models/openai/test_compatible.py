"""Servers that speak chat completions: what each of them is sent, and what is understood of their answers."""

from __future__ import annotations

from typing import Any

import pytest

from kimi.application.ports import ModelItem, ResponseEnd
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Message, user_message
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.errors import APIStatusError, ConfigError
from kimi.domain.turn import TokenUsage
from kimi.infrastructure.config.model_choice import resolve_named_models
from kimi.infrastructure.config.schema import validate_configuration
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.openai.chat import OpenAiChatModel
from kimi.infrastructure.models.openai.compatible import (
    COMMON_SERVER,
    KNOWN_SERVERS,
    find_server,
    make_compatible_profile,
)
from kimi.infrastructure.models.provider_types import open_model
from tests.support.providers.provider_server import (
    Event,
    Json,
    Reply,
    chunk,
    end_events,
    provider,
    text_events,
    text_reply,
)

pytestmark = pytest.mark.anyio

THOUGHT = [user_message("hello"), Message("assistant", (ThinkPart("hm"), TextPart("yes"))), user_message("go on")]


async def exchange(
    reply: Reply | None = None, host: str = "", history: list[Message] | None = None, **more: Any
) -> tuple[Json, list[ModelItem]]:
    """The body that a server at `host` gets, and what is made of its answer."""
    async with provider([reply or text_reply("ok")]) as server:
        http = HttpClient({})
        given: dict[str, Any] = {"type": "openai_legacy", **more}
        settings = ModelSettings(provider_name="p", model="m", base_url=server.base_url, **given)
        if host:
            model = OpenAiChatModel(settings, "s", http, lambda: "kimi-wire/2", make_compatible_profile(settings, host))
        else:
            model = open_model(settings, "s", http, lambda: "kimi-wire/2", {})
        try:
            async with model.stream("system", history or THOUGHT, [], 0) as items:
                found = [item async for item in items]
        finally:
            await http.close()
        return server.requests[0].json, found


def reasoning(body: Json) -> dict[str, str]:
    """The fields of the assistant's message that carry thinking."""
    return {name: text for name, text in body["messages"][2].items() if name.startswith("reasoning")}


# --- what is known of hosts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("openrouter.ai", "openrouter.ai"),
        ("OpenRouter.ai.", "openrouter.ai"),
        ("eu.openrouter.ai", "openrouter.ai"),
        ("notopenrouter.ai", None),
        ("openrouter.ai.evil.example", None),
        ("127.0.0.1", None),
        ("localhost", None),
        ("api.deepseek.com", "api.deepseek.com"),
    ],
)
def test_servers_are_known_by_their_host(host: str, known: str | None) -> None:
    assert find_server(host) is (KNOWN_SERVERS[known] if known else COMMON_SERVER)


async def test_plain_server_gets_no_vendor_fields_and_no_unset_fields() -> None:
    body, _ = await exchange(history=[user_message("hello")], max_context_size=1000, device_headers=True)
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "system"}, {"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("", {"reasoning_content": "hm"}),
        ("localhost", {"reasoning_content": "hm"}),
        ("openrouter.ai", {"reasoning": "hm"}),
        ("api.groq.com", {"reasoning": "hm"}),
        ("api.openai.com", {}),
        ("api.mistral.ai", {}),
    ],
)
async def test_thinking_is_sent_back_in_the_field_of_the_server(host: str, expected: Json) -> None:
    body, _ = await exchange(host=host)
    assert reasoning(body) == expected
    assert body.get("reasoning_effort") == ("medium" if expected else None)


async def test_configured_reasoning_key_overrides_the_known_one() -> None:
    for key, expected in (("thoughts", {}), ("", {}), ("reasoning_text", {"reasoning_text": "hm"})):
        body, _ = await exchange(host="openrouter.ai", reasoning_key=key)
        assert reasoning(body) == expected
        assert ("thoughts" in body["messages"][2]) is (key == "thoughts")


@pytest.mark.parametrize(("host", "sent"), [("localhost", True), ("openrouter.ai", True), ("api.mistral.ai", False)])
async def test_disabled_thinking_is_sent_as_null_unless_refused_by_the_server(host: str, sent: bool) -> None:
    body, _ = await exchange(host=host, thinking=False)
    assert ("reasoning_effort" in body) is sent
    assert body.get("reasoning_effort") is None
    assert ("stream_options" in body) is sent


# --- what the configuration says --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "host", "field"),
    [
        ("openai_legacy", "localhost", "max_tokens"),
        ("openai_legacy", "api.openai.com", "max_completion_tokens"),
        ("kimi", "", "max_completion_tokens"),
    ],
)
async def test_answer_limit_uses_the_field_of_the_server(kind: str, host: str, field: str) -> None:
    body, _ = await exchange(host=host, type=kind, max_completion_tokens=2000)
    assert {name: value for name, value in body.items() if "max" in name} == {field: 2000}


async def test_fields_can_be_added_and_left_out() -> None:
    body, _ = await exchange(
        thinking=False,
        omit_fields=("reasoning_effort", "stream_options", "temperature"),
        extra_body={"top_k": 20, "chat_template_kwargs": {"enable_thinking": False}, "temperature": 0.2},
    )
    assert {name: value for name, value in body.items() if name not in ("model", "messages", "stream")} == {
        "top_k": 20,
        "chat_template_kwargs": {"enable_thinking": False},
        "temperature": 0.2,
    }


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("openai_legacy", {"extra_body": {"messages": []}}, "must not name messages"),
        ("kimi", {"omit_fields": ("stream", "model")}, "must not name model, stream"),
        ("anthropic", {"extra_body": {"top_k": 1}}, "of the types kimi and openai_legacy only"),
        ("gemini", {"omit_fields": ("x",)}, "of the types kimi and openai_legacy only"),
    ],
)
def test_invalid_field_changes_are_refused(kind: str, more: dict[str, Any], message: str) -> None:
    settings = ModelSettings(provider_name="p", type=kind, model="m", base_url="http://x/v1", **more)
    with pytest.raises(ConfigError, match=message):
        open_model(settings, "s", HttpClient({}), lambda: "", {})


def test_local_model_configuration_is_loaded() -> None:
    configuration = validate_configuration(
        {
            "providers": {
                "local": {
                    "type": "openai_legacy",
                    "base_url": "http://127.0.0.1:11434/v1",
                    "api_key": "",
                    "extra_body": {"top_k": 20},
                    "omit_fields": ["reasoning_effort"],
                }
            },
            "models": {
                name: {"provider": "local", "model": "qwen3", "max_context_size": 40_000, **more}
                for name, more in {"short": {"max_output_size": 4000}, "long": {}}.items()
            },
        }
    )
    models = resolve_named_models(configuration, Flags(work_dir="."), {})
    assert (models["short"].max_completion_tokens, models["long"].max_completion_tokens) == (4000, None)
    assert (models["short"].extra_body, models["short"].omit_fields) == ({"top_k": 20}, ("reasoning_effort",))


# --- answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "delta",
    [{"reasoning": "hm"}, {"reasoning_content": "hm"}, {"reasoning_content": "hm", "reasoning": "hm"}],
)
async def test_thinking_is_understood_under_both_names(delta: Json) -> None:
    events: list[Event] = [chunk({**delta, "content": ""}), *text_events("yes"), *end_events()]
    _, items = await exchange(Reply(events))
    assert items[:-1] == [ThinkPart("hm"), TextPart("yes")]


async def test_null_thinking_next_to_text_is_ignored() -> None:
    events: list[Event] = [
        chunk({"role": "assistant", "content": None, "reasoning": None}),
        chunk({"content": "yes", "reasoning": None, "reasoning_details": []}),
        *end_events(),
    ]
    _, items = await exchange(Reply(events))
    assert items[:-1] == [TextPart("yes")]


async def test_cached_tokens_are_read_under_the_deepseek_name() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6}
    _, items = await exchange(text_reply("ok", usage=usage))
    assert isinstance(items[-1], ResponseEnd)
    assert items[-1].usage == TokenUsage(6, 5, 4)


async def test_error_next_to_choices_is_an_error() -> None:
    failed = chunk({"content": ""}, finish="error", error={"code": 502, "message": "upstream is gone"})
    with pytest.raises(APIStatusError, match="HTTP 502: upstream is gone") as raised:
        await exchange(Reply([*text_events("so far"), failed]))
    assert raised.value.transient
