"""Events of the Responses API -> parts of a message (runtime spec 3.4)."""

from __future__ import annotations

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
from kimi.infrastructure.models.history.encoded_history import Json
from kimi.infrastructure.models.json_object import as_object
from kimi.infrastructure.models.streamed_tool_calls import ToolCallOrder

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
"""The status that an error inside a stream would have had before it."""


class ResponseReader:
    """Reads the events of one answer in order, and remembers what belongs to its end."""

    needs_end = True

    __slots__ = (
        "_argued",
        "_calls",
        "_handlers",
        "_message_id",
        "_refused",
        "_stop_reason",
        "_thought",
        "_usage",
        "_visible",
        "closed",
        "finished",
    )

    def __init__(self) -> None:
        self._calls = ToolCallOrder()
        self._message_id: str | None = None
        self._usage: TokenUsage | None = None
        self._stop_reason: StopReason | None = None
        self._visible = False
        self._thought = False
        self._refused = False
        self._argued: set[int] = set()
        """Calls whose arguments came in pieces."""
        self.finished = False
        """Has the provider said why it stopped?"""
        self.closed = False
        self._handlers: dict[str, Callable[[Json], Sequence[StreamPart]]] = {
            "response.output_text.delta": self._text,
            "response.refusal.delta": self._refusal,
            "response.function_call_arguments.delta": self._arguments,
            "response.function_call_arguments.done": self._all_arguments,
            "response.reasoning_summary_text.delta": self._thinking,
            "response.reasoning_text.delta": self._thinking,
            "response.reasoning_summary_part.added": self._next_thought,
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.created": self._created,
            "response.completed": self._ended,
            "response.incomplete": self._ended,
        }

    def read(self, payload: bytes) -> Sequence[StreamPart]:
        """The parts of one event; events of unknown kinds have none.

        Raises:
            ChatProviderError: the payload is no event, or reports an error; APIStatusError when its code is known.
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
        return ResponseEnd(self._message_id, self._usage, self._stop_reason or self._own_stop_reason())

    def _own_stop_reason(self) -> StopReason:
        """Why a model stopped that was not stopped by a limit: the API does not say."""
        if self._refused:
            return "content_filter"
        return "tool_calls" if self._calls.any_calls else "end"

    def _parts(self, event: Json) -> Sequence[StreamPart]:
        if (handler := self._handlers.get(event.get("type", ""))) is not None:
            return handler(event)
        if event.get("type") in ("error", "response.failed"):
            raise _reported(event)
        return ()

    # --- items ----------------------------------------------------------------------------------------------------

    def _text(self, event: Json) -> Sequence[StreamPart]:
        text = text_of(event["delta"])
        if not text:
            return ()
        self._visible = self._visible or not text.isspace()
        return self._calls.content(TextPart(text))

    def _refusal(self, event: Json) -> Sequence[StreamPart]:
        """What the model says instead of an answer is shown as it is."""
        self._refused = True
        return self._text(event)

    def _thinking(self, event: Json) -> Sequence[StreamPart]:
        self._thought = True
        return self._calls.content(ThinkPart(text_of(event["delta"])))

    def _next_thought(self, event: Json) -> Sequence[StreamPart]:
        """Between two parts of a summary is an empty line."""
        return self._calls.content(ThinkPart("\n\n")) if event.get("summary_index") else ()

    def _item_added(self, event: Json) -> Sequence[StreamPart]:
        item: Json = event["item"]
        if item["type"] != "function_call":
            return ()
        function = {"name": item["name"], "arguments": None}
        return self._calls.delta({"index": event["output_index"], "id": item.get("call_id"), "function": function})

    def _arguments(self, event: Json) -> Sequence[StreamPart]:
        self._argued.add(event["output_index"])
        return self._more_arguments(event["output_index"], event["delta"])

    def _all_arguments(self, event: Json) -> Sequence[StreamPart]:
        """Servers that do not stream arguments send them here alone."""
        if event["output_index"] in self._argued:
            return ()
        self._argued.add(event["output_index"])
        return self._more_arguments(event["output_index"], event.get("arguments") or "")

    def _more_arguments(self, index: int, piece: str) -> Sequence[StreamPart]:
        return self._calls.delta({"index": index, "function": {"arguments": text_of(piece)}})

    def _item_done(self, event: Json) -> Sequence[StreamPart]:
        item: Json = event["item"]
        if item["type"] == "function_call":
            return [*self._all_arguments({**event, **item}), *self._calls.close(event["output_index"])]
        if item["type"] == "reasoning" and item.get("encrypted_content"):
            self._thought = True
            return self._calls.content(ThinkPart("", text_of(item["encrypted_content"])))
        return ()

    # --- the response ---------------------------------------------------------------------------------------------

    def _created(self, event: Json) -> Sequence[StreamPart]:
        response: Json = event["response"]
        self._message_id = text_or_none(response.get("id")) or self._message_id
        return ()

    def _ended(self, event: Json) -> Sequence[StreamPart]:
        self._created(event)
        response: Json = event["response"]
        if (usage := response.get("usage")) is not None:
            self._usage = read_usage(usage)
        if event["type"] == "response.incomplete":
            details: Json = response.get("incomplete_details") or {}
            self._stop_reason = _INCOMPLETE.get(details.get("reason", ""), "unknown")
        self.finished = self.closed = True
        return ()


def read_usage(usage: Mapping[str, Any]) -> TokenUsage:
    """A usage object; tokens from the cache are counted apart."""
    details: Mapping[str, Any] = usage.get("input_tokens_details") or {}
    cached = int(details.get("cached_tokens") or 0)
    given = int(usage.get("input_tokens") or 0)
    return TokenUsage(max(0, given - cached), int(usage.get("output_tokens") or 0), cached)


def _reported(event: Json) -> ChatProviderError:
    """The error that an event reports: in itself, or in its response."""
    around = as_object(event.get("response")) or event
    fields = as_object(around.get("error")) or {"code": event.get("code"), "message": event.get("message")}
    text = error_text({"error": fields}) or "The provider reported an error without a text."
    status = next((_STATUS[code] for key in ("code", "type") if (code := str(fields.get(key))) in _STATUS), None)
    return ChatProviderError(text) if status is None else status_error(status, text, {"error": fields})
