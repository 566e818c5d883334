"""Tools: what the model may call and what a call returns (tools spec 1)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from kimi.domain.content.message import JsonObject, Message
from kimi.domain.content.parts import ContentPart, TextPart

ToolKind: TypeAlias = Literal["read", "edit", "search", "execute", "think", "fetch", "switch_mode", "other"]
TodoStatus: TypeAlias = Literal["pending", "in_progress", "done"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """The description of a tool for the model, and its properties for the agent.

    `parameters` is a JSON Schema of an object. A read-only tool changes nothing, so a call may start while the
    model still speaks and identical calls of one step may share a result. `trusted_text` is False for tools
    whose results come from third parties: host tags in them are neutralised for the model (tools spec 1.8).

    The rest says how calls look: `kind` is what they do, `key_argument` names the argument that titles a call, and
    `path_argument` the one that holds the path of what the call is about. `find_title` returns the title from the whole
    arguments where no single text among them says it.
    """

    name: str
    description: str
    parameters: JsonObject
    read_only: bool = False
    kind: ToolKind = "other"
    trusted_text: bool = True
    key_argument: str | None = None
    path_argument: str | None = None
    find_title: Callable[[JsonObject], str | None] | None = None


@dataclass(frozen=True, slots=True)
class BriefBlock:
    """One line for the user."""

    type: Literal["brief"] = field(default="brief", kw_only=True)
    text: str


@dataclass(frozen=True, slots=True)
class DiffBlock:
    """One hunk of a change; line numbers count from 1. A summary carries no file content."""

    type: Literal["diff"] = field(default="diff", kw_only=True)
    path: str
    old_text: str
    new_text: str
    old_start: int = 1
    new_start: int = 1
    is_summary: bool = False


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One entry of the todo list."""

    title: str
    status: TodoStatus = "pending"


@dataclass(frozen=True, slots=True)
class TodoBlock:
    """The whole todo list after a change."""

    type: Literal["todo"] = field(default="todo", kw_only=True)
    items: tuple[TodoItem, ...]


@dataclass(frozen=True, slots=True)
class ShellBlock:
    """A command that is to run."""

    type: Literal["shell"] = field(default="shell", kw_only=True)
    language: str
    command: str


@dataclass(frozen=True, slots=True)
class BackgroundTaskBlock:
    """A background task and its state."""

    type: Literal["background_task"] = field(default="background_task", kw_only=True)
    task_id: str
    kind: str
    status: str
    description: str


@dataclass(frozen=True, slots=True)
class UnknownBlock:
    """A display block of an unknown type, kept so that it survives a round trip."""

    type: str
    data: JsonObject


DisplayBlock: TypeAlias = BriefBlock | DiffBlock | TodoBlock | ShellBlock | BackgroundTaskBlock | UnknownBlock


@dataclass(frozen=True, slots=True)
class ToolReturnValue:
    """The result of a tool call.

    `output` and `message` are for the model, `display` for the user, `extras` for debugging only. The first `brief`
    block is the one-line summary. `message` is never empty in an error.
    """

    is_error: bool
    output: str | tuple[ContentPart, ...]
    message: str
    display: tuple[DisplayBlock, ...] = ()
    extras: JsonObject | None = None


def tool_ok(
    output: str | tuple[ContentPart, ...] = "",
    message: str = "",
    *,
    brief: str | None = None,
    display: tuple[DisplayBlock, ...] = (),
) -> ToolReturnValue:
    """Build a successful result; `brief` adds a one-line summary in front of `display`."""
    blocks = ((BriefBlock(brief),) if brief is not None else ()) + display
    return ToolReturnValue(False, output, message, blocks)


def tool_error(message: str, brief: str, *, output: str | tuple[ContentPart, ...] = "") -> ToolReturnValue:
    """Build a failed result that the model reads as `message` and the user as `brief`."""
    return ToolReturnValue(True, output, message, (BriefBlock(brief),))


CANCELLED = tool_error("Tool call cancelled.", "Cancelled")
INTERRUPTED = tool_error(
    "The tool call was interrupted before its result was known; it may or may not have taken effect.",
    "Interrupted",
)

_CRASH_NOTE = "This is an unexpected error and the tool is probably not working."


def tool_message(call_id: str, result: ToolReturnValue, *, has_crashed: bool = False) -> Message:
    """Build the history entry for a result (tools spec 1.4). `has_crashed` marks a tool that raised (T-12)."""
    output = result.output
    if isinstance(output, str):
        output = (TextPart(output),) if output else ()
    head: list[ContentPart] = []
    if result.is_error:
        note = f"\n{_CRASH_NOTE}" if has_crashed else ""
        head.append(TextPart(f"<system>ERROR: {result.message}{note}</system>"))
    elif result.message:
        head.append(TextPart(f"<system>{result.message}</system>"))
    elif not output:
        head.append(TextPart("<system>Tool output is empty.</system>"))
    elif not any(isinstance(part, TextPart) for part in output):
        head.append(TextPart("<system>Tool returned non-text content.</system>"))
    return Message("tool", (*head, *output), tool_call_id=call_id)


_HOST_TAG = re.compile(r"<(/?(?:system|system-reminder)\b)", re.IGNORECASE)


def neutralise_result(result: ToolReturnValue) -> ToolReturnValue:
    """Escape the host tags in a third party's result.

    The copy for the model cannot imitate messages of this program (tools spec 1.8).
    """
    if isinstance(result.output, str):
        output: str | tuple[ContentPart, ...] = escape_host_tags(result.output)
    else:
        output = tuple(
            TextPart(escape_host_tags(part.text)) if isinstance(part, TextPart) else part for part in result.output
        )
    return replace(result, output=output, message=escape_host_tags(result.message))


def escape_host_tags(text: str) -> str:
    """Return `text` with host tags escaped, so that nothing in it looks like a message of this program."""
    return _HOST_TAG.sub(r"&lt;\1", text)
