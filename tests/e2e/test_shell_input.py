"""What is typed and pasted: completion, history, folded texts, images, the editor, shell mode."""

import base64
import json
import os
import shlex
import signal
import struct
import subprocess
import termios
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.support.program.processes import all_gone
from tests.support.program.shell_talk import say
from tests.support.program.terminal import (
    CTRL_C,
    CTRL_D,
    CTRL_J,
    CTRL_O,
    CTRL_R,
    CTRL_V,
    CTRL_X,
    DOWN,
    ENTER,
    ESCAPE,
    TAB,
    UP,
    paste,
    terminal,
)
from tests.support.program.wire_process import Place, eventually, read_lines
from tests.support.providers.scripted_calls import call


def png(width: int, height: int) -> bytes:
    """A black picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\0" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def said(place: Place) -> list[Any]:
    """What the person's messages held, one entry for each."""
    return [
        one["content"]
        for one in place.context()
        if one["role"] == "user" and not str(one["content"]).startswith("<system>")
    ]


def program(path: Path, text: str) -> Path:
    """A script that can be run."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.spec("R-153")
def test_commands_and_files_are_completed(place: Place) -> None:
    place.script("text: fine")
    for name in ("src/deep/target_file.py", "src/other.py", "notes.md", "ignored/secret_target.py"):
        path = place.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x", encoding="utf-8")
    (place.work / ".gitignore").write_text("ignored/\n", encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=place.work, check=True)
    with terminal(place, rows=30) as shown:
        shown.until("context:")
        shown.type("/")
        text = shown.until("/clear (reset)")  # a menu while typing, with the aliases
        shown.type("ttl")
        text = shown.until(lambda text: "/title (rename)" in text and "/clear" not in text)  # fuzzy
        shown.type(TAB)
        shown.until("› /title")
        shown.type(CTRL_C)
        shown.until_gone("/title")
        shown.type("not /he")
        shown.until("not /he")
        shown.type(CTRL_C)
        shown.until_gone("not /he")
        shown.type("see @")
        text = shown.until("notes.md")
        assert "src/" in text
        assert "target_file" not in text  # entries of the top only
        assert "ignored" not in text.replace(".gitignore", "")
        shown.type("tar")
        text = shown.until("src/deep/target_file.py")  # the whole tree
        assert "secret_target" not in text
        shown.type(DOWN, ENTER)
        shown.until(lambda text: "see @src/deep/target_file.py" in text and text.count("target_file.py") == 1)
        say(shown, " mail me@no", "fine")  # not after a letter
    assert said(place) == ["see @src/deep/target_file.py mail me@no"]


def test_enter_sends_complete_command_despite_open_menu(place: Place) -> None:
    place.script("text: x")
    (place.work / "notes.md").touch()
    with terminal(place, rows=40) as shown:
        shown.until("context:")
        shown.type("/rename")
        shown.until("/title (rename)")  # the menu is there, with the other name of the command
        shown.type(ENTER)
        shown.until("The session has no title yet")
        shown.type("/title about @not")
        shown.until("notes.md")
        shown.type(ENTER)
        shown.until("Title: about @not")
        shown.idle()
        shown.type("/vers")
        shown.until("/version ")
        shown.type(ENTER)  # one key accepts the completion and runs it
        shown.until("kimi 2.")
        shown.type("/imp")
        shown.until("/import ")
        shown.type(ENTER)  # but a command that wants words waits for them
        shown.until(lambda text: "› /import\n" in text and "Take a file" not in text)
        shown.type("no-such-file", ENTER)
        shown.until("no-such-file")
        shown.idle()
        shown.type("/quit")
        shown.until("/exit (quit)")
        shown.type(ENTER)
        assert shown.wait() == 0


def test_files_complete_without_git_too(place: Place) -> None:
    place.script("text: fine")
    for name in ("a/b/needle.txt", "skipped/needle.log"):
        path = place.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x", encoding="utf-8")
    (place.work / ".ignore").write_text("skipped/\n", encoding="utf-8")
    with terminal(place) as shown:
        shown.until("context:")
        shown.type("@needle")
        assert "skipped" not in shown.until("a/b/needle.txt")


@pytest.mark.spec("R-154")
def test_long_text_is_folded_and_images_are_sent(place: Place) -> None:
    place.capabilities = ("image_in",)
    place.script("text: read", "text: seen", "text: seen again")
    image = png(3, 2)
    (place.root / "picture.png").write_bytes(image)
    program(place.root / "bin" / "xclip", f"exec cat {shlex.quote(str(place.root / 'picture.png'))}")
    place.environ["PATH"] = f"{place.root / 'bin'}:/usr/bin:/bin"
    long = "\n".join(f"line {number}" for number in range(40))
    wide = "x" * 1001
    with terminal(place) as shown:
        shown.until("context:")
        shown.type(paste("short\ntext"))
        shown.until("short\n  text")
        shown.type(CTRL_C)
        shown.until_gone("short")
        shown.type("look: ", paste(long.replace("\n", "\r")), " and ", paste(wide))
        text = shown.until("look: [Pasted text #1 +40 lines] and [Pasted text #2 +1 lines]")
        assert "line 7" not in text
        shown.type(ENTER)
        shown.until("read")
        shown.idle()
        shown.type("what is ", CTRL_V)
        text = shown.until(",3x2]")
        assert "[image:" in text
        say(shown, "?", "seen")
        shown.idle()
        shown.type(paste(str(place.root / "picture.png")))
        shown.until(",3x2]")
        shown.type(ENTER)
        shown.until("seen again")
    url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    first, second, third = said(place)
    assert first == f"look: {long} and {wide}"
    assert [one["type"] for one in second] == ["text", "image_url", "text"]
    assert second[1]["image_url"]["url"] == url
    assert [one["type"] for one in third] == ["image_url"]
    (kept,) = (place.share / "prompt-cache").iterdir()
    assert kept.read_bytes() == image


def clipboard(place: Place, kind: str, content: bytes) -> None:
    """Let the system's clipboard hold this content of one kind."""
    (place.root / "clip").write_bytes(content)
    answers = (
        f'case "$*" in *TARGETS*) echo TARGETS "{kind}";; *"{kind}"*) cat {place.root / "clip"};; *) exit 1;; esac'
    )
    program(place.root / "bin" / "xclip", answers)
    place.environ["PATH"] = f"{place.root / 'bin'}:/usr/bin:/bin"


@pytest.mark.spec("R-292")
@pytest.mark.parametrize(
    ("kind", "content", "pasted"),
    [
        ("UTF8_STRING", "two\nlines é".encode(), "two\n  lines é"),
        ("text/plain", "\n".join(f"line {n}" for n in range(40)).encode(), "[Pasted text #1 +40 lines]"),
        ("image/png", png(3, 2), ",3x2]"),
        ("text/uri-list", b"file:///tmp/a%20film.mp4\r\n", "› /tmp/a film.mp4"),
    ],
)
def test_ctrl_v_pastes_text_pictures_and_paths(place: Place, kind: str, content: bytes, pasted: str) -> None:
    place.capabilities = ("image_in",)
    place.script("text: x")
    clipboard(place, kind, content)
    with terminal(place) as shown:
        shown.until("context:")
        shown.type(CTRL_V)
        shown.until(pasted)


def test_ctrl_v_takes_a_copied_picture_file_as_the_picture(place: Place) -> None:
    place.capabilities = ("image_in",)
    place.script("text: seen")
    (place.root / "a b.png").write_bytes(png(3, 2))
    clipboard(place, "text/uri-list", f"file://{place.root}/a%20b.png\n".encode())
    with terminal(place) as shown:
        shown.until("context:")
        shown.type(CTRL_V)
        shown.until(",3x2]")
        say(shown, "", "seen")
    assert [one["type"] for one in said(place)[0]] == ["image_url"]


def test_unresponsive_clipboard_does_not_block_input(place: Place) -> None:
    place.capabilities = ("image_in",)
    place.script("text: at once")
    program(place.root / "bin" / "xclip", f"touch {place.root / 'asked'}; exec sleep 60")
    place.environ["PATH"] = f"{place.root / 'bin'}:/usr/bin:/bin"
    with terminal(place) as shown:
        shown.until("context:")
        shown.type(CTRL_V)
        assert eventually((place.root / "asked").exists)
        say(shown, "go", "at once")
        assert "nothing in the clipboard" not in shown.text
        shown.until("There is nothing in the clipboard that can be pasted")


def test_image_is_refused_by_a_model_without_image_support(place: Place) -> None:
    place.script("text: x")
    clipboard(place, "image/png", png(3, 2))
    with terminal(place) as shown:
        shown.until("context:")
        shown.type(CTRL_V)
        shown.until("The model cannot see images.")


def test_history_is_kept_for_the_directory(place: Place) -> None:
    place.script(*["text: yes"] * 4)
    with terminal(place) as shown:
        shown.until("context:")
        for text in ("first thing", "second\x0athing", "second\x0athing"):
            say(shown, text, "yes")
            shown.idle()
        shown.type(CTRL_D)
        assert shown.wait() == 0
    (path,) = (place.share / "user-history").iterdir()
    assert read_lines(path) == [{"content": "first thing"}, {"content": "second\nthing"}]
    assert path.stat().st_mode & 0o077 == 0
    with terminal(place) as shown:
        shown.until("context:")
        shown.type(UP)
        shown.until("› second\n  thing")
        shown.type(UP, UP)
        shown.until("› first thing")
        shown.type(CTRL_C)
        shown.until_gone("first thing")
        shown.type(CTRL_R, "fir")
        shown.until("first thing")
        shown.type(ENTER)
        shown.until_gone("I-search")
        say(shown, "!", "yes")
    assert said(place)[-1] == "!first thing"  # the cursor stands where it was found


def test_the_editor_changes_the_input(place: Place) -> None:
    place.script("text: well written")
    editor = program(place.root / "bin" / "edit", 'printf "changed: %s" "$(cat "$1")" > "$1.new" && mv "$1.new" "$1"')
    place.environ["VISUAL"] = str(editor)
    with terminal(place) as shown:
        shown.until("context:")
        shown.type("draft", CTRL_O)
        shown.until("› changed: draft")
        shown.type(ENTER)
        shown.until("well written")
    assert said(place) == ["changed: draft"]


@pytest.mark.spec("R-295")
def test_folded_pastes_stay_folded_through_the_editor(place: Place) -> None:
    place.script("text: read")
    editor = program(place.root / "bin" / "edit", """sed -i "s/^see: /look here: /; s/row 3/ROW/" "$1" """)
    place.environ["VISUAL"] = str(editor)
    kept, changed = ("\n".join(f"{word} {number}" for number in range(20)) for word in ("line", "row"))
    with terminal(place) as shown:
        shown.until("context:")
        shown.type("see: ", paste(changed), " and ", paste(kept))
        shown.until("[Pasted text #2 +20 lines]")
        shown.type(CTRL_O)
        shown.until("row 19 and [Pasted text #2 +20 lines]")  # what was changed is shown as it is
        shown.type(ENTER)
        shown.until("read")
    assert said(place) == [f"look here: {changed.replace('row 3', 'ROW')} and {kept}"]


def test_turn_continues_while_the_user_edits_in_an_editor(place: Place) -> None:
    go = place.root / "go"
    place.script(call("c1", "Shell", command=f"touch {place.root / 'begun'}"), "text: done meanwhile")
    wait = f'echo in the editor; while [ ! -e {go} ]; do sleep 0.05; done; echo " and so on" >> "$1"'
    place.environ["VISUAL"] = str(program(place.root / "bin" / "edit", wait))
    with terminal(place, "--yolo") as shown:
        shown.until("context:")
        shown.type("work", ENTER, "draft", CTRL_O)
        shown.until("in the editor")
        assert eventually(lambda: (place.root / "begun").exists() and "done meanwhile" in str(place.context()))
        assert "done meanwhile" not in shown.text  # the editor has the terminal
        os.kill(shown.process.pid, signal.SIGINT)  # Ctrl-C in an editor is the editor's
        go.touch()
        shown.until("done meanwhile")
        shown.until("› draft and so on")
        assert "Ctrl-C again" not in shown.text
        shown.type(CTRL_C)
        shown.until_gone("and so on")
        go.unlink()
        shown.type("more", CTRL_O)
        shown.until(lambda text: text.count("in the editor") == 2)
        device = Path(f"/proc/{shown.process.pid}/fd/0").readlink()
        os.kill(shown.process.pid, signal.SIGTERM)
        assert shown.wait() == -signal.SIGTERM
        with device.open("rb") as tty:
            assert termios.tcgetattr(tty)[3] & termios.ECHO  # the terminal is as it was
    assert all_gone(str(place.root))  # the editor, too


@pytest.mark.spec("R-158")
def test_shell_mode_runs_user_commands(place: Place) -> None:
    place.script("text: agent again")
    with terminal(place, rows=40) as shown:
        shown.until("context:")
        shown.type(CTRL_X)
        shown.until("SHELL")
        say(shown, "cd / && pwd", "\n/\n")
        shown.idle()
        say(shown, "pwd; exit 3", "The command ended with status 3.")
        assert str(place.work) in shown.text.replace("\n", "")
        say(shown, "echo it runs; sleep 20; echo not reached", "\nit runs")
        shown.type(CTRL_C)
        shown.until("ended with status -")
        shown.idle()
        assert "again to leave" not in shown.text
        say(shown, "/version", "kimi 2")
        say(shown, "/export", "nothing to export")
        shown.idle()
        moved = place.work.with_name("moved")
        place.work.rename(moved)
        say(shown, "pwd", "gone:")  # one word: the length of the path before it tells where the line is wrapped
        moved.rename(place.work)
        say(shown, "echo back", "\nback")
        shown.idle()
        shown.type(CTRL_X)
        shown.until_gone("SHELL")
        say(shown, "hello", "agent again")
        shown.type(CTRL_D)
        assert shown.wait() == 0
    assert said(place) == ["hello"]  # the commands are none of the agent's business


def test_typing_does_not_answer_a_panel_that_comes_up(place: Place) -> None:
    place.script("text: wait\n" + call("c1", "Shell", command="touch made.txt"), "text: over")
    with terminal(place) as shown:
        shown.until("context:")
        shown.type("go", ENTER, "1 2 1")
        shown.until("Approve once")
        shown.type("1")
        assert not (place.work / "made.txt").exists()
        shown.type(ESCAPE)


def test_wide_characters_fit_in_forty_columns(place: Place) -> None:
    place.script(
        "text: 你好，世界。これは**日本語**です。 The quick brown fox jumps over the lazy dog again and sleeps."
    )
    with terminal(place, columns=40) as shown:
        shown.until("context:")
        shown.type("你好", CTRL_J, "é", ENTER)
        text = shown.until("sleeps.")
        assert "你好" in text.replace(" ", "")
        assert all(len(line) <= 40 for line in shown.lines)
        shown.resize(100, 30)
        shown.type("/vers")
        shown.until("/version")
    assert json.dumps(said(place), ensure_ascii=False) == '["你好\\né"]'


def test_a_command_that_is_not_provided_says_what_helps(place: Place) -> None:
    place.script("text: unused")
    with terminal(place, rows=40) as shown:
        shown.until("context:")
        say(shown, "/web", "run 'kimi web'")
        say(shown, "/vis", "kimi export --html")
        say(shown, "/upgrade", "uv tool upgrade")
        say(shown, "/status", "last turn")
        shown.type(CTRL_D)
        assert shown.wait() == 0
