"""`kimi` against a recording server: what is made of an answer, and of its faults and errors."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anyio
import pytest

from kimi.application.ports import ChatModel, ModelItem, ResponseEnd
from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.errors import APIConnectionError, APIStatusError, APITimeoutError, AuthExpired, ChatProviderError
from kimi.domain.turn import StopReason, TokenUsage
from tests.support.chat_model.stage import merged
from tests.support.providers.chat_client import HISTORY, ask, client
from tests.support.providers.provider_server import (
    Event,
    Reply,
    call_events,
    chunk,
    dumps,
    end_events,
    error_reply,
    text_events,
    text_reply,
)

pytestmark = pytest.mark.anyio

KEY = "sk-secret-123"


async def collect(model: ChatModel, seen: list[ModelItem]) -> None:
    """Everything up to the failure."""
    async with model.stream("", HISTORY, [], 0) as items:
        async for item in items:
            seen.append(item)


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
async def test_usage_is_read_from_any_event(events: list[Event], usage: TokenUsage | None) -> None:
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
async def test_stop_reason_is_converted(reason: str | None, expected: StopReason) -> None:
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
async def test_items_after_an_unfinished_call_are_emitted_at_the_end(arguments: str) -> None:
    events = [*call_events(0, "a", "F", arguments), *call_events(1, "b", "G", "{}"), *text_events("so")]
    async with client(Reply([*events, *end_events("tool_calls")])) as c:
        items = await ask(c.model())
    first, second, text = merged(items)
    assert isinstance(first, ToolCall)
    assert (first.id, first.function.arguments or "") == ("a", arguments)
    assert (second, text) == (ToolCall("b", Function("G", "{}")), TextPart("so"))
    assert isinstance(items[-1], ResponseEnd)


async def test_list_content_empty_deltas_and_unknown_fields_are_accepted() -> None:
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


async def test_empty_reasoning_next_to_text_does_not_split_the_text() -> None:
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
async def test_complete_stream_without_end_marker_is_accepted(reply: Reply) -> None:
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
async def test_lost_connection_is_a_transient_error_without_end(reply: Reply) -> None:
    async with client(reply) as c:
        seen: list[ModelItem] = []
        with pytest.raises(APIConnectionError) as raised:
            await collect(c.model(), seen)
        assert not any(isinstance(item, ResponseEnd) for item in seen)
        assert raised.value.transient
        assert len(c.server.requests) == 1


async def test_refused_connection_is_an_error() -> None:
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


async def test_slow_but_continuous_answer_does_not_time_out() -> None:
    reply = replace(text_reply(*"abcdef"), head_delay_s=0.1, event_delay_s=0.1)
    async with client(reply, read_s=0.4) as c:
        assert len(await ask(c.model())) == 7


@pytest.mark.parametrize(
    ("status", "transient"),
    [(400, False), (401, False), (403, False), (404, False), (422, False), (501, False)]
    + [(status, True) for status in (408, 409, 429, 500, 502, 503, 504, 529)],
)
async def test_error_statuses_raise(status: int, transient: bool) -> None:
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
async def test_retry_after_is_parsed(value: str, low: float | None, high: float | None) -> None:
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
async def test_error_text_is_taken_from_the_provider(body: bytes, text: str) -> None:
    async with client(Reply(status=400, body=body)) as c:
        with pytest.raises(APIStatusError) as raised:
            await ask(c.model())
    assert str(raised.value) == f"HTTP 400: {text}"


async def test_error_status_counts_even_with_truncated_text() -> None:
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
async def test_long_error_text_is_cut(reply: Reply) -> None:
    async with client(reply) as c:
        with pytest.raises(ChatProviderError) as raised:
            await ask(c.model())
    assert len(str(raised.value)) == 2000


async def test_expired_login_raises() -> None:
    async with client(error_reply(401, "expired")) as c:
        with pytest.raises(AuthExpired) as raised:
            await ask(c.model(oauth=True, api_key="k"))
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
async def test_error_in_the_stream_raises(event: dict[str, Any], status: int | None, text: str) -> None:
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


async def test_document_instead_of_stream_is_an_error() -> None:
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
