"""What the environment says about the terminal, the editor, the branch."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from kimi.interfaces.bootstrap.shell import find_branch
from kimi.interfaces.shell.run import detect_colour_system, is_plain_terminal
from kimi.interfaces.shell.terminal.input.editor import edit_text, find_editor_command
from kimi.interfaces.shell.terminal.input.pasted_content import (
    PastedContent,
    parse_image,
    parse_image_size,
    read_fold_thresholds,
)


@pytest.mark.parametrize(
    ("environ", "plain"),
    [
        ({"TERM": "xterm"}, False),
        ({"TERM": "dumb"}, True),
        ({"TERM": "xterm", "KIMI_PLAIN": "1"}, True),
        ({"TERM": "xterm", "KIMI_PLAIN": "0"}, False),
        ({}, sys.platform != "win32"),
    ],
)
def test_environment_decides_plain_mode(environ: dict[str, str], plain: bool) -> None:
    assert is_plain_terminal(environ) is plain


@pytest.mark.parametrize(
    ("environ", "colours"),
    [
        ({"TERM": "xterm-256color"}, "256"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "truecolor"),
        ({"TERM": "linux"}, "standard"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, None),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, "256"),
    ],
)
def test_environment_decides_colours(environ: dict[str, str], colours: str | None) -> None:
    assert detect_colour_system(environ) == colours


def test_the_editor_is_the_configured_one_first() -> None:
    environ = {"VISUAL": "vis -w", "EDITOR": "ed", "PATH": ""}
    assert find_editor_command("mine --wait", environ) == ["mine", "--wait"]
    assert find_editor_command("", environ) == ["vis", "-w"]
    assert find_editor_command("", {"EDITOR": "ed"}) == ["ed"]
    assert find_editor_command("", {"PATH": "/nowhere"}) == ()
    assert find_editor_command("my 'editor", {}) == ("my 'editor",)  # which is then said to be missing


async def ran(command: Sequence[str]) -> int:
    return (await anyio.run_process(command, check=False)).returncode


@pytest.mark.anyio
async def test_an_editor_that_fails_changes_nothing() -> None:
    assert (await edit_text([sys.executable, "-c", "raise SystemExit(3)"], "text", ran))[0] is None
    assert await edit_text([sys.executable, "-c", "pass"], "text", ran) == (None, "")
    said = (await edit_text(["/no/such/editor"], "text", ran))[1]
    assert said.startswith("The editor /no/such/editor could not be run")
    assert (await edit_text([], "text", ran))[1] == "There is no editor: set one with /editor."


def test_branch_of_a_directory_is_read(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "-b", "topic/x"], cwd=tmp_path, check=True)
    assert find_branch(str(below)) == "topic/x"
    (tmp_path / ".git" / "HEAD").write_text("0123456789abcdef" * 2 + "01234567\n", encoding="utf-8")
    assert find_branch(str(below)) == "01234567"


def test_pasted_text_is_folded_above_the_limits() -> None:
    pasted = PastedContent(
        read_fold_thresholds({"KIMI_CLI_PASTE_CHAR_THRESHOLD": "10", "KIMI_CLI_PASTE_LINE_THRESHOLD": "x"})
    )
    assert pasted.fold_text("ten chars!") == "ten chars!"
    assert pasted.fold_text("eleven char") == "[Pasted text #1 +1 lines]"
    assert pasted.fold_text("another text") == "[Pasted text #2 +1 lines]"
    typed = "see [Pasted text #2 +1 lines], not [Pasted text #9 +1 lines]"
    assert pasted.expand_text(typed) == "see another text, not [Pasted text #9 +1 lines]"
    assert pasted.split_into_parts(typed) == ()


@pytest.mark.parametrize(
    "data", [b"", b"text", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"RIFFxxxxWEBP", b"\xff\xd8\xff\xe0\x00"]
)
def test_broken_images_have_no_size(data: bytes) -> None:
    image = parse_image(data)
    assert image is None or parse_image_size(image) == (0, 0)
