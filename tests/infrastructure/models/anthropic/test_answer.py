"""`anthropic` against a recording server: what is made of what comes back (runtime spec 3.5)."""

from __future__ import annotations

import anyio
import pytest

from kimi.application.ports import ResponseEnd
from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.content.stream import PartMerger
from kimi.domain.errors import APIConnectionError, APIStatusError, ChatProviderError
from kimi.domain.turn import StopReason, TokenUsage
from tests.support.dialects.anthropic import block, call_block, end, start, text_block
from tests.support.dialects.script import MESSAGE_ID
from tests.support.providers.anthropic_client import HISTORY, ask, assistant, client
from tests.support.providers.provider_server import Event, Json, Reply

pytestmark = pytest.mark.anyio


def reply(*events: Event) -> Reply:
    return Reply([start(), *events, *end("end_turn")], done=False, named=True)


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
async def test_usage_combines_start_and_end_events() -> None:
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
async def test_stop_reason_is_converted(reason: str, expected: StopReason) -> None:
    events = [start(), *text_block(0, "so"), *end(reason)]
    async with client(Reply(events, done=False)) as c:
        last = (await ask(c.model()))[-1]
    assert isinstance(last, ResponseEnd)
    assert last.stop_reason == expected


async def test_whole_blocks_and_calls_without_arguments_are_read() -> None:
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


async def test_text_after_a_call_is_emitted_before_the_end() -> None:
    """A call without arguments has ended when its block has."""
    events = [start(), *call_block(0, "t1", "A", ""), *text_block(1, "x")]
    stall = Reply(events, done=False, fault="stall", fault_after=len(events))
    async with client(stall) as c, c.model().stream("", HISTORY, [], 0) as items:
        with anyio.fail_after(10):
            assert [await anext(items) for _ in range(2)] == [ToolCall("t1", Function("A")), TextPart("x")]


@pytest.mark.parametrize("done", [False, True])
async def test_truncated_message_is_a_connection_error(done: bool) -> None:
    async with client(Reply([start(), *text_block(0, "a")], done=done)) as c:
        with pytest.raises(APIConnectionError):
            await ask(c.model())


async def test_stop_reason_is_enough_to_end_the_answer() -> None:
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
async def test_error_of_unknown_type_is_final(event: Json) -> None:
    async with client(reply(event)) as c:
        with pytest.raises(ChatProviderError) as raised:
            await ask(c.model())
    assert type(raised.value) is ChatProviderError
