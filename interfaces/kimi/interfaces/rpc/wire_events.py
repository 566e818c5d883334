"""Encode events and requests as lines of the wire, without I/O (wire spec 4.1, 2.4)."""

from __future__ import annotations

from kimi.application.codec.envelope import add_usage, encode_event
from kimi.application.conversation.event_channel import Delivery
from kimi.domain.events.event import (
    EVENT_TYPES,
    INTERNAL_TYPES,
    REQUEST_TYPES,
    Event,
    StatusUpdate,
    StepBegin,
    SubagentEvent,
    TurnBegin,
    TurnEnd,
)
from kimi.domain.events.request import HookRequest, QuestionRequest, ToolCallRequest
from kimi.interfaces.rpc.framing import frame_message
from kimi.interfaces.rpc.messages import encode_notification, encode_request

STRICT_EVENT_NAMES = frozenset(
    {
        "TurnBegin", "TurnEnd", "StepBegin", "StepInterrupted", "CompactionBegin", "CompactionEnd",
        "StatusUpdate", "ContentPart", "ToolCall", "ToolCallPart", "ToolResult", "SubagentEvent",
        "ApprovalResponse", "ApprovalRequest", "ToolCallRequest",
    }
)  # fmt: skip
"""The types that a client of the strict profile knows; it stops reading at any other type."""

STRICT_VERSION = (1, 3)
"""The protocol version that such a client is treated as, whatever version it names."""


_FRAME_NAMES: dict[type, str] = {TurnBegin: "TurnBegin", TurnEnd: "TurnEnd", StepBegin: "StepBegin"}


class NestedTurnTracker:
    """Tells the nested turns of flows from the turns that a prompt began (wire spec 7.12).

    A turn that had steps holds no nested turn. A turn that begins after steps therefore follows a turn without an end,
    as in the record of a process that was killed.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._has_steps = False

    def is_nested_boundary(self, name: str) -> bool:
        """Whether this event begins or ends a nested turn. Must be called with the type of every event, in order."""
        if name == "TurnBegin":
            if self._depth == 2 or self._has_steps:
                self._depth = 0
            self._depth += 1
            self._has_steps = False
            return self._depth == 2
        if name == "TurnEnd":
            self._depth = max(self._depth - 1, 0)
            return self._depth == 1
        if name == "StepBegin" and self._depth == 1:
            self._has_steps = True
        return False


class WireEventEncoder:
    """Encodes what a conversation delivers, in order; keeps track of nested turns."""

    def __init__(self) -> None:
        self._nested_turns = NestedTurnTracker()

    def encode(self, delivery: Delivery, *, strict: bool, with_usage: bool = False) -> bytes | None:
        """Return the line; None for an internal event, and for one that the strict profile hides."""
        # The tracker must see every boundary, also when the profile is not strict: `strict` may change in between.
        name = _FRAME_NAMES.get(type(delivery.event))
        if name is not None and self._nested_turns.is_nested_boundary(name) and strict:
            return None
        return encode_delivery(delivery, strict=strict, with_usage=with_usage)


def encode_delivery(delivery: Delivery, *, strict: bool = False, with_usage: bool = False) -> bytes | None:
    """Return the line for an event or request, with its line end; with the totals of tokens where they are wanted.

    Returns None for an internal event, and when the strict profile does not know the type.
    """
    event = delivery.event
    if isinstance(event, INTERNAL_TYPES):
        return None
    if strict and not _is_known(event):
        return None
    if isinstance(event, REQUEST_TYPES):
        if isinstance(event, ToolCallRequest) and event.arguments is None:
            event = ToolCallRequest(event.id, event.name, "{}")
        return frame_message(encode_request(b"request", event.id, encode_event(event)))
    envelope = delivery.envelope or encode_event(event)
    if with_usage and isinstance(event, StatusUpdate):
        envelope = add_usage(envelope, event.usage)
    return frame_message(encode_notification(b"event", envelope))


def _is_known(event: Event) -> bool:
    if isinstance(event, SubagentEvent):
        return _is_known(event.event)
    return EVENT_TYPES[type(event)] in STRICT_EVENT_NAMES and not isinstance(event, (QuestionRequest, HookRequest))
