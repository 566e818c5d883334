"""The language of scripted answers: one item per line, `kind: payload` (runtime spec 3.8).

The error texts are part of the contract with test suites and must not change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kimi.domain.content.message import Function, ToolCall, ToolCallPart
from kimi.domain.content.parts import AudioPart, ImagePart, MediaUrl, TextPart, ThinkPart, VideoPart
from kimi.domain.content.stream import StreamPart
from kimi.domain.errors import APIConnectionError, APIStatusError, APITimeoutError, ChatProviderError
from kimi.domain.turn import TokenUsage
from kimi.infrastructure.models.json_object import as_object

Fields: TypeAlias = Mapping[str, Any]

_USAGE_FIELDS = ("input_other", "output", "input_cache_read", "input_cache_creation")
_BLANKS = re.compile(r"[\s,]+")
_NOT_JSON = object()


@dataclass(slots=True)
class EchoScript:
    """A parsed script: the items to stream, or the error to raise instead."""

    parts: list[StreamPart] = field(default_factory=list[StreamPart])
    message_id: str | None = None
    usage: TokenUsage | None = None
    error: ChatProviderError | None = None
    delay_s: float = 0.0
    """How long the provider takes before its first item."""


@dataclass(frozen=True, slots=True)
class _ScriptLine:
    number: int
    raw: str
    kind: str
    payload: str

    @property
    def location(self) -> str:
        return f"at line {self.number}: {self.raw!r}"


def parse_script(text: str) -> EchoScript:
    """Parse a script.

    Raises:
        ChatProviderError: a line is malformed; the message names it.
    """
    script = EchoScript()
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not _is_ignored(line):
            _apply_line(script, _parse_line(number, raw.removesuffix("\r"), line))
    return script


def _is_ignored(line: str) -> bool:
    return not line or line.startswith(("#", "```")) or line.lower() == "echo"


def _parse_line(number: int, raw: str, line: str) -> _ScriptLine:
    kind, colon, payload = line.partition(":")
    if not colon:
        raise ChatProviderError(f"Invalid echo DSL at line {number}: {raw!r}")
    return _ScriptLine(number, raw, kind.strip().lower(), payload.removeprefix(" "))


def _apply_line(script: EchoScript, line: _ScriptLine) -> None:
    match line.kind:
        case "id":
            script.message_id = _unquote(line.payload)
        case "usage":
            script.usage = _parse_usage(line.payload)
        case "error":
            script.error = script.error or _parse_error(line)
        case "delay_ms":
            script.delay_s = _parse_count("delay_ms", line.payload) / 1000
        case kind if kind in _PART_PARSERS:
            script.parts.append(_PART_PARSERS[kind](line))
        case kind:
            raise ChatProviderError(f"Unknown echo DSL kind '{kind}' {line.location}")


def _unquote(text: str) -> str:
    """Remove one pair of equal quotes around `text`."""
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'" else text


def _parse_json(text: str) -> Any:
    """Parse a JSON value; return `_ABSENT` when it is malformed."""
    try:
        return json.loads(text)
    except ValueError:
        return _NOT_JSON


def _parse_fields(kind: str, payload: str) -> Fields:
    """Parse a payload that is a JSON object or `key=value` tokens."""
    value = _parse_json(payload)
    if value is _NOT_JSON:
        return _parse_tokens(kind, payload)
    fields = as_object(value)
    if fields is None:
        raise ChatProviderError(f"{kind} payload must be an object, got {type(value).__name__}")
    return fields


def _parse_tokens(kind: str, payload: str) -> Fields:
    tokens = [token for token in _BLANKS.split(payload) if token]
    if not tokens:
        raise ChatProviderError(f"{kind} payload cannot be empty.")
    pairs: dict[str, str] = {}
    for token in tokens:
        key, equals, value = token.partition("=")
        if not equals:
            raise ChatProviderError(f"Invalid token '{token}' in {kind} payload.")
        pairs[key] = _unquote(value)
    return pairs


def _parse_usage(payload: str) -> TokenUsage:
    fields = _parse_fields("usage", payload)
    return TokenUsage(**{name: _parse_count(name, fields.get(name, 0)) for name in _USAGE_FIELDS})


def _parse_count(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise ChatProviderError(f"Usage field '{name}' must be an integer, got {value!r}") from None


def _parse_medium(line: _ScriptLine) -> MediaUrl:
    value = _parse_json(line.payload)
    if value is _NOT_JSON or isinstance(value, str):
        return MediaUrl(_unquote(line.payload) if value is _NOT_JSON else value)
    fields = as_object(value)
    if fields is None:
        raise ChatProviderError(f"{line.kind} expects url string or object, got {type(value).__name__}")
    url, medium_id = fields.get("url"), fields.get("id")
    if not isinstance(url, str):
        raise ChatProviderError(f"{line.kind} requires a url field, got {fields}")
    if medium_id is not None and not isinstance(medium_id, str):
        raise ChatProviderError(f"{line.kind} id must be a string when provided.")
    return MediaUrl(url, medium_id)


def _parse_tool_call(line: _ScriptLine) -> ToolCall:
    fields = _parse_fields("tool_call", line.payload)
    function = as_object(fields.get("function")) or {}
    call_id, name = fields.get("id"), fields.get("name", function.get("name"))
    if not (isinstance(call_id, str) and isinstance(name, str)):
        raise ChatProviderError(f"tool_call requires string id and name {line.location}")
    arguments = fields.get("arguments", function.get("arguments"))
    if arguments is not None and not isinstance(arguments, str):
        raise _make_type_error("arguments", "a string", line, arguments)
    extras = fields.get("extras")
    if extras is not None and as_object(extras) is None:
        raise _make_type_error("extras", "an object", line, extras)
    return ToolCall(call_id, Function(name, arguments), as_object(extras))


def _make_type_error(name: str, wanted: str, line: _ScriptLine, value: object) -> ChatProviderError:
    got = type(value).__name__
    return ChatProviderError(f"tool_call.{name} must be {wanted} at line {line.number}, got {got}")


def _parse_tool_call_part(line: _ScriptLine) -> ToolCallPart:
    value = _parse_json(line.payload)
    fields = as_object(value)
    if value is None:
        return ToolCallPart(None)
    if fields is None:
        return ToolCallPart(_unquote(line.payload) or None)
    piece = fields.get("arguments_part", fields)
    return ToolCallPart(piece or None if isinstance(piece, str | None) else _encode_compact(piece))


def _encode_compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _parse_error(line: _ScriptLine) -> ChatProviderError:
    spec, _, message = line.payload.strip().partition(" ")
    message = message.strip()
    match spec.lower():
        case "":
            raise ChatProviderError(f"Empty error payload {line.location}")
        case "connection":
            return APIConnectionError(message or "Simulated connection error")
        case "timeout":
            return APITimeoutError(message or "Simulated timeout error")
        case status if status.isdecimal():
            return APIStatusError(int(status), message or f"Simulated {status} error")
        case _:
            expected = "expected status code or 'connection'/'timeout'"
            raise ChatProviderError(f"Invalid error spec at line {line.number}: {expected}, got '{spec}'")


_PART_PARSERS: dict[str, Callable[[_ScriptLine], StreamPart]] = {
    "text": lambda line: TextPart(_unquote(line.payload)),
    "think": lambda line: ThinkPart(_unquote(line.payload)),
    "image_url": lambda line: ImagePart(_parse_medium(line)),
    "audio_url": lambda line: AudioPart(_parse_medium(line)),
    "video_url": lambda line: VideoPart(_parse_medium(line)),
    "tool_call": _parse_tool_call,
    "tool_call_part": _parse_tool_call_part,
}
