"""Messages and tools of a chat-completions request (runtime spec 3.2, 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kimi.domain.content.message import Message, ToolCall
from kimi.domain.content.parts import (
    AudioPart,
    ContentPart,
    ImagePart,
    TextPart,
    ThinkPart,
    VideoPart,
    media_placeholder,
)
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.models.history.encoded_history import (
    Json,
    UnitRules,
    can_join_user_messages,
    can_join_users_or_results,
    encode_compact_json,
    merge_messages,
)
from kimi.infrastructure.models.history.tool_call_sanitizing import (
    sanitize_arguments,
    sanitize_tool_name,
    shorten_call_id,
)

MEDIA_FOLLOW_NOTE = TextPart("[The media of this result are in the next message.]")
RESULT_MEDIA_NOTE = TextPart("<system>These media belong to the tool results above.</system>")


@dataclass(frozen=True, slots=True)
class HistoryFormat:
    """What a server accepts in a history.

    `call_id` converts the ids of calls. With `media_in_results`, a result may contain pictures; otherwise they follow
    the results in a user message. With `joins_texts`, content that consists of text only is sent as one string.
    """

    format_call_id: Callable[[str], str] = shorten_call_id
    media_in_results: bool = False
    joins_texts: bool = False


KIMI_HISTORY_FORMAT = HistoryFormat(media_in_results=True)
"""What `kimi` accepts."""


@dataclass(frozen=True, slots=True)
class ChatMessageRules:
    """How messages are encoded: the field for thinking (None: it is left out), what the model can read, and what the
    server accepts.
    """

    reasoning_key: str | None
    capabilities: frozenset[str]
    history_format: HistoryFormat = KIMI_HISTORY_FORMAT


def encode_message(message: Message, rules: ChatMessageRules) -> bytes:
    """Encode one message for the provider."""
    body: Json = {"role": message.role}
    thinking = [part.think for part in message.content if isinstance(part, ThinkPart)]
    parts = [_replace_answer_media(part, message) for part in message.content if not isinstance(part, ThinkPart)]
    if not (message.tool_calls and _is_blank(parts)):
        body["content"] = _build_content(parts, joins_texts=rules.history_format.joins_texts)
    if thinking and rules.reasoning_key:
        body[rules.reasoning_key] = "".join(thinking)
    if message.tool_calls:
        body["tool_calls"] = [_build_tool_call(call, rules.history_format) for call in message.tool_calls]
    call_id = None if message.tool_call_id is None else rules.history_format.format_call_id(message.tool_call_id)
    optional = {"tool_call_id": call_id, "name": message.name, "partial": message.partial}
    body.update((key, value) for key, value in optional.items() if value is not None)
    return encode_compact_json(body)


def make_unit_rules(rules: ChatMessageRules) -> UnitRules:
    """Return how a history is encoded under `rules`."""
    if rules.history_format.media_in_results:
        return UnitRules(
            rules.capabilities, lambda unit: encode_message(merge_messages(unit), rules), can_join_user_messages
        )
    return UnitRules(rules.capabilities, lambda unit: _encode_unit(unit, rules), can_join_users_or_results)


def _encode_unit(unit: Sequence[Message], rules: ChatMessageRules) -> bytes:
    """Encode a message, or the results of one step followed by the media in them."""
    if unit[0].role != "tool":
        return encode_message(merge_messages(unit), rules)
    media = [part for message in unit for part in message.content if not isinstance(part, (TextPart, ThinkPart))]
    messages = [_without_media(message) for message in unit]
    if media:
        messages.append(Message("user", (RESULT_MEDIA_NOTE, *media)))
    return b",".join(encode_message(message, rules) for message in messages)


def _without_media(result: Message) -> Message:
    texts = tuple(part for part in result.content if isinstance(part, (TextPart, ThinkPart)))
    return result if len(texts) == len(result.content) else replace(result, content=(*texts, MEDIA_FOLLOW_NOTE))


def _replace_answer_media(part: ContentPart, message: Message) -> ContentPart:
    """Replace media in an answer by text: the API accepts them from the user only."""
    return media_placeholder(part) if message.role == "assistant" and not isinstance(part, TextPart) else part


def _is_blank(parts: Sequence[ContentPart]) -> bool:
    return all(isinstance(part, TextPart) and not part.text.strip() for part in parts)


def _build_content(parts: Sequence[ContentPart], *, joins_texts: bool) -> str | list[Json]:
    """Return a string for at most one text part, else the list of parts."""
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if len(texts) == len(parts) and (joins_texts or len(texts) < 2):
        return "\n".join(texts)
    return [_build_part(part) for part in parts]


def _build_part(part: ContentPart) -> Json:
    match part:
        case TextPart(text=text) | ThinkPart(think=text):
            return {"type": "text", "text": text}
        case ImagePart(image_url=medium) | AudioPart(audio_url=medium) | VideoPart(video_url=medium):
            url = {"url": medium.url} if medium.id is None else {"url": medium.url, "id": medium.id}
            return {"type": part.type, part.type: url}


def _build_tool_call(call: ToolCall, history_format: HistoryFormat) -> Json:
    """Return a call. Missing or malformed arguments become an empty object, which every provider accepts."""
    name = call.function.name
    sent = name if name.startswith("$") else sanitize_tool_name(name)
    return {
        "type": "function",
        "id": history_format.format_call_id(call.id),
        "function": {"name": sent, "arguments": sanitize_arguments(call)},
    }


def build_tool_entry(tool: ToolSpec, parameters: Mapping[str, Any]) -> Json:
    """Return a tool as the provider expects it. A name that begins with `$` is a built-in function of the provider."""
    if tool.name.startswith("$"):
        return {"type": "builtin_function", "function": {"name": tool.name}}
    function = {"name": tool.name, "description": tool.description, "parameters": dict(parameters)}
    return {"type": "function", "function": function}
