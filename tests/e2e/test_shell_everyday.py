"""What makes a day in the shell easy: going on by itself, the clipboard, git's marks, reasons, what ends with it."""

import base64
import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.mcp.entries import raw_entry
from tests.support.program.shell_talk import ask, leave, say
from tests.support.program.terminal import CTRL_C, CTRL_O, ENTER, Terminal, terminal
from tests.support.program.wire_process import Place, eventually
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import text_reply
from tests.support.providers.scripted_calls import call
from tests.support.providers.scripts import UNTIL_GO

GOES_ON = "› A background task has ended. Go on"


def nap(command: str = UNTIL_GO) -> str:
    """A call that starts a command in the background."""
    return call("c1", "Shell", command=command, run_in_background=True, description="a nap")


def git(directory: Path, *arguments: str) -> None:
    """Run git as nobody in particular."""
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True)


def repository(directory: Path) -> Path:
    """A repository with one commit."""
    directory.mkdir(parents=True, exist_ok=True)
    git(directory, "init", "-q", "-b", "main")
    (directory / "kept.txt").write_text("x\n", encoding="utf-8")
    git(directory, "add", ".")
    git(directory, "commit", "-qm", "First")
    return directory


def program(path: Path, text: str) -> None:
    """Write a script that can be run."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def prompts(place: Place) -> list[str]:
    """The user's messages of the session."""
    return [str(one["content"]) for one in place.context() if one["role"] == "user"]


# --- background tasks -----------------------------------------------------------------------------------------------


@pytest.mark.spec("R-291")
def test_an_idle_shell_goes_on_when_a_background_task_ends(place: Place) -> None:
    place.script(nap(), "text: it runs", "text: the nap is over")
    with terminal(place, "--yolo", columns=120) as shown:
        ask(shown, ("go", "it runs"))
        (place.work / "go").touch()
        shown.until("the nap is over")
        assert GOES_ON in shown.all_text
        shown.idle()
        leave(shown)
    assert any("a nap" in text and "completed" in text for text in prompts(place))  # the model knows which and how


def test_the_shell_does_not_go_on_while_the_user_writes(place: Place) -> None:
    place.script(nap(), "text: it runs", "text: the nap is over")
    with terminal(place, "--yolo", columns=120) as shown:
        ask(shown, ("go", "it runs"))
        shown.type("half a thought")
        shown.until("› half a thought")
        (place.work / "go").touch()
        shown.until("Background task completed: a nap")
        shown.until_gone("1 in background")
        assert "half a thought" in shown.text
        assert GOES_ON not in shown.text
        shown.type(CTRL_C)
        shown.until("the nap is over")


@pytest.mark.parametrize("way", ["setting", "stopped"])
def test_the_shell_stays_idle_where_nothing_is_to_be_gone_on_with(place: Place, way: str) -> None:
    if way == "setting":
        place.config = "[background]\ncontinue_in_shell = false\n"
    place.script(nap("sleep 60" if way == "stopped" else UNTIL_GO), "text: it runs", "text: told by you")
    with terminal(place, "--yolo", columns=120) as shown:
        ask(shown, ("go", "it runs"))
        if way == "setting":
            (place.work / "go").touch()
        else:
            say(shown, "/task", "a nap\n↑↓")
            shown.type("1")
            shown.until("2. Stop it")
            shown.type("2")
        shown.until("Background task completed" if way == "setting" else "Background task stopped")
        shown.until_gone("1 in background")
        ask(shown, ("and?", "told by you"))
        assert GOES_ON not in shown.all_text


@pytest.mark.spec("R-296")
def test_background_tasks_that_end_with_the_shell_are_named(place: Place) -> None:
    place.script(nap("sleep 60"), "text: it runs")
    with terminal(place, "--yolo", columns=120) as shown:
        ask(shown, ("go", "it runs"))
        leave(shown)
        assert "Stopped with this session, in the background: bash-" in shown.text
        assert "(a nap)" in shown.text


# --- the clipboard and what is new ----------------------------------------------------------------------------------


@pytest.mark.spec("R-298")
def test_the_last_answer_is_copied_and_changes_are_shown(place: Place) -> None:
    place.script("text: **An answer** to keep.")
    copied = place.root / "copied"
    program(place.root / "bin" / "xclip", f"exec cat > {shlex.quote(str(copied))}")
    place.environ["PATH"] = f"{place.root / 'bin'}:/usr/bin:/bin"
    with terminal(place) as shown:
        shown.until("context:")
        say(shown, "/copy", "There is no answer to copy yet.")
        ask(shown, ("hi", "An answer"))
        say(shown, "/copy", "in the clipboard: 22 characters")
        assert copied.read_text(encoding="utf-8") == "**An answer** to keep."
        shown.idle()
        say(shown, "/changelog", lambda text: "• " in text)
        assert eventually(lambda: b"The first version of this program" in bytes(shown.raw))


def test_without_a_program_the_terminal_is_asked_to_copy(place: Place) -> None:
    place.script("text: An answer to keep.")
    place.environ["PATH"] = "/usr/bin:/bin"
    with terminal(place) as shown:
        ask(shown, ("hi", "An answer"))
        say(shown, "/copy", "The terminal is asked to copy")
        assert b"\x1b]52;c;" + base64.b64encode(b"An answer to keep.") + b"\x07" in bytes(shown.raw)


@pytest.mark.spec("R-298")
def test_a_wire_client_connects_servers_again_by_command(place: Place) -> None:
    place.script("text: x")
    late = place.root / "late"
    server = raw_entry(tools=["echo"])
    wait = f'[ -e {late} ] || exit 1; exec "$0" "$@"'
    entry = {**server, "command": "/bin/sh", "args": ["-c", wait, server["command"], *server["args"]]}
    (place.share / "mcp.json").write_text(json.dumps({"mcpServers": {"slow": entry}}), encoding="utf-8")
    with place.wire() as kimi:
        kimi.prompt("go")
        kimi.prompt("/mcp")
        assert "- slow: failed" in kimi.payloads("ContentPart")[-1]["text"]
        late.touch()
        kimi.prompt("/mcp reload")
        assert "Tried again: slow." in kimi.payloads("ContentPart")[-1]["text"]

        def is_connected() -> bool:
            kimi.prompt("/mcp")
            return kimi.payloads("ContentPart")[-1]["text"] == "- slow: connected"

        assert eventually(is_connected)
        kimi.prompt("/mcp sideways")
        assert kimi.payloads("ContentPart")[-1]["text"] == "Usage: /mcp [reload]"


# --- git ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-294")
def test_changes_and_distance_of_the_branch_are_marked(place: Place) -> None:
    place.script("text: changed")
    upstream = repository(place.root / "upstream")
    git(place.root, "clone", "-q", str(upstream), str(place.work / "clone"))
    work = place.work / "clone"
    (work / "kept.txt").write_text("y\n", encoding="utf-8")
    git(work, "commit", "-qam", "Second")
    with terminal(place, "--work-dir", str(work), columns=150) as shown:
        shown.until("main ↑1")
        assert "main*" not in shown.text
        (work / "new.txt").touch()
        ask(shown, ("go", "changed"))
        shown.until("main* ↑1")


def test_marks_of_a_hostile_repository_run_nothing(place: Place) -> None:
    place.script("text: fine")
    repository(place.work)
    trap = place.work / ".git" / "trap"
    program(trap, f"touch {place.root / 'sprung'}; cat")
    for name in ("filter.trap.clean", "filter.trap.process", "core.fsmonitor", "diff.external"):
        git(place.work, "config", name, str(trap))
    git(place.work, "config", "filter.trap.required", "true")
    (place.work / ".gitattributes").write_text("* filter=trap\n", encoding="utf-8")
    os.utime(place.work / "kept.txt", (1, 1))  # git must read it to know
    (place.root / "sprung").unlink(missing_ok=True)
    with terminal(place, columns=150) as shown:
        shown.until("main*")
        ask(shown, ("go", "fine"))
    assert not (place.root / "sprung").exists()


@pytest.mark.spec("R-297")
def test_files_of_submodules_are_completed(place: Place) -> None:
    place.script("text: fine")
    inner = repository(place.root / "inner")
    (inner / "deep").mkdir()
    (inner / "deep" / "treasure.py").write_text("x", encoding="utf-8")
    git(inner, "add", ".")
    git(inner, "commit", "-qm", "Second")
    repository(place.work)
    git(place.work, "submodule", "add", "-q", str(inner), "parts/inner")
    with terminal(place, columns=120) as shown:
        shown.until("context:")
        shown.type("@treas")
        shown.until("parts/inner/deep/treasure.py")


# --- reasons, and what is typed early -------------------------------------------------------------------------------


@pytest.mark.spec("R-298")
@pytest.mark.parametrize(
    ("config", "tool", "arguments", "reason"),
    [
        ('[[approval.rules]]\ndecision = "deny"\ntool = "Shell"\n', "Shell", {"command": "ls"}, "approval rules: deny"),
        ("", "ReadFile", {"path": ".env"}, "appears to contain secrets"),
        ("", "Glob", {"pattern": "../*"}, "must not contain '..'"),
    ],
)
def test_each_refusal_says_its_reason_on_the_screen(
    place: Place, config: str, tool: str, arguments: dict[str, object], reason: str
) -> None:
    (place.work / ".env").write_text("A=1", encoding="utf-8")
    place.config = config
    place.script(call("c1", tool, **arguments), "text: over")
    with terminal(place, "--yolo", columns=150) as shown:
        ask(shown, ("go", "over"))
        assert reason in shown.text


@pytest.mark.spec("R-299")
def test_keys_before_the_session_is_open_get_menu_and_editor(place: Place) -> None:
    place.script("text: well written")
    slow, server = place.root / "hold", raw_entry()
    slow.touch()
    wait = f'while [ -e {slow} ]; do sleep 0.05; done; exec "$0" "$@"'
    entry = {"command": "/bin/sh", "args": ["-c", wait, server["command"], *server["args"]], "required": True}
    (place.share / "mcp.json").write_text(json.dumps({"mcpServers": {"slow": entry}}), encoding="utf-8")
    program(place.root / "bin" / "edit", 'echo "edited early" > "$1"')
    place.environ["VISUAL"] = str(place.root / "bin" / "edit")
    with terminal(place, columns=120, rows=40) as shown:
        assert eventually(lambda: len(shown.raw) > 0)
        _ready(shown)
        shown.type("/vers")
        assert "context: 0.0%" not in shown.until("/version ")  # the session has no status yet
        shown.type(CTRL_C)
        shown.until_gone("/vers")
        shown.type("draft", CTRL_O)
        assert "context: 0.0%" not in shown.until("edited early")
        slow.unlink()
        shown.until("context: 0.0%")
        shown.type(ENTER)
        shown.until("well written")


def _ready(shown: Terminal) -> None:
    shown.until("›")


# --- how much the model thinks ---------------------------------------------------------------------------------------


@pytest.mark.spec("R-329")
def test_effort_chooses_how_much_the_model_thinks(place: Place) -> None:
    place.capabilities = ("thinking",)
    with loopback(text_reply("first answer"), text_reply("second answer")) as server:
        place.provider(server.base_url)
        with terminal(place) as shown:
            ask(shown, ("hello", "first answer"))
            say(shown, "/effort high", "(thinking: high)")
            say(shown, "/effort enormous", "enormous")
            ask(shown, ("again", "second answer"))
            leave(shown)
    first, second = (request.json for request in server.requests)
    assert first.get("reasoning_effort") != "high"
    assert second["reasoning_effort"] == "high"


def test_effort_is_refused_where_the_model_has_no_levels(place: Place) -> None:
    place.script("text: hello")
    with terminal(place) as shown:
        shown.until("context:")
        say(shown, "/effort high", "cannot be chosen")
        leave(shown)
