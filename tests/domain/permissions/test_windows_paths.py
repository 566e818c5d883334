"""Paths and command lines as Windows takes them, checked on any system: no spelling leads out of the workspace."""

from __future__ import annotations

import ntpath
import re
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kimi.domain.permissions.path_rules import (
    PathAllowed,
    PathDenied,
    PathScopes,
    check_read_access,
    check_write_access,
    interpret_path,
    is_sensitive,
    is_within,
)
from kimi.infrastructure.workspace.shells import describe_shell

WORK, HOME = "C:\\Work", "C:\\Users\\u"
SCOPES = PathScopes((WORK,), protected=("C:\\Users\\u\\.kimi",), windows=True)
PIECES = (
    *("..", ".", "...", "a", "a.txt", ".env", ".env.", ".env ", ".ENV::$DATA", ".env:stream", "Work", "WORK", "work."),
    *(
        "work ",
        "Workshop",
        "Users",
        "u",
        ".kimi",
        "config.toml",
        ".git",
        "hooks",
        "C:",
        "c:",
        "D:",
        "~",
        "?",
        "UNC",
        "c",
    ),
    *("", "cygdrive", "d", "server", "share"),
)
STARTS = (
    "",
    "/",
    "\\",
    "//",
    "\\\\",
    "C:\\",
    "c:/",
    "C:",
    "D:\\",
    "D:",
    "\\\\?\\",
    "\\\\.\\",
    "//?/",
    "/c/",
    "~/",
    "~\\",
)


@st.composite
def paths(draw: st.DrawFn) -> str:
    pieces = draw(st.lists(st.sampled_from(PIECES), max_size=6))
    return draw(st.sampled_from(STARTS)) + "".join(piece + draw(st.sampled_from(("/", "\\", ""))) for piece in pieces)


def opened_by_windows(path: str) -> list[str]:
    """Return the components of what Windows opens for an absolute path, in lower case, told apart from our code."""
    slashed = path.replace("/", "\\").lower()
    slashed = re.sub(r"^\\\\[?.]\\unc\\", r"\\\\", slashed)
    slashed = re.sub(r"^\\\\[?.]\\", "", slashed)
    drive, rest = ntpath.splitdrive(slashed)
    kept: list[str] = []
    for part in rest.split("\\"):
        if part == "..":
            kept = kept[:-1]
        elif name := part.split(":")[0].rstrip(". "):
            kept.append(name)
    return [drive, *kept]


@pytest.mark.spec("R-318")
@given(paths())
@example("..\\Workshop\\a")
@example("\\\\?\\C:\\Work\\..\\Users\\u\\.kimi\\config.toml")
@example("/c/Work/../Users")
@example("D:a.txt")
@example(".env\\...\\")
@example("C:..\\Users")
@example("//C:/Work/")
def test_no_spelling_of_a_path_outside_counts_as_inside(path: str) -> None:
    named = interpret_path(path, work_dir=WORK, home=HOME, windows=True)
    if is_within(named.absolute, [WORK], windows=True):
        assert opened_by_windows(named.absolute)[:2] == ["c:", "work"]
        access = check_read_access(named, named.absolute, SCOPES)
        if opened_by_windows(named.absolute)[-1] == ".env":
            assert is_sensitive(named.absolute, SCOPES)
            assert isinstance(access, PathDenied)
    else:
        written = check_write_access(named, named.absolute, "write", SCOPES)
        assert isinstance(written, PathDenied) or not written.is_in_workspace


@pytest.mark.spec("R-318")
@pytest.mark.parametrize(
    "path",
    [
        "C:\\Users\\u\\.kimi\\config.toml",
        "c:/users/U/.KIMI/CONFIG.TOML",
        "/c/Users/u/.kimi/config.toml",
        "/cygdrive/c/Users/u/.kimi/config.toml",
        "~/.kimi/config.toml",
        "~\\.kimi\\config.toml",
        "\\\\?\\C:\\Users\\u\\.kimi\\config.toml",
        "\\\\.\\C:\\Users\\u\\.kimi\\config.toml",
        "//?/C:/Users/u/.kimi/config.toml",
        "C:\\Users\\u\\.kimi.\\config.toml",
        "C:\\Users\\u\\.kimi \\config.toml::$DATA",
        "..\\Users\\u\\.kimi\\config.toml",
    ],
)
def test_own_files_are_closed_under_every_spelling(path: str) -> None:
    named = interpret_path(path, work_dir=WORK, home=HOME, windows=True)
    for access in (
        check_read_access(named, named.absolute, SCOPES),
        check_write_access(named, named.absolute, "write", SCOPES),
    ):
        assert isinstance(access, PathDenied)


@pytest.mark.parametrize(
    ("path", "absolute"),
    [
        ("src/a.txt", "C:\\Work\\src\\a.txt"),
        ("src\\a.txt", "C:\\Work\\src\\a.txt"),
        ("./a.txt", "C:\\Work\\a.txt"),
        ("C:\\Work\\ä ö.txt", "C:\\Work\\ä ö.txt"),
        ("c:/work/a.txt", "c:\\work\\a.txt"),
        ("/c/Work/a.txt", "c:\\Work\\a.txt"),
        ("C:a.txt", "C:\\Work\\a.txt"),
    ],
)
def test_usual_spellings_are_files_of_the_workspace(path: str, absolute: str) -> None:
    named = interpret_path(path, work_dir=WORK, home=HOME, windows=True)
    assert named.absolute == absolute
    access = check_write_access(named, named.absolute, "write", SCOPES)
    assert isinstance(access, PathAllowed)
    assert access.is_in_workspace


def split_as_windows(command_line: str) -> list[str]:
    """Split a command line by the rules of the C runtime, which most programs of Windows follow."""
    arguments: list[str] = []
    current, quoted, begun, at = "", False, False, 0
    while at < len(command_line):
        char = command_line[at]
        slashes = len(command_line) - at - len(command_line[at:].lstrip("\\"))
        if slashes:
            at += slashes
            if command_line[at : at + 1] == '"':
                current += "\\" * (slashes // 2)
                if slashes % 2:
                    current, at = current + '"', at + 1
            else:
                current += "\\" * slashes
            begun = True
        elif char == '"':
            quoted, begun, at = not quoted, True, at + 1
        elif char in " \t" and not quoted:
            arguments, current, begun, at = [*arguments, current] if begun else arguments, "", False, at + 1
        else:
            current, begun, at = current + char, True, at + 1
    return [*arguments, current] if begun else arguments


@pytest.mark.spec("R-318")
@pytest.mark.parametrize("shell", ["C:\\Program Files\\Git\\bin\\bash.exe", "C:\\Windows\\powershell.exe"])
@given(st.text(st.sampled_from("ab \t\"'\\%^&|<>$`();ä\n~*?"), min_size=1, max_size=30))
@example('echo "a b" \\"c\\\\')
@example("dir & del x")
def test_a_command_line_reaches_the_shell_as_one_argument(shell: str, line: str) -> None:
    chosen = describe_shell(shell)
    command = [chosen.path, *chosen.arguments, line]
    assert split_as_windows(subprocess.list2cmdline(command)) == command
