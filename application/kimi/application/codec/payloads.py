"""Decode payloads to domain values: content parts, display blocks, tool results (wire spec 6).

This is the JSON edge: every function takes parsed JSON and raises ValueError if its shape is wrong, with a sentence
that names the member. Missing optional members get their defaults, unknown members are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast, get_args

from kimi.domain.content.message import Function, JsonObject, ToolCall
from kimi.domain.content.parts import (
    AudioPart,
    ContentPart,
    ImagePart,
    MediaUrl,
    TextPart,
    ThinkPart,
    UserInput,
    VideoPart,
)
from kimi.domain.tools.tool import (
    BackgroundTaskBlock,
    BriefBlock,
    DiffBlock,
    DisplayBlock,
    ShellBlock,
    TodoBlock,
    TodoItem,
    TodoStatus,
    ToolReturnValue,
    UnknownBlock,
)

T = TypeVar("T")
_ABSENT: Final = object()


def require_object(value: object, what: str) -> JsonObject:
    """Return `value` as a JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be an object")
    return cast("dict[str, Any]", value)


def read_member(source: JsonObject, key: str, kind: type[T], default: object = _ABSENT) -> T:
    """Return the member `key`, of exactly this JSON type; `default` if it is absent."""
    value = source.get(key, _ABSENT)
    if value is _ABSENT:
        if default is _ABSENT:
            raise ValueError(f"`{key}` is missing")
        return cast("T", default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"`{key}` must be of type {kind.__name__}")
    return value


def read_optional_text(source: JsonObject, key: str) -> str | None:
    """Return a string member that may be absent or null."""
    return None if source.get(key) is None else read_member(source, key, str)


def decode_content_part(value: object) -> ContentPart:
    """Decode a content part; an unknown `type` is an error."""
    source = require_object(value, "a content part")
    kind = read_member(source, "type", str)
    match kind:
        case "text":
            return TextPart(read_member(source, "text", str))
        case "think":
            return ThinkPart(read_member(source, "think", str), read_optional_text(source, "encrypted"))
        case "image_url":
            return ImagePart(_decode_media_url(source, kind))
        case "audio_url":
            return AudioPart(_decode_media_url(source, kind))
        case "video_url":
            return VideoPart(_decode_media_url(source, kind))
        case _:
            raise ValueError(f"unknown content part type `{kind}`")


def decode_content(value: object) -> str | tuple[ContentPart, ...]:
    """Decode a string, or a list of content parts."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("content must be a string or a list of parts")
    return tuple(decode_content_part(part) for part in cast("list[object]", value))


def decode_user_input(value: object) -> UserInput:
    """Decode the input of `prompt`."""
    return decode_content(value)


def decode_tool_call(value: object) -> ToolCall:
    """Decode a tool call of a message or an event."""
    source = require_object(value, "a tool call")
    function = require_object(source.get("function"), "`function`")
    extras = source.get("extras")
    return ToolCall(
        read_member(source, "id", str),
        Function(read_member(function, "name", str), read_optional_text(function, "arguments")),
        None if extras is None else require_object(extras, "`extras`"),
    )


def decode_tool_return_value(value: object) -> ToolReturnValue:
    """Decode a tool result; `display`, `message` and `extras` may be absent (wire spec 4.7)."""
    source = require_object(value, "a tool result")
    extras = source.get("extras")
    return ToolReturnValue(
        is_error=read_member(source, "is_error", bool),
        output=decode_content(source.get("output")),
        message=read_member(source, "message", str, ""),
        display=decode_display(source),
        extras=None if extras is None else require_object(extras, "`extras`"),
    )


def decode_display(source: JsonObject) -> tuple[DisplayBlock, ...]:
    """Decode the member `display`, which may be absent or null."""
    return tuple(_decode_display_block(block) for block in _read_items(source, "display"))


def _decode_display_block(value: object) -> DisplayBlock:
    """Decode a display block; a block of an unknown type is kept unchanged (tools spec 1.5)."""
    source = require_object(value, "a display block")
    kind = read_member(source, "type", str)
    decode = _BLOCK_DECODERS.get(kind)
    return _decode_unknown_block(source, kind) if decode is None else decode(source)


def _decode_unknown_block(source: JsonObject, kind: str) -> UnknownBlock:
    rest = {key: item for key, item in source.items() if key != "type"}
    if rest.keys() == {"data"} and isinstance(rest["data"], dict):
        return UnknownBlock(kind, cast("dict[str, Any]", rest["data"]))  # as this program wrote it
    return UnknownBlock(kind, rest)


def _decode_brief_block(source: JsonObject) -> DisplayBlock:
    return BriefBlock(read_member(source, "text", str))


def _decode_diff_block(source: JsonObject) -> DisplayBlock:
    return DiffBlock(
        read_member(source, "path", str),
        read_member(source, "old_text", str),
        read_member(source, "new_text", str),
        read_member(source, "old_start", int, 1),
        read_member(source, "new_start", int, 1),
        read_member(source, "is_summary", bool, False),
    )


def _decode_todo_block(source: JsonObject) -> DisplayBlock:
    return TodoBlock(tuple(decode_todo_item(item) for item in _read_items(source, "items")))


def decode_todo_item(value: object) -> TodoItem:
    """Decode an entry of a todo list."""
    source = require_object(value, "a todo item")
    status = read_member(source, "status", str)
    if status not in get_args(TodoStatus):
        raise ValueError(f"unknown todo status `{status}`")
    return TodoItem(read_member(source, "title", str), cast("TodoStatus", status))


def _decode_shell_block(source: JsonObject) -> DisplayBlock:
    return ShellBlock(read_member(source, "language", str), read_member(source, "command", str))


def _decode_background_task_block(source: JsonObject) -> DisplayBlock:
    task_id, kind, status, description = (
        read_member(source, key, str) for key in ("task_id", "kind", "status", "description")
    )
    return BackgroundTaskBlock(task_id, kind, status, description)


_BLOCK_DECODERS: dict[str, Callable[[JsonObject], DisplayBlock]] = {
    "brief": _decode_brief_block,
    "diff": _decode_diff_block,
    "todo": _decode_todo_block,
    "shell": _decode_shell_block,
    "background_task": _decode_background_task_block,
}


def _decode_media_url(source: JsonObject, key: str) -> MediaUrl:
    inner = require_object(source.get(key), f"`{key}`")
    return MediaUrl(read_member(inner, "url", str), read_optional_text(inner, "id"))


def _read_items(source: JsonObject, key: str) -> list[object]:
    value = source.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"`{key}` must be a list")
    return cast("list[object]", value)
