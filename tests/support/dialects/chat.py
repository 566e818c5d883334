"""The dialect of `kimi` and `openai_legacy`: chat completions (runtime spec 3.2, 3.3)."""

from __future__ import annotations

import json
import re
from typing import Any

from kimi.domain.turn import StopReason
from tests.support.dialects.script import CACHED, INPUT, MESSAGE_ID, OUTPUT, Answer, Dialect, pieces
from tests.support.providers.provider_server import Event, Json, Recorded, call_events, chunk, text_events

_STOPS: dict[StopReason, str] = {
    "end": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_calls": "tool_calls",
    "unknown": "something_new",
}
_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")


def opening(answer: Answer) -> list[Event]:
    """The parts."""
    events: list[Event] = [chunk({"role": "assistant", "content": ""}, id=MESSAGE_ID)]
    events += [chunk({"reasoning_content": piece}, id=MESSAGE_ID) for piece in pieces(answer.think or "", 3)]
    if answer.think == "":
        events.append(chunk({"reasoning_content": ""}))
    events += text_events(*(answer.text or ""))
    for index, (call_id, name, arguments) in enumerate(answer.calls):
        events += call_events(index, call_id, name, arguments, piece=3)
    return events


def events(answer: Answer) -> list[Event]:
    """The parts and the end, the usage in a chunk without choices."""
    usage = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "cached_tokens": CACHED}
    end: list[Event] = [chunk(finish=_STOPS[answer.why])]
    return [*opening(answer), *end, *([{"id": MESSAGE_ID, "choices": [], "usage": usage}] if answer.usage else [])]


def check(request: Recorded) -> None:
    """Assert that a server of chat completions accepts the request."""
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"].startswith("Bearer ")
    body = request.json
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body["model"]
    open_calls: list[str] = []
    for message in body["messages"]:
        assert message["role"] in ("system", "user", "assistant", "tool")
        _check_content(message, ours="prompt_cache_key" in body)
        if message["role"] == "tool":
            assert [message["tool_call_id"]] == open_calls[:1]
            del open_calls[0]
            continue
        assert not open_calls, "a call without its result"
        open_calls = [_call_id(call) for call in message.get("tool_calls", ())]
        assert message.get("content") is not None or open_calls
    assert not open_calls
    for tool in body.get("tools", ()):
        assert tool["function"]["parameters"]["type"] == "object"


def _check_content(message: Json, *, ours: bool) -> None:
    """Assert that only user messages have images; with `ours` results may have them, too."""
    if message["role"] == "user" or (ours and message["role"] == "tool"):
        return
    content: Any = message.get("content") or ()
    assert isinstance(content, str) or all(part["type"] == "text" for part in content)


def _call_id(call: Any) -> str:
    assert call["type"] == "function"
    assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert _NAME.fullmatch(call["function"]["name"])
    assert 0 < len(call["id"]) <= 40
    return call["id"]


def error(status: int, text: str) -> Json:
    """An error body."""
    return {"error": {"message": text, "type": "some_error", "code": None}}


DIALECT = Dialect(
    events=events,
    opening=opening,
    check=check,
    error=error,
    stream_error=lambda text: {"error": {"message": text, "code": 503}},
    quota=(429, {"error": {"message": "Pay first.", "type": "insufficient_quota", "code": "insufficient_quota"}}),
    broken=(
        b"{not json",
        b"[]",
        b'"text"',
        b'{"choices":[1]}',
        b'{"choices":[],"usage":{"prompt_tokens":1e999}}',
        b'{"choices":[{"delta":{"tool_calls":[1]}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":7}}]}}]}',
    ),
    harmless=({"choices": []}, {}, {"choices": [{"delta": None}]}, chunk({"what": 1}), chunk({"content": None})),
)
