"""Messages and tools of a request to the Messages API (runtime spec 3.5).

A unit of the history is one message of the request: consecutive user messages, or the results of one step's calls.
Content that the API does not accept is replaced by text or left out, because the API would refuse the same history in
every later request, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kimi.domain.content.message import Message, ToolCall
from kimi.domain.content.parts import ContentPart, ImagePart, TextPart, ThinkPart, media_placeholder
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.models.history.encoded_history import (
    Json,
    UnitRules,
    can_join_users_or_results,
    encode_compact_json,
)
from kimi.infrastructure.models.history.tool_call_sanitizing import (
    parse_arguments,
    sanitize_call_id,
    sanitize_tool_name,
)

CACHE_CONTROL: Json = {"cache_control": {"type": "ephemeral"}}
"""Marks the end of a prefix that the provider may cache."""

HIDDEN_THINKING_PREFIX = "signature:"
"""Precedes the signature of thinking whose text the provider does not reveal. Redacted thinking is base64, so it
contains no colon.
"""

_DATA_IMAGE = re.compile(r"data:(image/(?:png|jpeg|gif|webp))(?:;[^,;]*)*;base64,", re.ASCII | re.IGNORECASE)
_OPENAI_THINKING_PREFIX = "gAAAA"
"""The beginning of encrypted thinking from the Responses API, which this API refuses."""
_UNCACHEABLE_BLOCKS = ("thinking", "redacted_thinking")


def make_unit_rules(capabilities: frozenset[str]) -> UnitRules:
    """Return how a history is encoded for the Messages API."""
    return UnitRules(capabilities, encode_unit, can_join_users_or_results)


def encode_unit(messages: Sequence[Message]) -> bytes:
    """Encode the messages as one message of the API; empty when nothing in them can be sent."""
    return encode_compact_json(body) if (body := build_message(messages)) else b""


def encode_cached_unit(messages: Sequence[Message]) -> bytes:
    """As `encode_unit`, with the cache mark on the last block that may carry it."""
    body = build_message(messages)
    if body is None:
        return b""
    blocks: list[Json] = body["content"]
    if (
        last := next((block for block in reversed(blocks) if block["type"] not in _UNCACHEABLE_BLOCKS), None)
    ) is not None:
        last.update(CACHE_CONTROL)
    return encode_compact_json(body)


def build_message(messages: Sequence[Message]) -> Json | None:
    """Return the messages as one message of the API, or None when nothing in them can be sent."""
    role = "assistant" if messages[0].role == "assistant" else "user"
    blocks = [block for message in messages for block in _build_blocks(message)]
    return {"role": role, "content": blocks} if blocks else None


def _build_blocks(message: Message) -> list[Json]:
    match message.role:
        case "tool":
            return [_build_tool_result(message)]
        case "system":
            text = "".join(part.text for part in message.content if isinstance(part, TextPart))
            return [_build_text_block(f"<system>{text}</system>")] if text.strip() else []
        case "assistant":
            return [*_build_answer_blocks(message.content), *map(_build_tool_use, message.tool_calls)]
        case _:
            return _build_input_blocks(message.content)


def _build_input_blocks(parts: Iterable[ContentPart]) -> list[Json]:
    """Return the blocks of a user message or a result: text and pictures. The API refuses blank text: it is skipped."""
    blocks = (_build_block(part) for part in parts if not isinstance(part, ThinkPart))
    return [block for block in blocks if block["type"] != "text" or block["text"].strip()]


def _build_answer_blocks(parts: Iterable[ContentPart]) -> list[Json]:
    """Return the blocks of an answer: signed thinking and text. Other media cannot be sent as part of an answer."""
    blocks: list[Json] = []
    for part in parts:
        if isinstance(part, ThinkPart):
            blocks += _build_thinking_blocks(part)
        else:
            text = part if isinstance(part, TextPart) else media_placeholder(part)
            blocks += [_build_text_block(text.text)] if text.text.strip() else []
    return blocks


def _build_thinking_blocks(part: ThinkPart) -> list[Json]:
    """Return thinking unchanged: its signature proves that. The API refuses thinking without a signature."""
    signature = part.encrypted
    if not signature or signature.startswith(_OPENAI_THINKING_PREFIX):
        return []
    if part.think or signature.startswith(HIDDEN_THINKING_PREFIX):
        return [
            {"type": "thinking", "thinking": part.think, "signature": signature.removeprefix(HIDDEN_THINKING_PREFIX)}
        ]
    return [{"type": "redacted_thinking", "data": signature}]


def _build_text_block(text: str) -> Json:
    return {"type": "text", "text": text}


def _build_block(part: ContentPart) -> Json:
    if isinstance(part, TextPart):
        return _build_text_block(part.text)
    if isinstance(part, ImagePart) and (source := _find_image_source(part.image_url.url)) is not None:
        return {"type": "image", "source": source}
    return _build_text_block(media_placeholder(part).text)


def _find_image_source(url: str) -> Json | None:
    """Return the source of a picture: inline, in a format that the API reads, or a web address. None for any other."""
    if (inline := _DATA_IMAGE.match(url)) is not None:
        return {"type": "base64", "media_type": inline[1].lower(), "data": url[inline.end() :]}
    return {"type": "url", "url": url} if url.lower().startswith(("http://", "https://")) else None


def _build_tool_result(message: Message) -> Json:
    result: Json = {"type": "tool_result", "tool_use_id": sanitize_call_id(message.tool_call_id or "")}
    return {**result, "content": content} if (content := _build_input_blocks(message.content)) else result


def _build_tool_use(call: ToolCall) -> Json:
    named = {"id": sanitize_call_id(call.id), "name": sanitize_tool_name(call.function.name)}
    return {"type": "tool_use", **named, "input": parse_arguments(call)}


def encode_system_field(system: str) -> bytes:
    """Encode the system prompt with its cache mark; empty without a prompt."""
    return (
        b'"system":' + encode_compact_json([{**_build_text_block(system), **CACHE_CONTROL}]) if system.strip() else b""
    )


def encode_tools_field(tools: Sequence[ToolSpec]) -> bytes:
    """Encode the tools, the last one with the cache mark; empty without any. Other providers' functions are skipped."""
    entries = [_build_tool(tool) for tool in tools if not tool.name.startswith("$")]
    if not entries:
        return b""
    entries[-1].update(CACHE_CONTROL)
    return b'"tools":' + encode_compact_json(entries)


def _build_tool(tool: ToolSpec) -> Json:
    schema = {"type": "object", **tool.parameters}
    return {"name": tool.name, "description": tool.description, "input_schema": schema}
