"""Encode records as lines of a context file, and decode them (runtime spec 4.2).

The shapes are those of the reference, so that each program can resume the other's sessions. Encoding never raises on a
string; decoding returns None for a line that cannot be used, so that one bad line does not cost the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from pydantic_core import PydanticSerializationError, from_json, to_json

from kimi.application.codec.envelope import replace_surrogates
from kimi.application.codec.payloads import decode_content, decode_tool_call, read_member, read_optional_text
from kimi.domain.content.message import JsonObject, Message, Role, ToolCall
from kimi.domain.content.parts import ContentPart, TextPart
from kimi.domain.history.session import CheckpointRecord, ContextRecord, SystemPromptRecord, UsageRecord


def encode_record(record: ContextRecord) -> bytes:
    """Encode a record as one JSON line, without the line end."""
    match record:
        case Message():
            return encode_message(record)
        case SystemPromptRecord(content):
            return _encode_shape({"role": "_system_prompt", "content": content})
        case CheckpointRecord(id):
            return _encode_shape({"role": "_checkpoint", "id": id})
        case UsageRecord(token_count):
            return _encode_shape({"role": "_usage", "token_count": token_count})


def encode_message(message: Message) -> bytes:
    """Encode a message as one JSON line, without the line end; print mode's stream-json has the same shape."""
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
    return _encode_shape(shape)


def decode_record(line: bytes) -> ContextRecord | None:
    """Decode a line; None if it is not JSON or not a known record. Bad bytes become U+FFFD."""
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
    """Parse a line as a JSON object; None if it is not one. Lone surrogates and undecodable bytes become U+FFFD."""
    try:
        value: Any = from_json(line)
    except ValueError:
        value = _parse_leniently(line)
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _parse_leniently(line: bytes) -> Any:
    """Parse what the fast parser refuses but can be read: half a surrogate pair, bytes that are not UTF-8."""
    try:
        return replace_surrogates(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None


def _encode_shape(shape: dict[str, Any]) -> bytes:
    try:
        return to_json(shape, inf_nan_mode="null")
    except PydanticSerializationError:
        return to_json(replace_surrogates(shape), inf_nan_mode="null")


def _content_shape(content: tuple[ContentPart, ...]) -> str | tuple[ContentPart, ...]:
    if len(content) == 1 and isinstance(content[0], TextPart):
        return content[0].text
    return content


def _call_shape(call: ToolCall) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": call.type, "id": call.id, "function": call.function}
    if call.extras is not None:
        shape["extras"] = call.extras
    return shape


def _decode_system_prompt(source: JsonObject) -> ContextRecord:
    return SystemPromptRecord(read_member(source, "content", str))


def _decode_checkpoint(source: JsonObject) -> ContextRecord:
    return CheckpointRecord(read_member(source, "id", int))


def _decode_usage(source: JsonObject) -> ContextRecord:
    return UsageRecord(read_member(source, "token_count", int))


def _decode_message(source: JsonObject) -> ContextRecord:
    calls = source.get("tool_calls")
    partial = source.get("partial")
    return Message(
        cast("Role", source["role"]),
        _decode_parts(source.get("content")),
        () if calls is None else tuple(decode_tool_call(call) for call in _check_call_list(calls)),
        read_optional_text(source, "tool_call_id"),
        read_optional_text(source, "name"),
        partial if isinstance(partial, bool) else None,
    )


def _check_call_list(calls: object) -> list[object]:
    if not isinstance(calls, list):
        raise ValueError("`tool_calls` must be a list")
    return cast("list[object]", calls)


def _decode_parts(content: object) -> tuple[ContentPart, ...]:
    if isinstance(content, str):
        return (TextPart(content),)
    if content is None:
        return ()
    return cast("tuple[ContentPart, ...]", decode_content(content))


_DECODERS: dict[str, Callable[[JsonObject], ContextRecord]] = {
    "user": _decode_message,
    "assistant": _decode_message,
    "tool": _decode_message,
    "system": _decode_message,
    "_checkpoint": _decode_checkpoint,
    "_usage": _decode_usage,
    "_system_prompt": _decode_system_prompt,
}
