"""`openai_responses` against a recording server: what is sent, what is made of the answer (runtime spec 3.4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kimi.application.ports import ChatModel, ModelItem, ResponseEnd
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Function, Message, ToolCall, user_message
from kimi.domain.content.parts import AudioPart, ContentPart, ImagePart, MediaUrl, TextPart, ThinkPart, VideoPart
from kimi.domain.content.stream import MergedPart, PartMerger
from kimi.domain.errors import APIEmptyResponseError, APIStatusError, ChatProviderError
from kimi.domain.tools.tool import ToolSpec
from kimi.domain.turn import TokenUsage
from kimi.infrastructure.http.client import HttpClient, HttpLimits
from kimi.infrastructure.models.openai.responses_body import ResponsesItemRules, build_items, find_thinking_prefix
from kimi.infrastructure.models.openai.responses_stream import parse_usage
from kimi.infrastructure.models.provider_types import open_model
from tests.support.dialects.responses import DIALECT, call_item, end, item, message_item, reasoning_item
from tests.support.dialects.script import MESSAGE_ID, Answer
from tests.support.providers.provider_server import Event, Json, ProviderServer, Reply, provider

pytestmark = pytest.mark.anyio

HISTORY = [user_message("hello")]
TOOL = ToolSpec("Shell", "Runs a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
CAN = frozenset({"thinking", "image_in", "video_in"})
RULES = ResponsesItemRules(CAN)
OK = DIALECT.reply(Answer(text="ok"))


class Client:
    """A model and the server that it talks to."""

    def __init__(self, server: ProviderServer, http: HttpClient) -> None:
        self.server = server
        self.http = http

    def model(self, **more: Any) -> ChatModel:
        given: dict[str, Any] = {"base_url": self.server.base_url, "api_key": "key-1", "model": "M"}
        given |= {"capabilities": CAN, **more}
        settings = ModelSettings(provider_name="p", type="openai_responses", **given)
        return open_model(settings, "session-1", self.http, lambda: "kimi-wire/2", {})

    async def body(self, history: Sequence[Message] = HISTORY, **more: Any) -> Json:
        """The body of one request."""
        await ask(self.model(**more), history)
        return self.server.requests[-1].json


@asynccontextmanager
async def client(*replies: Reply) -> AsyncGenerator[Client]:
    async with provider(replies or [OK]) as server:
        http = HttpClient({}, HttpLimits(read_s=30))
        try:
            yield Client(server, http)
        finally:
            await http.close()


async def ask(
    model: ChatModel, history: Sequence[Message] = HISTORY, tools: Sequence[ToolSpec] = ()
) -> list[ModelItem]:
    async with model.stream("be kind", history, tools, 0) as items:
        return [item async for item in items]


def merged(items: Sequence[ModelItem]) -> list[MergedPart]:
    merger = PartMerger()
    parts = [part for item in items if not isinstance(item, ResponseEnd) for part in merger.push(item)]
    return parts + merger.flush()


def reply(*events: Event) -> Reply:
    return Reply([*events, end(Answer())], done=False, named=True)


def assistant(*content: ContentPart, calls: tuple[ToolCall, ...] = ()) -> Message:
    return Message("assistant", content, calls)


def message(role: str, text: str, kind: str = "input_text") -> Json:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


# --- what is sent -------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-77")
async def test_request_has_the_documented_form() -> None:
    async with client() as c:
        await ask(c.model(thinking=True), tools=[TOOL])
        request = c.server.requests[0]
    assert request.json == {
        "model": "M",
        "input": [message("system", "be kind"), message("user", "hello")],
        "tools": [
            {
                "type": "function",
                "name": "Shell",
                "description": "Runs a command.",
                "parameters": TOOL.parameters,
                "strict": False,
            }
        ],
        "stream": True,
        "store": False,
        "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }
    assert request.path == "/v1/responses"
    assert request.headers["authorization"] == "Bearer key-1"


@pytest.mark.spec("R-77")
@pytest.mark.parametrize("thinking", [False, None])
async def test_disabled_thinking_sends_no_reasoning_fields(thinking: bool | None) -> None:
    async with client() as c:
        body = await c.body(thinking=thinking)
    assert set(body) == {"model", "input", "stream", "store"}


async def test_answer_limit_is_configurable() -> None:
    async with client() as c:
        assert (await c.body(max_completion_tokens=4000))["max_output_tokens"] == 4000


@pytest.mark.spec("R-77")
@pytest.mark.parametrize(
    ("model", "role"),
    [
        ("gpt-5.2", "developer"),
        ("gpt-4o-mini", "developer"),
        ("o4-mini", "developer"),
        ("codex-mini-latest", "developer"),
        ("ft:gpt-4o:acme", "developer"),
        ("gpt-oss-120b", "system"),
        ("qwen3-coder", "system"),
        ("ollama-1", "system"),
    ],
)
async def test_system_prompt_role_depends_on_the_model(model: str, role: str) -> None:
    async with client() as c:
        body = await c.body(model=model)
    assert body["input"][0]["role"] == role


@pytest.mark.spec("R-77")
async def test_tool_exchange_with_thinking_is_sent_back_unchanged() -> None:
    calls = tuple(ToolCall(f"t{number}", Function("Shell", f'{{"x":{number}}}')) for number in (1, 2))
    history = [
        *HISTORY,
        assistant(ThinkPart("hm", "gAAAAA1"), ThinkPart("", "gAAAAA2"), TextPart("one moment"), calls=calls),
        Message("tool", (TextPart("out"),), tool_call_id="t1"),
        Message("tool", (TextPart("<system>ok</system>"), TextPart("out")), tool_call_id="t2"),
    ]
    async with client() as c:
        sent = (await c.body(history))["input"]
    parts = [{"type": "input_text", "text": "<system>ok</system>"}, {"type": "input_text", "text": "out"}]
    summary = [{"type": "summary_text", "text": "hm"}]
    assert sent[2:] == [
        {"type": "reasoning", "summary": summary, "encrypted_content": "gAAAAA1"},
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAA2"},
        message("assistant", "one moment", "output_text"),
        {"type": "function_call", "call_id": "t1", "name": "Shell", "arguments": '{"x":1}'},
        {"type": "function_call", "call_id": "t2", "name": "Shell", "arguments": '{"x":2}'},
        {"type": "function_call_output", "call_id": "t1", "output": "out"},
        {"type": "function_call_output", "call_id": "t2", "output": parts},
    ]


def test_images_are_sent_and_other_media_become_placeholders() -> None:
    url = "data:image/png;base64,AAAA"
    content = (TextPart("see"), ImagePart(MediaUrl(url)), VideoPart(MediaUrl("v")), AudioPart(MediaUrl("a")))
    expected = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "input_text", "text": "[video omitted: the current model cannot read videos]"},
        {"type": "input_text", "text": "[audio omitted: the current model cannot read audios]"},
    ]
    assert build_items(Message("user", content), RULES)[0]["content"] == expected
    assert build_items(Message("tool", content, tool_call_id="t"), RULES)[0]["output"] == expected
    foreign = build_items(Message("user", (ImagePart(MediaUrl("ms://1")),)), RULES)
    assert foreign[0]["content"][0]["text"] == "[image omitted: the current model cannot read images]"


def test_empty_content_is_omitted() -> None:
    assert build_items(user_message(""), RULES) == []
    assert build_items(assistant(ThinkPart("unsigned"), TextPart(" ")), RULES) == []
    assert build_items(Message("tool", (), tool_call_id="t"), RULES)[0]["output"] == ""


@pytest.mark.parametrize(
    ("host", "kept"),
    [
        ("api.openai.com", ["gAAAAAB"]),
        ("x.openai.azure.com", ["gAAAAAB"]),
        ("127.0.0.1", ["gAAAAAB", "Eother"]),
        ("notopenai.com", ["gAAAAAB", "Eother"]),
    ],
)
def test_thinking_of_another_provider_is_kept_from_the_official_service(host: str, kept: list[str]) -> None:
    said = assistant(ThinkPart("a", "gAAAAAB"), ThinkPart("b", "Eother"), TextPart("so"))
    items = build_items(said, ResponsesItemRules(CAN, find_thinking_prefix(host)))
    assert [item["encrypted_content"] for item in items[:-1]] == kept


# --- what comes back ----------------------------------------------------------------------------------------------


@pytest.mark.spec("R-77")
async def test_every_item_kind_is_read() -> None:
    events = [
        *reasoning_item(0, "let me see", "gAAAAA1"),
        *reasoning_item(1, "", "gAAAAA2"),
        *message_item(2, "so"),
        *call_item(3, "t1", "Shell", '{"command":"ls"}'),
        *call_item(4, "t2", "Glob", ""),
    ]
    async with client(reply(*events)) as c:
        items = await ask(c.model())
    assert merged(items) == [
        ThinkPart("let me see", "gAAAAA1"),
        ThinkPart("", "gAAAAA2"),
        TextPart("so"),
        ToolCall("t1", Function("Shell", '{"command":"ls"}')),
        ToolCall("t2", Function("Glob", None)),
    ]
    assert items[-1] == ResponseEnd(MESSAGE_ID, TokenUsage(6, 5, 4), "tool_calls")


async def test_parts_of_a_summary_are_kept_apart_and_plain_thinking_counts() -> None:
    added = "response.reasoning_summary_part.added"
    delta = "response.reasoning_summary_text.delta"
    deltas: list[Json] = [
        {"type": added, "summary_index": 0},
        {"type": delta, "summary_index": 0, "delta": "one"},
        {"type": added, "summary_index": 1},
        {"type": delta, "summary_index": 1, "delta": "two"},
        {"type": "response.reasoning_text.delta", "content_index": 0, "delta": " three"},
    ]
    events = item(0, {"type": "reasoning", "summary": []}, deltas, {})
    async with client(reply(*events, *message_item(1, "so"))) as c:
        assert merged(await ask(c.model())) == [ThinkPart("one\n\ntwo three"), TextPart("so")]


def kind_of(event: Event) -> str:
    assert isinstance(event, dict)
    return event["type"]


ARGUED, DONE = "response.function_call_arguments.done", "response.output_item.done"


@pytest.mark.parametrize("where", [(ARGUED,), (DONE,), (ARGUED, DONE)])
async def test_arguments_in_a_single_event_are_read(where: tuple[str, ...]) -> None:
    added = "response.output_item.added"
    events = [event for event in call_item(0, "t1", "A", '{"x":1}') if kind_of(event) in (added, *where)]
    async with client(reply(*events)) as c:
        assert merged(await ask(c.model())) == [ToolCall("t1", Function("A", '{"x":1}'))]


async def test_interleaved_calls_are_separated() -> None:
    one, two = call_item(0, "t1", "A", '{"x":11111}'), call_item(1, "t2", "B", '{"y":22222}')
    mixed = [event for pair in zip(one, two, strict=True) for event in pair]
    async with client(reply(*mixed)) as c:
        assert merged(await ask(c.model())) == [
            ToolCall("t1", Function("A", '{"x":11111}')),
            ToolCall("t2", Function("B", '{"y":22222}')),
        ]


async def test_text_after_a_call_is_emitted_before_the_end() -> None:
    events = [*call_item(0, "t1", "A", ""), *message_item(1, "x")]
    stall = Reply(events, done=False, fault="stall", fault_after=len(events))
    async with client(stall) as c, c.model().stream("", HISTORY, [], 0) as items:
        with anyio.fail_after(10):
            assert [await anext(items) for _ in range(2)] == [ToolCall("t1", Function("A")), TextPart("x")]


async def test_refusal_is_text_with_content_filter_stop_reason() -> None:
    events: list[Event] = [{"type": "response.refusal.delta", "output_index": 0, "delta": "I will not."}]
    async with client(reply(*events)) as c:
        items = await ask(c.model())
    assert merged(items) == [TextPart("I will not.")]
    assert isinstance(items[-1], ResponseEnd)
    assert items[-1].stop_reason == "content_filter"


def failed(code: str) -> Json:
    return {"type": "response.failed", "response": {"id": "r", "error": {"code": code, "message": "m"}}}


@pytest.mark.parametrize(
    ("event", "status", "transient"),
    [
        (failed("server_error"), 500, True),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "m", "param": None}, 429, True),
        ({"type": "error", "error": {"type": "server_is_overloaded", "message": "m"}}, 503, True),
        ({"type": "error", "error": {"code": "insufficient_quota", "message": "m"}}, 429, False),
        ({"type": "error", "code": "context_length_exceeded", "message": "m"}, 400, False),
        ({"type": "error", "code": "invalid_prompt", "message": "m"}, 400, False),
        (failed("slow_down"), 503, True),
        (failed("odd"), None, False),
        ({"type": "response.failed", "response": {}}, None, False),
    ],
)
async def test_errors_in_the_stream_raise(event: Json, status: int | None, transient: bool) -> None:
    async with client(Reply([*message_item(0, "a"), event], done=False)) as c:
        with pytest.raises(ChatProviderError) as raised:
            await ask(c.model())
    assert getattr(raised.value, "status_code", None) == status
    assert isinstance(raised.value, APIStatusError) is (status is not None)
    assert raised.value.transient is transient
    assert str(raised.value) in ("m", f"HTTP {status}: m", "The provider reported an error without a text.")


def test_missing_token_counts_are_zero() -> None:
    assert parse_usage({"input_tokens": 3}) == TokenUsage(3)
    assert parse_usage({"input_tokens": None, "input_tokens_details": None, "output_tokens": 2}) == TokenUsage(0, 2)
    assert parse_usage({"input_tokens": 3, "input_tokens_details": {"cached_tokens": 5}}) == TokenUsage(0, 0, 5)


async def test_hidden_thinking_alone_counts_as_thinking_only() -> None:
    async with client(reply(*reasoning_item(0, "", "gAAAAA1"))) as c:
        with pytest.raises(APIEmptyResponseError, match="only thought"):
            await ask(c.model())


async def test_an_answer_that_ends_with_done_alone_is_no_answer() -> None:
    async with client(Reply(message_item(0, "a"), done=True)) as c:
        with pytest.raises(ChatProviderError) as raised:
            await ask(c.model())
    assert raised.value.transient
