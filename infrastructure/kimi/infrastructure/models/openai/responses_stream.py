"""A reader that turns events of the Responses API into parts of a message (runtime spec 3.4)."""

from __future__ import annotations

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
from kimi.infrastructure.models.history.encoded_history import Json
from kimi.infrastructure.models.json_object import as_object
from kimi.infrastructure.models.tool_call_sequencer import ToolCallSequencer

_INCOMPLETE: dict[str, StopReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}
_STATUS = {
    "server_error": 500,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "server_is_overloaded": 503,
    "slow_down": 503,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
}
"""The HTTP status that an error has when it occurs before the stream."""


class ResponsesEventReader:
    """Reads the events of one response in order and collects what the end record needs."""

    requires_end_event = True

    __slots__ = (
        "_calls",
        "_calls_with_arguments",
        "_handlers",
        "_has_refusal",
        "_has_thinking",
        "_has_visible_content",
        "_message_id",
        "_stop_reason",
        "_usage",
        "closed",
        "finished",
    )

    def __init__(self) -> None:
        self._calls = ToolCallSequencer()
        self._message_id: str | None = None
        self._usage: TokenUsage | None = None
        self._stop_reason: StopReason | None = None
        self._has_visible_content = False
        self._has_thinking = False
        self._has_refusal = False
        self._calls_with_arguments: set[int] = set()
        """The indices of calls whose arguments arrived in pieces."""
        self.finished = False
        """Whether the provider has sent a stop reason."""
        self.closed = False
        self._handlers: dict[str, Callable[[Json], Sequence[StreamPart]]] = {
            "response.output_text.delta": self._handle_text,
            "response.refusal.delta": self._handle_refusal,
            "response.function_call_arguments.delta": self._handle_arguments,
            "response.function_call_arguments.done": self._handle_all_arguments,
            "response.reasoning_summary_text.delta": self._handle_thinking,
            "response.reasoning_text.delta": self._handle_thinking,
            "response.reasoning_summary_part.added": self._handle_summary_part,
            "response.output_item.added": self._handle_item_added,
            "response.output_item.done": self._handle_item_done,
            "response.created": self._handle_created,
            "response.completed": self._handle_ended,
            "response.incomplete": self._handle_ended,
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
        return ResponseEnd(self._message_id, self._usage, self._stop_reason or self._infer_stop_reason())

    def _infer_stop_reason(self) -> StopReason:
        """Infer why a model stopped that no limit stopped: the API does not send a reason."""
        if self._has_refusal:
            return "content_filter"
        return "tool_calls" if self._calls.has_calls else "end"

    def _handle_event(self, event: Json) -> Sequence[StreamPart]:
        if (handler := self._handlers.get(event.get("type", ""))) is not None:
            return handler(event)
        if event.get("type") in ("error", "response.failed"):
            raise _make_event_error(event)
        return ()

    # --- items ----------------------------------------------------------------------------------------------------

    def _handle_text(self, event: Json) -> Sequence[StreamPart]:
        text = require_text(event["delta"])
        if not text:
            return ()
        self._has_visible_content = self._has_visible_content or not text.isspace()
        return self._calls.add_content(TextPart(text))

    def _handle_refusal(self, event: Json) -> Sequence[StreamPart]:
        """Return the text of a refusal, which is shown like an answer."""
        self._has_refusal = True
        return self._handle_text(event)

    def _handle_thinking(self, event: Json) -> Sequence[StreamPart]:
        self._has_thinking = True
        return self._calls.add_content(ThinkPart(require_text(event["delta"])))

    def _handle_summary_part(self, event: Json) -> Sequence[StreamPart]:
        """Separate two parts of a summary by an empty line."""
        return self._calls.add_content(ThinkPart("\n\n")) if event.get("summary_index") else ()

    def _handle_item_added(self, event: Json) -> Sequence[StreamPart]:
        item: Json = event["item"]
        if item["type"] != "function_call":
            return ()
        function = {"name": item["name"], "arguments": None}
        return self._calls.add_delta({"index": event["output_index"], "id": item.get("call_id"), "function": function})

    def _handle_arguments(self, event: Json) -> Sequence[StreamPart]:
        self._calls_with_arguments.add(event["output_index"])
        return self._add_arguments(event["output_index"], event["delta"])

    def _handle_all_arguments(self, event: Json) -> Sequence[StreamPart]:
        """Return the arguments of a call whose server did not stream them."""
        if event["output_index"] in self._calls_with_arguments:
            return ()
        self._calls_with_arguments.add(event["output_index"])
        return self._add_arguments(event["output_index"], event.get("arguments") or "")

    def _add_arguments(self, index: int, piece: str) -> Sequence[StreamPart]:
        return self._calls.add_delta({"index": index, "function": {"arguments": require_text(piece)}})

    def _handle_item_done(self, event: Json) -> Sequence[StreamPart]:
        item: Json = event["item"]
        if item["type"] == "function_call":
            return [*self._handle_all_arguments({**event, **item}), *self._calls.close_call(event["output_index"])]
        if item["type"] == "reasoning" and item.get("encrypted_content"):
            self._has_thinking = True
            return self._calls.add_content(ThinkPart("", require_text(item["encrypted_content"])))
        return ()

    # --- the response ---------------------------------------------------------------------------------------------

    def _handle_created(self, event: Json) -> Sequence[StreamPart]:
        response: Json = event["response"]
        self._message_id = text_or_none(response.get("id")) or self._message_id
        return ()

    def _handle_ended(self, event: Json) -> Sequence[StreamPart]:
        self._handle_created(event)
        response: Json = event["response"]
        if (usage := response.get("usage")) is not None:
            self._usage = parse_usage(usage)
        if event["type"] == "response.incomplete":
            details: Json = response.get("incomplete_details") or {}
            self._stop_reason = _INCOMPLETE.get(details.get("reason", ""), "unknown")
        self.finished = self.closed = True
        return ()


def parse_usage(usage: Mapping[str, Any]) -> TokenUsage:
    """Parse a usage object. Cached tokens are counted separately."""
    details: Mapping[str, Any] = usage.get("input_tokens_details") or {}
    cached = int(details.get("cached_tokens") or 0)
    input_tokens = int(usage.get("input_tokens") or 0)
    return TokenUsage(max(0, input_tokens - cached), int(usage.get("output_tokens") or 0), cached)


def _make_event_error(event: Json) -> ChatProviderError:
    """Return the error that an event reports, either itself or in its response."""
    around = as_object(event.get("response")) or event
    fields = as_object(around.get("error")) or {"code": event.get("code"), "message": event.get("message")}
    text = find_error_text({"error": fields}) or "The provider reported an error without a text."
    status = next((_STATUS[code] for key in ("code", "type") if (code := str(fields.get(key))) in _STATUS), None)
    return ChatProviderError(text) if status is None else make_status_error(status, text, {"error": fields})
