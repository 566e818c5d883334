"""Messages and tools of a chat-completions request, and its body (runtime spec 3.2, 3.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kimi.domain.content import AudioPart, ContentPart, ImagePart, TextPart, ThinkPart, VideoPart
from kimi.domain.message import Message, ToolCall
from kimi.domain.tool import ToolSpec
from kimi.infrastructure.models.history_bytes import Json, UnitRules, belong_together, encode, one_message


@dataclass(frozen=True, slots=True)
class MessageRules:
    """How messages are written: the field for thinking (None: left out) and what the model can read."""

    reasoning_key: str | None
    capabilities: frozenset[str]


def encode_message(message: Message, rules: MessageRules) -> bytes:
    """One message as the provider wants it."""
    body: Json = {"role": message.role}
    thinking = [part.think for part in message.content if isinstance(part, ThinkPart)]
    parts = [part for part in message.content if not isinstance(part, ThinkPart)]
    if not (message.tool_calls and _is_blank(parts)):
        body["content"] = _content(parts)
    if thinking and rules.reasoning_key:
        body[rules.reasoning_key] = "".join(thinking)
    if message.tool_calls:
        body["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    optional = {"tool_call_id": message.tool_call_id, "name": message.name, "partial": message.partial}
    body.update((key, value) for key, value in optional.items() if value is not None)
    return encode(body)


def unit_rules(rules: MessageRules) -> UnitRules:
    """How a history is written under `rules`."""
    return UnitRules(rules.capabilities, lambda unit: encode_message(one_message(unit), rules), belong_together)


def _is_blank(parts: Sequence[ContentPart]) -> bool:
    return all(isinstance(part, TextPart) and not part.text.strip() for part in parts)


def _content(parts: Sequence[ContentPart]) -> str | list[Json]:
    """A string for one text part (or nothing), else the list of parts."""
    if not parts:
        return ""
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return [_part(part) for part in parts]


def _part(part: ContentPart) -> Json:
    match part:
        case TextPart(text=text) | ThinkPart(think=text):
            return {"type": "text", "text": text}
        case ImagePart(image_url=medium) | AudioPart(audio_url=medium) | VideoPart(video_url=medium):
            url = {"url": medium.url} if medium.id is None else {"url": medium.url, "id": medium.id}
            return {"type": part.type, part.type: url}


def _tool_call(call: ToolCall) -> Json:
    """A call as it was made; no arguments are written as an empty object, which every provider accepts."""
    function = {"name": call.function.name, "arguments": call.function.arguments or "{}"}
    return {"type": "function", "id": call.id, "function": function}


def tool_entry(tool: ToolSpec, parameters: Mapping[str, Any]) -> Json:
    """A tool as the provider wants it; a name that begins with `$` is a function of the provider itself."""
    if tool.name.startswith("$"):
        return {"type": "builtin_function", "function": {"name": tool.name}}
    function = {"name": tool.name, "description": tool.description, "parameters": dict(parameters)}
    return {"type": "function", "function": function}
