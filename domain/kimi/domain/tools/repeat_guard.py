"""The repeat guard warns a model that makes the same call step after step, then stops it (tools spec 1.7)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from kimi.domain.content.message import ToolCall
from kimi.domain.content.parts import TextPart
from kimi.domain.tools.tool import ToolReturnValue, escape_host_tags

NOTICE_AT, WARN_AT, ORDER_AT, STOP_AT = 3, 5, 8, 12


class RepeatGuard:
    """Counts how many steps in a row made the same call: the same tool and arguments, whatever their key order."""

    __slots__ = ("_streaks",)

    def __init__(self) -> None:
        self._streaks: dict[tuple[str, str], int] = {}

    def count_streaks(self, calls: Sequence[ToolCall]) -> list[int]:
        """Take the calls of a step and return the streak of each. A call that a step left out starts anew."""
        keys = [(call.function.name, _canonicalise_arguments(call.function.arguments)) for call in calls]
        self._streaks = {key: self._streaks.get(key, 0) + 1 for key in keys}
        return [self._streaks[key] for key in keys]


def with_reminder(result: ToolReturnValue, call: ToolCall, streak: int) -> ToolReturnValue:
    """Return `result` with the reminder that belongs to `streak`, if any, at the end of its output."""
    reminder = _format_reminder(call, streak)
    if reminder is None:
        return result
    # It quotes the model, and with it perhaps what the model has read.
    block = f"<system-reminder>\n{escape_host_tags(reminder)}\n</system-reminder>"
    if isinstance(result.output, str):
        return replace(result, output=f"{result.output}\n\n{block}" if result.output else block)
    return replace(result, output=(*result.output, TextPart(block)))


def _format_reminder(call: ToolCall, streak: int) -> str | None:
    name = call.function.name
    if streak >= ORDER_AT:
        return f"{name} was called {streak} times in a row with the same arguments. Call no more tools: answer now."
    if streak >= WARN_AT:
        arguments = (call.function.arguments or "{}")[:500]
        return (
            f"{name} was called {streak} times in a row with the arguments {arguments}. "
            "The result will not change: do something else, or explain what is in the way."
        )
    if streak >= NOTICE_AT:
        return "This is the same call as in the steps before. Check whether it still brings the work forward."
    return None


def _canonicalise_arguments(arguments: str | None) -> str:
    try:
        return json.dumps(json.loads(arguments or "{}", strict=False), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments or ""
