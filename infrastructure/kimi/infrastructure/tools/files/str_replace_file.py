"""StrReplaceFile: replaces exact pieces of a text file and leaves the rest unchanged (tools spec 3.5)."""

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
from kimi.infrastructure.tools.files.file_editing import (
    MAX_EDIT_BYTES,
    AdmittedFile,
    DecodedFile,
    FileEditor,
    GetActivePlanFile,
    PreparedChange,
    build_changed_text,
    build_display_blocks,
    decode_file,
    encode_change,
    prepare_failing_call,
    propose_change,
    select_result_display,
    show_text,
    too_large_error,
    unknown_encoding_error,
)
from kimi.infrastructure.tools.files.path_policy import (
    FileRecord,
    PathPolicy,
    describe_error,
    missing_file_error,
    not_a_file_error,
    stale_file_error,
)
from kimi.infrastructure.tools.params import build_schema, parse_arguments, prepare_finished_call

_DESCRIPTION = f"""\
Replace text in an existing text file. Prefer it to WriteFile and to `sed` for changing part of a file; read the file
first.

- `path`: relative to the working directory, absolute, or starting with `~/`. A file outside the working directory
  needs an absolute path and its own approval.
- `edit`: one edit or a list of edits, applied in order, each to the result of the one before. `old` must be the
  exact text of the file, indentation included, long enough to occur once; `new` takes its place. Without
  `replace_all` only the first occurrence is replaced.

Every edit must match, otherwise nothing is written. The file must be text and at most {MAX_EDIT_BYTES} bytes; its
encoding and line endings are kept. The call fails when the file changed since you read it."""

_LINE_BREAK_PATTERN = r"(?:\r\n|(?<!\r)\n|\r(?!\n))"


class Edit(BaseModel):
    """One replacement."""

    old: Annotated[str, Field(description="The exact text to replace; may span lines.")]
    new: Annotated[str, Field(description="The text that takes its place; may span lines.")]
    replace_all: Annotated[bool, Field(description="Replace every occurrence, not only the first.")] = False


class StrReplaceFileParams(BaseModel):
    """Arguments of StrReplaceFile."""

    path: Annotated[str, Field(description="The path of the file to edit.")]
    edit: Annotated[
        Edit | Annotated[list[Edit], Field(min_length=1)],
        Field(description="One edit, or a list of edits that are applied in order."),
    ]

    @property
    def edits(self) -> list[Edit]:
        """The edits, one or many, as a list."""
        return self.edit if isinstance(self.edit, list) else [self.edit]


@dataclass(frozen=True, slots=True)
class EditedText:
    """The text after all edits, the number of replacements, and the occurrences of each ambiguous `old`."""

    text: str
    replacements: int
    ambiguous_counts: tuple[int, ...]


class StrReplaceFileTool:
    """The StrReplaceFile tool of one conversation.

    With `strict` the model must have read the file, and an `old` that occurs several times is refused.
    """

    def __init__(
        self,
        workspace: Workspace,
        policy: PathPolicy,
        record: FileRecord,
        plan_file: GetActivePlanFile,
        *,
        strict: bool,
    ) -> None:
        self._editor = FileEditor(workspace, policy, record, plan_file)
        self._strict = strict

    @property
    def spec(self) -> ToolSpec:
        """The name, description and schema for the model."""
        return _spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall]:
        """See `Tool`. The edits are made in memory and the file is locked; nothing is written yet."""
        params = parse_arguments(StrReplaceFileParams, arguments)
        if isinstance(params, ToolReturnValue):
            yield prepare_finished_call(params)
            return
        admitted = await self._editor.admit(params.path, "edit")
        if isinstance(admitted, ToolReturnValue):
            yield prepare_finished_call(admitted)
            return
        # Held from the diff to the write: the user approves exactly the change that is written.
        async with self._editor.record.lock_file(admitted.real_path):
            yield await self._prepare_edit(params, admitted)

    async def _prepare_edit(self, params: StrReplaceFileParams, admitted: AdmittedFile) -> PreparedCall:
        try:
            outcome = await self._build_change(params, admitted)
        except (OSError, ValueError) as error:
            outcome = _edit_failed_error(error)
        if isinstance(outcome, ToolReturnValue):
            return prepare_failing_call(outcome, admitted, "Edit", [edit.new for edit in params.edits])
        change, edited = outcome

        async def run() -> ToolReturnValue:
            return await self._apply_change(params, admitted, change, edited)

        return PreparedCall(run, propose_change(admitted, "Edit", change.display), change.changed_text)

    async def _build_change(
        self, params: StrReplaceFileParams, admitted: AdmittedFile
    ) -> tuple[PreparedChange, EditedText] | ToolReturnValue:
        stat = await self._editor.workspace.stat(admitted.real_path)
        if stat is None:
            return _missing_target_error(admitted)
        if (error := self._check_editable(stat, params.path)) is not None:
            return error
        content = await self._editor.read_content(stat)
        old = await decode_file(content)
        if not old.is_text:
            return unknown_encoding_error(params.path)
        edited = await to_thread.run_sync(apply_edits, old.text, params.edits, self._strict)
        if isinstance(edited, ToolReturnValue):
            return edited
        new_texts = [edit.new for edit in params.edits]
        new = await self._encode_edited(params, content, old, edited.text)
        if isinstance(new, ToolReturnValue):
            return new
        display = await build_display_blocks(admitted, show_text(old.text), show_text(edited.text), new_texts)
        changed = build_changed_text(admitted, old, edited.text, max(len(content), len(new)))
        return PreparedChange(new, stat, display, changed, old.encoding), edited

    async def _encode_edited(
        self, params: StrReplaceFileParams, content: bytes, old: DecodedFile, edited: str
    ) -> bytes | ToolReturnValue:
        """Return the bytes of the edited text; the error result if they are not certain."""

        def edit(text: str) -> str | None:
            found = apply_edits(text, params.edits, self._strict)
            return None if isinstance(found, ToolReturnValue) else found.text

        return await to_thread.run_sync(
            encode_change, params.path, content, old, edited, [edit.new for edit in params.edits], edit
        )

    def _check_editable(self, stat: FileStat, given_path: str) -> ToolReturnValue | None:
        """Return why the file cannot be edited now, or None."""
        if stat.kind != "file":
            return not_a_file_error(given_path)
        if stat.size > MAX_EDIT_BYTES:
            return too_large_error(given_path, stat)
        if self._editor.record.is_stale(stat):
            return stale_file_error()
        if self._strict and not self._editor.record.has_seen(stat.real_path):
            return tool_error(f"`{given_path}` has not been read yet; read it before editing.", "File not read")
        return None

    async def _apply_change(
        self, params: StrReplaceFileParams, admitted: AdmittedFile, change: PreparedChange, edited: EditedText
    ) -> ToolReturnValue:
        try:
            written = await self._editor.apply(admitted, change)
        except (OSError, ValueError) as error:
            return _edit_failed_error(error)
        if isinstance(written, ToolReturnValue):
            return written
        message = (
            f"File successfully edited. Applied {len(params.edits)} edit(s) "
            f"with {edited.replacements} total replacement(s)."
        )
        for count in edited.ambiguous_counts:
            message += f" Note: the old string occurs {count} times; only the first was replaced."
        if change.encoding is not None:
            message += f" Encoding kept: {change.encoding.title}."
        return tool_ok(message=message, display=select_result_display(admitted, change.display))


def apply_edits(text: str, edits: Sequence[Edit], strict: bool) -> EditedText | ToolReturnValue:
    """Apply all edits, one after the other; return the error result as soon as one does not match.

    A line break in `old` matches any line break of the text; those in `new` become the one that the text uses most. The
    rest of the text stays unchanged, byte for byte.
    """
    line_break = _most_common_line_break(text)
    replacements = 0
    ambiguous: list[int] = []
    for number, edit in enumerate(edits, 1):
        if (error := _check_edit(edit, number, len(edits))) is not None:
            return error
        pattern = re.compile(_LINE_BREAK_PATTERN.join(re.escape(line) for line in _split_lines(edit.old)))
        occurrences = sum(1 for _ in pattern.finditer(text))
        if not occurrences:
            return _not_found_error(number, len(edits))
        if occurrences > 1 and not edit.replace_all:
            if strict:
                return _ambiguous_match_error(number, len(edits), occurrences)
            ambiguous.append(occurrences)
        if len(text) + (occurrences if edit.replace_all else 1) * (len(edit.new) - len(edit.old)) > MAX_EDIT_BYTES:
            return _edit_error(
                f"the file would have more than {MAX_EDIT_BYTES} bytes.", number, len(edits), "File too large"
            )
        text, replaced = pattern.subn(
            _build_replacement(edit.new, line_break), text, count=0 if edit.replace_all else 1
        )
        replacements += replaced
    return EditedText(text, replacements, tuple(ambiguous))


@cache
def _spec() -> ToolSpec:
    return ToolSpec(
        "StrReplaceFile",
        _DESCRIPTION,
        build_schema(StrReplaceFileParams),
        kind="edit",
        key_argument="path",
        path_argument="path",
    )


def _split_lines(text: str) -> list[str]:
    return re.split(_LINE_BREAK_PATTERN, text)


def _most_common_line_break(text: str) -> str | None:
    """Return the line break that occurs most; None for a text without any."""
    pairs = text.count("\r\n")
    counts = {"\n": text.count("\n") - pairs, "\r\n": pairs, "\r": text.count("\r") - pairs}
    usual = max(counts, key=lambda kind: counts[kind])
    return usual if counts[usual] else None


def _build_replacement(new: str, line_break: str | None) -> Callable[[re.Match[str]], str]:
    text = new if line_break is None else line_break.join(_split_lines(new))
    return lambda _: text


def _check_edit(edit: Edit, number: int, count: int) -> ToolReturnValue | None:
    if not edit.old:
        return _edit_error("the old string must not be empty.", number, count, "Invalid edit")
    if edit.old == edit.new:
        return _edit_error("the old and the new string are the same.", number, count, "Invalid edit")
    return None


def _not_found_error(number: int, count: int) -> ToolReturnValue:
    if count == 1:
        message = "No replacements were made. The old string was not found in the file."
        return tool_error(message, "No replacements made")
    return _edit_error("the old string was not found in the file.", number, count, "No replacements made")


def _ambiguous_match_error(number: int, count: int, occurrences: int) -> ToolReturnValue:
    text = f"the old string occurs {occurrences} times; add lines around it to make it unique, or set replace_all."
    return _edit_error(text, number, count, "Several matches")


def _edit_error(text: str, number: int, count: int, brief: str) -> ToolReturnValue:
    return tool_error(f"Edit {number} of {count}: {text}", brief)


def _missing_target_error(admitted: AdmittedFile) -> ToolReturnValue:
    if not admitted.is_plan_file:
        return missing_file_error(admitted.given_path)
    return tool_error(
        "The current plan file does not exist yet. Use WriteFile to create it before calling StrReplaceFile.",
        "Plan file not created",
    )


def _edit_failed_error(error: Exception) -> ToolReturnValue:
    return tool_error(f"Failed to edit. Error: {describe_error(error)}", "Failed to edit file")
