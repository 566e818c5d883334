"""The text output of print mode: the streamed answer and a line for each tool call (runtime spec 1.7, R-36)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from kimi.domain.content.message import ToolCall, ToolCallPart
from kimi.domain.content.parts import TextPart, UserInput, join_text
from kimi.domain.events.event import (
    Event,
    Notification,
    PlanDisplay,
    StepBegin,
    StepRetry,
    SubagentEvent,
    ToolResult,
)
from kimi.domain.tools.tool import BriefBlock, ToolReturnValue
from kimi.interfaces.print.failure import RunFailure
from kimi.interfaces.print.output import encode_text, encode_text_failure
from kimi.interfaces.process.terminal_escape import escape_line, escape_text

_ARGUMENT_CHARS: Final = 80

KeyArgument = Callable[[str], "str | None"]
"""Returns, for the name of a tool, the argument that distinguishes its calls."""


@dataclass(slots=True)
class _PendingCalls:
    """The calls of one agent without a result yet, by id: the name, then the pieces of the arguments."""

    pending: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    latest: list[str] = field(default_factory=list[str])


class TextOutput:
    """Readable text. With `stdout_is_terminal` control characters are neutralized.

    Otherwise the text of user and model is written as it is; lines about tools are always neutralized.
    """

    def __init__(self, key_argument: KeyArgument, *, stdout_is_terminal: bool) -> None:
        self._key_argument = key_argument
        self._escape: Callable[[str], str] = escape_text if stdout_is_terminal else str
        self._calls: dict[str | None, _PendingCalls] = {}
        self._at_line_start = True

    def render_prompt(self, user_input: UserInput) -> bytes:
        """Return the prompt literally and an empty line."""
        return self._render_line(self._escape(join_text(user_input, "\n"))) + b"\n"

    def render_event(self, event: Event) -> bytes:
        """Return the text for an event."""
        match event:
            case TextPart(text):
                return self._render_piece(self._escape(text))
            case StepBegin():
                return self._end_line()
            case StepRetry():
                return self._render_line("(the answer broke off; asking again)") if not self._at_line_start else b""
            case PlanDisplay(content):
                return self._render_line(self._escape(content))
            case Notification():
                return self._render_line(f"* {escape_line(event.title)}")
            case _:
                return self._render_tool_event(event, None, "")

    def render_end(self) -> bytes:
        """Return the end of an open line."""
        return self._end_line()

    def render_failure(self, failure: RunFailure) -> bytes:
        """Return the failure on its own line."""
        return self._end_line() + encode_text_failure(failure)

    def render_session(self, session_id: str) -> bytes:
        """Return nothing: stderr names the session."""
        return b""

    def _render_tool_event(self, event: Event, agent: str | None, indent: str) -> bytes:
        """Return the line of a call when its result arrives; lines of subagents are indented."""
        calls = self._calls.setdefault(agent, _PendingCalls())
        match event:
            case ToolCall(id=call_id, function=function):
                calls.latest = calls.pending[call_id] = [function.name, function.arguments or ""]
            case ToolCallPart(piece):
                calls.latest.append(piece or "")
            case ToolResult(call_id, value):
                return self._render_line(indent + self._format_call(calls.pending.pop(call_id, ["a call"]), value))
            case SubagentEvent(agent_id=inner, event=told):
                return self._render_tool_event(told, inner, f"{indent}  ")
            case _:
                pass
        return b""

    def _format_call(self, call: list[str], value: ToolReturnValue) -> str:
        name, *pieces = call
        key = self._key_argument(name)
        title = escape_line(name) + (f": {argument}" if (argument := _extract_argument("".join(pieces), key)) else "")
        return f"* {title} ({_format_error_brief(value)})" if value.is_error else f"* {title}"

    def _render_piece(self, text: str) -> bytes:
        if text:
            self._at_line_start = text.endswith("\n")
        return encode_text(text)

    def _render_line(self, text: str) -> bytes:
        start = self._end_line()
        return start + encode_text(text if text.endswith("\n") else f"{text}\n")

    def _end_line(self) -> bytes:
        ended, self._at_line_start = self._at_line_start, True
        return b"" if ended else b"\n"


def _extract_argument(arguments: str, key: str | None) -> str:
    """Return the value of the argument `key` on one line; empty when the arguments are not an object."""
    if key is None:
        return ""
    try:
        value: Any = json.loads(arguments)
    except (ValueError, RecursionError):
        return ""
    found = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    return "" if found is None else escape_line(str(found), _ARGUMENT_CHARS)


def _format_error_brief(value: ToolReturnValue) -> str:
    """Return in a few words why a call failed."""
    brief = next((block.text for block in value.display if isinstance(block, BriefBlock)), value.message)
    return escape_line(brief) or "failed"
