"""Items and tools of a request to the Responses API (runtime spec 3.4).

A unit of the history is the items of one message: an answer becomes separate items for thinking, text and calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kimi.domain.content.message import Message, ToolCall
from kimi.domain.content.parts import ContentPart, ImagePart, TextPart, ThinkPart, media_placeholder
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.models.history.encoded_history import (
    Json,
    UnitRules,
    can_join_user_messages,
    encode_compact_json,
    merge_messages,
)
from kimi.infrastructure.models.history.tool_call_sanitizing import (
    sanitize_arguments,
    sanitize_call_id,
    sanitize_tool_name,
)

_IMAGE_URL_PREFIXES = ("https://", "http://", "data:")
_OPENAI_MODEL_ID = re.compile(r"(ft:)?(gpt-(?!oss)|chatgpt-|o\d|codex-|computer-use-)")
_OPENAI_HOSTS = ("openai.com", "openai.azure.com")
_OPENAI_THINKING_PREFIX = "gAAAA"


@dataclass(frozen=True, slots=True)
class ResponsesItemRules:
    """What the model can read, and how encrypted thinking that the service accepts begins (None: it accepts any)."""

    capabilities: frozenset[str]
    thinking_prefix: str | None = None


def find_thinking_prefix(host: str) -> str | None:
    """Return how the encrypted thinking of the service at `host` begins, if that is known.

    A session may change its model. The service would refuse the thinking of another provider, and with it the whole
    history.
    """
    own = any(host == domain or host.endswith(f".{domain}") for domain in _OPENAI_HOSTS)
    return _OPENAI_THINKING_PREFIX if own else None


def make_unit_rules(rules: ResponsesItemRules) -> UnitRules:
    """Return how a history is encoded for the Responses API."""
    return UnitRules(rules.capabilities, lambda unit: encode_unit(merge_messages(unit), rules), can_join_user_messages)


def encode_unit(message: Message, rules: ResponsesItemRules) -> bytes:
    """Encode the items of one message, separated by commas; empty when nothing in it can be sent."""
    return b",".join(encode_compact_json(item) for item in build_items(message, rules))


def build_items(message: Message, rules: ResponsesItemRules) -> list[Json]:
    """Return the items of one message."""
    match message.role:
        case "assistant":
            return _drop_trailing_thinking(
                [*_build_answer_items(message.content, rules), *map(_build_call, message.tool_calls)]
            )
        case "tool":
            return [_build_result(message)]
        case _:
            content = _build_input_content(message.content)
            return [{"type": "message", "role": message.role, "content": content}] if content else []


def _build_answer_items(parts: Iterable[ContentPart], rules: ResponsesItemRules) -> list[Json]:
    """Return the items of an answer: thinking that has an encrypted form, and text."""
    items: list[Json] = []
    for part in parts:
        if isinstance(part, ThinkPart):
            items += _build_reasoning_items(part, rules)
            continue
        text = part if isinstance(part, TextPart) else media_placeholder(part)
        if text.text.strip():
            content = [{"type": "output_text", "text": text.text}]
            items.append({"type": "message", "role": "assistant", "content": content})
    return items


def _drop_trailing_thinking(items: list[Json]) -> list[Json]:
    """Drop thinking at the end, as a cancelled answer leaves it: the API refuses thinking that nothing follows."""
    end = next((index for index in range(len(items), 0, -1) if items[index - 1]["type"] != "reasoning"), 0)
    return items[:end]


def _build_reasoning_items(part: ThinkPart, rules: ResponsesItemRules) -> list[Json]:
    if not part.encrypted or not part.encrypted.startswith(rules.thinking_prefix or ""):
        return []
    summary = [{"type": "summary_text", "text": part.think}] if part.think else []
    return [{"type": "reasoning", "summary": summary, "encrypted_content": part.encrypted}]


def _build_call(call: ToolCall) -> Json:
    function = {"name": sanitize_tool_name(call.function.name), "arguments": sanitize_arguments(call)}
    return {"type": "function_call", "call_id": sanitize_call_id(call.id), **function}


def _build_result(message: Message) -> Json:
    """Return the item of a result: a string for a single text, else the list of its parts."""
    content = _build_input_content(message.content)
    is_text = all(part["type"] == "input_text" for part in content)
    output = "".join(part["text"] for part in content) if is_text and len(content) < 2 else content
    return {"type": "function_call_output", "call_id": sanitize_call_id(message.tool_call_id or ""), "output": output}


def _build_input_content(parts: Iterable[ContentPart]) -> list[Json]:
    """Return the content of a user message or a result: text and pictures, without empty text."""
    content = (_build_part(part) for part in parts if not isinstance(part, ThinkPart))
    return [part for part in content if part["type"] != "input_text" or part["text"]]


def _build_part(part: ContentPart) -> Json:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, ImagePart) and part.image_url.url.lower().startswith(_IMAGE_URL_PREFIXES):
        return {"type": "input_image", "image_url": part.image_url.url, "detail": "auto"}
    return {"type": "input_text", "text": media_placeholder(part).text}


def encode_system_item(system: str, model: str) -> bytes:
    """Encode the system prompt as the first item. The service's own models expect it in the role of the developer."""
    if not system:
        return b""
    role = "developer" if _OPENAI_MODEL_ID.match(model.lower()) else "system"
    content = [{"type": "input_text", "text": system}]
    return encode_compact_json({"type": "message", "role": role, "content": content})


def encode_tools_field(tools: Sequence[ToolSpec]) -> bytes:
    """Encode the tools; empty without any. Other providers' functions are left out."""
    entries = [_build_tool(tool) for tool in tools if not tool.name.startswith("$")]
    return b'"tools":' + encode_compact_json(entries) if entries else b""


def _build_tool(tool: ToolSpec) -> Json:
    schema = {"type": "object", **tool.parameters}
    entry = {"name": tool.name, "description": tool.description, "parameters": schema}
    return {"type": "function", **entry, "strict": False}
