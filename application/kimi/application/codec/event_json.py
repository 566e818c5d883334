"""Recorded envelopes to events, whoever wrote them (wire spec 2.5, 8.3).

Old names and missing optional members are understood; what cannot be understood gives None and is left out.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kimi.application.codec.payloads import (
    decode_content_part,
    decode_display,
    decode_tool_call,
    decode_tool_return_value,
    decode_user_input,
    json_object,
    member,
    optional_text,
)
from kimi.domain.content.message import JsonObject
from kimi.domain.events.event import EVENT_TYPES, Event, SteerInput, SubagentEvent, ToolResult, TurnBegin
from kimi.domain.events.request import ApprovalRequest

_OLD_NAMES = {"ApprovalRequestResolved": "ApprovalResponse"}
_CLASSES: dict[str, type] = {name: cls for cls, name in EVENT_TYPES.items() if name != "ContentPart"}


def decode_event(envelope: JsonObject) -> Event | None:
    """The event in `{"type", "payload"}`; None for an unknown type or a payload of another shape."""
    name = envelope.get("type")
    if not isinstance(name, str):
        return None
    try:
        return _decoded(_OLD_NAMES.get(name, name), json_object(envelope.get("payload"), "`payload`"))
    except (ValueError, ValidationError):
        return None


def _decoded(name: str, payload: JsonObject) -> Event | None:
    match name:
        case "ContentPart":
            return decode_content_part(payload)
        case "TurnBegin":
            return TurnBegin(decode_user_input(payload.get("user_input")))
        case "SteerInput":
            return SteerInput(decode_user_input(payload.get("user_input")))
        case "ToolCall":
            return decode_tool_call(payload)
        case "ToolResult":
            return ToolResult(
                member(payload, "tool_call_id", str), decode_tool_return_value(payload.get("return_value"))
            )
        case "SubagentEvent":
            return _subagent_event(payload)
        case "ApprovalRequest":
            plain: ApprovalRequest = _adapter(ApprovalRequest).validate_python({**payload, "display": ()})
            return replace(plain, display=decode_display(payload))
        case _:
            kind = _CLASSES.get(name)
            return None if kind is None else _adapter(kind).validate_python(payload)


def _subagent_event(payload: JsonObject) -> Event | None:
    inner = decode_event(json_object(payload.get("event"), "`event`"))
    if inner is None:
        return None
    parent = optional_text(payload, "parent_tool_call_id" if "parent_tool_call_id" in payload else "task_tool_call_id")
    return SubagentEvent(parent, optional_text(payload, "agent_id"), optional_text(payload, "subagent_type"), inner)


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
