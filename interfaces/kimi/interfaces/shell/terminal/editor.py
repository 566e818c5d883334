"""An external editor for the input (runtime spec 8)."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence

_FALLBACK_EDITORS = (("code", "--wait"), ("vim",), ("vi",), ("nano",))


def find_editor_command(configured: str, environ: Mapping[str, str]) -> Sequence[str]:
    """The editor and its options: configured, `$VISUAL`, `$EDITOR`, else the first usual one; empty for none."""
    for named in (configured, environ.get("VISUAL", ""), environ.get("EDITOR", "")):
        if named.strip():
            return _split_command_line(named)
    return next((command for command in _FALLBACK_EDITORS if shutil.which(command[0], path=environ.get("PATH"))), ())


def _split_command_line(command_line: str) -> Sequence[str]:
    """A command line as its words; one whose quotation marks do not match is the name of a program."""
    try:
        return shlex.split(command_line)
    except ValueError:
        return (command_line.strip(),)


async def edit_text(
    command: Sequence[str], text: str, run: Callable[[Sequence[str]], Awaitable[int]]
) -> tuple[str | None, str]:
    """What became of `text` in the editor, None when it was not changed; and what went wrong, or nothing.

    `run` gives the terminal to a program and then its status; it raises OSError.
    """
    if not command:
        return None, "There is no editor: set one with /editor."
    descriptor, path = tempfile.mkstemp(prefix="kimi-", suffix=".md")
    try:
        _write(descriptor, text)
        status = await run([*command, path])
        changed = _read(path).rstrip("\n")
    except OSError as error:
        return None, f"The editor {command[0]} could not be run: {error.strerror}."
    finally:
        os.unlink(path)
    if status != 0:
        return None, f"The editor {command[0]} ended with status {status}; nothing was changed."
    return (changed if changed != text.rstrip("\n") else None), ""


def _write(descriptor: int, text: str) -> None:
    with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
