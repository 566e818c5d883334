"""Edit the input in an external editor (runtime spec 8)."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence

from kimi.interfaces.bootstrap.shell import find_program

_FALLBACK_EDITORS = (("code", "--wait"), ("vim",), ("vi",), ("nano",))


def find_editor_command(configured: str, environ: Mapping[str, str]) -> Sequence[str]:
    """Return the editor and its options: configured, `$VISUAL`, `$EDITOR`, else a common one; empty without any."""
    for named in (configured, environ.get("VISUAL", ""), environ.get("EDITOR", "")):
        if named.strip():
            return _split_command_line(named)
    for name, *options in _FALLBACK_EDITORS:
        if (program := find_program(name, environ)) is not None:
            return (program, *options)
    return ()


def _split_command_line(command_line: str) -> Sequence[str]:
    """Split a command line into words; with unbalanced quotation marks the whole line names a program."""
    try:
        return shlex.split(command_line)
    except ValueError:
        return (command_line.strip(),)


async def edit_text(
    command: Sequence[str], text: str, run: Callable[[Sequence[str]], Awaitable[int]]
) -> tuple[str | None, str]:
    """Return the edited `text`, None when it was not changed, and an error message, empty without an error.

    `run` runs a program on the terminal and returns its status. It may raise OSError.
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
