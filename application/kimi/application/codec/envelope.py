"""Events as JSON: the `{"type", "payload"}` envelope of the wire and of the event log (wire spec 4.1, 8.1).

The client, the log and a later replay share one serialisation. Field order and nulls come from the domain dataclasses;
where the wire's shape differs from them, this module says so.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import PydanticSerializationError, from_json, to_json

from kimi.domain.content.message import ToolCallPart
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import EVENT_TYPES, Event, StatusUpdate, SubagentEvent

if TYPE_CHECKING:
    from kimi.domain.turn import UsageFigures, UsageTotal

_ENVELOPE_PREFIXES: dict[type, bytes] = {
    cls: b'{"type":"' + name.encode() + b'","payload":' for cls, name in EVENT_TYPES.items()
}
_DRIVERS_MEMBERS = {"usage"}
"""The members of StatusUpdate that only drivers read."""
_TEXT_PREFIX = _ENVELOPE_PREFIXES[TextPart] + b'{"type":"text","text":'
_ARGUMENTS_PREFIX = _ENVELOPE_PREFIXES[ToolCallPart] + b'{"arguments_part":'


def encode_event(event: Event) -> bytes:
    """Encode the envelope of `event`, without a line end.

    Never raises: lone surrogates become U+FFFD (wire spec 1.1).
    """
    try:
        if type(event) is TextPart:  # the two kinds that stream by the thousand
            return _TEXT_PREFIX + to_json(event.text) + b"}}"
        if type(event) is ToolCallPart:
            return _ARGUMENTS_PREFIX + to_json(event.arguments_part) + b"}}"
        return _ENVELOPE_PREFIXES[type(event)] + _encode_payload(event) + b"}"
    except PydanticSerializationError:
        plain = replace_surrogates(event)
        kept = {key: value for key, value in plain.items() if type(event) is not StatusUpdate or key != "usage"}
        return _ENVELOPE_PREFIXES[type(event)] + to_json(kept, inf_nan_mode="null") + b"}"


def encode_json(value: object) -> bytes:
    """Encode a JSON-like value or a dataclass as compact JSON.

    Never raises on a string. A number that JSON cannot express (an overflow like `1e999`) becomes null.
    """
    try:
        return to_json(value, inf_nan_mode="null")
    except PydanticSerializationError:
        return to_json(replace_surrogates(value), inf_nan_mode="null")


def add_usage(envelope: bytes, usage: UsageFigures | None) -> bytes:
    """Return the envelope of a StatusUpdate with `usage` as its last member."""
    figures = None if usage is None else shape_usage(usage)
    return envelope[:-2] + b',"usage":' + to_json(figures) + b"}}"


def shape_usage(usage: UsageFigures) -> dict[str, object]:
    """Return the totals of the turn and of the session as clients read them."""
    return {"turn": shape_total(usage.turn), "session": shape_total(usage.session)}


def shape_total(total: UsageTotal) -> dict[str, object]:
    """Return a total as clients read it: the four counts of tokens and the cost, null where it is not known."""
    cost = None if total.cost is None else {"amount": round(total.cost.amount, 8), "currency": total.cost.currency}
    tokens = total.tokens
    return {
        "input_other": tokens.input_other,
        "output": tokens.output,
        "input_cache_read": tokens.input_cache_read,
        "input_cache_creation": tokens.input_cache_creation,
        "cost": cost,
    }


def encode_spaced_json(value: object) -> bytes:
    """Encode as `encode_json`, with a blank after each comma and colon: scripts search such lines for text."""
    return json.dumps(from_json(encode_json(value)), ensure_ascii=False).encode()


def _encode_payload(event: Event) -> bytes:
    if type(event) is StatusUpdate:
        return to_json(event, exclude=_DRIVERS_MEMBERS, inf_nan_mode="null")
    if not isinstance(event, SubagentEvent):
        return to_json(event, inf_nan_mode="null")
    # Both parent keys are written, whatever version the client speaks (wire spec 2.5); the inner event has its own
    # envelope.
    parent = to_json(event.parent_tool_call_id)
    return b"".join(
        (
            b'{"parent_tool_call_id":', parent,
            b',"task_tool_call_id":', parent,
            b',"agent_id":', to_json(event.agent_id),
            b',"subagent_type":', to_json(event.subagent_type),
            b',"event":', encode_event(event.event),
            b"}",
        )
    )  # fmt: skip


def replace_surrogates(value: object) -> Any:
    """Return `value` as plain JSON data in which U+FFFD replaces every lone surrogate."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value)
        return {str(replace_surrogates(str(key))): replace_surrogates(item) for key, item in pairs.items()}
    if isinstance(value, (list, tuple)):
        return [replace_surrogates(item) for item in cast("list[object]", value)]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: replace_surrogates(getattr(value, field.name)) for field in fields(value)}
    return value
