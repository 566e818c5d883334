"""`kimi` and `openai_legacy` against a recording server: what is sent, and what is made of what comes back."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from kimi.application.ports import ChatModel, ModelItem, ResponseEnd
from kimi.application.settings import ModelSettings
from kimi.domain.content import ImagePart, MediaUrl, TextPart, ThinkPart
from kimi.domain.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthExpired,
    ChatProviderError,
    ConfigError,
)
from kimi.domain.message import Function, Message, ToolCall, user_message
from kimi.domain.tool import ToolSpec
from kimi.domain.turn import StopReason, TokenUsage
from kimi.infrastructure.models.headers import device_headers, is_vendor_host, user_agent_text
from kimi.infrastructure.models.http import HttpLayer, HttpLimits
from kimi.infrastructure.models.kimi import kimi_quirks
from kimi.infrastructure.models.open import model_opener, open_model
from tests.contracts.chat_model_stage import merged
from tests.provider_server import (
    Event,
    ProviderServer,
    Reply,
    call_events,
    chunk,
    dumps,
    end_events,
    error_reply,
    provider,
    text_events,
    text_reply,
)

pytestmark = pytest.mark.anyio

HISTORY = [user_message("hello")]
KEY = "sk-secret-123"
TOOL = ToolSpec("Shell", "Runs a command.", {"type": "object", "properties": {"x": {"enum": ["a"]}}})


class Client:
    """A model and the server that it talks to."""

    def __init__(self, server: ProviderServer, http: HttpLayer) -> None:
        self.server = server
        self.http = http

    def model(self, kind: str = "kimi", agent: str = "KimiCLI/2.0.0", **more: Any) -> ChatModel:
        given: dict[str, Any] = {"base_url": self.server.base_url, "max_context_size": 200_000, **more}
        settings = ModelSettings(provider_name="p", type=kind, model="M", **given)
        return open_model(settings, "session-1", self.http, lambda: agent, {"KIMI_SHARE_DIR": "/nowhere"})

    async def body(self, kind: str = "kimi", history: Sequence[Message] = HISTORY, **more: Any) -> dict[str, Any]:
        """The body of one request."""
        await ask(self.model(kind, **more), history)
        return self.server.requests[-1].json


@asynccontextmanager
async def client(*replies: Reply, read_s: float = 5) -> AsyncGenerator[Client]:
    async with provider(replies or [text_reply("ok")]) as server:
        http = HttpLayer({}, HttpLimits(read_s=read_s))
        try:
            yield Client(server, http)
        finally:
            await http.close()


async def ask(
    model: ChatModel, history: Sequence[Message] = HISTORY, tools: Sequence[ToolSpec] = (), tokens: int = 0
) -> list[ModelItem]:
    async with model.stream("be kind", history, tools, tokens) as items:
        return [item async for item in items]


async def collect(model: ChatModel, seen: list[ModelItem]) -> None:
    """Everything up to the failure."""
    async with model.stream("", HISTORY, [], 0) as items:
        async for item in items:
            seen.append(item)


# --- what is sent -------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-71")
async def test_the_request_of_kimi() -> None:
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
    assert request.headers["user-agent"] == "KimiCLI/2.0.0"
    assert request.headers["content-type"] == "application/json"
    assert not any(name.startswith("x-msh-") for name in request.headers)


@pytest.mark.spec("R-71")
async def test_custom_headers_may_override_any_and_generation_parameters_come_from_the_settings() -> None:
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
async def test_thinking_is_sent_only_where_it_means_something(
    capabilities: frozenset[str], thinking: bool | None, keep: str | None, expected: dict[str, str] | None
) -> None:
    async with client() as c:
        body = await c.body(capabilities=capabilities, thinking=thinking, thinking_keep=keep)
    assert body.get("thinking") == expected
    assert "reasoning_effort" not in body


@pytest.mark.spec("R-73")
@pytest.mark.parametrize("kind", ["kimi", "openai_legacy"])
@pytest.mark.parametrize("thought", ["let me see", ""])
async def test_reasoning_goes_in_and_out_also_when_it_is_empty(kind: str, thought: str) -> None:
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
async def test_the_completion_limit(cap: int | None, tokens: int, expected: int | None) -> None:
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
async def test_the_request_of_openai_legacy(
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
async def test_the_reasoning_key(key: str | None, field: str | None) -> None:
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


# --- headers ------------------------------------------------------------------------------------------------------


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
    sent = kimi_quirks(environ, send_device=True).headers(host, "KimiCLI/2.0.0 (x)")
    assert bool(sent) is is_vendor
    assert kimi_quirks(environ, send_device=False).headers(host, "KimiCLI/2.0.0") == {}
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
async def test_device_headers_on_the_way(tmp_path: Path, host: str, more: dict[str, Any], expected: bool) -> None:
    """The server plays a proxy, so that a vendor's host can be asked without leaving this machine."""
    async with provider([text_reply("ok")]) as server:
        environ = {"KIMI_SHARE_DIR": str(tmp_path), "http_proxy": server.base_url}
        http = HttpLayer(environ)
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
    first, second = device_headers("2.0.0", environ), device_headers("2.0.0", environ)
    assert first == second
    names = ("Platform", "Version", "Device-Name", "Device-Model", "Os-Version", "Device-Id")
    assert list(first) == [f"X-Msh-{name}" for name in names]
    assert first["X-Msh-Version"] == "2.0.0"
    assert all(value and value.isascii() and value.isprintable() for value in first.values())


def test_a_device_id_that_cannot_be_kept_is_sent_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert device_headers("2.0.0", {"KIMI_SHARE_DIR": str(tmp_path / "file")})["X-Msh-Device-Id"].isalnum()


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
        await ask(c.model(agent=user_agent_text("2", given)))
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
        model = model_opener(settings, c.http, "2", {})("s", lambda: name)
        assert model is not None
        await ask(model)
        name = "Zed 1"
        await ask(model)
        assert [r.headers["user-agent"] for r in c.server.requests] == ["KimiCLI/2", "KimiCLI/2 (Zed 1)"]


# --- what comes back ----------------------------------------------------------------------------------------------


USAGES: list[tuple[list[Event], TokenUsage | None]] = [
    (
        [chunk(finish="stop"), {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}],
        TokenUsage(10, 5),
    ),
    (
        [chunk(finish="stop", usage={"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 4})],
        TokenUsage(6, 5, 4),
    ),
    (
        [chunk(usage={"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}), chunk(finish="stop")],
        TokenUsage(5, 0, 4),
    ),
    (
        [{"choices": [{"delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 1}}]}],
        TokenUsage(3, 1),
    ),
    ([chunk(finish="stop", usage={"prompt_tokens": 3, "cached_tokens": 7})], TokenUsage(0, 0, 7)),
    ([chunk(finish="stop", usage={"prompt_tokens": None, "prompt_tokens_details": None})], TokenUsage()),
    ([{**chunk(finish="stop"), "usage": None}], None),
    ([chunk(finish="stop")], None),
]


@pytest.mark.spec("R-79")
@pytest.mark.parametrize(("events", "usage"), USAGES)
async def test_usage_is_found_wherever_it_stands(events: list[Event], usage: TokenUsage | None) -> None:
    async with client(Reply([*text_events("ok"), *events])) as c:
        end = (await ask(c.model()))[-1]
    assert end == ResponseEnd("chat-1", usage, "end")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", "end"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("what", "unknown"),
        (None, "unknown"),
    ],
)
async def test_why_the_model_stopped(reason: str | None, expected: StopReason) -> None:
    async with client(Reply([*text_events("ok"), chunk(finish=reason)])) as c:
        end = (await ask(c.model()))[-1]
    assert isinstance(end, ResponseEnd)
    assert end.stop_reason == expected


@pytest.mark.parametrize("framing", [None, 1, 7, 65_536, 0])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
async def test_any_framing_gives_the_same_text(framing: int | None, line_end: bytes) -> None:
    pieces = ["grüße ", "月光 ", "🌙", "\u2028", " end"]
    async with client(replace(text_reply(*pieces), framing=framing, line_end=line_end)) as c:
        items = await ask(c.model())
    assert items[:-1] == [TextPart(piece) for piece in pieces]


@pytest.mark.parametrize("arguments", ["", '{"x":', "not json"])
async def test_what_waits_behind_a_call_that_never_ended_comes_at_the_end(arguments: str) -> None:
    events = [*call_events(0, "a", "F", arguments), *call_events(1, "b", "G", "{}"), *text_events("so")]
    async with client(Reply([*events, *end_events("tool_calls")])) as c:
        items = await ask(c.model())
    first, second, text = merged(items)
    assert isinstance(first, ToolCall)
    assert (first.id, first.function.arguments or "") == ("a", arguments)
    assert (second, text) == (ToolCall("b", Function("G", "{}")), TextPart("so"))
    assert isinstance(items[-1], ResponseEnd)


async def test_content_as_a_list_and_empty_deltas_and_unknown_fields() -> None:
    events: list[Event] = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": None, "tool_calls": None, "what": 1}),
        chunk({"content": [{"type": "text", "text": "one "}, {"type": "image"}, {"text": "two"}]}),
        {"choices": [{"delta": None}]},
        {"choices": []},
        {},
        *text_events(" three"),
        *end_events(),
    ]
    async with client(Reply(events)) as c:
        assert (await ask(c.model()))[:-1] == [TextPart("one two"), TextPart(" three")]


async def test_the_last_event_counts_without_its_blank_line() -> None:
    events = [*text_events("a", "b"), chunk(finish="stop")]
    body = b"\n\n".join(b"data: " + dumps(event) for event in events)
    async with client(Reply(body=body, headers={"Content-Type": "text/event-stream"})) as c:
        assert await ask(c.model()) == [TextPart("a"), TextPart("b"), ResponseEnd("chat-1", None, "end")]


async def test_a_refusal_is_shown() -> None:
    events = [chunk({"content": None, "refusal": piece}) for piece in ("I will ", "not.")]
    async with client(Reply([*events, *end_events()])) as c:
        assert (await ask(c.model()))[:-1] == [TextPart("I will "), TextPart("not.")]


async def test_empty_reasoning_beside_every_piece_of_text_does_not_cut_the_text() -> None:
    events = [chunk({"content": piece, "reasoning_content": ""}) for piece in "abc"]
    async with client(Reply([*events, *end_events()])) as c:
        parts = (await ask(c.model()))[:-1]
    assert parts == [ThinkPart(""), TextPart("a"), TextPart("b"), TextPart("c")]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(text_events("ok"), done=False),
        Reply([*text_events("ok"), chunk(finish="stop")], done=False, framing=0),
        Reply(text_events("ok"), framing=0),
        Reply([*text_events("ok"), chunk(finish="stop")], fault="close", fault_after=2),
        Reply([*text_events("ok"), chunk(finish="stop")], fault="reset", fault_after=2),
    ],
)
async def test_a_stream_that_is_whole_although_its_end_is_not_marked(reply: Reply) -> None:
    async with client(reply) as c:
        assert (await ask(c.model()))[0] == TextPart("ok")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(text_events("a", "b"), fault="close", fault_after=1),
        Reply(text_events("a", "b"), fault="reset", fault_after=1),
        Reply(
            [
                *text_events("a"),
                chunk({"tool_calls": [{"index": 0, "id": "t", "function": {"name": "F", "arguments": '{"x'}}]}),
            ],
            fault="close",
            fault_after=2,
        ),
        Reply(text_events("a"), done=False, framing=0),
        Reply(fault="refuse"),
        Reply(fault="close"),
    ],
)
async def test_a_lost_connection_is_an_error_and_never_an_end(reply: Reply) -> None:
    async with client(reply) as c:
        seen: list[ModelItem] = []
        with pytest.raises(APIConnectionError) as raised:
            await collect(c.model(), seen)
        assert not any(isinstance(item, ResponseEnd) for item in seen)
        assert raised.value.transient
        assert len(c.server.requests) == 1


async def test_nobody_listens() -> None:
    async with client() as c:
        closed = c.server.base_url
    async with client() as c:
        with pytest.raises(APIConnectionError):
            await ask(c.model(base_url=closed))


@pytest.mark.parametrize("reply", [Reply(fault="mute"), Reply(text_events("a"), fault="stall", fault_after=1)])
async def test_silence_is_a_timeout(reply: Reply) -> None:
    async with client(reply, read_s=0.2) as c:
        with pytest.raises(APITimeoutError):
            await ask(c.model())
        await c.server.requests[0].gone.wait()


async def test_a_slow_answer_is_no_timeout_as_long_as_it_goes_on() -> None:
    reply = replace(text_reply(*"abcdef"), head_delay_s=0.1, event_delay_s=0.1)
    async with client(reply, read_s=0.4) as c:
        assert len(await ask(c.model())) == 7


@pytest.mark.parametrize(
    ("status", "transient"),
    [(400, False), (401, False), (403, False), (404, False), (422, False), (501, False)]
    + [(status, True) for status in (408, 409, 429, 500, 502, 503, 504, 529)],
)
async def test_error_statuses(status: int, transient: bool) -> None:
    async with client(error_reply(status, "out of luck")) as c:
        with pytest.raises(APIStatusError) as raised:
            await ask(c.model())
        assert len(c.server.requests) == 1
    assert raised.value.status_code == status
    assert raised.value.transient is transient
    assert "out of luck" in str(raised.value)


LATER = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("7", 7, 7),
        ("1.5", 1.5, 1.5),
        ("-3", 0, 0),
        (LATER, 60, 3601),
        (LATER.replace("GMT", "-0000"), 60, 3601),
        ("soon", None, None),
        ("Mon, 01 Jan 99999999999999 00:00:00 GMT", None, None),
    ],
    ids=["seconds", "fraction", "past", "date", "date of no zone", "words", "no date"],  # the same in every process
)
async def test_retry_after(value: str, low: float | None, high: float | None) -> None:
    async with client(error_reply(429, "slow down", Retry_After=value)) as c:
        with pytest.raises(APIStatusError) as raised:
            await ask(c.model())
    found = raised.value.retry_after
    assert found is low is None or (found is not None and low is not None and high is not None and low <= found <= high)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error":{"message":"in error"}}', "in error"),
        (b'{"error":"plain"}', "plain"),
        (b'{"message":"top"}', "top"),
        (b'{"detail":"fast"}', "fast"),
        (b"<html>bad gateway</html>", "<html>bad gateway</html>"),
        (b"", "no further text"),
        (b"\xff", "\ufffd"),
        (b"[1]", "[1]"),
    ],
)
async def test_the_text_of_an_error_is_the_providers(body: bytes, text: str) -> None:
    async with client(Reply(status=400, body=body)) as c:
        with pytest.raises(APIStatusError) as raised:
            await ask(c.model())
    assert str(raised.value) == f"HTTP 400: {text}"


async def test_an_error_status_counts_although_the_end_of_its_text_is_lost() -> None:
    lost = [Reply([b"no such mo"], status=404, fault="close", fault_after=1)]
    lost.append(replace(lost[0], fault="stall"))
    async with client(*lost, read_s=60) as c:
        for _ in lost:
            with pytest.raises(APIStatusError) as raised, anyio.fail_after(20):
                await ask(c.model())
            assert str(raised.value) == "HTTP 404: data: no such mo"
            assert not raised.value.transient


@pytest.mark.parametrize("more", [{"api_key": KEY}, {"custom_headers": {"Authorization": f"Bearer {KEY}"}}])
async def test_an_error_text_never_repeats_the_key(more: dict[str, Any]) -> None:
    in_stream = Reply([{"error": {"message": f"wrong key: {KEY}", "code": 401}}])
    document = Reply(body=dumps({"error": {"message": f"wrong key: {KEY}", "code": 401}}))
    async with client(error_reply(401, f"wrong key: {KEY}"), in_stream, document) as c:
        for _ in range(3):
            with pytest.raises(APIStatusError) as raised:
                await ask(c.model(**more))
            assert str(raised.value) == "HTTP 401: wrong key: ***"


@pytest.mark.parametrize("reply", [error_reply(400, "x" * 5000), Reply([{"error": {"message": "x" * 5000}}])])
async def test_an_error_text_is_not_endless(reply: Reply) -> None:
    async with client(reply) as c:
        with pytest.raises(ChatProviderError) as raised:
            await ask(c.model())
    assert len(str(raised.value)) == 2000


async def test_an_expired_login() -> None:
    async with client(error_reply(401, "expired")) as c:
        with pytest.raises(AuthExpired) as raised:
            await ask(c.model(oauth=True))
    assert str(raised.value) == (
        'Authentication failed. Your login session may have expired. Please run "/login" to sign in again.'
    )
    assert raised.value.status_code == 401


@pytest.mark.parametrize(
    ("event", "status", "text"),
    [
        ({"error": {"message": "full", "code": 429}}, 429, "HTTP 429: full"),
        ({"error": {"message": "full", "code": "503"}}, 503, "HTTP 503: full"),
        ({"error": {"message": "odd", "type": "server_error"}}, None, "odd"),
        ({"error": "odd"}, None, "odd"),
    ],
)
async def test_an_error_inside_the_stream(event: dict[str, Any], status: int | None, text: str) -> None:
    async with client(Reply([*text_events("a"), event])) as c:
        with pytest.raises(ChatProviderError) as raised:
            await ask(c.model())
    assert str(raised.value) == text
    assert getattr(raised.value, "status_code", None) == status


@pytest.mark.parametrize(
    "event", [b"{not json", b"[]", b'{"choices":[1]}', b'{"choices":[{"delta":{"tool_calls":[1]}}]}', b'{"usage":[]}']
)
async def test_malformed_events_are_final_errors(event: bytes) -> None:
    async with client(Reply([event])) as c:
        with pytest.raises(ChatProviderError) as raised:
            await ask(c.model())
    assert type(raised.value) is ChatProviderError
    assert not raised.value.transient


async def test_a_document_instead_of_a_stream() -> None:
    page = Reply(body=b"<html>", headers={"Content-Type": "text/html"})
    replies = [Reply(body=b'{"error":{"message":"nope","code":400}}'), Reply(body=b'{"choices":[]}'), page]
    async with client(*replies) as c:
        instead = "instead of a stream of events; check its base URL."
        for text in (
            "HTTP 400: nope",
            f"The provider answered with a JSON document {instead}",
            f"The provider answered with a web page {instead}",
        ):
            with pytest.raises(ChatProviderError) as raised:
                await ask(c.model())
            assert str(raised.value) == text


async def test_connections_are_used_again() -> None:
    async with client() as c:
        model = c.model()
        for _ in range(5):
            await ask(model)
        assert c.server.connections == 1


async def test_a_tool_exchange_is_sent_back_as_it_came() -> None:
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
        open_model(settings, "s", HttpLayer({}), lambda: "", {})
    assert "'mine'" in str(raised.value)
    assert "'unheard_of'" in str(raised.value)
    assert "kimi, openai_legacy, openai_responses, anthropic" in str(raised.value)


@pytest.mark.parametrize("settings", [None, ModelSettings(provider_name="p", type="kimi", model="")])
def test_without_a_usable_model_there_is_none(settings: ModelSettings | None) -> None:
    assert model_opener(settings, HttpLayer({}), "2", {})("s", lambda: "") is None


@pytest.mark.parametrize(
    "more",
    [
        {"base_url": "ftp://x"},
        {"base_url": "no url"},
        {"base_url": "http://x:port"},
        {"custom_headers": {"X-A": "one\r\nX-B: two"}},
        {"custom_headers": {"bad name": "x"}},
    ],
)
def test_unusable_settings_are_refused_at_the_start(more: dict[str, Any]) -> None:
    given: dict[str, Any] = {"base_url": "http://x", **more}
    settings = ModelSettings(provider_name="p", type="kimi", model="M", **given)
    with pytest.raises(ConfigError):
        model_opener(settings, HttpLayer({}), "2", {})
