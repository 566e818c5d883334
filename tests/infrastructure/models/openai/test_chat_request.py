"""`kimi` and `openai_legacy` against a recording server: how they are opened and what body is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Function, Message, ToolCall, user_message
from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart, ThinkPart
from kimi.domain.errors import ConfigError
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.provider_types import make_model_opener, open_model
from tests.support.providers.chat_client import HISTORY, ask, client
from tests.support.providers.provider_server import Reply, chunk, end_events, text_events

pytestmark = pytest.mark.anyio

TOOL = ToolSpec("Shell", "Runs a command.", {"type": "object", "properties": {"x": {"enum": ["a"]}}})


# --- what is sent -------------------------------------------------------------------------------------------------


async def test_models_of_two_types_that_share_tools_send_their_own_forms() -> None:
    forms: list[Any] = []
    async with client() as c:
        for kind in ("kimi", "openai_legacy", "kimi", "openai_legacy"):
            await ask(c.model(kind), tools=[TOOL])
            forms.append(c.server.requests[-1].json["tools"][0]["function"]["parameters"]["properties"]["x"])
    assert forms == [{"enum": ["a"], "type": "string"}, {"enum": ["a"]}] * 2


@pytest.mark.spec("R-71")
async def test_kimi_request_has_the_documented_form() -> None:
    async with client() as c:
        model = c.model(capabilities=frozenset({"thinking"}), thinking=True, api_key="sk-1")
        await ask(model, tools=[TOOL])
        request = c.server.requests[0]
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert list(request.json) == [
        "model",
        "messages",
        "tools",
        "stream",
        "stream_options",
        "prompt_cache_key",
        "max_completion_tokens",
        "thinking",
    ]
    limit = request.json.pop("max_completion_tokens")
    assert 198_000 < limit < 200_000 - 1024
    assert request.json | {"max_completion_tokens": 0} == {
        "model": "M",
        "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "Shell",
                    "description": "Runs a command.",
                    "parameters": {"type": "object", "properties": {"x": {"enum": ["a"], "type": "string"}}},
                },
            }
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "prompt_cache_key": "session-1",
        "max_completion_tokens": 0,
        "thinking": {"type": "enabled"},
    }
    assert request.headers["authorization"] == "Bearer sk-1"
    assert request.headers["user-agent"] == "kimi-wire/2.0.0"
    assert request.headers["content-type"] == "application/json"
    assert not any(name.startswith("x-msh-") for name in request.headers)


@pytest.mark.spec("R-71")
async def test_custom_headers_override_defaults_and_sampling_comes_from_settings() -> None:
    headers = {"user-agent": "mine", "Authorization": "Basic x", "X-Extra": "1"}
    async with client() as c:
        body = await c.body(custom_headers=headers, api_key="sk-1", temperature=0.5, top_p=0.25)
        sent = c.server.requests[0].headers
    assert (sent["user-agent"], sent["authorization"], sent["x-extra"]) == ("mine", "Basic x", "1")
    assert (body["temperature"], body["top_p"]) == (0.5, 0.25)


async def test_unset_fields_are_left_out() -> None:
    async with client() as c:
        body = await c.body(max_completion_tokens=0)
        assert set(body) == {"model", "messages", "stream", "stream_options", "prompt_cache_key"}
        assert "authorization" not in c.server.requests[0].headers


BOTH = frozenset({"thinking", "always_thinking"})
CAN = frozenset({"thinking"})
NOT = frozenset[str]()


@pytest.mark.spec("R-72")
@pytest.mark.parametrize(
    ("capabilities", "thinking", "keep", "expected"),
    [
        (CAN, True, None, {"type": "enabled"}),
        (CAN, True, "all", {"type": "enabled", "keep": "all"}),
        (CAN, False, "all", {"type": "disabled"}),
        (CAN, None, None, {"type": "disabled"}),
        (BOTH, False, None, {"type": "enabled"}),
        (BOTH, None, "all", {"type": "enabled", "keep": "all"}),
        (NOT, None, "all", None),
        (NOT, False, None, {"type": "disabled"}),
        (NOT, True, None, None),
    ],
)
async def test_thinking_is_sent_only_when_supported(
    capabilities: frozenset[str], thinking: bool | None, keep: str | None, expected: dict[str, str] | None
) -> None:
    async with client() as c:
        body = await c.body(capabilities=capabilities, thinking=thinking, thinking_keep=keep)
    assert body.get("thinking") == expected
    assert "reasoning_effort" not in body


@pytest.mark.spec("R-73")
@pytest.mark.parametrize("kind", ["kimi", "openai_legacy"])
@pytest.mark.parametrize("thought", ["let me see", ""])
async def test_reasoning_round_trips_even_when_empty(kind: str, thought: str) -> None:
    events = [chunk({"role": "assistant", "reasoning_content": thought}), *text_events("so"), *end_events()]
    async with client(Reply(events)) as c:
        parts = (await ask(c.model(kind)))[:-1]
        assert parts == [ThinkPart(thought), TextPart("so")]
        body = await c.body(kind, [*HISTORY, Message("assistant", (ThinkPart(thought), TextPart("so"))), *HISTORY])
    assert body["messages"][2] == {"role": "assistant", "content": "so", "reasoning_content": thought}


@pytest.mark.spec("R-75")
@pytest.mark.parametrize(
    ("cap", "tokens", "expected"), [(None, 50_000, 148_976), (1000, 0, 1000), (None, 300_000, 1), (0, 0, None)]
)
async def test_completion_limit_fits_cap_and_window(cap: int | None, tokens: int, expected: int | None) -> None:
    async with client() as c:
        await ask(c.model(max_completion_tokens=cap), tokens=tokens)
        assert c.server.requests[0].json.get("max_completion_tokens") == expected


@pytest.mark.spec("R-75")
async def test_the_estimate_counts_system_prompt_tools_and_history() -> None:
    history = [user_message("x" * 4000), Message("user", (TextPart("é" * 100), ImagePart(MediaUrl("u"))))]
    schema = json.dumps({"type": "object"}, separators=(",", ":"))
    tool = ToolSpec("F", "d" * 400, {"type": "object"})
    entry = f'{{"type":"function","function":{{"name":"F","description":"{"d" * 400}","parameters":{schema}}}}}'
    estimate = len("be kind") // 4 + len(entry) // 4 + 1000 + 100 + 2000
    async with client() as c:
        model = c.model(capabilities=frozenset({"image_in"}))
        await ask(model, history, [tool])
        assert c.server.requests[0].json["max_completion_tokens"] == 200_000 - (estimate + 1024)
        await ask(model, [*history, Message("assistant", (TextPart("y" * 40),))], [tool])
        assert c.server.requests[1].json["max_completion_tokens"] == 200_000 - (estimate + 10 + 1024)


THOUGHT = [*HISTORY, Message("assistant", (ThinkPart("hm"), TextPart("so"))), *HISTORY]


@pytest.mark.spec("R-76")
@pytest.mark.parametrize(
    ("capabilities", "thinking", "history", "expected"),
    [
        (CAN, True, HISTORY, {"reasoning_effort": "high"}),
        (BOTH, False, HISTORY, {"reasoning_effort": "high"}),
        (CAN, False, THOUGHT, {"reasoning_effort": None}),
        (NOT, None, HISTORY, {}),
        (NOT, None, THOUGHT, {"reasoning_effort": "medium"}),
    ],
)
async def test_openai_legacy_request_has_the_documented_form(
    capabilities: frozenset[str], thinking: bool | None, history: list[Message], expected: dict[str, Any]
) -> None:
    async with client() as c:
        await ask(c.model("openai_legacy", capabilities=capabilities, thinking=thinking), history, [TOOL])
        body = c.server.requests[0].json
    assert {key: body.pop(key) for key in ("model", "stream", "stream_options")} == {
        "model": "M",
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert body.pop("tools")[0]["function"]["parameters"] == TOOL.parameters
    assert [message["role"] for message in body.pop("messages")] == ["system", *(one.role for one in history)]
    assert body == expected


@pytest.mark.spec("R-76")
@pytest.mark.parametrize(("key", "field"), [(None, "reasoning_content"), ("thoughts", "thoughts"), ("", None)])
async def test_reasoning_key_selects_the_field(key: str | None, field: str | None) -> None:
    delta = {"reasoning_content": "r", "thoughts": "t"}
    async with client(Reply([chunk(delta), *text_events("so"), *end_events()])) as c:
        parts = (await ask(c.model("openai_legacy", reasoning_key=key), THOUGHT))[:-1]
        body = c.server.requests[0].json
    expected = [] if field is None else [ThinkPart(delta[field])]
    assert parts == [*expected, TextPart("so")]
    assert body["messages"][2] == {"role": "assistant", "content": "so", **({field: "hm"} if field else {})}
    assert body.get("reasoning_effort") == (None if field is None else "medium")


async def test_the_history_is_sent_whole_at_every_step() -> None:
    history = list(HISTORY)
    async with client() as c:
        model = c.model()
        for number in range(4):
            await ask(model, history)
            sent = [message["content"] for message in c.server.requests[-1].json["messages"][1:]]
            assert sent == ["hello", *(text for before in range(number) for text in (f"a{before}", f"u{before}"))]
            history += [Message("assistant", (TextPart(f"a{number}"),)), user_message(f"u{number}")]
        await ask(model, [user_message("compact")])
        await ask(model, history[:2])
        assert len(c.server.requests[-1].json["messages"]) == 3


async def test_tool_exchange_is_sent_back_unchanged() -> None:
    history = [
        *HISTORY,
        Message("assistant", (TextPart("one moment"),), (ToolCall("tc1", Function("Shell", '{"x":1}')),)),
        Message("tool", (TextPart("<system>ok</system>"), TextPart("out")), tool_call_id="tc1"),
    ]
    async with client() as c:
        body = await c.body(history=history)
    assert body["messages"][2:] == [
        {
            "role": "assistant",
            "content": "one moment",
            "tool_calls": [{"type": "function", "id": "tc1", "function": {"name": "Shell", "arguments": '{"x":1}'}}],
        },
        {
            "role": "tool",
            "content": [{"type": "text", "text": "<system>ok</system>"}, {"type": "text", "text": "out"}],
            "tool_call_id": "tc1",
        },
    ]


# --- opening ------------------------------------------------------------------------------------------------------


def test_unknown_types_are_refused_by_name() -> None:
    settings = ModelSettings(provider_name="mine", type="unheard_of", model="M", base_url="http://x")
    with pytest.raises(ConfigError) as raised:
        open_model(settings, "s", HttpClient({}), lambda: "", {})
    assert "'mine'" in str(raised.value)
    assert "'unheard_of'" in str(raised.value)
    assert "kimi, openai_legacy, openai_responses, anthropic" in str(raised.value)


@pytest.mark.parametrize("settings", [None, ModelSettings(provider_name="p", type="kimi", model="")])
def test_unusable_model_settings_open_no_model(settings: ModelSettings | None) -> None:
    assert make_model_opener(settings, HttpClient({}), "2", {})("s", lambda: "") is None


@pytest.mark.parametrize(
    "more",
    [
        {"base_url": "ftp://x"},
        {"base_url": "no url"},
        {"base_url": "http://x:port"},
        {"custom_headers": {"X-A": "one\r\nX-B: two"}},
        {"custom_headers": {"bad name": "x"}},
        {"custom_headers": {"content-length": "5"}},
    ],
)
def test_unusable_settings_are_refused_at_the_start(more: dict[str, Any]) -> None:
    given: dict[str, Any] = {"base_url": "http://x", **more}
    settings = ModelSettings(provider_name="p", type="kimi", model="M", **given)
    with pytest.raises(ConfigError):
        make_model_opener(settings, HttpClient({}), "2", {})
