"""Tools: what the model may call and what a call returns (tools spec 1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
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
    model still speaks and identical calls of one step may share a result. `exact_text` is True for a tool whose output
    the model must read as it is; in results of all others host tags are neutralised (tools spec 1.8).

    The rest says how calls look: `kind` is what they do, `key_argument` names the argument that titles a call, and
    `path_argument` the one that holds the path of what the call is about. `find_title` returns the title from the whole
    arguments where no single text among them says it.
    """

    name: str
    description: str
    parameters: JsonObject
    read_only: bool = False
    kind: ToolKind = "other"
    exact_text: bool = False
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


_FENCE_TAG = "file-text"
_ESCAPED_NOTE = "In this output `&lt;` stands for `<` where a tag has the name of one that this program uses."

HOST_TAGS = ("system-reminder", "system", "notification", "git-context", "imported_context", _FENCE_TAG)
"""The names of the tags that tell the model what comes from this program, and where a text from elsewhere ends."""

_PLAIN_TEXT = re.compile(r"[\t\n\r\x20-\x7e]*")
_IGNORED, _LIGATURE = "\0", "\1"


def _compile_name(name: str) -> str:
    """Return the pattern of a name in a folded text: ignored characters may stand between its letters."""
    words = (f"{_IGNORED}*".join(word) for word in re.split("[-_]", name))
    return rf"[-_\s{_IGNORED}]*".join(words).replace(f"s{_IGNORED}*t", f"(?:s{_IGNORED}*t|{_LIGATURE})")


_HOST_TAG = re.compile(
    rf"<[\s/{_IGNORED}]*(?:{'|'.join(map(_compile_name, HOST_TAGS))}(?:-[0-9a-f]*)?)(?![\w.:;,()\[])", re.IGNORECASE
)
"""The beginning of a host tag, as loosely as a model might read it, in a text that `fold_look_alikes` folded."""


def build_model_result(result: ToolReturnValue, fence_mark: str | None) -> ToolReturnValue:
    """Return the copy of a result that the model reads; nothing in it can imitate this program (tools spec 1.8).

    Host tags are escaped. With `fence_mark`, a word that nobody outside can know, the output stays exact and stands
    between two tags that carry it.
    """
    message = escape_host_tags(result.message)
    if fence_mark is not None and isinstance(result.output, str):
        return replace(result, output=_fence_text(result.output, fence_mark) if result.output else "", message=message)
    if isinstance(result.output, str):
        output: str | tuple[ContentPart, ...] = escape_host_tags(result.output)
    else:
        output = _escape_parts(result.output)
    if output != result.output:
        message = f"{message} {_ESCAPED_NOTE}".lstrip()
    return replace(result, output=output, message=message)


def escape_host_tags(text: str) -> str:
    """Return `text` with host tags escaped, so that nothing in it looks like a message of this program."""
    return _escape_at(text, _find_host_tags(text))


def _fence_text(text: str, mark: str) -> str:
    line_break = "" if text.endswith("\n") else "\n"
    return f"<{_FENCE_TAG}-{mark}>\n{text}{line_break}</{_FENCE_TAG}-{mark}>"


def _escape_parts(parts: tuple[ContentPart, ...]) -> tuple[ContentPart, ...]:
    """Escape the host tags of a content; one may be spread over several parts, which a provider may join."""
    found = _find_host_tags("".join(part.text for part in parts if isinstance(part, TextPart)))
    escaped: list[ContentPart] = []
    offset = 0
    for part in parts:
        if isinstance(part, TextPart):
            end = offset + len(part.text)
            inside = [at - offset for at in found if offset <= at < end]
            part, offset = (TextPart(_escape_at(part.text, inside)) if inside else part), end
        escaped.append(part)
    return tuple(escaped)


def _find_host_tags(text: str) -> list[int]:
    """Return where host tags begin, and what looks like one."""
    if not _PLAIN_TEXT.fullmatch(text):
        from kimi.domain.tools.look_alikes import fold_look_alikes  # most texts need no table

        text = fold_look_alikes(text)
    return [found.start() for found in _HOST_TAG.finditer(text)] if "<" in text else []


def _escape_at(text: str, positions: Sequence[int]) -> str:
    if not positions:
        return text
    ends = [*positions[1:], len(text)]
    pieces = (f"&lt;{text[start + 1 : end]}" for start, end in zip(positions, ends, strict=True))
    return text[: positions[0]] + "".join(pieces)
