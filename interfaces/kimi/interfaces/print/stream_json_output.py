"""The stream-json output of print mode: one message per line, shaped like the context file (runtime spec 1.7)."""

from __future__ import annotations

from collections.abc import Callable

from kimi.application.codec.context_line import encode_message
from kimi.application.codec.envelope import encode_event, encode_json, shape_usage
from kimi.domain.content.message import Message, ToolCall
from kimi.domain.content.parts import UserInput
from kimi.domain.content.stream import PART_TYPES, MergedPart, PartMerger
from kimi.domain.events.event import (
    Event,
    Notification,
    PlanDisplay,
    StatusUpdate,
    StepBegin,
    StepInterrupted,
    StepRetry,
    SubagentEvent,
    ToolResult,
    TurnEnd,
)
from kimi.domain.tools.tool import tool_message
from kimi.domain.turn import UsageFigures
from kimi.interfaces.print.failure import RunFailure
from kimi.interfaces.print.output import encode_json_failure, encode_session, escape_json_lines
from kimi.interfaces.rpc.framing import frame_message


class MessageAssembly:
    """Puts the messages of one agent together; the parts of a failed attempt are dropped."""

    def __init__(self) -> None:
        self._reset()

    def take(self, event: Event) -> list[Message]:
        """Return the messages that are complete with this event."""
        match event:
            case StepBegin() | TurnEnd():
                return self.flush()
            case StepRetry() | StepInterrupted():
                self._reset()
            case ToolResult(call_id, value):
                return [*self.flush(), tool_message(call_id, value)]
            case _ if isinstance(event, PART_TYPES):
                self._parts += self._merger.push(event)
            case _:
                pass
        return []

    def flush(self) -> list[Message]:
        """Return the message of the assistant as far as it goes; none without any part."""
        parts = [*self._parts, *self._merger.flush()]
        self._reset()
        if not parts:
            return []
        calls = tuple(part for part in parts if isinstance(part, ToolCall))
        content = tuple(part for part in parts if not isinstance(part, ToolCall))
        return [Message("assistant", content, calls)]

    def _reset(self) -> None:
        self._merger = PartMerger()
        self._parts: list[MergedPart] = []


class StreamJsonOutput:
    """Renders each message of the conversation when it is complete.

    Messages of subagents are records beside it, with the call that the subagent works for: without the records, the
    lines are the history of one conversation. On a terminal, what would control it is escaped in the JSON.
    """

    def __init__(self, *, stdout_is_terminal: bool) -> None:
        self._escape: Callable[[bytes], bytes] = escape_json_lines if stdout_is_terminal else bytes
        self._usage: UsageFigures | None = None
        self._messages = MessageAssembly()
        self._of_subagents: dict[str | None, MessageAssembly] = {}

    def render_prompt(self, user_input: UserInput) -> bytes:
        """Return nothing: the sender knows the prompt."""
        return b""

    def render_event(self, event: Event) -> bytes:
        """Return the lines that are complete with this event."""
        return self._escape(self._render_lines(event))

    def _render_lines(self, event: Event) -> bytes:
        match event:
            case StatusUpdate(usage=UsageFigures() as usage):
                self._usage = usage
                return _frame_all(self._messages.take(event))
            case Notification() | PlanDisplay():
                return frame_message(b'{"role":"meta",' + encode_event(event)[1:])
            case SubagentEvent():
                return self._render_subagent(event)
            case _:
                return _frame_all(self._messages.take(event))

    def _render_subagent(self, event: SubagentEvent) -> bytes:
        if isinstance(event.event, SubagentEvent):  # of a subagent that a subagent has started
            return self._render_subagent(event.event)
        messages = self._of_subagents.setdefault(event.agent_id, MessageAssembly())
        about = {
            "role": "meta",
            "type": "subagent",
            "agent_id": event.agent_id,
            "subagent_type": event.subagent_type,
            "tool_call_id": event.parent_tool_call_id,
        }
        head = encode_json(about)[:-1]
        lines = [head + b',"message":' + encode_message(message) + b"}" for message in messages.take(event.event)]
        return b"".join(map(frame_message, lines))

    def render_end(self) -> bytes:
        """Return the last message, and the tokens and cost so far, if the provider has reported them."""
        return self._escape(_frame_all(self._messages.flush())) + self._flush_usage()

    def _flush_usage(self) -> bytes:
        usage, self._usage = self._usage, None
        if usage is None:
            return b""
        return frame_message(encode_json({"role": "meta", "type": "usage", **shape_usage(usage)}))

    def render_failure(self, failure: RunFailure) -> bytes:
        """Return the last message, if it is complete, and the failure."""
        return self._escape(_frame_all(self._messages.flush()) + encode_json_failure(failure))

    def render_session(self, session_id: str) -> bytes:
        """Return the record of the session, the last line."""
        return self._escape(encode_session(session_id))


def _frame_all(messages: list[Message]) -> bytes:
    return b"".join(frame_message(encode_message(message)) for message in messages)
