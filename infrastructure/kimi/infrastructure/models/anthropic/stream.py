"""Events of the Messages API -> parts of a message (runtime spec 3.5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kimi.application.ports import ResponseEnd
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.content.stream import StreamPart
from kimi.domain.errors import ChatProviderError
from kimi.domain.turn import StopReason, TokenUsage
from kimi.infrastructure.models.answer_errors import (
    empty_response,
    error_text,
    read_event,
    status_error,
    text_of,
    text_or_none,
)
from kimi.infrastructure.models.anthropic.body import UNSEEN
from kimi.infrastructure.models.history.encoded_history import Json
from kimi.infrastructure.models.json_object import as_object
from kimi.infrastructure.models.streamed_tool_calls import ToolCallOrder

_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that an error inside a stream would have had before it."""

_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class MessageReader:
    """Reads the events of one answer in order, and remembers what belongs to its end."""

    needs_end = True

    __slots__ = (
        "_calls",
        "_counts",
        "_handlers",
        "_message_id",
        "_seen",
        "_signatures",
        "_stop_reason",
        "_thought",
        "_visible",
        "closed",
        "finished",
    )

    def __init__(self) -> None:
        self._calls = ToolCallOrder()
        self._message_id: str | None = None
        self._counts: dict[str, int] = {}
        self._stop_reason: StopReason = "unknown"
        self._visible = False
        self._thought = False
        self._seen: set[int] = set()
        """Blocks of thinking that had a text."""
        self._signatures: dict[int, list[str]] = {}
        self.finished = False
        """Has the provider said why it stopped?"""
        self.closed = False
        self._handlers: dict[str, Callable[[Json], Sequence[StreamPart]]] = {
            "content_block_delta": self._block_delta,
            "content_block_start": self._block_start,
            "content_block_stop": self._block_stop,
            "message_start": self._message_start,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
        }

    def read(self, payload: bytes) -> Sequence[StreamPart]:
        """The parts of one event; events of unknown kinds have none.

        Raises:
            ChatProviderError: the payload is no event, or reports an error; APIStatusError when its kind is known.
        """
        return read_event(payload, self._parts)

    def finish(self) -> Sequence[StreamPart]:
        """The parts that still waited at the end of the stream."""
        return self._calls.finish()

    def end(self) -> ResponseEnd:
        """The record that ends the stream.

        Raises:
            APIEmptyResponseError: there was no text to see and no tool call.
        """
        if not (self._visible or self._calls.any_calls):
            raise empty_response(thought=self._thought)
        return ResponseEnd(self._message_id, self._usage(), self._stop_reason)

    def _parts(self, event: Json) -> Sequence[StreamPart]:
        if (handler := self._handlers.get(event.get("type", ""))) is not None:
            return handler(event)
        if event.get("type") == "error":
            raise _reported(event)
        return ()

    # --- blocks ---------------------------------------------------------------------------------------------------

    def _block_delta(self, event: Json) -> Sequence[StreamPart]:
        delta: Json = event["delta"]
        index: int = event["index"]
        match delta["type"]:
            case "text_delta":
                return self._text(delta["text"])
            case "input_json_delta":
                return self._calls.delta({"index": index, "function": {"arguments": delta["partial_json"]}})
            case "thinking_delta":
                self._seen.add(index)
                return self._thinking(ThinkPart(delta["thinking"]))
            case "signature_delta":
                self._signatures.setdefault(index, []).append(delta["signature"])
            case _:
                pass
        return ()

    def _block_start(self, event: Json) -> Sequence[StreamPart]:
        """A block begins. Some servers send what is in it at once."""
        block: Json = event["content_block"]
        index: int = event["index"]
        match block["type"]:
            case "text":
                return self._text(block.get("text") or "")
            case "tool_use":
                function = {"name": block["name"], "arguments": _arguments(block.get("input"))}
                return self._calls.delta({"index": index, "id": block.get("id"), "function": function})
            case "thinking":
                return self._thinking_start(index, block)
            case "redacted_thinking":
                return self._thinking(ThinkPart("", block["data"]))
            case _:
                return ()

    def _thinking_start(self, index: int, block: Json) -> Sequence[StreamPart]:
        if signature := block.get("signature"):
            self._signatures[index] = [signature]
        if not (text := block.get("thinking")):
            return ()
        self._seen.add(index)
        return self._thinking(ThinkPart(text))

    def _block_stop(self, event: Json) -> Sequence[StreamPart]:
        index: int = event["index"]
        if signature := "".join(self._signatures.pop(index, ())):
            return self._thinking(ThinkPart("", signature if index in self._seen else UNSEEN + signature))
        return self._calls.close(index)

    def _text(self, text: str) -> Sequence[StreamPart]:
        if not text_of(text):
            return ()
        self._visible = self._visible or not text.isspace()
        return self._calls.content(TextPart(text))

    def _thinking(self, part: ThinkPart) -> Sequence[StreamPart]:
        text_of(part.think)
        text_of(part.encrypted or "")
        self._thought = True
        return self._calls.content(part)

    # --- the message ----------------------------------------------------------------------------------------------

    def _message_start(self, event: Json) -> Sequence[StreamPart]:
        message: Json = event["message"]
        self._message_id = text_or_none(message.get("id"))
        self._count(message.get("usage"))
        return ()

    def _message_delta(self, event: Json) -> Sequence[StreamPart]:
        delta: Json = event.get("delta") or {}
        if (reason := delta.get("stop_reason")) is not None:
            self.finished = True
            self._stop_reason = _STOP_REASONS.get(reason, "unknown")
        self._count(event.get("usage"))
        return ()

    def _message_stop(self, event: Json) -> Sequence[StreamPart]:
        self.finished = self.closed = True
        return ()

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        """Counts are totals so far: a later one replaces an earlier one."""
        if usage is not None:
            self._counts.update((name, int(usage[name])) for name in _COUNTS if usage.get(name) is not None)

    def _usage(self) -> TokenUsage | None:
        if not self._counts:
            return None
        fresh, output, read, created = (self._counts.get(name, 0) for name in _COUNTS)
        return TokenUsage(fresh, output, read, created)


def _arguments(given: object) -> str | None:
    return json.dumps(given, ensure_ascii=False) if given else None


def _reported(event: Json) -> ChatProviderError:
    """The error that an event reports."""
    fields = as_object(event.get("error")) or {}
    text = error_text(event) or "The provider reported an error without a text."
    status = _STATUS.get(str(fields.get("type")))
    return ChatProviderError(text) if status is None else status_error(status, text, event)
