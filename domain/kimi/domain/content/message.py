"""Messages: the entries of a conversation's history (runtime spec 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from kimi.domain.content.parts import ContentPart, TextPart, estimate_parts, estimate_tokens

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]

JsonObject: TypeAlias = Mapping[str, Any]
"""A parsed JSON object. `Any` because this is the JSON edge: its values are checked where they are used."""


@dataclass(frozen=True, slots=True)
class Function:
    """The name of the called tool, and its arguments as JSON text. While they stream, the text is None or a prefix."""

    name: str
    arguments: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for. `extras` is data of the provider that must be sent back with it."""

    type: Literal["function"] = field(default="function", kw_only=True)
    id: str
    function: Function
    extras: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """The next piece of the arguments of the latest tool call."""

    arguments_part: str | None


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `tool_calls` is set only with role assistant, `tool_call_id` only with role tool."""

    role: Role
    content: tuple[ContentPart, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    partial: bool | None = None


def user_message(text: str) -> Message:
    """Build a user message of one text part."""
    return Message("user", (TextPart(text),))


def message_text(message: Message, separator: str = "") -> str:
    """Join the text parts of a message."""
    return separator.join(part.text for part in message.content if isinstance(part, TextPart))


def estimate_message(message: Message, *, per_medium: int = 0) -> int:
    """Estimate the tokens of a message, the arguments of its tool calls included."""
    calls = sum(
        estimate_tokens(call.function.name) + estimate_tokens(call.function.arguments or "")
        for call in message.tool_calls
    )
    return estimate_parts(message.content, per_medium=per_medium) + calls
