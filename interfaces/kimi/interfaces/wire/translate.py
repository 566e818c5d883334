"""Events to lines of the wire, pure (wire spec 4.1, 2.4)."""

from __future__ import annotations

from kimi.application.codec.envelope import encode_event
from kimi.application.conversation.event_channel import Delivery
from kimi.domain.events.event import (
    EVENT_TYPES,
    REQUEST_TYPES,
    Event,
    StepBegin,
    SubagentEvent,
    TurnBegin,
    TurnEnd,
)
from kimi.domain.events.request import HookRequest, QuestionRequest, ToolCallRequest
from kimi.interfaces.rpc.jsonrpc import notification_line, one_line, request_line

STRICT_NAMES = frozenset(
    {
        "TurnBegin", "TurnEnd", "StepBegin", "StepInterrupted", "CompactionBegin", "CompactionEnd",
        "StatusUpdate", "ContentPart", "ToolCall", "ToolCallPart", "ToolResult", "SubagentEvent",
        "ApprovalResponse", "ApprovalRequest", "ToolCallRequest",
    }
)  # fmt: skip
"""What a reader of the strict profile knows; it stops for ever at anything else."""

STRICT_VERSION = (1, 3)
"""The protocol version that such a reader amounts to, whatever it names."""


_FRAMES: dict[type, str] = {TurnBegin: "TurnBegin", TurnEnd: "TurnEnd", StepBegin: "StepBegin"}


class NestedTurns:
    """Tells the turns of flows, which lie inside of another turn, from those that a prompt began (wire spec 7.12).

    A turn that had steps of its own holds no others: what begins after them comes after a turn whose end is missing,
    as in the records of a process that was killed.
    """

    def __init__(self) -> None:
        self._open = 0
        self._has_steps = False

    def frames(self, name: str) -> bool:
        """Does this event begin or end a nested turn? Wants the type of every event, in order."""
        if name == "TurnBegin":
            if self._open == 2 or self._has_steps:
                self._open = 0
            self._open += 1
            self._has_steps = False
            return self._open == 2
        if name == "TurnEnd":
            self._open = max(self._open - 1, 0)
            return self._open == 1
        if name == "StepBegin" and self._open == 1:
            self._has_steps = True
        return False


class Translator:
    """The lines for what comes from a conversation, in order. Remembers where nested turns begin and end."""

    def __init__(self) -> None:
        self._nested = NestedTurns()

    def line(self, delivery: Delivery, *, strict: bool) -> bytes | None:
        """The line, or None when the strict profile hides the event."""
        name = _FRAMES.get(type(delivery.event))
        if name is not None and self._nested.frames(name) and strict:
            return None
        return line_for(delivery, strict=strict)


def line_for(delivery: Delivery, *, strict: bool = False) -> bytes | None:
    """The line for an event or request, line end included; None when the strict profile does not know its type."""
    event = delivery.event
    if strict and not _known(event):
        return None
    if isinstance(event, REQUEST_TYPES):
        if isinstance(event, ToolCallRequest) and event.arguments is None:
            event = ToolCallRequest(event.id, event.name, "{}")
        return one_line(request_line(b"request", event.id, encode_event(event)))
    return one_line(notification_line(b"event", delivery.envelope or encode_event(event)))


def _known(event: Event) -> bool:
    if isinstance(event, SubagentEvent):
        return _known(event.event)
    return EVENT_TYPES[type(event)] in STRICT_NAMES and not isinstance(event, (QuestionRequest, HookRequest))
