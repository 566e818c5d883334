"""`anthropic` against a recording server: what is sent, and what is made of what comes back (runtime spec 3.5)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.application.ports import ChatModel, ModelItem, ResponseEnd
from kimi.application.settings import ModelSettings
from kimi.domain.content import AudioPart, ContentPart, ImagePart, MediaUrl, TextPart, ThinkPart, VideoPart
from kimi.domain.errors import APIConnectionError, APIStatusError, ChatProviderError, ConfigError
from kimi.domain.message import Function, Message, ToolCall, user_message
from kimi.domain.stream import PartMerger
from kimi.domain.tool import ToolSpec
from kimi.domain.turn import StopReason, TokenUsage
from kimi.infrastructure.models.anthropic import Anthropic, is_adaptive, max_tokens
from kimi.infrastructure.models.anthropic_body import unit_body, unit_rules
from kimi.infrastructure.models.history_bytes import KeptHistories
from kimi.infrastructure.models.http import HttpLayer, HttpLimits
from kimi.infrastructure.models.open import open_model
from kimi.infrastructure.models.openai_responses import OpenAiResponses
from kimi.infrastructure.models.sent_calls import call_id_for_wire
from tests.dialects.anthropic import DIALECT, block, call_block, end, start, text_block
from tests.dialects.script import MESSAGE_ID, Answer
from tests.provider_server import Event, Json, ProviderServer, Reply, provider

pytestmark = pytest.mark.anyio

HISTORY = [user_message("hello")]
TOOLS = [
    ToolSpec("Glob", "Finds files.", {"type": "object", "properties": {}}),
    ToolSpec("Shell", "Runs a command.", {"type": "object", "properties": {"command": {"type": "string"}}}),
]
MARK = {"cache_control": {"type": "ephemeral"}}
CAN = frozenset({"thinking", "image_in", "video_in"})
OK = DIALECT.reply(Answer(text="ok"))


class Client:
    """A model and the server that it talks to."""

    def __init__(self, server: ProviderServer, http: HttpLayer) -> None:
        self.server = server
        self.http = http

    def model(self, **more: Any) -> ChatModel:
        given: dict[str, Any] = {"base_url": self.server.base_url, "api_key": "key-1", "model": "M", **more}
        given = {"max_context_size": 200_000, "capabilities": CAN, **given}
        settings = ModelSettings(provider_name="p", type="anthropic", **given)
        return open_model(settings, "session-1", self.http, lambda: "KimiCLI/2", {})

    async def body(self, history: Sequence[Message] = HISTORY, **more: Any) -> Json:
        """The body of one request."""
        await ask(self.model(**more), history)
        return self.server.requests[-1].json


@asynccontextmanager
async def client(*replies: Reply) -> AsyncGenerator[Client]:
    async with provider(replies or [OK]) as server:
        http = HttpLayer({}, HttpLimits(read_s=30))
        try:
            yield Client(server, http)
        finally:
            await http.close()


async def ask(
    model: ChatModel, history: Sequence[Message] = HISTORY, tools: Sequence[ToolSpec] = (), tokens: int = 0
) -> list[ModelItem]:
    async with model.stream("be kind", history, tools, tokens) as items:
        return [item async for item in items]


def reply(*events: Event) -> Reply:
    return Reply([start(), *events, *end("end_turn")], done=False, named=True)


def assistant(*content: ContentPart, calls: tuple[ToolCall, ...] = ()) -> Message:
    return Message("assistant", content, calls)


def result(call_id: str, *content: ContentPart) -> Message:
    return Message("tool", content, tool_call_id=call_id)


def blocks(*messages: Message) -> list[Json]:
    body = unit_body(messages)
    return [] if body is None else body["content"]


# --- what is sent -------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-77")
async def test_the_request() -> None:
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
    assert sent == {"x-api-key": "key-1", "anthropic-version": "2023-06-01", "user-agent": "KimiCLI/2"}
    assert "anthropic-beta" not in request.headers


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_the_base_url_may_end_as_it_likes(suffix: str) -> None:
    async with client() as c:
        await ask(c.model(base_url=c.server.base_url.removesuffix("/v1") + suffix))
        assert c.server.requests[0].path == "/v1/messages"


async def test_without_key_session_system_and_tools_nothing_is_sent_for_them() -> None:
    async with client() as c:
        settings = ModelSettings(provider_name="p", type="anthropic", model="M", base_url=c.server.base_url)
        async with open_model(settings, "", c.http, lambda: "", {}).stream("", HISTORY, [], 0) as items:
            assert [item async for item in items]
        assert set(c.server.requests[0].json) == {"model", "messages", "max_tokens", "stream"}
        assert "x-api-key" not in c.server.requests[0].headers


async def test_configured_headers_replace_ours() -> None:
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
async def test_thinking_by_the_version_of_the_model(model: str, adaptive: bool) -> None:
    assert is_adaptive(model) is adaptive
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
async def test_thinking_is_sent_where_it_means_something(
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
    assert max_tokens(settings, tokens) == expected
    configured = settings.model_copy(update={"max_completion_tokens": 64_000})
    assert max_tokens(configured, tokens) == max(1, min(64_000, window - tokens - 1024))


async def test_thinking_leaves_room_for_the_answer_and_ends_when_there_is_none() -> None:
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


# --- messages -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-77")
async def test_results_in_a_row_are_one_message_and_the_last_block_is_marked() -> None:
    calls = tuple(ToolCall(f"t{number}", Function("Shell", f'{{"command":"{number}"}}')) for number in (1, 2))
    history = [
        *HISTORY,
        assistant(TextPart("one moment"), calls=calls),
        result("t1", TextPart("<system>ok</system>"), TextPart("out")),
        result("t2"),
        user_message("and then?"),
    ]
    async with client() as c:
        model = c.model()
        await ask(model, history[:-1])
        await ask(model, history)
        first, second = (request.json["messages"] for request in c.server.requests)
    uses = [
        {"type": "tool_use", "id": f"t{number}", "name": "Shell", "input": {"command": f"{number}"}}
        for number in (1, 2)
    ]
    content = [{"type": "text", "text": "<system>ok</system>"}, {"type": "text", "text": "out"}]
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": content},
        {"type": "tool_result", "tool_use_id": "t2"},
    ]
    assert first == [
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "one moment"}, *uses]},
        {"role": "user", "content": [results[0], {**results[1], **MARK}]},
    ]
    assert second == [
        *first[:2],
        {"role": "user", "content": results},
        {"role": "user", "content": [{"type": "text", "text": "and then?", **MARK}]},
    ]


MESSAGES = st.lists(
    st.sampled_from(
        [
            user_message("one"),
            user_message(" "),
            user_message("<notification>two</notification>"),
            Message("system", (TextPart("three"),)),
            assistant(TextPart("four")),
            assistant(ThinkPart("", "E"), calls=(ToolCall("t", Function("A", "{}")),)),
            result("t", TextPart("five")),
            result("t", ImagePart(MediaUrl("https://x/y"))),
        ]
    ),
    min_size=1,
    max_size=12,
)


SETTINGS = ModelSettings(provider_name="p", type="x", model="M", base_url="http://x", capabilities=CAN)
OPENED: list[Callable[[], Anthropic | OpenAiResponses]] = [
    lambda: Anthropic(SETTINGS, "session-1", HttpLayer({}), lambda: ""),
    lambda: OpenAiResponses(SETTINGS, HttpLayer({}), lambda: ""),
]


@pytest.mark.parametrize("opened", OPENED)
@given(histories=st.lists(MESSAGES, min_size=1, max_size=4))
def test_what_is_kept_of_a_history_never_shows(
    opened: Callable[[], Anthropic | OpenAiResponses], histories: list[list[Message]]
) -> None:
    """The body of a model that has seen other histories is that of a model that has seen none."""
    seen = opened()
    whole: list[Message] = []
    for more in histories:
        whole = [*whole, *more]
        assert body_of(seen, whole) == body_of(opened(), list(whole))
    assert body_of(seen, whole[:1]) == body_of(opened(), whole[:1])


def body_of(model: Anthropic | OpenAiResponses, history: Sequence[Message]) -> Json:
    """The body of a request, without sending it."""
    return json.loads(model.body("be kind", history, TOOLS, 0))


def test_each_message_is_written_once() -> None:
    written: list[int] = []
    rules = unit_rules(CAN)

    def counted(messages: Sequence[Message]) -> bytes:
        written.append(len(messages))
        return rules.write(messages)

    kept = KeptHistories(replace(rules, write=counted))
    history: list[Message] = []
    for number in range(200):
        history = [*history, assistant(calls=(ToolCall(f"t{number}", Function("A")),)), result(f"t{number}")]
        kept.encoded(history)
    assert sum(written) == len(history)


@pytest.mark.spec("R-77")
def test_thinking_goes_back_as_it_came_and_only_with_its_signature() -> None:
    said = assistant(
        ThinkPart("unsigned"),
        ThinkPart("hm", "Esig"),
        ThinkPart("", "Eredacted"),
        ThinkPart("", "signature:Esig2"),
        ThinkPart("of another provider", "gAAAAABo"),
        TextPart("so"),
    )
    assert blocks(said) == [
        {"type": "thinking", "thinking": "hm", "signature": "Esig"},
        {"type": "redacted_thinking", "data": "Eredacted"},
        {"type": "thinking", "thinking": "", "signature": "Esig2"},
        {"type": "text", "text": "so"},
    ]


@pytest.mark.spec("R-77")
def test_system_messages_in_the_history_are_tagged() -> None:
    body = unit_body([Message("system", (TextPart("be "), TextPart("brief")))])
    assert body == {"role": "user", "content": [{"type": "text", "text": "<system>be brief</system>"}]}


@pytest.mark.spec("R-77")
@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("data:image/png;base64,AAAA", {"type": "base64", "media_type": "image/png", "data": "AAAA"}),
        ("data:image/JPEG;base64,AA==", {"type": "base64", "media_type": "image/jpeg", "data": "AA=="}),
        ("data:image/webp;name=a;base64,AA", {"type": "base64", "media_type": "image/webp", "data": "AA"}),
        ("https://x/y.gif", {"type": "url", "url": "https://x/y.gif"}),
        ("data:image/bmp;base64,AAAA", None),
        ("data:image/png,raw", None),
        ("ms://file-1", None),
    ],
)
@pytest.mark.parametrize("role", ["user", "tool"])
def test_pictures(url: str, source: Json | None, role: str) -> None:
    picture = ImagePart(MediaUrl(url))
    message = result("t", picture) if role == "tool" else Message("user", (picture,))
    content = blocks(message)[0]["content"] if role == "tool" else blocks(message)
    if source is None:
        assert content == [{"type": "text", "text": "[image omitted: the current model cannot read images]"}]
    else:
        assert content == [{"type": "image", "source": source}]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (VideoPart(MediaUrl("https://x/v")), "[video omitted: the current model cannot read videos]"),
        (AudioPart(MediaUrl("data:audio/wav;base64,AA")), "[audio omitted: the current model cannot read audios]"),
    ],
)
def test_other_media_are_named_instead_of_breaking_the_session(part: ContentPart, text: str) -> None:
    assert blocks(Message("user", (part,))) == [{"type": "text", "text": text}]
    assert blocks(result("t", part))[0]["content"] == [{"type": "text", "text": text}]


def test_blank_text_is_left_out_and_messages_of_it_are_not_sent() -> None:
    assert blocks(user_message(" \n")) == []
    assert blocks(assistant(TextPart(""), ThinkPart("unsigned"))) == []
    call = ToolCall("t", Function("Shell", None))
    assert blocks(assistant(TextPart(" "), calls=(call,))) == [
        {"type": "tool_use", "id": "t", "name": "Shell", "input": {}}
    ]


@pytest.mark.parametrize("arguments", ["{broken", "[1]", "null", ""])
def test_malformed_arguments_are_sent_as_none(arguments: str) -> None:
    call = ToolCall("t", Function("Shell", arguments))
    assert blocks(assistant(calls=(call,)))[0]["input"] == {}


@given(st.text(max_size=80))
def test_ids_fit_every_provider_and_stay_apart(call_id: str) -> None:
    fitted = call_id_for_wire(call_id)
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", fitted)
    assert call_id_for_wire(fitted) == fitted
    assert call_id_for_wire(call_id + ":") != fitted


async def test_functions_of_other_providers_are_left_out() -> None:
    async with client() as c:
        await ask(c.model(), tools=[ToolSpec("$web_search", "", {})])
        assert "tools" not in c.server.requests[0].json


# --- what comes back ----------------------------------------------------------------------------------------------


@pytest.mark.spec("R-77")
async def test_thinking_and_redacted_thinking_come_with_their_signatures() -> None:
    events = [
        *block(0, {"type": "thinking", "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": "let me "},
            {"type": "thinking_delta", "thinking": "see"},
            {"type": "signature_delta", "signature": "Esi"},
            {"type": "signature_delta", "signature": "g="},
        ]),
        *block(1, {"type": "redacted_thinking", "data": "Ered="}, []),
        *block(2, {"type": "thinking", "thinking": "", "signature": ""}, [
            {"type": "signature_delta", "signature": "Ehidden="},
        ]),
        *text_block(3, "so"),
    ]  # fmt: skip
    async with client(reply(*events)) as c:
        items = await ask(c.model())
        merger = PartMerger()
        parts = [part for item in items[:-1] if not isinstance(item, ResponseEnd) for part in merger.push(item)]
        parts += merger.flush()
        thinking = [ThinkPart("let me see", "Esig="), ThinkPart("", "Ered="), ThinkPart("", "signature:Ehidden=")]
        assert parts == [*thinking, TextPart("so")]
        sent = await c.body([*HISTORY, assistant(*thinking, TextPart("so")), *HISTORY])
    assert sent["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "let me see", "signature": "Esig="},
        {"type": "redacted_thinking", "data": "Ered="},
        {"type": "thinking", "thinking": "", "signature": "Ehidden="},
        {"type": "text", "text": "so"},
    ]


@pytest.mark.spec("R-77")
async def test_usage_is_that_of_the_beginning_and_of_the_end() -> None:
    first = {"input_tokens": 7, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 3, "output_tokens": 1}
    begin = {"type": "message_start", "message": {"id": "msg_1", "usage": first}}
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 11}}
    events: list[Event] = [begin, *text_block(0, "so"), last, {"type": "message_stop"}]
    async with client(Reply(events, done=False)) as c:
        assert (await ask(c.model()))[-1] == ResponseEnd("msg_1", TokenUsage(7, 11, 20, 3), "end")
    async with client(Reply([*text_block(0, "so"), last, {"type": "message_stop"}], done=False)) as c:
        assert (await ask(c.model()))[-1] == ResponseEnd(None, TokenUsage(0, 11, 0, 0), "end")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("tool_use", "tool_calls"),
        ("pause_turn", "unknown"),
    ],
)
async def test_why_the_model_stopped(reason: str, expected: StopReason) -> None:
    events = [start(), *text_block(0, "so"), *end(reason)]
    async with client(Reply(events, done=False)) as c:
        last = (await ask(c.model()))[-1]
    assert isinstance(last, ResponseEnd)
    assert last.stop_reason == expected


async def test_blocks_that_come_whole_and_calls_without_arguments() -> None:
    events: list[Event] = [
        {"type": "content_block_start", "index": 0,
         "content_block": {"type": "thinking", "thinking": "hm", "signature": "E"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "so"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2,
         "content_block": {"type": "tool_use", "id": "t1", "name": "A", "input": {"x": "é"}}},
        {"type": "content_block_stop", "index": 2},
        *call_block(3, "t2", "B", ""),
        *text_block(4, "!"),
    ]  # fmt: skip
    async with client(reply(*events)) as c:
        items = (await ask(c.model()))[:-1]
    assert items[:4] == [
        ThinkPart("hm"),
        ThinkPart("", "E"),
        TextPart("so"),
        ToolCall("t1", Function("A", '{"x": "é"}')),
    ]
    assert items[4:] == [ToolCall("t2", Function("B")), TextPart("!")]


async def test_text_behind_a_call_does_not_wait_for_the_end() -> None:
    """A call without arguments has ended when its block has."""
    events = [start(), *call_block(0, "t1", "A", ""), *text_block(1, "x")]
    stall = Reply(events, done=False, fault="stall", fault_after=len(events))
    async with client(stall) as c, c.model().stream("", HISTORY, [], 0) as items:
        with anyio.fail_after(10):
            assert [await anext(items) for _ in range(2)] == [ToolCall("t1", Function("A")), TextPart("x")]


@pytest.mark.parametrize("done", [False, True])
async def test_a_body_that_ends_before_the_message_does_is_a_lost_connection(done: bool) -> None:
    async with client(Reply([start(), *text_block(0, "a")], done=done)) as c:
        with pytest.raises(APIConnectionError):
            await ask(c.model())


async def test_a_stop_reason_is_end_enough() -> None:
    events = [start(), *text_block(0, "a"), end("end_turn")[0]]
    async with client(Reply(events, done=False)) as c:
        assert (await ask(c.model()))[-1] == ResponseEnd(MESSAGE_ID, TokenUsage(6, 5, 4), "end")


@pytest.mark.parametrize(
    ("kind", "status", "transient"),
    [
        ("overloaded_error", 529, True),
        ("rate_limit_error", 429, True),
        ("api_error", 500, True),
        ("timeout_error", 504, True),
        ("invalid_request_error", 400, False),
        ("permission_error", 403, False),
        ("not_found_error", 404, False),
        ("request_too_large", 413, False),
        ("authentication_error", 401, False),
        ("billing_error", 402, False),
    ],
)
async def test_an_error_inside_the_stream_has_the_status_of_its_kind(kind: str, status: int, transient: bool) -> None:
    event = {"type": "error", "error": {"type": kind, "message": "out of luck"}}
    async with client(reply(*text_block(0, "a"), event)) as c:
        with pytest.raises(APIStatusError) as raised:
            await ask(c.model())
    assert (raised.value.status_code, raised.value.transient) == (status, transient)
    assert str(raised.value) == f"HTTP {status}: out of luck"


@pytest.mark.parametrize("event", [{"type": "error"}, {"type": "error", "error": {"type": "new", "message": "odd"}}])
async def test_an_error_of_no_known_kind_is_final(event: Json) -> None:
    async with client(reply(event)) as c:
        with pytest.raises(ChatProviderError) as raised:
            await ask(c.model())
    assert type(raised.value) is ChatProviderError


def test_a_base_url_that_is_none_is_refused_at_the_start() -> None:
    settings = ModelSettings(provider_name="p", type="anthropic", model="M", base_url="ftp://x")
    with pytest.raises(ConfigError):
        open_model(settings, "s", HttpLayer({}), lambda: "", {})
