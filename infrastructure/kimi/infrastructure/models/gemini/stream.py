"""A reader that turns events of `streamGenerateContent` into parts of a message (runtime spec 3.6)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from kimi.application.ports import ResponseEnd
from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import AudioPart, ImagePart, MediaUrl, TextPart, ThinkPart, VideoPart
from kimi.domain.content.stream import StreamPart
from kimi.domain.errors import APIEmptyResponseError, ChatProviderError
from kimi.domain.turn import StopReason, TokenUsage
from kimi.infrastructure.models.answer_errors import (
    make_empty_response_error,
    make_reported_error,
    read_event,
    require_text,
    text_or_none,
)
from kimi.infrastructure.models.gemini.body import OWN_ID_PREFIX, SIGNATURE_KEY

Chunk: TypeAlias = dict[str, Any]

_STOP_REASONS: dict[str, StopReason] = {
    "STOP": "end",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "MODEL_ARMOR": "content_filter",
}


class GeminiEventReader:
    """Reads the events of one response in order and collects what the end record needs.

    Tool calls arrive complete: the request does not ask for pieces of arguments.
    """

    requires_end_event = False
    closed = False

    __slots__ = ("_finish_reason", "_has_thinking", "_has_visible_content", "_ids", "_message_id", "_usage", "finished")

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._message_id: str | None = None
        self._usage: TokenUsage | None = None
        self._finish_reason: str | None = None
        self._has_visible_content = False
        self._has_thinking = False
        self.finished = False

    def read(self, payload: bytes) -> Sequence[StreamPart]:
        """Return the parts of one event.

        Raises:
            ChatProviderError: the payload is malformed, or the prompt was blocked.
            APIStatusError: it reports an error with an HTTP status.
        """
        return read_event(payload, self._handle_chunk)

    def flush(self) -> list[StreamPart]:
        """Return no parts: nothing is held back."""
        return []

    def make_response_end(self) -> ResponseEnd:
        """Return the record that ends the stream.

        Raises:
            APIEmptyResponseError: the answer contained no visible text, no medium and no tool call.
        """
        if not (self._has_visible_content or self._ids):
            raise self._make_empty_error()
        reason = _STOP_REASONS.get(self._finish_reason or "", "unknown")
        return ResponseEnd(self._message_id, self._usage, "tool_calls" if self._ids and reason == "end" else reason)

    def _make_empty_error(self) -> APIEmptyResponseError:
        error = make_empty_response_error(has_thinking=self._has_thinking)
        if self._finish_reason in (None, "STOP"):
            return error
        return APIEmptyResponseError(f"{str(error).removesuffix('.')} (it stopped with {self._finish_reason}).")

    def _handle_chunk(self, chunk: Chunk) -> Sequence[StreamPart]:
        if self._message_id is None:
            self._message_id = text_or_none(chunk.get("responseId"))
        if (usage := chunk.get("usageMetadata")) is not None:
            self._usage = parse_usage(usage)
        candidates: list[Chunk] | None = chunk.get("candidates")
        if not candidates:
            _check_refusal(chunk)
            return ()
        candidate = candidates[0]
        if (reason := candidate.get("finishReason")) is not None:
            self.finished = True
            self._finish_reason = str(reason)
        content: Chunk = candidate.get("content") or {}
        parts: list[Chunk] | None = content.get("parts")
        return [part for one in parts if (part := self._convert_part(one)) is not None] if parts else ()

    def _convert_part(self, part: Chunk) -> StreamPart | None:
        if text := require_text(part.get("text") or ""):
            if part.get("thought"):
                self._has_thinking = True
                return ThinkPart(text)
            self._has_visible_content = self._has_visible_content or not text.isspace()
            return TextPart(text)
        if (call := part.get("functionCall")) is not None:
            return self._convert_call(call, part.get("thoughtSignature"))
        if (blob := part.get("inlineData")) is not None and not part.get("thought"):
            self._has_visible_content = True
            return _make_media_part(blob["mimeType"], blob["data"])
        return None

    def _convert_call(self, call: Chunk, signature: str | None) -> ToolCall:
        name = require_text(call["name"])
        arguments = json.dumps(call.get("args") or {}, ensure_ascii=False, separators=(",", ":"))
        extras = {SIGNATURE_KEY: require_text(signature)} if signature else None
        return ToolCall(self._make_unique_id(name, call.get("id") or ""), Function(name, arguments), extras)

    def _make_unique_id(self, name: str, provider_id: str) -> str:
        """Return an id of the form `<name>_<id>` that no other call of this answer has."""
        call_id = f"{name}_{provider_id}"
        if not provider_id or call_id in self._ids:
            call_id = f"{name}_{OWN_ID_PREFIX}{uuid.uuid4().hex}"
        self._ids.add(call_id)
        return call_id


def parse_usage(usage: Mapping[str, Any]) -> TokenUsage:
    """Parse a usage object. Cached tokens are counted separately; thinking counts as output, as it is charged."""
    cached = int(usage.get("cachedContentTokenCount") or 0)
    prompt = int(usage.get("promptTokenCount") or 0) + int(usage.get("toolUsePromptTokenCount") or 0)
    output = int(usage.get("candidatesTokenCount") or 0) + int(usage.get("thoughtsTokenCount") or 0)
    return TokenUsage(input_other=max(0, prompt - cached), output=output, input_cache_read=cached)


def _make_media_part(mime: str, data: str) -> StreamPart:
    url = MediaUrl(f"data:{mime};base64,{data}")
    if mime.startswith("audio/"):
        return AudioPart(audio_url=url)
    return VideoPart(video_url=url) if mime.startswith("video/") else ImagePart(image_url=url)


def _check_refusal(chunk: Chunk) -> None:
    if chunk.get("error"):
        raise make_reported_error(chunk)
    feedback: Chunk = chunk.get("promptFeedback") or {}
    if (reason := feedback.get("blockReason")) is not None:
        text = f": {feedback['blockReasonMessage']}" if feedback.get("blockReasonMessage") else ""
        raise ChatProviderError(f"The provider refused the prompt ({reason}){text}.")
