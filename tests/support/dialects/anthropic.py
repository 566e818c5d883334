"""The dialect of `anthropic`: the Messages API (runtime spec 3.5)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kimi.domain.turn import StopReason
from tests.support.dialects.script import CACHED, INPUT, MESSAGE_ID, OUTPUT, Answer, Dialect, pieces
from tests.support.providers.provider_server import Event, Json, Recorded

_STOPS: dict[StopReason, str] = {
    "end": "end_turn",
    "length": "max_tokens",
    "content_filter": "refusal",
    "tool_calls": "tool_use",
    "unknown": "something_new",
}
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
          413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}  # fmt: skip
_ID = re.compile("[a-zA-Z0-9_-]+")
_BLOCKS = {"user": {"text", "image", "tool_result"}, "assistant": {"text", "thinking", "redacted_thinking", "tool_use"}}


def block(index: int, start: Json, deltas: Sequence[Json]) -> list[Event]:
    """Return the events of a content block: its start, its deltas, its end."""
    begun: Json = {"type": "content_block_start", "index": index, "content_block": start}
    middle = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [begun, *middle, {"type": "content_block_stop", "index": index}]


def thinking_block(index: int, think: str, signature: str | None) -> list[Event]:
    """Return thinking; without text it is redacted."""
    if not think and signature:
        return block(index, {"type": "redacted_thinking", "data": signature}, [])
    deltas: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(think, 3)]
    deltas += [{"type": "signature_delta", "signature": signature}] if signature else []
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, deltas)


def text_block(index: int, text: str) -> list[Event]:
    """Text."""
    return block(index, {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in text])


def call_block(index: int, call_id: str, name: str, arguments: str) -> list[Event]:
    """A call of a tool."""
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(arguments, 3))]
    return block(index, {"type": "tool_use", "id": call_id, "name": name, "input": {}}, deltas)


def start(*, usage: bool = True) -> Event:
    """The first event."""
    message: Json = {"id": MESSAGE_ID, "type": "message", "role": "assistant", "model": "m", "content": []}
    counts = {"input_tokens": INPUT - CACHED, "cache_read_input_tokens": CACHED, "output_tokens": 1}
    counts["cache_creation_input_tokens"] = 0
    return {"type": "message_start", "message": {**message, **({"usage": counts} if usage else {})}}


def end(reason: str, *, usage: bool = True) -> list[Event]:
    """The last two events."""
    last: Json = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}}
    return [{**last, **({"usage": {"output_tokens": OUTPUT}} if usage else {})}, {"type": "message_stop"}]


def _parts(answer: Answer) -> list[Event]:
    found: list[Event] = [start(usage=answer.usage)]
    index = 0
    if answer.think is not None:
        found += thinking_block(index, answer.think, answer.signature)
        index += 1
    if answer.text is not None:
        found += text_block(index, answer.text)
        index += 1
    for number, call in enumerate(answer.calls):
        found += call_block(index + number, *call)
    return found


def opening(answer: Answer) -> list[Event]:
    """Return the parts; the last one is not closed."""
    return _parts(answer)[:-1]


def events(answer: Answer) -> list[Event]:
    """The parts and the end."""
    return [*_parts(answer), *end(_STOPS[answer.why], usage=answer.usage)]


def check(request: Recorded) -> None:
    """Assert that the Messages API accepts the request."""
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert request.headers["x-api-key"]
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in request.headers
    body = request.json
    assert body["model"]
    assert body["stream"] is True
    assert 1 <= body["max_tokens"] <= 50_000
    thinking = body.get("thinking", {})
    if thinking.get("type") == "enabled":
        assert 1024 <= thinking["budget_tokens"] < body["max_tokens"]
    _check_messages(body["messages"])
    assert str(body).count("cache_control") <= 4
    for tool in body.get("tools", ()):
        assert tool["input_schema"]["type"] == "object"


def _check_messages(messages: Sequence[Json]) -> None:
    ids = [one["id"] for message in messages for one in message["content"] if one["type"] == "tool_use"]
    assert len(ids) == len(set(ids))
    open_calls: list[str] = []
    for message in messages:
        blocks = message["content"]
        assert blocks
        assert all(one["type"] in _BLOCKS[message["role"]] for one in blocks)
        assert all(one["text"].strip() for one in blocks if one["type"] == "text")
        answered = [one["tool_use_id"] for one in blocks if one["type"] == "tool_result"]
        assert answered == open_calls
        open_calls = [_call_id(one) for one in blocks if one["type"] == "tool_use"]
    assert not open_calls


def _call_id(block: Json) -> str:
    assert isinstance(block["input"], dict)
    assert _ID.fullmatch(block["name"])
    assert _ID.fullmatch(block["id"])
    return block["id"]


def error(status: int, text: str) -> Json:
    """An error body."""
    return {"type": "error", "error": {"type": _KINDS.get(status, "api_error"), "message": text}}


DIALECT = Dialect(
    events=events,
    opening=opening,
    check=check,
    error=error,
    stream_error=lambda text: error(529, text),
    quota=(402, {"type": "error", "error": {"type": "billing_error", "message": "Pay first."}}),
    broken=(
        b"{not json",
        b"[]",
        b'"text"',
        b'{"type":"content_block_delta","index":0,"delta":1}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}',
        b'{"type":"message_start","message":[1]}',
        b'{"type":"message_delta","delta":{},"usage":{"output_tokens":1e999}}',
        b'{"type":"content_block_start","index":0,"content_block":null}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":7}}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":7}}',
    ),
    harmless=({"type": "ping"}, {}, {"type": "content_block_delta", "index": 9, "delta": {"type": "new"}}),
    done=False,
    named=True,
    signs=True,
)
