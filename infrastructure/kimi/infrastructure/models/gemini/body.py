"""The body of a `streamGenerateContent` request: messages, tools and settings (runtime spec 3.6)."""

from __future__ import annotations

import mimetypes
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import unquote_to_bytes

from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Message, ToolCall
from kimi.domain.content.parts import (
    AudioPart,
    ContentPart,
    ImagePart,
    MediaUrl,
    TextPart,
    ThinkPart,
    VideoPart,
    needed_capability,
)
from kimi.domain.errors import ChatProviderError
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.models.history.encoded_history import (
    Json,
    UnitRules,
    can_join_user_messages,
    encode_compact_json,
)
from kimi.infrastructure.models.history.tool_call_sanitizing import parse_arguments, sanitize_tool_name
from kimi.infrastructure.models.thinking import thinks

SIGNATURE_KEY = "thought_signature_b64"
"""The key in `ToolCall.extras` of the signature of the thought that led to a call."""

OWN_ID_PREFIX = "own-"
"""Follows the name in the id that this program makes for a call without one."""

SKIPPED_SIGNATURE = "skip_thought_signature_validator"
"""Gemini 3 accepts this value in place of a signature for a call that another model made."""

_BUDGETS: Mapping[str, int] = {"minimal": 512, "low": 2_048, "medium": 8_192, "high": 32_000}

_BUDGET_LIMITS = (("gemini-2.5-flash", 0, 24_576), ("gemini-2.5-pro", 128, 32_768))
"""A part of a model id, with the least and the most tokens of thinking that the service accepts for it."""

_MEDIA = (ImagePart, AudioPart, VideoPart)
_DATA_URI = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)
_GOOGLE_HOSTED = re.compile(
    r"gs://|https://generativelanguage\.googleapis\.com/|https://(?:www\.)?(?:youtube\.com|youtu\.be)/"
)

FetchedMedia: TypeAlias = Mapping[str, "tuple[str, bytes] | str"]
"""URL to media type and content, or to the reason why the download failed (a clause)."""


@dataclass(frozen=True, slots=True)
class GeminiMessageRules:
    """How messages are encoded for a model: whether it is of the family Gemini 3, and the media fetched for it."""

    is_gemini_3: bool
    fetched: FetchedMedia = field(default_factory=dict[str, "tuple[str, bytes] | str"])


def is_gemini_3(model: str) -> bool:
    """Whether the id names a model of the family Gemini 3, which has levels of thinking and requires signatures."""
    return "gemini-3" in model.lower()


# --- messages ---------------------------------------------------------------------------------------------------


def make_unit_rules(capabilities: frozenset[str], rules: GeminiMessageRules) -> UnitRules:
    """Return how a history is encoded: consecutive user messages are one turn; calls go together with their results."""
    return UnitRules(capabilities, lambda messages: encode_unit(messages, rules), _can_join)


def _can_join(first: Message, second: Message) -> bool:
    return second.role == "tool" or can_join_user_messages(first, second)


def encode_unit(messages: Sequence[Message], rules: GeminiMessageRules) -> bytes:
    """Encode one turn; of an answer with tool calls, also the turn that contains all their results.

    The result is empty when nothing in the messages can be sent to this provider.

    Raises:
        ChatProviderError: the result of a call is missing, or a result belongs to no call.
    """
    if messages[0].role == "tool":
        raise ChatProviderError("The history holds a tool result without the call that it answers.")
    results = [message for message in messages if message.role == "tool"]
    spoken_messages = [message for message in messages if message.role != "tool"]
    turns = [_build_turn(spoken_messages, rules)]
    calls = messages[0].tool_calls
    if calls or results:
        turns.append({"role": "user", "parts": _build_results(calls, results, rules)})
    return b",".join(encode_compact_json(turn) for turn in turns if turn["parts"])


def _build_turn(messages: Sequence[Message], rules: GeminiMessageRules) -> Json:
    message = messages[0]
    parts = [part for one in messages for part in _build_parts(one, rules)]
    if message.role == "assistant":
        return {"role": "model", "parts": [*parts, *_build_calls(message.tool_calls, rules)]}
    if message.role == "system":
        parts = [{"text": f"<system>{part.get('text', '')}</system>"} for part in parts]
    return {"role": "user", "parts": parts or [{"text": " "}]}


def _build_parts(message: Message, rules: GeminiMessageRules) -> list[Json]:
    """Return the parts of a message without thinking, of which the provider accepts only the signatures."""
    spoken = (part for part in message.content if not isinstance(part, ThinkPart))
    return [_build_part(part, rules) for part in spoken if not (isinstance(part, TextPart) and not part.text)]


def _build_calls(calls: Sequence[ToolCall], rules: GeminiMessageRules) -> list[Json]:
    parts = [_build_call(call) for call in calls]
    if parts and rules.is_gemini_3 and "thoughtSignature" not in parts[0]:
        parts[0]["thoughtSignature"] = SKIPPED_SIGNATURE
    return parts


def _build_call(call: ToolCall) -> Json:
    named = {"name": sanitize_tool_name(call.function.name), "args": parse_arguments(call)}
    part: Json = {"functionCall": {**_build_id_field(call), **named}}
    signature = (call.extras or {}).get(SIGNATURE_KEY)
    return {**part, "thoughtSignature": signature} if isinstance(signature, str) else part


def _build_id_field(call: ToolCall) -> Json:
    """Return the provider's own id of a call; nothing when it sent none, or another provider made the call."""
    prefix = call.function.name + "_"
    own = call.id.removeprefix(prefix)
    return {"id": own} if call.id.startswith(prefix) and own and not own.startswith(OWN_ID_PREFIX) else {}


def _build_results(calls: Sequence[ToolCall], results: Sequence[Message], rules: GeminiMessageRules) -> list[Json]:
    """Return the results in the order of the calls. Older models read media beside a result, Gemini 3 inside it."""
    by_id = {result.tool_call_id: result for result in results}
    missing = [call.id for call in calls if call.id not in by_id]
    extra = by_id.keys() - {call.id for call in calls}
    if missing or extra or len(by_id) != len(results):
        raise ChatProviderError("The tool results in the history do not match the tool calls before them.")
    responses: list[Json] = []
    beside: list[Json] = []
    for call in calls:
        response, media = _build_response(call, by_id[call.id], rules)
        responses.append({"functionResponse": response})
        beside += media
    return responses + beside


def _build_response(call: ToolCall, result: Message, rules: GeminiMessageRules) -> tuple[Json, list[Json]]:
    parts = _build_parts(result, rules)
    text = "\n".join(part["text"] for part in parts if "text" in part)
    media = [part for part in parts if "text" not in part]
    name = sanitize_tool_name(call.function.name)
    response: Json = {**_build_id_field(call), "name": name, "response": {"output": text}}
    if media and rules.is_gemini_3:
        return {**response, "parts": media}, []
    return response, media


# --- media ------------------------------------------------------------------------------------------------------


def _build_part(part: ContentPart, rules: GeminiMessageRules) -> Json:
    match part:
        case TextPart(text=text) | ThinkPart(think=text):
            return {"text": text}
        case ImagePart(image_url=medium) | AudioPart(audio_url=medium) | VideoPart(video_url=medium):
            return _build_medium(medium, part.type.removesuffix("_url"), rules.fetched)


def _build_medium(medium: MediaUrl, kind: str, fetched: FetchedMedia) -> Json:
    url = medium.url
    if (inline := _build_inline_data(url, kind)) is not None:
        return {"inlineData": inline}
    if _GOOGLE_HOSTED.match(url):
        mime, _ = mimetypes.guess_type(url)
        return {"fileData": {**({"mimeType": mime} if mime else {}), "fileUri": url}}
    found = fetched.get(url, "only data:, http(s): and gs: addresses can be used")
    if isinstance(found, str):
        return {"text": f"[{kind} omitted: {found}]"}
    return {"inlineData": {"mimeType": found[0], "data": b64encode(found[1]).decode()}}


def _build_inline_data(url: str, kind: str) -> Json | None:
    """Return the content of a `data:` URI as the provider expects it, or None for any other URL."""
    head = _DATA_URI.match(url)
    if head is None:
        return None
    mime = head[1].lower() or {"image": "image/png", "audio": "audio/wav", "video": "video/mp4"}[kind]
    data = url[head.end() :]
    if not head[2].lower().endswith(";base64"):
        data = b64encode(unquote_to_bytes(data)).decode()
    return {"mimeType": mime, "data": data}


def find_remote_media(history: Sequence[Message], capabilities: frozenset[str]) -> set[str]:
    """Return the http(s) URLs of the media that a model with `capabilities` can read and that this provider does not
    fetch itself.
    """
    media = (_get_url(part) for message in history for part in message.content if _is_readable(part, capabilities))
    return {url for url in media if url.startswith(("http://", "https://")) and not _GOOGLE_HOSTED.match(url)}


def _is_readable(part: ContentPart, capabilities: frozenset[str]) -> bool:
    need = needed_capability(part)
    return isinstance(part, _MEDIA) and (need is None or need in capabilities)


def _get_url(part: ContentPart) -> str:
    match part:
        case ImagePart(image_url=medium) | AudioPart(audio_url=medium) | VideoPart(video_url=medium):
            return medium.url
        case _:
            return ""


# --- tools and settings -----------------------------------------------------------------------------------------


def encode_system_field(system: str) -> bytes:
    """Encode the system prompt; empty without one."""
    return b'"systemInstruction":' + encode_compact_json({"parts": [{"text": system}]}) if system else b""


def encode_tools_field(tools: Sequence[ToolSpec]) -> bytes:
    """Encode the tools; empty without any. Other providers' functions are left out."""
    declared = [_build_declaration(tool) for tool in tools if not tool.name.startswith("$")]
    return b'"tools":' + encode_compact_json([{"functionDeclarations": declared}]) if declared else b""


def _build_declaration(tool: ToolSpec) -> Json:
    """Return the declaration of a tool, with its JSON schema unchanged."""
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": dict(tool.parameters)}


def build_generation_config(settings: ModelSettings) -> Json:
    """Return the settings of thinking, sampling and the length of the answer, without those that are not set."""
    fields: Json = {
        "thinkingConfig": build_thinking_config(settings),
        "temperature": settings.temperature,
        "topP": settings.top_p,
        "maxOutputTokens": cap if (cap := settings.max_completion_tokens) is not None and cap > 0 else None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def build_thinking_config(settings: ModelSettings) -> Json | None:
    """Return the configuration of thinking: as configured or high when it is on, else the least that the model allows.

    None for a model that is not known to think, unless the user switched thinking off.
    """
    on = thinks(settings)
    if not on and settings.thinking is not False and "thinking" not in settings.capabilities:
        return None
    effort = settings.thinking_effort or "high"
    if is_gemini_3(settings.model):
        return {"includeThoughts": on, "thinkingLevel": effort if on else "low"}
    return {
        "includeThoughts": on,
        "thinkingBudget": _clamp_thinking_tokens(settings.model, _BUDGETS[effort] if on else 0),
    }


def _clamp_thinking_tokens(model: str, tokens: int) -> int:
    """Limit `tokens` to what the service accepts for the model, if its limits are known."""
    for name, least, most in _BUDGET_LIMITS:
        if name in model.lower():
            return min(max(tokens, least), most)
    return tokens
