"""A reader that turns the chunks of a chat-completions stream into parts of a message (runtime spec 3.1, 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kimi.application.ports import ResponseEnd
from kimi.domain.content.parts import ContentPart, TextPart, ThinkPart
from kimi.domain.content.stream import StreamPart
from kimi.domain.turn import StopReason, TokenUsage
from kimi.infrastructure.models.answer_errors import (
    make_empty_response_error,
    make_reported_error,
    read_event,
    text_or_none,
)
from kimi.infrastructure.models.tool_call_sequencer import ToolCallSequencer

Chunk: TypeAlias = dict[str, Any]

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end",
    "length": "length",
    "content_filter": "content_filter",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}


@dataclass(frozen=True, slots=True)
class ReasoningFields:
    """The fields of a delta that may contain thinking, the most usual first, and the field of a message that sends it
    back (None: it is not sent back).
    """

    delta_fields: tuple[str, ...]
    message_field: str | None


REASONING_CONTENT = ReasoningFields(("reasoning_content",), "reasoning_content")
"""The field that `kimi` and most other providers use."""


class ChatChunkReader:
    """Reads the chunks of one response in order and collects what the end record needs.

    Some servers never send a stop reason, so a body that ends in good order is enough.
    """

    __slots__ = (
        "_calls",
        "_has_thinking",
        "_has_visible_content",
        "_message_id",
        "_reasoning_fields",
        "_stop_reason",
        "_usage",
        "finished",
    )

    requires_end_event = False
    closed = False

    def __init__(self, reasoning_fields: ReasoningFields) -> None:
        self._reasoning_fields = reasoning_fields.delta_fields
        self._calls = ToolCallSequencer()
        self._message_id: str | None = None
        self._usage: TokenUsage | None = None
        self._stop_reason: StopReason = "unknown"
        self._has_visible_content = False
        self._has_thinking = False
        self.finished = False
        """Whether the provider has sent a stop reason."""

    def read(self, payload: bytes) -> Sequence[StreamPart]:
        """Return the parts of one chunk.

        Raises:
            ChatProviderError: the payload is malformed.
            APIStatusError: it reports an error with an HTTP status.
        """
        return read_event(payload, self._handle_chunk)

    def flush(self) -> list[StreamPart]:
        """Return the parts that were held back until the end of the stream."""
        return self._calls.flush()

    def make_response_end(self) -> ResponseEnd:
        """Return the record that ends the stream.

        Raises:
            APIEmptyResponseError: the answer contained no visible text, no medium and no tool call.
        """
        if not (self._has_visible_content or self._calls.has_calls):
            raise make_empty_response_error(has_thinking=self._has_thinking)
        return ResponseEnd(self._message_id, self._usage, self._stop_reason)

    def _handle_chunk(self, chunk: Chunk) -> Sequence[StreamPart]:
        choices: list[Chunk] | None = chunk.get("choices")
        if self._message_id is None:
            self._message_id = text_or_none(chunk.get("id"))
        if (usage := chunk.get("usage")) is not None:
            self._usage = parse_usage(usage)
        if chunk.get("error"):
            raise make_reported_error(chunk)
        if not choices:
            return ()
        choice = choices[0]
        if reason := choice.get("finish_reason"):  # some gateways send an empty one with every chunk
            self.finished = True
            self._stop_reason = _STOP_REASONS.get(reason, "unknown")
        if (usage := choice.get("usage")) is not None:
            self._usage = parse_usage(usage)
        delta: Chunk | None = choice.get("delta")
        return self._handle_delta(delta) if delta else ()

    def _handle_delta(self, delta: Chunk) -> Sequence[StreamPart]:
        text = delta.get("content") or delta.get("refusal")
        think = None
        for name in self._reasoning_fields:
            if (think := delta.get(name)) is not None:
                break
        calls: list[Chunk] | None = delta.get("tool_calls")
        if text and think is None and not calls and type(text) is str:
            self._has_visible_content = self._has_visible_content or not text.isspace()
            return self._calls.add_content(TextPart(text))
        parts: list[StreamPart] = []
        for part in self._make_content_parts(text, think):
            parts += self._calls.add_content(part)
        for call in calls or ():
            parts += self._calls.add_delta(call)
        return parts

    def _make_content_parts(self, text: Any, think: Any) -> list[ContentPart]:
        """Return thinking before text. Empty thinking counts once, at the beginning, so that it can be sent back."""
        parts: list[ContentPart] = []
        if isinstance(think, str) and (
            think or not (self._has_thinking or self._has_visible_content or self._calls.has_calls)
        ):
            self._has_thinking = True
            parts.append(ThinkPart(think))
        if text:
            text = text if isinstance(text, str) else _join_text(text)
            self._has_visible_content = self._has_visible_content or bool(text.strip())
            parts.append(TextPart(text))
        return parts


def _join_text(content: list[Chunk]) -> str:
    """Return the text of content that some providers send as a list of parts."""
    return "".join(item.get("text") or "" for item in content if item.get("type", "text") == "text")


def parse_usage(usage: Mapping[str, Any]) -> TokenUsage:
    """Parse a usage object. Cached tokens are counted separately (runtime spec 3.2)."""
    details: Mapping[str, Any] = usage.get("prompt_tokens_details") or {}
    found = usage.get("cached_tokens") or details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")
    cached = int(found or 0)
    prompt = int(usage.get("prompt_tokens") or 0)
    return TokenUsage(
        input_other=max(0, prompt - cached),
        output=int(usage.get("completion_tokens") or 0),
        input_cache_read=cached,
    )
