"""Messages and tools of a request to the Messages API (runtime spec 3.5).

A unit of the history is one message of the request: user messages in a row, or the results of one step's calls. What
the API does not take is replaced by text or left out, because a history that it refuses would be refused for ever.
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
"""Up to here the provider may keep what it read."""

HIDDEN_THINKING_PREFIX = "signature:"
"""Before the signature of thinking whose text the provider kept to itself. Redacted thinking is base64: no colon."""

_DATA_IMAGE = re.compile(r"data:(image/(?:png|jpeg|gif|webp))(?:;[^,;]*)*;base64,", re.ASCII | re.IGNORECASE)
_OPENAI_THINKING_PREFIX = "gAAAA"
"""How encrypted thinking of the Responses API begins; it would be refused here."""
_UNCACHEABLE_BLOCKS = ("thinking", "redacted_thinking")


def make_unit_rules(capabilities: frozenset[str]) -> UnitRules:
    """How a history is written for the Messages API."""
    return UnitRules(capabilities, encode_unit, can_join_users_or_results)


def encode_unit(messages: Sequence[Message]) -> bytes:
    """The messages as one of the API; empty when nothing in them can be sent."""
    return encode_compact_json(body) if (body := build_message(messages)) else b""


def encode_cached_unit(messages: Sequence[Message]) -> bytes:
    """As `encode_unit`, with the mark for the cache on the last block that may carry it."""
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
    """The messages as one of the API, or None."""
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
    """What the person or a tool gives: text and pictures. Blank text is refused, so it is left out."""
    blocks = (_build_block(part) for part in parts if not isinstance(part, ThinkPart))
    return [block for block in blocks if block["type"] != "text" or block["text"].strip()]


def _build_answer_blocks(parts: Iterable[ContentPart]) -> list[Json]:
    """What the model said: signed thinking and text; other media are no part of an answer."""
    blocks: list[Json] = []
    for part in parts:
        if isinstance(part, ThinkPart):
            blocks += _build_thinking_blocks(part)
        else:
            text = part if isinstance(part, TextPart) else media_placeholder(part)
            blocks += [_build_text_block(text.text)] if text.text.strip() else []
    return blocks


def _build_thinking_blocks(part: ThinkPart) -> list[Json]:
    """Thinking goes back as it came, which its signature proves; without one the API refuses it."""
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
    """Where a picture is: inline, in a format that the API reads, or at a web address."""
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
    """The system prompt with its mark; empty without one."""
    return (
        b'"system":' + encode_compact_json([{**_build_text_block(system), **CACHE_CONTROL}]) if system.strip() else b""
    )


def encode_tools_field(tools: Sequence[ToolSpec]) -> bytes:
    """The tools, the last one with the mark; empty without any. Functions of other providers are left out."""
    entries = [_build_tool(tool) for tool in tools if not tool.name.startswith("$")]
    if not entries:
        return b""
    entries[-1].update(CACHE_CONTROL)
    return b'"tools":' + encode_compact_json(entries)


def _build_tool(tool: ToolSpec) -> Json:
    schema = {"type": "object", **tool.parameters}
    return {"name": tool.name, "description": tool.description, "input_schema": schema}
