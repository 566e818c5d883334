"""The dialect of `openai_responses`: the Responses API (runtime spec 3.4)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tests.support.dialects.script import CACHED, INPUT, MESSAGE_ID, OUTPUT, Answer, Dialect, pieces
from tests.support.providers.provider_server import Event, Json, Recorded

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter", "unknown": "something_new"}
_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")


def item(index: int, body: Json, deltas: Sequence[Json], done: Json) -> list[Event]:
    """Return the events of an output item: added, its deltas, done."""
    begun: Json = {"type": "response.output_item.added", "output_index": index, "item": body}
    middle = [{"output_index": index, "item_id": f"item_{index}", **delta} for delta in deltas]
    return [begun, *middle, {"type": "response.output_item.done", "output_index": index, "item": {**body, **done}}]


def reasoning_item(index: int, think: str, signature: str | None) -> list[Event]:
    """Thinking: its summary, and the encrypted form at its end."""
    kind = "response.reasoning_summary_text.delta"
    deltas = [{"type": kind, "summary_index": 0, "delta": piece} for piece in pieces(think, 3)]
    summary = [{"type": "summary_text", "text": think}] if think else []
    begun: Json = {"id": f"item_{index}", "type": "reasoning", "summary": []}
    return item(index, begun, deltas, {"summary": summary, "encrypted_content": signature})


def message_item(index: int, text: str) -> list[Event]:
    """Text."""
    deltas: list[Json] = [{"type": "response.output_text.delta", "content_index": 0, "delta": piece} for piece in text]
    begun: Json = {"id": f"item_{index}", "type": "message", "role": "assistant", "content": []}
    return item(index, begun, deltas, {"content": [{"type": "output_text", "text": text}]})


def call_item(index: int, call_id: str, name: str, arguments: str) -> list[Event]:
    """A call of a tool."""
    kind = "response.function_call_arguments.delta"
    deltas = [{"type": kind, "delta": piece} for piece in pieces(arguments, 3)]
    deltas.append({"type": "response.function_call_arguments.done", "arguments": arguments})
    begun: Json = {"id": f"item_{index}", "type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
    return item(index, begun, deltas, {"arguments": arguments})


def end(answer: Answer) -> Event:
    """The last event."""
    details = {"input_tokens_details": {"cached_tokens": CACHED}, "output_tokens_details": {"reasoning_tokens": 1}}
    usage = {"input_tokens": INPUT, "output_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT, **details}
    body: Json = {"id": MESSAGE_ID, "usage": usage if answer.usage else None, "incomplete_details": None}
    if (reason := _INCOMPLETE.get(answer.why)) is None:
        return {"type": "response.completed", "response": {**body, "status": "completed"}}
    body |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
    return {"type": "response.incomplete", "response": body}


def _parts(answer: Answer) -> list[Event]:
    found: list[Event] = [{"type": "response.created", "response": {"id": MESSAGE_ID, "status": "in_progress"}}]
    index = 0
    if answer.think is not None:
        found += reasoning_item(index, answer.think, answer.signature)
        index += 1
    if answer.text is not None:
        found += message_item(index, answer.text)
        index += 1
    for number, call in enumerate(answer.calls):
        found += call_item(index + number, *call)
    return found


def opening(answer: Answer) -> list[Event]:
    """The parts; the last one is not done."""
    found = _parts(answer)
    return found[:-2] if answer.calls else found[:-1]


def events(answer: Answer) -> list[Event]:
    """The parts and the end."""
    return [*_parts(answer), end(answer)]


def check(request: Recorded) -> None:
    """Assert that the Responses API accepts the request."""
    assert (request.method, request.path) == ("POST", "/v1/responses")
    assert request.headers["authorization"].startswith("Bearer ")
    body = request.json
    assert body["model"]
    assert body["stream"] is True
    assert body["store"] is False
    open_calls: list[str] = []
    for one in body["input"]:
        kind = one.get("type", "message")
        if kind == "function_call_output":
            assert [one["call_id"]] == open_calls[:1]
            del open_calls[0]
            assert one["output"] is not None
            continue
        if kind == "function_call":
            assert isinstance(json.loads(one["arguments"]), dict)
            assert _NAME.fullmatch(one["name"])
            assert 0 < len(one["call_id"]) <= 64
            open_calls.append(one["call_id"])
            continue
        assert not open_calls, "a call without its result"
        assert kind in ("message", "reasoning")
        assert kind == "reasoning" or one["content"]
    assert not open_calls
    _check_items(body["input"])
    for tool in body.get("tools", ()):
        assert tool["parameters"]["type"] == "object"
        assert tool["strict"] is False


def _check_items(items: Sequence[Json]) -> None:
    """Assert that output of the model follows its thinking, and that call ids are unique."""
    ids = [one["call_id"] for one in items if one["type"] == "function_call"]
    assert len(ids) == len(set(ids))
    for one, following in zip(items, [*items[1:], {}], strict=True):
        if one["type"] == "reasoning":
            assert following.get("type") in ("reasoning", "function_call") or following.get("role") == "assistant"


def error(status: int, text: str) -> Json:
    """An error body."""
    return {"error": {"message": text, "type": "some_error", "param": None, "code": None}}


DIALECT = Dialect(
    events=events,
    opening=opening,
    check=check,
    error=error,
    stream_error=lambda text: {
        "type": "response.failed",
        "response": {"id": MESSAGE_ID, "status": "failed", "error": {"code": "server_error", "message": text}},
    },
    quota=(429, {"error": {"message": "Pay first.", "type": "insufficient_quota", "code": "insufficient_quota"}}),
    broken=(
        b"{not json",
        b"[]",
        b'"text"',
        b'{"type":"response.output_item.added","output_index":0,"item":1}',
        b'{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","name":7}}',
        b'{"type":"response.completed","response":[1]}',
        b'{"type":"response.completed","response":{"usage":{"input_tokens":1e999}}}',
        b'{"type":"response.output_text.delta","delta":{}}',
    ),
    harmless=(
        {"type": "response.in_progress", "response": {"id": MESSAGE_ID}},
        {},
        {"type": "response.something_new", "delta": "x"},
        {"type": "response.output_text.annotation.added", "output_index": 0, "annotation": {}},
    ),
    done=False,
    named=True,
    signs=True,
)
