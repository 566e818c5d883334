"""Chunks of a chat-completions stream -> parts of a message (runtime spec 3.1, 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kimi.application.ports import ResponseEnd
from kimi.domain.content.parts import ContentPart, TextPart, ThinkPart
from kimi.domain.content.stream import StreamPart
from kimi.domain.turn import StopReason, TokenUsage
from kimi.infrastructure.models.answer_errors import empty_response, read_event, reported_error, text_or_none
from kimi.infrastructure.models.streamed_tool_calls import ToolCallOrder

Chunk: TypeAlias = dict[str, Any]

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end",
    "length": "length",
    "content_filter": "content_filter",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}


@dataclass(frozen=True, slots=True)
class ReasoningNames:
    """The fields of a delta that thinking may come in, most usual first, and the field of a message that it goes back
    in (None: it does not)."""

    read: tuple[str, ...]
    write: str | None


REASONING_CONTENT = ReasoningNames(("reasoning_content",), "reasoning_content")
"""The one field that both `kimi` and most others use."""


class ChunkReader:
    """Reads the chunks of one answer in order, and remembers what belongs to its end.

    Some servers never say why they stop: a body that ended in good order is enough.
    """

    __slots__ = ("_calls", "_message_id", "_names", "_stop_reason", "_thought", "_usage", "_visible", "finished")

    needs_end = False
    closed = False

    def __init__(self, names: ReasoningNames) -> None:
        self._names = names.read
        self._calls = ToolCallOrder()
        self._message_id: str | None = None
        self._usage: TokenUsage | None = None
        self._stop_reason: StopReason = "unknown"
        self._visible = False
        self._thought = False
        self.finished = False
        """Has the provider said why it stopped?"""

    def read(self, payload: bytes) -> Sequence[StreamPart]:
        """The parts of one chunk.

        Raises:
            ChatProviderError: the payload is no JSON object.
            APIStatusError: it reports an error with an HTTP status.
        """
        return read_event(payload, self._parts)

    def finish(self) -> list[StreamPart]:
        """The parts that still waited at the end of the stream."""
        return self._calls.finish()

    def end(self) -> ResponseEnd:
        """The record that ends the stream.

        Raises:
            APIEmptyResponseError: there was no text to see, no medium and no tool call.
        """
        if not (self._visible or self._calls.any_calls):
            raise empty_response(thought=self._thought)
        return ResponseEnd(self._message_id, self._usage, self._stop_reason)

    def _parts(self, chunk: Chunk) -> Sequence[StreamPart]:
        choices: list[Chunk] | None = chunk.get("choices")
        if self._message_id is None:
            self._message_id = text_or_none(chunk.get("id"))
        if (usage := chunk.get("usage")) is not None:
            self._usage = read_usage(usage)
        if chunk.get("error"):
            raise reported_error(chunk)
        if not choices:
            return ()
        choice = choices[0]
        if reason := choice.get("finish_reason"):  # some gateways send an empty one with every piece
            self.finished = True
            self._stop_reason = _STOP_REASONS.get(reason, "unknown")
        if (usage := choice.get("usage")) is not None:
            self._usage = read_usage(usage)
        delta: Chunk | None = choice.get("delta")
        return self._delta(delta) if delta else ()

    def _delta(self, delta: Chunk) -> Sequence[StreamPart]:
        text = delta.get("content") or delta.get("refusal")
        think = None
        for name in self._names:
            if (think := delta.get(name)) is not None:
                break
        calls: list[Chunk] | None = delta.get("tool_calls")
        if text and think is None and not calls and type(text) is str:
            self._visible = self._visible or not text.isspace()
            return self._calls.content(TextPart(text))
        parts: list[StreamPart] = []
        for part in self._content(text, think):
            parts += self._calls.content(part)
        for call in calls or ():
            parts += self._calls.delta(call)
        return parts

    def _content(self, text: Any, think: Any) -> list[ContentPart]:
        """Thinking before text. Empty thinking counts once, at the beginning, so that it can be sent back."""
        parts: list[ContentPart] = []
        if isinstance(think, str) and (think or not (self._thought or self._visible or self._calls.any_calls)):
            self._thought = True
            parts.append(ThinkPart(think))
        if text:
            text = text if isinstance(text, str) else _joined(text)
            self._visible = self._visible or bool(text.strip())
            parts.append(TextPart(text))
        return parts


def _joined(content: list[Chunk]) -> str:
    """The text of content that some providers send as a list of parts."""
    return "".join(item.get("text") or "" for item in content if item.get("type", "text") == "text")


def read_usage(usage: Mapping[str, Any]) -> TokenUsage:
    """A provider's usage object; tokens from its cache are counted apart (runtime spec 3.2)."""
    details: Mapping[str, Any] = usage.get("prompt_tokens_details") or {}
    found = usage.get("cached_tokens") or details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")
    cached = int(found or 0)
    prompt = int(usage.get("prompt_tokens") or 0)
    return TokenUsage(
        input_other=max(0, prompt - cached),
        output=int(usage.get("completion_tokens") or 0),
        input_cache_read=cached,
    )
