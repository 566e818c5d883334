"""Lines of a context file: records to JSON and back (runtime spec 4.2).

The shapes are those of the reference, so that it resumes what we write and we resume what it wrote. Writing never
raises on a string; reading gives None for what cannot be used, so that one bad line never costs the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from pydantic_core import PydanticSerializationError, from_json, to_json

from kimi.application.codec.envelope import scrubbed
from kimi.application.codec.payloads import decode_content, decode_tool_call, member, optional_text
from kimi.domain.content.message import JsonObject, Message, Role, ToolCall
from kimi.domain.content.parts import ContentPart, TextPart
from kimi.domain.history.session import CheckpointRecord, ContextRecord, SystemPromptRecord, UsageRecord


def encode_record(record: ContextRecord) -> bytes:
    """A record as one JSON line, without the line end."""
    match record:
        case Message():
            return encode_message(record)
        case SystemPromptRecord(content):
            return _json({"role": "_system_prompt", "content": content})
        case CheckpointRecord(id):
            return _json({"role": "_checkpoint", "id": id})
        case UsageRecord(token_count):
            return _json({"role": "_usage", "token_count": token_count})


def encode_message(message: Message) -> bytes:
    """A message as one JSON line, without the line end; print mode's stream-json has the same shape."""
    shape: dict[str, Any] = {"role": message.role}
    if message.name is not None:
        shape["name"] = message.name
    shape["content"] = _content_shape(message.content)
    if message.tool_calls:
        shape["tool_calls"] = [_call_shape(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        shape["tool_call_id"] = message.tool_call_id
    if message.partial is not None:
        shape["partial"] = message.partial
    return _json(shape)


def decode_record(line: bytes) -> ContextRecord | None:
    """The record of a line; None when it is not JSON, or is no record that we know. Bad bytes become U+FFFD."""
    value = parse_object(line)
    role = None if value is None else value.get("role")
    decode = _DECODERS.get(role) if isinstance(role, str) else None
    if value is None or decode is None:
        return None
    try:
        return decode(value)
    except ValueError:
        return None


def parse_object(line: bytes) -> JsonObject | None:
    """A line as a JSON object, None when it is not one. Lone surrogates and undecodable bytes become U+FFFD."""
    try:
        value: Any = from_json(line)
    except ValueError:
        value = _parse_patiently(line)
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _parse_patiently(line: bytes) -> Any:
    """What the fast parser refuses although it can be understood: half a surrogate pair, bytes that are not UTF-8."""
    try:
        return scrubbed(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None


def _json(shape: dict[str, Any]) -> bytes:
    try:
        return to_json(shape, inf_nan_mode="null")
    except PydanticSerializationError:
        return to_json(scrubbed(shape), inf_nan_mode="null")


def _content_shape(content: tuple[ContentPart, ...]) -> str | tuple[ContentPart, ...]:
    if len(content) == 1 and isinstance(content[0], TextPart):
        return content[0].text
    return content


def _call_shape(call: ToolCall) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": call.type, "id": call.id, "function": call.function}
    if call.extras is not None:
        shape["extras"] = call.extras
    return shape


def _system_prompt(source: JsonObject) -> ContextRecord:
    return SystemPromptRecord(member(source, "content", str))


def _checkpoint(source: JsonObject) -> ContextRecord:
    return CheckpointRecord(member(source, "id", int))


def _usage(source: JsonObject) -> ContextRecord:
    return UsageRecord(member(source, "token_count", int))


def _message(source: JsonObject) -> ContextRecord:
    calls = source.get("tool_calls")
    partial = source.get("partial")
    return Message(
        cast("Role", source["role"]),
        _parts(source.get("content")),
        () if calls is None else tuple(decode_tool_call(call) for call in _items(calls)),
        optional_text(source, "tool_call_id"),
        optional_text(source, "name"),
        partial if isinstance(partial, bool) else None,
    )


def _items(calls: object) -> list[object]:
    if not isinstance(calls, list):
        raise ValueError("`tool_calls` must be a list")
    return cast("list[object]", calls)


def _parts(content: object) -> tuple[ContentPart, ...]:
    if isinstance(content, str):
        return (TextPart(content),)
    if content is None:
        return ()
    return cast("tuple[ContentPart, ...]", decode_content(content))


_DECODERS: dict[str, Callable[[JsonObject], ContextRecord]] = {
    "user": _message,
    "assistant": _message,
    "tool": _message,
    "system": _message,
    "_checkpoint": _checkpoint,
    "_usage": _usage,
    "_system_prompt": _system_prompt,
}
