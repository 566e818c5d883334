"""The program with a sandbox for its commands, as a real process (runtime spec 7.10)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.program.wire_process import Json, Place, approve
from tests.support.providers.scripts import call, shell, step
from tests.support.sandboxes import find_any_mechanism

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are confined on Linux only")

WITHOUT_KERNEL_HELP = (
    "import ctypes, os, sys; from kimi.infrastructure.sandbox.landlock_start import MACHINES, filter_calls; "
    "libc = ctypes.CDLL(None, use_errno=True); libc.prctl(38, 1, 0, 0, 0); name = os.uname().machine; "
    "filter_calls(libc, MACHINES[name], [444, {'x86_64': 165, 'aarch64': 40}[name]]); "
    "os.execv(sys.executable, [sys.executable, '-m', 'kimi', *sys.argv[1:]])"
)
"""Starts the program where the kernel refuses Landlock and mounts."""


@pytest.fixture
def place() -> Iterator[Place]:
    """A place that every sandbox shows: bubblewrap covers /tmp."""
    find_any_mechanism()
    with TemporaryDirectory(dir="/var/tmp", prefix="kimi-test-") as directory:
        temporary = Path(directory).resolve() / "tmp"  # what a killed program leaves goes with the place
        temporary.mkdir()
        place = Place(temporary.parent, {"TMPDIR": str(temporary)})
        (place.work / "sub").mkdir()
        yield place


def outcomes(place: Place, *arguments: str, prompts: int = 1) -> tuple[list[Json], list[str]]:
    """The results of the tool calls and the actions that were asked about, in one session that approves all."""
    asked: list[str] = []

    def answer(params: Json) -> Json | None:
        asked.append(params["payload"]["action"])
        return approve(params)

    with place.wire(*arguments) as kimi:
        kimi.initialize()
        for _ in range(prompts):
            assert kimi.prompt("go", answer)["result"] == {"status": "finished"}
        return [payload["return_value"] for payload in kimi.payloads("ToolResult")], asked


@pytest.mark.spec("R-180")
def test_commands_of_a_session_are_confined_by_the_option(place: Place) -> None:
    (place.root / "other.txt").write_text("kept")
    commands = ("echo x > ../other.txt", f"cat {place.share}/config.toml", "echo x > sub/new.txt; cat sub/new.txt")
    place.script(step(*(shell(f"c{number}", command) for number, command in enumerate(commands))), "text: Done.")
    results, _ = outcomes(place, "--sandbox", "workspace")
    assert (place.root / "other.txt").read_text() == "kept"
    assert "sk-test-secret" not in str(results)
    assert "x\n" in [result["output"] for result in results]
    assert "without_sandbox" in str([result["message"] for result in results])


@pytest.mark.spec("R-186")
def test_a_command_outside_the_sandbox_is_asked_about_by_itself(place: Place) -> None:
    place.config = '[sandbox]\nmode = "workspace"\n'
    out = "echo x > ../other.txt"
    place.script(shell("c1", out), shell("c2", out, without_sandbox=True), "text: Done.")
    results, asked = outcomes(place)
    assert [result["is_error"] for result in results] == [True, False]
    assert asked == ["run command", "run command outside the sandbox"]
    assert (place.root / "other.txt").read_text() == "x\n"


@pytest.mark.spec("R-186")
@pytest.mark.parametrize("option", ["--yolo", "--afk", "--plan"])
def test_the_model_cannot_leave_where_nobody_answers(place: Place, option: str) -> None:
    place.script(shell("c1", "echo x > ../other.txt", without_sandbox=True), "text: Done.")
    results, asked = outcomes(place, "--sandbox", "workspace", option)
    assert [result["is_error"] for result in results] == [True]
    assert asked == []
    assert not (place.root / "other.txt").exists()


@pytest.mark.spec("R-189")
def test_background_tasks_are_confined(place: Place) -> None:
    command = "echo x > ../other.txt; echo y > sub/new.txt"
    wait = call("c2", "TaskList", {"active_only": False})
    place.script(
        shell("c1", command, run_in_background=True, description="d"), shell("c3", "sleep 1"), wait, "text: Done."
    )
    outcomes(place, "--sandbox", "workspace")
    assert (place.work / "sub/new.txt").read_text() == "y\n"
    assert not (place.root / "other.txt").exists()


@pytest.mark.spec("R-188")
def test_commands_in_plan_mode_change_nothing(place: Place) -> None:
    place.script(shell("c1", "echo x > sub/new.txt"), "text: Done.")
    results, asked = outcomes(place, "--plan")
    assert [result["is_error"] for result in results] == [True]
    assert asked == ["run command"]
    assert not (place.work / "sub/new.txt").exists()


@pytest.mark.spec("R-188")
def test_an_explore_subagent_changes_nothing(place: Place) -> None:
    task = {"description": "look", "prompt": "look around", "subagent_type": "explore"}
    place.script(
        call("a1", "Agent", task),
        shell("c1", "echo x > sub/new.txt; echo looked"),
        f"text: {'I have looked at everything. ' * 20}",
        shell("c2", "echo mine > sub/mine.txt"),
        "text: Done.",
    )
    outcomes(place)
    assert (place.work / "sub/mine.txt").read_text() == "mine\n"
    assert not (place.work / "sub/new.txt").exists()


def test_nothing_is_left_of_the_sandbox_when_the_session_ends(place: Place) -> None:
    place.script(shell("c1", "echo $TMPDIR; echo x > $TMPDIR/x"), "text: Done.")
    with place.wire("--sandbox", "workspace") as kimi:
        kimi.initialize()
        kimi.prompt("go", approve)
        [result] = [payload["return_value"] for payload in kimi.payloads("ToolResult")]
        temp = Path(str(result["output"]).strip())
        assert (temp / "x").exists()
        kimi.end_input()
        assert kimi.wait() == 0
    assert not temp.exists()
    assert not (place.work / ".kimi").exists()
    assert not (place.work / ".git").exists()


def run_without_help(place: Place, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_KERNEL_HELP, *arguments],
        cwd=place.work,
        env=place.full_environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.spec("R-185")
def test_a_start_without_a_working_sandbox_is_refused_with_advice(place: Place) -> None:
    place.script("text: Done.")
    for arguments in (("--sandbox", "workspace"), ("--sandbox", "read-only")):
        for mode in ("--wire", "--print"):
            done = run_without_help(place, *arguments, mode)
            message = " ".join(done.stderr.split())
            assert done.returncode == 1, message
            assert "A sandbox was asked for, but none works here. Install bubblewrap" in message
            assert "Traceback" not in message
            assert done.stdout == ""
    assert run_without_help(place, "--print", "-c", "hi").returncode == 0
    assert run_without_help(place, "--sandbox", "off", "--print", "-c", "hi").returncode == 0


def test_where_no_sandbox_works_commands_run_as_ever_without_one(place: Place) -> None:
    place.script(shell("c1", "echo x > sub/new.txt"), "text: Done.")
    assert run_without_help(place, "--sandbox", "off", "--print", "-c", "hi").returncode == 0
    assert (place.work / "sub/new.txt").exists()


@pytest.mark.spec("R-187")
def test_doctor_names_the_sandbox_or_what_to_install(place: Place) -> None:
    place.script("text: Done.")
    works = place.run("doctor").stdout.decode()
    assert "sandbox: " in works
    assert "It does not close everything: " in works
    missing = run_without_help(place, "--sandbox", "workspace", "doctor").stdout
    assert "sandbox: The mode is workspace, but none works here. Install bubblewrap" in missing


def test_an_unknown_mode_is_a_usage_error(place: Place) -> None:
    assert place.run("--sandbox", "everything", "--wire").returncode == 2
    place.config = '[sandbox]\nmode = "everything"\n'
    place.script("text: Done.")
    done = place.run("--wire")
    assert done.returncode == 1
    assert "sandbox.mode" in done.stderr.decode()
