"""Events to lines of the wire, pure (wire spec 4.1, 2.4)."""

from __future__ import annotations

from kimi.application.channel import Delivery
from kimi.application.envelope import encode_event
from kimi.domain.event import (
    EVENT_TYPES,
    REQUEST_TYPES,
    Event,
    SubagentEvent,
)
from kimi.domain.request import HookRequest, QuestionRequest, ToolCallRequest
from kimi.interfaces.jsonrpc import notification_line, one_line, request_line

STRICT_NAMES = frozenset(
    {
        "TurnBegin", "TurnEnd", "StepBegin", "StepInterrupted", "CompactionBegin", "CompactionEnd",
        "StatusUpdate", "ContentPart", "ToolCall", "ToolCallPart", "ToolResult", "SubagentEvent",
        "ApprovalResponse", "ApprovalRequest", "ToolCallRequest",
    }
)  # fmt: skip
"""What a reader of the strict profile knows; it stops for ever at anything else."""


def line_for(delivery: Delivery, *, strict: bool = False) -> bytes | None:
    """The line for an event or request, line end included; None when the strict profile hides it."""
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
