"""A conversation as Markdown, for users to keep and for other conversations to refer to."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kimi.domain.content.message import Message, ToolCall, message_text
from kimi.domain.content.parts import ContentPart, TextPart, ThinkPart

_PROGRAM_MESSAGE = re.compile(r"\s*<(?:system-reminder>|system>CHECKPOINT \d+</system>)")


def render_transcript(messages: Sequence[Message], front_matter: Sequence[tuple[str, str]]) -> str:
    """Render the conversation with a heading for each message; `front_matter` comes first.

    Thinking, reminders and checkpoint names are left out; media are mentioned.
    """
    head = "\n".join(["---", *(f"{name}: {value}" for name, value in front_matter), "---"])
    blocks = [_render_message(message) for message in messages if not _is_program_message(message)]
    return "\n\n".join([head, "# Conversation", *blocks]) + "\n"


def _is_program_message(message: Message) -> bool:
    """Return whether the message comes from this program, not from the user."""
    return message.role == "user" and _PROGRAM_MESSAGE.match(message_text(message)) is not None


def _render_message(message: Message) -> str:
    if message.role == "tool":
        return f"### Result of {message.tool_call_id}\n\n{_fence_text(_join_parts(message.content))}"
    pieces = [f"## {message.role.capitalize()}"]
    if text := _join_parts(message.content):
        pieces.append(text)
    pieces += [_render_call(call) for call in message.tool_calls]
    return "\n\n".join(pieces)


def _render_call(call: ToolCall) -> str:
    return f"### Call of {call.function.name} ({call.id})\n\n{_fence_text(call.function.arguments or '', 'json')}"


def _join_parts(parts: Sequence[ContentPart]) -> str:
    return "\n\n".join(text for part in parts if (text := _render_part(part)))


def _render_part(part: ContentPart) -> str:
    if isinstance(part, TextPart):
        return part.text
    return "" if isinstance(part, ThinkPart) else f"[{part.type.removesuffix('_url')}]"


def _fence_text(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any in the text."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
