"""WriteFile: create, replace or extend a file (tools spec 3.4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from kimi.application.ports import FileStat, PreparedCall, ToolCallContext, Workspace
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.diff import count_lines, summary_block
from kimi.domain.tools.tool import DiffBlock, ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.infrastructure.tools.files.file_change import (
    DIFF_BYTES,
    EDIT_BYTES,
    Admitted,
    Change,
    FileChanges,
    PlanFile,
    effect_of,
    guarded,
    parent_of,
    shown_change,
    too_large,
    whole_texts,
)
from kimi.infrastructure.tools.files.path_policy import FileRecord, PathPolicy, not_a_file, reason
from kimi.infrastructure.tools.params import answered, parse_arguments, schema_of

_DESCRIPTION = f"""\
Write a whole file, or append to one. Use StrReplaceFile to change part of an existing file.

- `path`: relative to the working directory, absolute, or starting with `~/`. A file outside the working directory
  needs an absolute path and its own approval. Missing directories are created inside the working directory only.
- `content`: the text, written as UTF-8 with exactly the line breaks given.
- `mode`: `overwrite` (default) replaces the file, `append` adds to its end and adds no line break of its own; files
  over {EDIT_BYTES} bytes cannot be appended to.

The user sees a diff before the file is written. Split very long content over several calls: the first overwrites, the
others append."""


class Params(BaseModel):
    """Arguments of WriteFile."""

    path: Annotated[str, Field(description="The path of the file to write.")]
    content: Annotated[str, Field(description="The text to write.")]
    mode: Annotated[Literal["overwrite", "append"], Field(description="Replace the file, or add to its end.")] = (
        "overwrite"
    )


class WriteFile:
    """The WriteFile tool of one conversation."""

    def __init__(self, workspace: Workspace, policy: PathPolicy, record: FileRecord, plan_file: PlanFile) -> None:
        self._files = FileChanges(workspace, policy, record, plan_file)

    @property
    def spec(self) -> ToolSpec:
        """Name, text and schema for the model."""
        return _spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall]:
        """The diff is made and the file locked; nothing is written yet."""
        params = parse_arguments(Params, arguments)
        if isinstance(params, ToolReturnValue):
            yield answered(params)
            return
        admitted = await self._files.admit(params.path, "write")
        if isinstance(admitted, ToolReturnValue):
            yield answered(admitted)
            return
        async with self._files.record.hold(admitted.real):
            yield await self._ready(params, admitted)

    async def _ready(self, params: Params, admitted: Admitted) -> PreparedCall:
        try:
            created = await self._missing_parent(admitted)
            planned = created if isinstance(created, ToolReturnValue) else await self._change(params, admitted)
        except (OSError, ValueError) as error:
            return guarded(_failed(params.path, error), admitted, "Write")
        if isinstance(planned, ToolReturnValue):
            return guarded(planned, admitted, "Write")

        async def run() -> ToolReturnValue:
            return await self._write(params, admitted, planned)

        note = f" (creating directory `{created}`)" if created else ""
        return PreparedCall(run, effect_of(admitted, "Write", planned.display, note), planned.texts)

    async def _missing_parent(self, admitted: Admitted) -> str | ToolReturnValue:
        """The directory that writing creates, empty for none; the error when it may not."""
        parent = parent_of(admitted.real)
        stat = await self._files.workspace.stat(parent)
        if stat is not None and stat.kind == "directory":
            return ""
        if stat is None and (admitted.granted.inside or admitted.planned):
            return parent
        return tool_error(f"`{admitted.given}` parent directory does not exist.", "Parent directory not found")

    async def _change(self, params: Params, admitted: Admitted) -> Change | ToolReturnValue:
        added = params.content.encode()
        stat = await self._files.workspace.stat(admitted.real)
        if stat is None:
            display = await shown_change(admitted, "", params.content)
            return Change(added, None, display, whole_texts(admitted, None, added))
        if stat.kind != "file":
            return not_a_file(params.path)
        if params.mode == "overwrite":
            return await self._overwrite(admitted, stat, params.content)
        if stat.size > EDIT_BYTES:
            return too_large(params.path, stat)
        old = await self._files.content(stat)
        display = await _append_display(admitted, old, params.content)
        return Change(old + added, stat, display, whole_texts(admitted, old, old + added))

    async def _overwrite(self, admitted: Admitted, stat: FileStat, new: str) -> Change:
        added = new.encode()
        if stat.size > DIFF_BYTES or len(new) > DIFF_BYTES:
            lines = await self._files.count_lines(stat)
            return Change(added, stat, (summary_block(admitted.shown, lines, count_lines(new)),))
        old = await self._files.content(stat)
        return Change(added, stat, await shown_change(admitted, _text(old), new), whole_texts(admitted, old, added))

    async def _write(self, params: Params, admitted: Admitted, change: Change) -> ToolReturnValue:
        try:
            written = await self._files.apply(admitted, change)
        except (OSError, ValueError) as error:
            return _failed(params.path, error)
        if isinstance(written, ToolReturnValue):
            return written
        done = "overwritten" if params.mode == "overwrite" else "appended to"
        return tool_ok(message=f"File successfully {done}. Current size: {written.size} bytes.", display=change.display)


async def _append_display(admitted: Admitted, old: bytes, added: str) -> tuple[DiffBlock, ...]:
    if len(old) > DIFF_BYTES or len(added) > DIFF_BYTES:
        lines = old.count(b"\n") + (bool(old) and not old.endswith(b"\n"))
        return (summary_block(admitted.shown, lines, lines + count_lines(added)),)
    text = _text(old)
    return await shown_change(admitted, text, text + added)


@cache
def _spec() -> ToolSpec:
    return ToolSpec("WriteFile", _DESCRIPTION, schema_of(Params), kind="edit", key_argument="path")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _failed(given: str, error: Exception) -> ToolReturnValue:
    return tool_error(f"Failed to write to {given}. Error: {reason(error)}", "Failed to write file")
