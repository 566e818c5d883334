"""A reader that turns events of the Messages API into parts of a message (runtime spec 3.5)."""

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
    find_error_text,
    make_empty_response_error,
    make_status_error,
    read_event,
    require_text,
    text_or_none,
)
from kimi.infrastructure.models.anthropic.body import HIDDEN_THINKING_PREFIX
from kimi.infrastructure.models.history.encoded_history import Json
from kimi.infrastructure.models.json_object import as_object
from kimi.infrastructure.models.tool_call_sequencer import ToolCallSequencer

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
"""The HTTP status that an error has when it occurs before the stream."""

_USAGE_FIELDS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class AnthropicEventReader:
    """Reads the events of one response in order and collects what the end record needs."""

    requires_end_event = True

    __slots__ = (
        "_calls",
        "_counts",
        "_handlers",
        "_has_thinking",
        "_has_visible_content",
        "_message_id",
        "_shown_thinking_blocks",
        "_signatures",
        "_stop_reason",
        "closed",
        "finished",
    )

    def __init__(self) -> None:
        self._calls = ToolCallSequencer()
        self._message_id: str | None = None
        self._counts: dict[str, int] = {}
        self._stop_reason: StopReason = "unknown"
        self._has_visible_content = False
        self._has_thinking = False
        self._shown_thinking_blocks: set[int] = set()
        """The indices of thinking blocks that contained text."""
        self._signatures: dict[int, list[str]] = {}
        self.finished = False
        """Whether the provider has sent a stop reason."""
        self.closed = False
        self._handlers: dict[str, Callable[[Json], Sequence[StreamPart]]] = {
            "content_block_delta": self._handle_block_delta,
            "content_block_start": self._handle_block_start,
            "content_block_stop": self._handle_block_stop,
            "message_start": self._handle_message_start,
            "message_delta": self._handle_message_delta,
            "message_stop": self._handle_message_stop,
        }

    def read(self, payload: bytes) -> Sequence[StreamPart]:
        """Return the parts of one event. Events of unknown types have none.

        Raises:
            ChatProviderError: the payload is malformed or reports an error.
            APIStatusError: it reports an error whose HTTP status is known.
        """
        return read_event(payload, self._handle_event)

    def flush(self) -> Sequence[StreamPart]:
        """Return the parts that were held back until the end of the stream."""
        return self._calls.flush()

    def make_response_end(self) -> ResponseEnd:
        """Return the record that ends the stream.

        Raises:
            APIEmptyResponseError: the answer contained neither visible text nor a tool call.
        """
        if not (self._has_visible_content or self._calls.has_calls):
            raise make_empty_response_error(has_thinking=self._has_thinking)
        return ResponseEnd(self._message_id, self._make_usage(), self._stop_reason)

    def _handle_event(self, event: Json) -> Sequence[StreamPart]:
        if (handler := self._handlers.get(event.get("type", ""))) is not None:
            return handler(event)
        if event.get("type") == "error":
            raise _make_event_error(event)
        return ()

    # --- blocks ---------------------------------------------------------------------------------------------------

    def _handle_block_delta(self, event: Json) -> Sequence[StreamPart]:
        delta: Json = event["delta"]
        index: int = event["index"]
        match delta["type"]:
            case "text_delta":
                return self._add_text(delta["text"])
            case "input_json_delta":
                return self._calls.add_delta({"index": index, "function": {"arguments": delta["partial_json"]}})
            case "thinking_delta":
                self._shown_thinking_blocks.add(index)
                return self._add_thinking(ThinkPart(delta["thinking"]))
            case "signature_delta":
                self._signatures.setdefault(index, []).append(delta["signature"])
            case _:
                pass
        return ()

    def _handle_block_start(self, event: Json) -> Sequence[StreamPart]:
        """Start a block. Some servers send its whole content in this event."""
        block: Json = event["content_block"]
        index: int = event["index"]
        match block["type"]:
            case "text":
                return self._add_text(block.get("text") or "")
            case "tool_use":
                function = {"name": block["name"], "arguments": _encode_arguments(block.get("input"))}
                return self._calls.add_delta({"index": index, "id": block.get("id"), "function": function})
            case "thinking":
                return self._handle_thinking_start(index, block)
            case "redacted_thinking":
                return self._add_thinking(ThinkPart("", block["data"]))
            case _:
                return ()

    def _handle_thinking_start(self, index: int, block: Json) -> Sequence[StreamPart]:
        if signature := block.get("signature"):
            self._signatures[index] = [signature]
        if not (text := block.get("thinking")):
            return ()
        self._shown_thinking_blocks.add(index)
        return self._add_thinking(ThinkPart(text))

    def _handle_block_stop(self, event: Json) -> Sequence[StreamPart]:
        index: int = event["index"]
        if signature := "".join(self._signatures.pop(index, ())):
            return self._add_thinking(
                ThinkPart("", signature if index in self._shown_thinking_blocks else HIDDEN_THINKING_PREFIX + signature)
            )
        return self._calls.close_call(index)

    def _add_text(self, text: str) -> Sequence[StreamPart]:
        if not require_text(text):
            return ()
        self._has_visible_content = self._has_visible_content or not text.isspace()
        return self._calls.add_content(TextPart(text))

    def _add_thinking(self, part: ThinkPart) -> Sequence[StreamPart]:
        require_text(part.think)
        require_text(part.encrypted or "")
        self._has_thinking = True
        return self._calls.add_content(part)

    # --- the message ----------------------------------------------------------------------------------------------

    def _handle_message_start(self, event: Json) -> Sequence[StreamPart]:
        message: Json = event["message"]
        self._message_id = text_or_none(message.get("id"))
        self._update_token_counts(message.get("usage"))
        return ()

    def _handle_message_delta(self, event: Json) -> Sequence[StreamPart]:
        delta: Json = event.get("delta") or {}
        if (reason := delta.get("stop_reason")) is not None:
            self.finished = True
            self._stop_reason = _STOP_REASONS.get(reason, "unknown")
        self._update_token_counts(event.get("usage"))
        return ()

    def _handle_message_stop(self, event: Json) -> Sequence[StreamPart]:
        self.finished = self.closed = True
        return ()

    def _update_token_counts(self, usage: Mapping[str, Any] | None) -> None:
        """Store token counts. Each event reports totals, so a later count replaces an earlier one."""
        if usage is not None:
            self._counts.update((name, int(usage[name])) for name in _USAGE_FIELDS if usage.get(name) is not None)

    def _make_usage(self) -> TokenUsage | None:
        if not self._counts:
            return None
        fresh, output, read, created = (self._counts.get(name, 0) for name in _USAGE_FIELDS)
        return TokenUsage(fresh, output, read, created)


def _encode_arguments(arguments: object) -> str | None:
    return json.dumps(arguments, ensure_ascii=False) if arguments else None


def _make_event_error(event: Json) -> ChatProviderError:
    """Return the error that an event reports."""
    fields = as_object(event.get("error")) or {}
    text = find_error_text(event) or "The provider reported an error without a text."
    status = _STATUS.get(str(fields.get("type")))
    return ChatProviderError(text) if status is None else make_status_error(status, text, event)
