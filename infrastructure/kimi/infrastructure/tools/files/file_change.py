"""What WriteFile and StrReplaceFile share: the way from a path to an approved, atomic change (tools spec 3.4, 3.5)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from anyio import to_thread

from kimi.application.ports import FileChanged, FileStat, PreparedCall, Workspace
from kimi.domain.permissions.approval import Effect
from kimi.domain.permissions.path_rules import Granted, Refused, write_access
from kimi.domain.tools.diff import ChangedText, count_lines, diff_blocks, summary_block
from kimi.domain.tools.tool import DiffBlock, ToolReturnValue, tool_error
from kimi.infrastructure.tools.files.path_policy import FileRecord, PathPolicy, Target, stale_file

DIFF_BYTES = 8 * 1024 * 1024
"""A larger file is not compared; its lines are counted."""

EDIT_BYTES = 64 * 1024 * 1024
"""A larger file is neither edited nor appended to: both need the whole text."""

WHOLE_BYTES = 256 * 1024
"""A change of a larger file is shown in hunks only (acp spec 3.5)."""

PlanFile = Callable[[], "str | None"]
"""The one file that may be changed while plan mode is on; None while it is off."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A target that may be changed. `planned` marks the plan file, which needs no approval in plan mode."""

    given: str
    target: Target
    granted: Granted
    planned: bool

    @property
    def real(self) -> str:
        """The real path, which is what is written."""
        return self.target.real

    @property
    def shown(self) -> str:
        """The path for diff blocks."""
        return self.target.named.absolute


@dataclass(frozen=True, slots=True)
class Change:
    """A change that is ready: the whole new content, what it is compared with, how the user sees it.

    `expected` is the file as it was when the diff was made; None when there was none. `texts` is None for what
    cannot or must not be shown whole.
    """

    content: bytes
    expected: FileStat | None
    display: tuple[DiffBlock, ...]
    texts: ChangedText | None = None


class FileChanges:
    """Admits targets and applies changes, for the file tools of one conversation."""

    def __init__(self, workspace: Workspace, policy: PathPolicy, record: FileRecord, plan_file: PlanFile) -> None:
        self.workspace = workspace
        self.record = record
        self._policy = policy
        self._plan_file = plan_file

    async def admit(self, given: str, verb: Literal["write", "edit"]) -> Admitted | ToolReturnValue:
        """May the file be changed at all? The error result when not."""
        target = await self._policy.locate(given)
        access = write_access(target.named, target.real, verb, await self._policy.zones())
        if isinstance(access, Refused):
            return tool_error(access.message, access.brief)
        plan = self._plan_file()
        if plan is not None and await self.workspace.real_path(plan) != target.real:
            message = f"Plan mode is active. You may only edit the current plan file: `{plan}`."
            return tool_error(message, "Plan mode restriction")
        return Admitted(given, target, access, plan is not None)

    async def content(self, stat: FileStat) -> bytes:
        """The whole file."""
        async with self.workspace.read(stat.real_path) as blocks:
            return b"".join([block async for block in blocks])

    async def count_lines(self, stat: FileStat) -> int:
        """How many lines the file has, without holding it."""
        breaks, last = 0, b"\n"
        async with self.workspace.read(stat.real_path) as blocks:
            async for block in blocks:
                breaks, last = breaks + block.count(b"\n"), block[-1:]
        return breaks + (last != b"\n")

    async def apply(self, admitted: Admitted, change: Change) -> FileStat | ToolReturnValue:
        """Write; an error result when the file is no longer what the diff was made from. Raises OSError."""
        try:
            stat = await self.workspace.write(admitted.real, change.content, change.expected)
        except FileChanged:
            return stale_file()
        self.record.remember(stat)
        return stat


def effect_of(
    admitted: Admitted, verb: Literal["Write", "Edit"], display: Sequence[DiffBlock], note: str = ""
) -> Effect | None:
    """What the policy has to decide on; nothing for the plan file in plan mode."""
    if admitted.planned or admitted.granted.action is None:
        return None
    return Effect(
        action=admitted.granted.action,
        description=admitted.target.titled(f"{verb} file") + note,
        display=tuple(display),
        kind="path",
        subject=admitted.real,
    )


def guarded(failed: ToolReturnValue, admitted: Admitted, verb: Literal["Write", "Edit"]) -> PreparedCall:
    """A call that fails. With a secret file even that is told only after approval, lest it be read by guessing."""

    async def run() -> ToolReturnValue:
        return failed

    return PreparedCall(run, effect_of(admitted, verb, ()) if admitted.granted.sensitive else None)


async def shown_change(admitted: Admitted, old: str, new: str) -> tuple[DiffBlock, ...]:
    """The blocks that show the change; of a secret file only how many lines there are. Works off the event loop."""
    if admitted.granted.sensitive:
        return (summary_block(admitted.shown, count_lines(old), count_lines(new)),)
    if len(old) + len(new) < 4096:
        return diff_blocks(admitted.shown, old, new)
    return await to_thread.run_sync(diff_blocks, admitted.shown, old, new)


def whole_texts(admitted: Admitted, old: bytes | None, new: bytes) -> ChangedText | None:
    """The change of the whole file; None for a secret or a large file, and for what is no text."""
    if admitted.granted.sensitive or max(len(old or b""), len(new)) > WHOLE_BYTES:
        return None
    try:
        return ChangedText(admitted.shown, None if old is None else old.decode(), new.decode())
    except UnicodeDecodeError:
        return None


def too_large(given: str, stat: FileStat) -> ToolReturnValue:
    """The error for a file whose whole text is needed."""
    message = f"`{given}` is {stat.size} bytes; over {EDIT_BYTES} bytes, change it with a command instead."
    return tool_error(message, "File too large")


def parent_of(path: str) -> str:
    """The directory of a real path."""
    return os.path.dirname(path)
