"""The dialect of `gemini` and `vertexai`: `streamGenerateContent` (runtime spec 3.6)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from kimi.domain.turn import StopReason
from tests.support.dialects.script import CACHED, INPUT, MESSAGE_ID, OUTPUT, Answer, Dialect, pieces
from tests.support.providers.provider_server import Event, Json, Recorded

_STOPS: dict[StopReason, str] = {
    "end": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "tool_calls": "STOP",
    "unknown": "SOMETHING_NEW",
}
_NAMES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
_PARTS = {"text", "inlineData", "fileData", "functionCall", "functionResponse"}
_NAME = re.compile("[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_PATH = re.compile(r"/v1/(publishers/google/)?models/[\w-]+:streamGenerateContent\?alt=sse")


def event(*parts: Json, finish: str | None = None, usage: Json | None = None) -> Json:
    """One event with its only candidate."""
    candidate: Json = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    more: Json = {"finishReason": finish} if finish else {}
    end: Json = {} if usage is None else {"usageMetadata": usage}
    return {"candidates": [{**candidate, **more}], **end, "modelVersion": "m-001", "responseId": MESSAGE_ID}


def call(call_id: str, name: str, arguments: str, signature: str | None = None) -> Json:
    """The part of a tool call."""
    function: Json = {"name": name, "args": json.loads(arguments)}
    part: Json = {"functionCall": {**function, **({"id": call_id} if call_id else {})}}
    return {**part, "thoughtSignature": signature} if signature else part


def opening(answer: Answer) -> list[Event]:
    """The parts."""
    thoughts = pieces(answer.think or "", 3) or ([""] if answer.think == "" else [])
    found: list[Event] = [event({"text": piece, "thought": True}) for piece in thoughts]
    found += [event({"text": piece}) for piece in answer.text or ""]
    return found + [event(call(*one, answer.signature)) for one in answer.calls]


def events(answer: Answer) -> list[Event]:
    """The parts, then an empty text with the reason and the usage."""
    usage = {"promptTokenCount": INPUT, "cachedContentTokenCount": CACHED, "candidatesTokenCount": OUTPUT - 2}
    usage |= {"thoughtsTokenCount": 2, "totalTokenCount": INPUT + OUTPUT}
    return [
        *opening(answer),
        event({"text": ""}, finish=_STOPS[answer.why], usage=usage if answer.usage else None),
    ]


def check(request: Recorded) -> None:
    """Assert that the service accepts the request."""
    assert request.method == "POST"
    assert _PATH.fullmatch(request.path)
    assert request.headers.get("x-goog-api-key") or request.headers["authorization"].startswith("Bearer ")
    body = request.json
    assert body.keys() <= {"contents", "systemInstruction", "tools", "generationConfig"}
    assert all(part["text"] for part in body.get("systemInstruction", {}).get("parts", ()))
    _check_turns(body["contents"])
    for tool in body.get("tools", ()):
        for function in tool["functionDeclarations"]:
            assert function["parametersJsonSchema"]["type"] == "object"


def _check_turns(turns: Sequence[Json]) -> None:
    open_calls: list[Any] = []
    for turn in turns:
        assert turn["role"] in ("user", "model")
        assert turn["parts"]
        kinds = [_PARTS & part.keys() for part in turn["parts"]]
        assert all(len(kind) == 1 for kind in kinds)
        answered = [_named(part["functionResponse"]) for part in turn["parts"] if "functionResponse" in part]
        assert answered == open_calls
        open_calls = [_named(part["functionCall"]) for part in turn["parts"] if "functionCall" in part]
        assert not (open_calls and turn["role"] == "user")
        assert all(isinstance(part["functionCall"]["args"], dict) for part in turn["parts"] if "functionCall" in part)
    assert not open_calls


def _named(function: Json) -> tuple[str, str | None]:
    assert _NAME.fullmatch(function["name"])
    return function["name"], function.get("id")


def error(status: int, text: str) -> Json:
    """An error body."""
    return {"error": {"code": status, "message": text, "status": _NAMES.get(status, "UNKNOWN")}}


def quota(quota_id: str = "GenerateRequestsPerDayPerProjectPerModel", delay: str = "34s") -> Json:
    """Return the error body for a request beyond a quota."""
    violations = [{"quotaMetric": "requests", "quotaId": quota_id}]
    details: list[Json] = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay},
    ]
    return {"error": {**error(429, "Pay first.")["error"], "details": details}}


DIALECT = Dialect(
    events=events,
    opening=opening,
    check=check,
    error=error,
    stream_error=lambda text: error(503, text),
    quota=(429, quota()),
    broken=(
        b"{not json",
        b"[]",
        b'"text"',
        b'{"candidates":[1]}',
        b'{"candidates":[{"content":{"parts":[1]}}]}',
        b'{"candidates":[{"content":{"parts":[{"functionCall":{}}]}}]}',
        b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":7}}]}}]}',
        b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"a"},"thoughtSignature":7}]}}]}',
        b'{"candidates":[{"content":{"parts":[{"text":7,"thought":true}]}}]}',
    ),
    harmless=(
        {},
        {"candidates": []},
        {"candidates": [{"index": 0}]},
        {"usageMetadata": {"promptTokenCount": 1}},
        event({"executableCode": {"code": "1"}}),
        event({"text": ""}),
    ),
    done=False,
    streams_arguments=False,
    returns_thinking=False,
    call_id=lambda call_id, name: f"{name}_{call_id}",
)
