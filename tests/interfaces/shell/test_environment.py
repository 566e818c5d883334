"""What the environment says about the terminal, the editor, the branch."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from kimi.interfaces.shell.run import colour_system, is_plain
from kimi.interfaces.shell.shell_context import git_branch
from kimi.interfaces.shell.terminal.editor import edited, editor_command
from kimi.interfaces.shell.terminal.paste import Pasted, as_image, image_size, thresholds


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
def test_plain_terminals(environ: dict[str, str], plain: bool) -> None:
    assert is_plain(environ) is plain


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
def test_colours(environ: dict[str, str], colours: str | None) -> None:
    assert colour_system(environ) == colours


def test_the_editor_is_the_configured_one_first() -> None:
    environ = {"VISUAL": "vis -w", "EDITOR": "ed", "PATH": ""}
    assert editor_command("mine --wait", environ) == ["mine", "--wait"]
    assert editor_command("", environ) == ["vis", "-w"]
    assert editor_command("", {"EDITOR": "ed"}) == ["ed"]
    assert editor_command("", {"PATH": "/nowhere"}) == ()
    assert editor_command("my 'editor", {}) == ("my 'editor",)  # which is then said to be missing


async def ran(command: Sequence[str]) -> int:
    return (await anyio.run_process(command, check=False)).returncode


@pytest.mark.anyio
async def test_an_editor_that_fails_changes_nothing() -> None:
    assert (await edited([sys.executable, "-c", "raise SystemExit(3)"], "text", ran))[0] is None
    assert await edited([sys.executable, "-c", "pass"], "text", ran) == (None, "")
    said = (await edited(["/no/such/editor"], "text", ran))[1]
    assert said.startswith("The editor /no/such/editor could not be run")
    assert (await edited([], "text", ran))[1] == "There is no editor: set one with /editor."


def test_the_branch_of_a_directory(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "-b", "topic/x"], cwd=tmp_path, check=True)
    assert git_branch(str(below)) == "topic/x"
    (tmp_path / ".git" / "HEAD").write_text("0123456789abcdef\n", encoding="utf-8")
    assert git_branch(str(below)) == "01234567"


def test_folding_has_its_limits() -> None:
    pasted = Pasted(thresholds({"KIMI_CLI_PASTE_CHAR_THRESHOLD": "10", "KIMI_CLI_PASTE_LINE_THRESHOLD": "x"}))
    assert pasted.fold("ten chars!") == "ten chars!"
    assert pasted.fold("eleven char") == "[Pasted text #1 +1 lines]"
    assert pasted.fold("another text") == "[Pasted text #2 +1 lines]"
    typed = "see [Pasted text #2 +1 lines], not [Pasted text #9 +1 lines]"
    assert pasted.expand(typed) == "see another text, not [Pasted text #9 +1 lines]"
    assert pasted.parts(typed) == ()


@pytest.mark.parametrize(
    "data", [b"", b"text", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"RIFFxxxxWEBP", b"\xff\xd8\xff\xe0\x00"]
)
def test_broken_pictures_have_no_size(data: bytes) -> None:
    image = as_image(data)
    assert image is None or image_size(image) == (0, 0)
