"""WriteFile: create, replace or extend a file (tools spec 3.4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from typing import Annotated, Literal

from anyio import to_thread
from pydantic import BaseModel, Field

from kimi.application.ports import FileStat, PreparedCall, ToolCallContext, Workspace
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.diff import build_new_text_blocks, build_summary_block, count_lines
from kimi.domain.tools.tool import DiffBlock, ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.infrastructure.tools.files.file_editing import (
    MAX_DIFF_BYTES,
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
    parent_directory,
    prepare_failing_call,
    propose_change,
    select_result_display,
    show_text,
    too_large_error,
    unknown_encoding_error,
)
from kimi.infrastructure.tools.files.path_policy import FileRecord, PathPolicy, describe_error, not_a_file_error
from kimi.infrastructure.tools.params import build_schema, parse_arguments, prepare_finished_call

_DESCRIPTION = f"""\
Write a whole file, or append to one. Use StrReplaceFile to change part of an existing file.

- `path`: relative to the working directory, absolute, or starting with `~/`. A file outside the working directory
  needs an absolute path and its own approval. Missing directories are created inside the working directory only.
- `content`: the text, written with exactly the line breaks given, in UTF-8 or in the encoding that the file has.
- `mode`: `overwrite` (default) replaces the file, `append` adds to its end and adds no line break of its own; files
  over {MAX_EDIT_BYTES} bytes cannot be appended to.

The user sees a diff before the file is written. Split very long content over several calls: the first overwrites, the
others append."""


_MARK = "\ufeff"
_LONG_REASON = "the file is too large to be compared"


class WriteFileParams(BaseModel):
    """Arguments of WriteFile."""

    path: Annotated[str, Field(description="The path of the file to write.")]
    content: Annotated[str, Field(description="The text to write.")]
    mode: Annotated[Literal["overwrite", "append"], Field(description="Replace the file, or add to its end.")] = (
        "overwrite"
    )


class WriteFileTool:
    """The WriteFile tool of one conversation."""

    def __init__(
        self, workspace: Workspace, policy: PathPolicy, record: FileRecord, plan_file: GetActivePlanFile
    ) -> None:
        self._editor = FileEditor(workspace, policy, record, plan_file)

    @property
    def spec(self) -> ToolSpec:
        """The name, description and schema for the model."""
        return _spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall]:
        """See `Tool`. The diff is made and the file is locked; nothing is written yet."""
        params = parse_arguments(WriteFileParams, arguments)
        if isinstance(params, ToolReturnValue):
            yield prepare_finished_call(params)
            return
        admitted = await self._editor.admit(params.path, "write")
        if isinstance(admitted, ToolReturnValue):
            yield prepare_finished_call(admitted)
            return
        # Held from the diff to the write: the user approves exactly the change that is written.
        async with self._editor.record.lock_file(admitted.real_path):
            yield await self._prepare_write(params, admitted)

    async def _prepare_write(self, params: WriteFileParams, admitted: AdmittedFile) -> PreparedCall:
        try:
            created = await self._find_missing_parent(admitted)
            change = created if isinstance(created, ToolReturnValue) else await self._build_change(params, admitted)
        except (OSError, ValueError) as error:
            return prepare_failing_call(_write_failed_error(params.path, error), admitted, "Write", [params.content])
        if isinstance(change, ToolReturnValue):
            return prepare_failing_call(change, admitted, "Write", [params.content])

        async def run() -> ToolReturnValue:
            return await self._apply_change(params, admitted, change)

        note = f" (creating directory `{created}`)" if created else ""
        if change.lost_encoding is not None:
            note = f" (its encoding becomes UTF-8; it was {change.lost_encoding.title})"
        return PreparedCall(run, propose_change(admitted, "Write", change.display, note), change.changed_text)

    async def _find_missing_parent(self, admitted: AdmittedFile) -> str | ToolReturnValue:
        """Return the directory that writing creates, empty for none; the error if it may not be created."""
        parent = parent_directory(admitted.real_path)
        stat = await self._editor.workspace.stat(parent)
        if stat is not None and stat.kind == "directory":
            return ""
        if stat is None and (admitted.grant.is_in_workspace or admitted.is_plan_file):
            return parent
        return tool_error(f"`{admitted.given_path}` parent directory does not exist.", "Parent directory not found")

    async def _build_change(self, params: WriteFileParams, admitted: AdmittedFile) -> PreparedChange | ToolReturnValue:
        addition = params.content.encode()
        stat = await self._editor.workspace.stat(admitted.real_path)
        if stat is None:
            display = await build_display_blocks(admitted, "", params.content, [params.content])
            changed = build_changed_text(admitted, None, params.content, len(addition))
            return PreparedChange(addition, None, display, changed)
        if stat.kind != "file":
            return not_a_file_error(params.path)
        if params.mode == "overwrite":
            return await self._build_overwrite(admitted, stat, params.content)
        if stat.size > MAX_EDIT_BYTES:
            return too_large_error(params.path, stat)
        content = await self._editor.read_content(stat)
        old = await decode_file(content)
        changed = await to_thread.run_sync(_append_text, params.path, content, old, params.content)
        if isinstance(changed, ToolReturnValue):
            return changed
        display = await _build_append_display(admitted, old.text, len(content), params.content)
        whole = build_changed_text(admitted, old, old.text + params.content, len(changed))
        return PreparedChange(changed, stat, display, whole, old.encoding)

    async def _build_overwrite(self, admitted: AdmittedFile, stat: FileStat, new: str) -> PreparedChange:
        path = admitted.display_path
        if stat.size > MAX_DIFF_BYTES or len(new) > MAX_DIFF_BYTES:
            lines = await self._editor.count_lines(stat)
            display = _build_long_display(admitted, lines, count_lines(new), build_new_text_blocks(path, [new]))
            return PreparedChange(new.encode(), stat, display)
        content = await self._editor.read_content(stat)
        old = await decode_file(content)
        replaced = await to_thread.run_sync(_replace_text, admitted.given_path, content, old, new)
        return PreparedChange(
            new.encode() if replaced is None else replaced,
            stat,
            await build_display_blocks(admitted, show_text(old.text.removeprefix(_MARK)), new, [new]),
            build_changed_text(admitted, old, new, max(len(content), len(new))),
            old.encoding if replaced is not None else None,
            lost_encoding=old.encoding if replaced is None else None,
        )

    async def _apply_change(
        self, params: WriteFileParams, admitted: AdmittedFile, change: PreparedChange
    ) -> ToolReturnValue:
        try:
            written = await self._editor.apply(admitted, change)
        except (OSError, ValueError) as error:
            return _write_failed_error(params.path, error)
        if isinstance(written, ToolReturnValue):
            return written
        done = "overwritten" if params.mode == "overwrite" else "appended to"
        return tool_ok(
            message=f"File successfully {done}. Current size: {written.size} bytes." + _describe_encoding(change),
            display=select_result_display(admitted, change.display),
        )


def _append_text(given_path: str, content: bytes, old: DecodedFile, added: str) -> bytes | ToolReturnValue:
    """Return the bytes of the longer file; the error result if its encoding leaves them open."""
    if not old.is_text and not added.isascii():
        return unknown_encoding_error(given_path)
    if old.encoding is None:
        return content + added.encode()
    return encode_change(given_path, content, old, old.text + added, [added], lambda text: text + added)


def _replace_text(given_path: str, content: bytes, old: DecodedFile, new: str) -> bytes | None:
    """Return the bytes of a new text in the encoding of the old one, with its byte order mark; None if that fails."""
    marked = _MARK + new if old.text.startswith(_MARK) and not new.startswith(_MARK) else new
    if old.encoding is None or old.encoding.damaged:
        return marked.encode()
    encoded = encode_change(given_path, content, old, marked, [new], lambda text: marked)
    return None if isinstance(encoded, ToolReturnValue) else encoded


async def _build_append_display(admitted: AdmittedFile, old: str, old_bytes: int, added: str) -> tuple[DiffBlock, ...]:
    if old_bytes > MAX_DIFF_BYTES or len(added) > MAX_DIFF_BYTES:
        lines = old.count("\n") + (bool(old) and not old.endswith("\n"))
        shown = build_new_text_blocks(admitted.display_path, [added], new_start=lines + 1)
        return _build_long_display(admitted, lines, lines + count_lines(added), shown)
    text = show_text(old)
    return await build_display_blocks(admitted, text, text + added, [added])


def _build_long_display(
    admitted: AdmittedFile, old_lines: int, new_lines: int, shown: tuple[DiffBlock, ...]
) -> tuple[DiffBlock, ...]:
    """Return the blocks for a file that is too long to be compared: its number of lines, and the new text."""
    return (build_summary_block(admitted.display_path, old_lines, new_lines, _LONG_REASON), *shown)


def _describe_encoding(change: PreparedChange) -> str:
    if change.lost_encoding is not None:
        return f" It is in UTF-8 now; it was {change.lost_encoding.title}, which cannot hold the new text for certain."
    return f" Encoding kept: {change.encoding.title}." if change.encoding is not None else ""


@cache
def _spec() -> ToolSpec:
    return ToolSpec(
        "WriteFile", _DESCRIPTION, build_schema(WriteFileParams), kind="edit", key_argument="path", path_argument="path"
    )


def _write_failed_error(given_path: str, error: Exception) -> ToolReturnValue:
    return tool_error(f"Failed to write to {given_path}. Error: {describe_error(error)}", "Failed to write file")
