"""Shared by WriteFile and StrReplaceFile: from a path to an approved, atomic change (tools spec 3.4, 3.5)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from anyio import to_thread

from kimi.application.ports import FileChanged, FileStat, PreparedCall, Workspace
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.permissions.path_rules import PathAllowed, PathDenied, check_write_access
from kimi.domain.tools.diff import (
    ChangedText,
    build_diff_blocks,
    build_new_text_blocks,
    build_summary_block,
    count_lines,
)
from kimi.domain.tools.tool import BriefBlock, DiffBlock, DisplayBlock, ToolReturnValue, tool_error
from kimi.infrastructure.tools.files.path_policy import (
    FileRecord,
    PathPolicy,
    ResolvedPath,
    make_printable,
    moved_file_error,
    stale_file_error,
)

if TYPE_CHECKING:
    from kimi.infrastructure.tools.files.text_encoding import TextEncoding

MAX_DIFF_BYTES = 8 * 1024 * 1024
"""A larger file is not compared; only its lines are counted."""

MAX_EDIT_BYTES = 64 * 1024 * 1024
"""A larger file is neither edited nor appended to, because both need the whole text."""

MAX_WHOLE_TEXT_BYTES = 256 * 1024
"""A change of a larger file is shown only in hunks (acp spec 3.5)."""

_SECRET_REASON = "the file may hold secrets"

GetActivePlanFile = Callable[[], "str | None"]
"""Return the only file that may be changed while plan mode is on; None while it is off."""


@dataclass(frozen=True, slots=True)
class AdmittedFile:
    """A target that may be changed. `is_plan_file` marks the plan file, which needs no approval in plan mode."""

    given_path: str
    target: ResolvedPath
    grant: PathAllowed
    is_plan_file: bool

    @property
    def real_path(self) -> str:
        """The real path, which is the one written to."""
        return self.target.real_path

    @property
    def display_path(self) -> str:
        """The path for diff blocks."""
        return self.target.named_path.absolute


@dataclass(frozen=True, slots=True)
class PreparedChange:
    """A prepared change: the whole new content, the file that it replaces, and the blocks for the user.

    `expected` is the file as it was when the diff was made, None if there was none. `changed_text` is None if the
    change cannot or must not be shown whole. `encoding` is what the file stays in, None for UTF-8; `lost_encoding`
    is what it was in if it becomes UTF-8.
    """

    content: bytes
    expected: FileStat | None
    display: tuple[DiffBlock, ...]
    changed_text: ChangedText | None = None
    encoding: TextEncoding | None = None
    lost_encoding: TextEncoding | None = None


class FileEditor:
    """Checks targets and applies changes, for the file tools of one conversation."""

    def __init__(
        self, workspace: Workspace, policy: PathPolicy, record: FileRecord, plan_file: GetActivePlanFile
    ) -> None:
        self.workspace = workspace
        self.record = record
        self._policy = policy
        self._plan_file = plan_file

    async def admit(self, given_path: str, verb: Literal["write", "edit"]) -> AdmittedFile | ToolReturnValue:
        """Decide whether the file may be changed at all; return the error result if not."""
        target = await self._policy.locate(given_path)
        scopes = await self._policy.resolve_write_scopes()
        access = check_write_access(target.named_path, target.real_path, verb, scopes)
        if isinstance(access, PathDenied):
            return tool_error(access.message, access.brief)
        plan = self._plan_file()
        if plan is not None and await self.workspace.real_path(plan) != target.real_path:
            message = f"Plan mode is active. You may only edit the current plan file: `{plan}`."
            return tool_error(message, "Plan mode restriction")
        return AdmittedFile(given_path, target, access, plan is not None)

    async def read_content(self, stat: FileStat) -> bytes:
        """Read the whole file."""
        async with self.workspace.read(stat.real_path) as blocks:
            return b"".join([block async for block in blocks])

    async def count_lines(self, stat: FileStat) -> int:
        """Count the lines of the file without holding it in memory."""
        breaks, last = 0, b"\n"
        async with self.workspace.read(stat.real_path) as blocks:
            async for block in blocks:
                breaks, last = breaks + block.count(b"\n"), block[-1:]
        return breaks + (last != b"\n")

    async def apply(self, admitted: AdmittedFile, change: PreparedChange) -> FileStat | ToolReturnValue:
        """Write the change; return an error result if the file is no longer the one of the diff. Raises OSError."""
        if not await self._policy.is_unchanged(admitted.target):
            return moved_file_error(admitted.given_path)
        try:
            stat = await self.workspace.write(admitted.real_path, change.content, change.expected)
        except FileChanged:
            return stale_file_error()
        self.record.mark_seen(stat)
        return stat


def propose_change(
    admitted: AdmittedFile, verb: Literal["Write", "Edit"], display: Sequence[DiffBlock], note: str = ""
) -> ProposedAction | None:
    """Build the action for the policy; None for the plan file in plan mode."""
    if admitted.is_plan_file or admitted.grant.action is None:
        return None
    description = admitted.target.format_action_title(f"{verb} file") + note
    # The diff names the path that was given, and nothing else of the description.
    notes: tuple[DisplayBlock, ...] = (BriefBlock(description),) if note or admitted.target.is_detour else ()
    return ProposedAction(
        action=admitted.grant.action,
        description=description,
        display=(*display, *notes),
        kind="path",
        subject=admitted.real_path,
        is_protected=admitted.grant.is_protected,
        may_hold_secrets=admitted.grant.is_sensitive,
        stays_inside=admitted.grant.is_in_workspace,
    )


def prepare_failing_call(
    error: ToolReturnValue, admitted: AdmittedFile, verb: Literal["Write", "Edit"], new_texts: Sequence[str]
) -> PreparedCall:
    """Prepare a call that fails.

    For a secret file, even the error is returned only after approval, so that its content cannot be guessed.
    """
    display = build_new_text_blocks(admitted.display_path, new_texts)

    async def run() -> ToolReturnValue:
        return error

    return PreparedCall(run, propose_change(admitted, verb, display) if admitted.grant.is_sensitive else None)


async def build_display_blocks(
    admitted: AdmittedFile, old: str, new: str, new_texts: Sequence[str]
) -> tuple[DiffBlock, ...]:
    """Build the blocks that show the change. Works off the event loop.

    `new_texts` are what the model has written. Of a secret file only they are shown, and its number of lines.
    """
    if admitted.grant.is_sensitive:
        path = admitted.display_path
        summary = build_summary_block(path, count_lines(old), count_lines(new), _SECRET_REASON)
        return (summary, *build_new_text_blocks(path, new_texts))
    if len(old) + len(new) < 4096:
        return build_diff_blocks(admitted.display_path, old, new)
    return await to_thread.run_sync(build_diff_blocks, admitted.display_path, old, new)


def select_result_display(admitted: AdmittedFile, display: Sequence[DiffBlock]) -> tuple[DiffBlock, ...]:
    """Return what a result shows of the change: of a secret file only the number of lines."""
    return tuple(block for block in display if block.is_summary or not admitted.grant.is_sensitive)


def build_changed_text(admitted: AdmittedFile, old: DecodedFile | None, new: str, size: int) -> ChangedText | None:
    """Build the change of the whole file; None for a secret or a large file, and for content that is not text.

    `size` is the larger one of the old and the new file, in bytes.
    """
    if admitted.grant.is_sensitive or size > MAX_WHOLE_TEXT_BYTES or (old is not None and not old.is_text):
        return None
    return ChangedText(admitted.display_path, None if old is None else show_text(old.text), show_text(new))


@dataclass(frozen=True, slots=True)
class DecodedFile:
    """The text of a file and its encoding, None for UTF-8.

    Without `is_text` the encoding could not be told, and U+FFFD stands for bytes.
    """

    text: str
    encoding: TextEncoding | None = None
    is_text: bool = True

    def encode(self, text: str) -> bytes:
        """Return the bytes of a text in the encoding of the file. Raises UnicodeEncodeError."""
        return text.encode() if self.encoding is None else self.encoding.encode(text)


async def decode_file(content: bytes) -> DecodedFile:
    """Return the text of a file, also of one that is not UTF-8."""
    if b"\0" not in content:
        try:
            return DecodedFile(content.decode())
        except UnicodeDecodeError:
            pass
    from kimi.infrastructure.tools.files.text_encoding import UTF8, detect_encoding  # only for a file that is not UTF-8

    encoding = await to_thread.run_sync(detect_encoding, content)
    if encoding is None:
        return DecodedFile(content.decode("utf-8", "replace"), is_text=False)
    return DecodedFile(encoding.decode(content), None if encoding == UTF8 else encoding)


def show_text(text: str) -> str:
    """Return a text for the user: bytes that are none become U+FFFD."""
    return text if text.isascii() else make_printable(text)


def unknown_encoding_error(given_path: str) -> ToolReturnValue:
    """Return the error for a file whose encoding cannot be told."""
    message = (
        f"`{given_path}` is not valid UTF-8 text, and its encoding is not certain; edit it with a command instead."
    )
    return tool_error(message, "Unsupported encoding")


def encode_change(
    given_path: str,
    content: bytes,
    old: DecodedFile,
    new: str,
    new_texts: Sequence[str],
    edit: Callable[[str], str | None],
) -> bytes | ToolReturnValue:
    """Return the bytes of the new text of a file, in its encoding; the error result if they are not certain.

    `new_texts` are the pieces that are new, and `edit` makes the change in another reading of the file. Blocks.
    """
    if old.encoding is None:
        return new.encode()
    from kimi.infrastructure.tools.files.text_encoding import find_differing_rival  # only for a file that is not UTF-8

    try:
        for text in new_texts:
            text.encode()  # a lone surrogate, which would become a byte of damaged text
            old.encode(text)
        encoded = old.encode(new)
    except UnicodeEncodeError as error:
        return _missing_character_error(given_path, old.encoding, error)
    rival = find_differing_rival(old.encoding, content, encoded, new_texts, edit)
    return encoded if rival is None else _doubtful_encoding_error(given_path, old.encoding, rival)


def _missing_character_error(given_path: str, encoding: TextEncoding, error: UnicodeEncodeError) -> ToolReturnValue:
    """Return the error for new text that the encoding of the file cannot hold."""
    message = (
        f"`{given_path}` is in {encoding.title}, which has no {_name_character(error)}; nothing was changed. Use "
        "other characters, or convert the file to UTF-8 with a command first, if the user wants that."
    )
    return tool_error(message, "Unsupported encoding")


def _name_character(error: UnicodeEncodeError) -> str:
    char = error.object[error.start]
    return f"`{char}`" if char.isprintable() else f"U+{ord(char):04X}"


def _doubtful_encoding_error(given_path: str, encoding: TextEncoding, rival: str) -> ToolReturnValue:
    """Return the error for new text whose bytes depend on an encoding that is not certain."""
    message = (
        f"`{given_path}` is {encoding.title}, but it may be in {rival}, where the new text has other bytes; nothing "
        "was changed. Write the new text in ASCII, or edit the file with a command."
    )
    return tool_error(message, "Uncertain encoding")


def too_large_error(given_path: str, stat: FileStat) -> ToolReturnValue:
    """Return the error for a file that is too large and whose whole text is needed."""
    message = f"`{given_path}` is {stat.size} bytes; over {MAX_EDIT_BYTES} bytes, change it with a command instead."
    return tool_error(message, "File too large")


def parent_directory(path: str) -> str:
    """Return the directory of a real path."""
    return os.path.dirname(path)
