"""A conversation as Markdown: what people keep, and what another conversation can take as reference."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kimi.domain.content.message import Message, ToolCall, message_text
from kimi.domain.content.parts import ContentPart, TextPart, ThinkPart

_OURS = re.compile(r"\s*<(?:system-reminder>|system>CHECKPOINT \d+</system>)")


def as_markdown(messages: Sequence[Message], facts: Sequence[tuple[str, str]]) -> str:
    """The conversation with a heading for each message; `facts` come first, as front matter.

    Thinking, reminders and marks of checkpoints are left out; media are mentioned.
    """
    head = "\n".join(["---", *(f"{name}: {value}" for name, value in facts), "---"])
    blocks = [_block(message) for message in messages if not _is_remark(message)]
    return "\n\n".join([head, "# Conversation", *blocks]) + "\n"


def _is_remark(message: Message) -> bool:
    """Is this a message of the program, not of the person?"""
    return message.role == "user" and _OURS.match(message_text(message)) is not None


def _block(message: Message) -> str:
    if message.role == "tool":
        return f"### Result of {message.tool_call_id}\n\n{_fenced(_text(message.content))}"
    pieces = [f"## {message.role.capitalize()}"]
    if text := _text(message.content):
        pieces.append(text)
    pieces += [_called(call) for call in message.tool_calls]
    return "\n\n".join(pieces)


def _called(call: ToolCall) -> str:
    return f"### Call of {call.function.name} ({call.id})\n\n{_fenced(call.function.arguments or '', 'json')}"


def _text(parts: Sequence[ContentPart]) -> str:
    return "\n\n".join(text for part in parts if (text := _shown(part)))


def _shown(part: ContentPart) -> str:
    if isinstance(part, TextPart):
        return part.text
    return "" if isinstance(part, ThinkPart) else f"[{part.type.removesuffix('_url')}]"


def _fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any that the text holds."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
