"""Decode recorded envelopes of any version to events (wire spec 2.5, 8.3).

Old names and missing optional members are accepted; an event that cannot be decoded becomes None and is left out.
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
    read_member,
    read_optional_text,
    require_object,
)
from kimi.domain.content.message import JsonObject
from kimi.domain.events.event import EVENT_TYPES, Event, SteerInput, SubagentEvent, ToolResult, TurnBegin
from kimi.domain.events.request import ApprovalRequest

_CURRENT_NAME_BY_OLD = {"ApprovalRequestResolved": "ApprovalResponse"}
_CLASS_BY_NAME: dict[str, type] = {name: cls for cls, name in EVENT_TYPES.items() if name != "ContentPart"}


def decode_event(envelope: JsonObject) -> Event | None:
    """Decode the event in `{"type", "payload"}`; None for an unknown type or a payload of another shape."""
    name = envelope.get("type")
    if not isinstance(name, str):
        return None
    try:
        return _decode_payload(
            _CURRENT_NAME_BY_OLD.get(name, name), require_object(envelope.get("payload"), "`payload`")
        )
    except (ValueError, ValidationError):
        return None


def _decode_payload(name: str, payload: JsonObject) -> Event | None:
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
                read_member(payload, "tool_call_id", str), decode_tool_return_value(payload.get("return_value"))
            )
        case "SubagentEvent":
            return _decode_subagent_event(payload)
        case "ApprovalRequest":
            plain: ApprovalRequest = _type_adapter(ApprovalRequest).validate_python({**payload, "display": ()})
            return replace(plain, display=decode_display(payload))
        case _:
            kind = _CLASS_BY_NAME.get(name)
            return None if kind is None else _type_adapter(kind).validator.validate_python(payload)


def _decode_subagent_event(payload: JsonObject) -> Event | None:
    inner = decode_event(require_object(payload.get("event"), "`event`"))
    if inner is None:
        return None
    parent = read_optional_text(
        payload, "parent_tool_call_id" if "parent_tool_call_id" in payload else "task_tool_call_id"
    )
    return SubagentEvent(
        parent, read_optional_text(payload, "agent_id"), read_optional_text(payload, "subagent_type"), inner
    )


@cache
def _type_adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
