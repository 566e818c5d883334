"""StrReplaceFile: replace exact pieces of a text file, nothing else of it changes (tools spec 3.5)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Annotated

from anyio import to_thread
from pydantic import BaseModel, Field

from kimi.application.ports import FileStat, PreparedCall, ToolCallContext, Workspace
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.infrastructure.tools.files.file_change import (
    EDIT_BYTES,
    Admitted,
    Change,
    FileChanges,
    PlanFile,
    effect_of,
    guarded,
    shown_change,
    too_large,
    whole_texts,
)
from kimi.infrastructure.tools.files.path_policy import (
    FileRecord,
    PathPolicy,
    missing_file,
    not_a_file,
    reason,
    stale_file,
)
from kimi.infrastructure.tools.params import answered, parse_arguments, schema_of

_DESCRIPTION = f"""\
Replace text in an existing text file. Prefer it to WriteFile and to `sed` for changing part of a file; read the file
first.

- `path`: relative to the working directory, absolute, or starting with `~/`. A file outside the working directory
  needs an absolute path and its own approval.
- `edit`: one edit or a list of edits, applied in order, each to the result of the one before. `old` must be the
  exact text of the file, indentation included, long enough to occur once; `new` takes its place. Without
  `replace_all` only the first occurrence is replaced.

Every edit must match, otherwise nothing is written. The file must be UTF-8 and at most {EDIT_BYTES} bytes; its line
endings are kept. The call fails when the file changed since you read it."""

_BREAK = r"(?:\r\n|(?<!\r)\n|\r(?!\n))"


class Edit(BaseModel):
    """One replacement."""

    old: Annotated[str, Field(description="The exact text to replace; may span lines.")]
    new: Annotated[str, Field(description="The text that takes its place; may span lines.")]
    replace_all: Annotated[bool, Field(description="Replace every occurrence, not only the first.")] = False


class Params(BaseModel):
    """Arguments of StrReplaceFile."""

    path: Annotated[str, Field(description="The path of the file to edit.")]
    edit: Annotated[
        Edit | Annotated[list[Edit], Field(min_length=1)],
        Field(description="One edit, or a list of edits that are applied in order."),
    ]

    @property
    def edits(self) -> list[Edit]:
        """The edits, one or many."""
        return self.edit if isinstance(self.edit, list) else [self.edit]


@dataclass(frozen=True, slots=True)
class Edited:
    """The text after all edits; how many replacements were made; how often an `old` occurred that was not unique."""

    text: str
    replacements: int
    ambiguous: tuple[int, ...]


class StrReplaceFile:
    """The StrReplaceFile tool of one conversation.

    With `strict` the model must have read the file, and an `old` that occurs several times is refused.
    """

    def __init__(
        self,
        workspace: Workspace,
        policy: PathPolicy,
        record: FileRecord,
        plan_file: PlanFile,
        *,
        strict: bool,
    ) -> None:
        self._files = FileChanges(workspace, policy, record, plan_file)
        self._strict = strict

    @property
    def spec(self) -> ToolSpec:
        """Name, text and schema for the model."""
        return _spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall]:
        """The edits are made in memory and the file is locked; nothing is written yet."""
        params = parse_arguments(Params, arguments)
        if isinstance(params, ToolReturnValue):
            yield answered(params)
            return
        admitted = await self._files.admit(params.path, "edit")
        if isinstance(admitted, ToolReturnValue):
            yield answered(admitted)
            return
        async with self._files.record.hold(admitted.real):
            yield await self._ready(params, admitted)

    async def _ready(self, params: Params, admitted: Admitted) -> PreparedCall:
        try:
            planned = await self._plan(params, admitted)
        except (OSError, ValueError) as error:
            planned = _failed(error)
        if isinstance(planned, ToolReturnValue):
            return guarded(planned, admitted, "Edit")
        change, edited = planned

        async def run() -> ToolReturnValue:
            return await self._write(params, admitted, change, edited)

        return PreparedCall(run, effect_of(admitted, "Edit", change.display), change.texts)

    async def _plan(self, params: Params, admitted: Admitted) -> tuple[Change, Edited] | ToolReturnValue:
        stat = await self._files.workspace.stat(admitted.real)
        if stat is None:
            return _missing(admitted)
        if (unfit := self._unfit(stat, params.path)) is not None:
            return unfit
        try:
            old = await self._files.content(stat)
            text = old.decode("utf-8")
        except UnicodeDecodeError:
            message = f"`{params.path}` is not valid UTF-8 text; edit it with a command instead."
            return tool_error(message, "Unsupported encoding")
        edited = await to_thread.run_sync(apply_edits, text, params.edits, self._strict)
        if isinstance(edited, ToolReturnValue):
            return edited
        display = await shown_change(admitted, text, edited.text)
        new = edited.text.encode()
        return Change(new, stat, display, whole_texts(admitted, old, new)), edited

    def _unfit(self, stat: FileStat, given: str) -> ToolReturnValue | None:
        """Why the file cannot be edited as it is."""
        if stat.kind != "file":
            return not_a_file(given)
        if stat.size > EDIT_BYTES:
            return too_large(given, stat)
        if self._files.record.is_stale(stat):
            return stale_file()
        if self._strict and not self._files.record.knows(stat.real_path):
            return tool_error(f"`{given}` has not been read yet; read it before editing.", "File not read")
        return None

    async def _write(self, params: Params, admitted: Admitted, change: Change, edited: Edited) -> ToolReturnValue:
        try:
            written = await self._files.apply(admitted, change)
        except (OSError, ValueError) as error:
            return _failed(error)
        if isinstance(written, ToolReturnValue):
            return written
        message = (
            f"File successfully edited. Applied {len(params.edits)} edit(s) "
            f"with {edited.replacements} total replacement(s)."
        )
        for count in edited.ambiguous:
            message += f" Note: the old string occurs {count} times; only the first was replaced."
        return tool_ok(message=message, display=change.display)


def apply_edits(text: str, edits: Sequence[Edit], strict: bool) -> Edited | ToolReturnValue:
    """All edits, one after the other; the error result as soon as one does not fit.

    A line break in `old` matches whatever line break the text has there; those in `new` become the one that the
    text uses most. What no edit touches stays as it is, byte for byte.
    """
    line_break = _usual_break(text)
    replacements = 0
    ambiguous: list[int] = []
    for number, edit in enumerate(edits, 1):
        if (wrong := _senseless(edit, number, len(edits))) is not None:
            return wrong
        pattern = re.compile(_BREAK.join(re.escape(line) for line in _lines(edit.old)))
        found = sum(1 for _ in pattern.finditer(text))
        if not found:
            return _not_found(number, len(edits))
        if found > 1 and not edit.replace_all:
            if strict:
                return _several(number, len(edits), found)
            ambiguous.append(found)
        if len(text) + (found if edit.replace_all else 1) * (len(edit.new) - len(edit.old)) > EDIT_BYTES:
            return _wrong(f"the file would have more than {EDIT_BYTES} bytes.", number, len(edits), "File too large")
        text, made = pattern.subn(_replacement(edit.new, line_break), text, count=0 if edit.replace_all else 1)
        replacements += made
    return Edited(text, replacements, tuple(ambiguous))


@cache
def _spec() -> ToolSpec:
    return ToolSpec("StrReplaceFile", _DESCRIPTION, schema_of(Params), kind="edit", key_argument="path")


def _lines(text: str) -> list[str]:
    return re.split(_BREAK, text)


def _usual_break(text: str) -> str | None:
    """The line break that occurs most; None for a text without any."""
    pairs = text.count("\r\n")
    counts = {"\n": text.count("\n") - pairs, "\r\n": pairs, "\r": text.count("\r") - pairs}
    usual = max(counts, key=lambda kind: counts[kind])
    return usual if counts[usual] else None


def _replacement(new: str, line_break: str | None) -> Callable[[re.Match[str]], str]:
    text = new if line_break is None else line_break.join(_lines(new))
    return lambda _: text


def _senseless(edit: Edit, number: int, count: int) -> ToolReturnValue | None:
    if not edit.old:
        return _wrong("the old string must not be empty.", number, count, "Invalid edit")
    if edit.old == edit.new:
        return _wrong("the old and the new string are the same.", number, count, "Invalid edit")
    return None


def _not_found(number: int, count: int) -> ToolReturnValue:
    if count == 1:
        message = "No replacements were made. The old string was not found in the file."
        return tool_error(message, "No replacements made")
    return _wrong("the old string was not found in the file.", number, count, "No replacements made")


def _several(number: int, count: int, found: int) -> ToolReturnValue:
    text = f"the old string occurs {found} times; add lines around it to make it unique, or set replace_all."
    return _wrong(text, number, count, "Several matches")


def _wrong(text: str, number: int, count: int, brief: str) -> ToolReturnValue:
    return tool_error(f"Edit {number} of {count}: {text}", brief)


def _missing(admitted: Admitted) -> ToolReturnValue:
    if not admitted.planned:
        return missing_file(admitted.given)
    return tool_error(
        "The current plan file does not exist yet. Use WriteFile to create it before calling StrReplaceFile.",
        "Plan file not created",
    )


def _failed(error: Exception) -> ToolReturnValue:
    return tool_error(f"Failed to edit. Error: {reason(error)}", "Failed to edit file")
