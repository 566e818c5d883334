"""Items and tools of a request to the Responses API (runtime spec 3.4).

A unit of the history is the items that one message makes: an answer of the model is thinking, text and calls apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kimi.domain.content.message import Message, ToolCall
from kimi.domain.content.parts import ContentPart, ImagePart, TextPart, ThinkPart, media_placeholder
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.models.history.encoded_history import Json, UnitRules, belong_together, encode, one_message
from kimi.infrastructure.models.history.tool_call_sanitizing import arguments_text, call_id_for_wire, name_for_wire

_ADDRESSES = ("https://", "http://", "data:")
_OPENAI_IDS = re.compile(r"(ft:)?(gpt-(?!oss)|chatgpt-|o\d|codex-|computer-use-)")
_OPENAI_HOSTS = ("openai.com", "openai.azure.com")
_OPENAI_THINKING = "gAAAA"


@dataclass(frozen=True, slots=True)
class ItemRules:
    """What the model can read; which encrypted thinking the service takes back: None for any, else its beginning."""

    capabilities: frozenset[str]
    thinking: str | None = None


def thinking_of(host: str) -> str | None:
    """How the encrypted thinking of the service at `host` begins, if that is known.

    Another provider's (a session may change its model) would be refused, and the whole history with it.
    """
    own = any(host == domain or host.endswith(f".{domain}") for domain in _OPENAI_HOSTS)
    return _OPENAI_THINKING if own else None


def unit_rules(rules: ItemRules) -> UnitRules:
    """How a history is written for the Responses API."""
    return UnitRules(rules.capabilities, lambda unit: write_unit(one_message(unit), rules), belong_together)


def write_unit(message: Message, rules: ItemRules) -> bytes:
    """The items of one message, with commas between them; empty when nothing in it can be sent."""
    return b",".join(encode(item) for item in unit_items(message, rules))


def unit_items(message: Message, rules: ItemRules) -> list[Json]:
    """The items of one message."""
    match message.role:
        case "assistant":
            return _before_something([*_said(message.content, rules), *map(_call, message.tool_calls)])
        case "tool":
            return [_result(message)]
        case _:
            content = _given(message.content)
            return [{"type": "message", "role": message.role, "content": content}] if content else []


def _said(parts: Iterable[ContentPart], rules: ItemRules) -> list[Json]:
    """What the model said: thinking that came with its encrypted form, and text."""
    items: list[Json] = []
    for part in parts:
        if isinstance(part, ThinkPart):
            items += _reasoning(part, rules)
            continue
        text = part if isinstance(part, TextPart) else media_placeholder(part)
        if text.text.strip():
            content = [{"type": "output_text", "text": text.text}]
            items.append({"type": "message", "role": "assistant", "content": content})
    return items


def _before_something(items: list[Json]) -> list[Json]:
    """The items without thinking that nothing follows, as a cancelled answer leaves it: it is refused alone."""
    end = next((index for index in range(len(items), 0, -1) if items[index - 1]["type"] != "reasoning"), 0)
    return items[:end]


def _reasoning(part: ThinkPart, rules: ItemRules) -> list[Json]:
    if not part.encrypted or not part.encrypted.startswith(rules.thinking or ""):
        return []
    summary = [{"type": "summary_text", "text": part.think}] if part.think else []
    return [{"type": "reasoning", "summary": summary, "encrypted_content": part.encrypted}]


def _call(call: ToolCall) -> Json:
    function = {"name": name_for_wire(call.function.name), "arguments": arguments_text(call)}
    return {"type": "function_call", "call_id": call_id_for_wire(call.id), **function}


def _result(message: Message) -> Json:
    """A result: a string for one text, else the list of its parts."""
    content = _given(message.content)
    is_text = all(part["type"] == "input_text" for part in content)
    output = "".join(part["text"] for part in content) if is_text and len(content) < 2 else content
    return {"type": "function_call_output", "call_id": call_id_for_wire(message.tool_call_id or ""), "output": output}


def _given(parts: Iterable[ContentPart]) -> list[Json]:
    """What the person or a tool gives: text and pictures, empty text left out."""
    content = (_part(part) for part in parts if not isinstance(part, ThinkPart))
    return [part for part in content if part["type"] != "input_text" or part["text"]]


def _part(part: ContentPart) -> Json:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, ImagePart) and part.image_url.url.lower().startswith(_ADDRESSES):
        return {"type": "input_image", "image_url": part.image_url.url, "detail": "auto"}
    return {"type": "input_text", "text": media_placeholder(part).text}


def system_item(system: str, model: str) -> bytes:
    """The system prompt as the first item; the service's own models want it from the developer."""
    if not system:
        return b""
    role = "developer" if _OPENAI_IDS.match(model.lower()) else "system"
    content = [{"type": "input_text", "text": system}]
    return encode({"type": "message", "role": role, "content": content})


def tools_field(tools: Sequence[ToolSpec]) -> bytes:
    """The tools; empty without any. Functions of other providers are left out."""
    entries = [_tool(tool) for tool in tools if not tool.name.startswith("$")]
    return b'"tools":' + encode(entries) if entries else b""


def _tool(tool: ToolSpec) -> Json:
    schema = {"type": "object", **tool.parameters}
    entry = {"name": tool.name, "description": tool.description, "parameters": schema}
    return {"type": "function", **entry, "strict": False}
