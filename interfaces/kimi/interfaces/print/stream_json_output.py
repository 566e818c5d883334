"""The stream-json output of print mode: one message per line, shaped like the context file (runtime spec 1.7)."""

from __future__ import annotations

from collections.abc import Callable

from kimi.application.codec.context_line import encode_message
from kimi.application.codec.envelope import encode_event, encode_json, shape_usage
from kimi.domain.content.message import Message, ToolCall
from kimi.domain.content.parts import UserInput
from kimi.domain.content.stream import PART_TYPES, MergedPart, PartMerger, StreamPart
from kimi.domain.events.event import (
    Event,
    Notification,
    PlanDisplay,
    StatusUpdate,
    StepBegin,
    StepInterrupted,
    StepRetry,
    ToolResult,
)
from kimi.domain.tools.tool import tool_message
from kimi.domain.turn import UsageFigures
from kimi.interfaces.print.failure import RunFailure
from kimi.interfaces.print.output import encode_json_failure, escape_json_lines
from kimi.interfaces.rpc.framing import frame_message


class StreamJsonOutput:
    """Renders each message of the conversation when it is complete; the parts of a failed attempt are dropped.

    Messages of subagents are left out, so that the lines are the history of one conversation. On a terminal, what would
    control it is escaped in the JSON.
    """

    def __init__(self, *, stdout_is_terminal: bool) -> None:
        self._escape: Callable[[bytes], bytes] = escape_json_lines if stdout_is_terminal else bytes
        self._usage: UsageFigures | None = None
        self._reset()

    def render_prompt(self, user_input: UserInput) -> bytes:
        """Return nothing: the sender knows the prompt."""
        return b""

    def render_event(self, event: Event) -> bytes:
        """Return the lines that are complete with this event."""
        return self._escape(self._render_lines(event))

    def _render_lines(self, event: Event) -> bytes:
        match event:
            case StepBegin():
                return self._flush_message()
            case StepRetry() | StepInterrupted():
                self._reset()
            case ToolResult(call_id, value):
                return self._flush_message() + frame_message(encode_message(tool_message(call_id, value)))
            case StatusUpdate(usage=UsageFigures() as usage):
                self._usage = usage
            case Notification() | PlanDisplay():
                return frame_message(b'{"role":"meta",' + encode_event(event)[1:])
            case _ if isinstance(event, PART_TYPES):
                self._add_part(event)
            case _:
                pass
        return b""

    def render_end(self) -> bytes:
        """Return the last message, and the tokens and cost so far, if the provider has reported them."""
        return self._escape(self._flush_message()) + self._flush_usage()

    def _flush_usage(self) -> bytes:
        usage, self._usage = self._usage, None
        if usage is None:
            return b""
        return frame_message(encode_json({"role": "meta", "type": "usage", **shape_usage(usage)}))

    def render_failure(self, failure: RunFailure) -> bytes:
        """Return the last message, if it is complete, and the failure."""
        return self._escape(self._flush_message() + encode_json_failure(failure))

    def _add_part(self, part: StreamPart) -> None:
        self._parts += self._merger.push(part)

    def _flush_message(self) -> bytes:
        parts = [*self._parts, *self._merger.flush()]
        self._reset()
        if not parts:
            return b""
        calls = tuple(part for part in parts if isinstance(part, ToolCall))
        content = tuple(part for part in parts if not isinstance(part, ToolCall))
        return frame_message(encode_message(Message("assistant", content, calls)))

    def _reset(self) -> None:
        self._merger = PartMerger()
        self._parts: list[MergedPart] = []
