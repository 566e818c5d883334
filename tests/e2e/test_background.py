"""Background tasks over the wire: what model, client and person see of them, and that none outlives the program."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program.processes import all_gone, marked
from tests.support.program.wire_process import Json, Place, WireProcess, approve, eventually


def call(name: str, call_id: str = "c1", **arguments: object) -> str:
    """A line of a script: the model calls a tool."""
    return "tool_call: " + json.dumps({"id": call_id, "name": name, "arguments": json.dumps(arguments)})


def background(command: str, call_id: str = "c1", **more: object) -> str:
    return call("Shell", call_id, command=command, run_in_background=True, description="a long job", **more)


def results(kimi: WireProcess) -> list[Json]:
    return [payload["return_value"] for payload in kimi.payloads("ToolResult")]


def only_task(place: Place) -> Path:
    [directory] = place.session_dirs()[-1].glob("tasks/*")
    return directory


def status(task: Path) -> str:
    return json.loads((task / "runtime.json").read_text())["status"]


@pytest.mark.spec("T-57", "R-146")
def test_a_task_is_started_after_approval(marked_place: Place) -> None:
    bad = call("Shell", command="sleep 100", run_in_background=True, description=" ")
    marked_place.script(bad, background("sleep 100"), "text: Started.")
    with marked_place.wire() as kimi:
        kimi.initialize()
        asked: list[Json] = []

        def answer(params: Json) -> Json | None:
            asked.append(params["payload"])
            return approve(params)

        assert kimi.prompt("go", answer)["result"] == {"status": "finished"}
        refused, started = results(kimi)
        assert "description is required when run_in_background is true" in refused["message"]
        assert refused["is_error"]
        [request] = asked
        assert (request["action"], request["description"]) == (
            "run background command",
            "Run background command `sleep 100`",
        )
        assert request["display"] == [{"type": "shell", "language": "bash", "command": "sleep 100"}]
        task_id = only_task(marked_place).name
        lines = str(started["output"]).split("\n")
        assert lines[:6] == [
            f"task_id: {task_id}",
            "kind: bash",
            lines[2],
            "description: a long job",
            "command: sleep 100",
            "automatic_notification: true",
        ]
        assert lines[2] in ("status: starting", "status: running")
        assert [line.partition(":")[0] for line in lines[6:]] == ["next_step"] * 3 + ["human_shell_hint"]
        assert started["message"] == "Background task started."
        brief, block = started["display"]
        assert brief == {"type": "brief", "text": f"Started {task_id}"}
        assert block == {
            "type": "background_task",
            "task_id": task_id,
            "kind": "bash",
            "status": lines[2].partition(": ")[2],
            "description": "a long job",
        }


@pytest.mark.spec("T-58", "R-146")
def test_the_fifth_task_is_refused_and_stop_ends_the_group(marked_place: Place, word: str) -> None:
    starts = [background("sleep 100 & setsid sleep 100", f"c{number}") for number in range(5)]
    marked_place.script("\n".join(starts), "text: Done.")
    with marked_place.wire("--yolo") as kimi:
        kimi.initialize()
        kimi.prompt("go")
        refused = [result for result in results(kimi) if result["is_error"]]
        text = "Failed to start background task: Too many background tasks are already running."
        assert [result["message"] for result in refused] == [text]
        assert refused[0]["display"] == [{"type": "brief", "text": "Start failed"}]
        assert eventually(lambda: len(marked(word)) >= 4 * 3)


@pytest.mark.spec("T-60", "R-146")
@pytest.mark.parametrize("end", ["eof", "term", "kill"])
def test_no_task_outlives_the_program(marked_place: Place, word: str, end: str) -> None:
    marked_place.script(background("sleep 100 & setsid sleep 100 & sleep 100"), "text: Started.")
    with marked_place.wire("--yolo") as kimi:
        kimi.initialize()
        kimi.prompt("go")
        assert eventually(lambda: len(marked(word)) >= 5)
        if end == "eof":
            assert kimi.finish() == 0
        else:
            kimi.process.send_signal(signal.SIGTERM if end == "term" else signal.SIGKILL)
            kimi.wait()
        assert all_gone(word)
        assert status(only_task(marked_place)) == "killed"


@pytest.mark.spec("T-60", "R-146")
def test_tasks_are_kept_alive_when_so_configured(marked_place: Place, word: str) -> None:
    marked_place.config = "[background]\nkeep_alive_on_exit = true\n"
    marked_place.script(background("sleep 100"), "text: Started.")
    with marked_place.wire("--yolo") as kimi:
        kimi.initialize()
        kimi.prompt("go")
        task = only_task(marked_place)
        assert eventually(lambda: status(task) == "running")
        assert kimi.finish() == 0
    assert status(task) == "running"
    assert marked(word)
    (task / "control.json").write_text('{"stop": true}')
    assert eventually(lambda: status(task) == "killed")
    assert all_gone(word)


@pytest.mark.spec("W-97", "R-147")
def test_client_and_model_are_notified_once(marked_place: Place) -> None:
    wait = "until [ -e done ]; do sleep 0.05; done; echo all is well"
    marked_place.script(
        background(wait),
        call("Shell", "c2", command="touch done; sleep 1.5"),
        "text: I see.",
        "text: Nothing new.",
    )
    with marked_place.wire("--yolo") as kimi:
        kimi.initialize(client={"name": "test", "version": "1"})
        kimi.prompt("go")
        [note] = kimi.payloads("Notification")
        task_id = only_task(marked_place).name
        assert (note["category"], note["type"], note["severity"]) == ("task", "task.completed", "success")
        assert (note["source_kind"], note["source_id"]) == ("background_task", task_id)
        assert note["title"] == "Background task completed: a long job"
        assert f"task_id: {task_id}" in note["body"]
        assert isinstance(note["created_at"], float)
        assert isinstance(note["id"], str)
        assert note["payload"]["exit_code"] == 0
        assert kimi.types.index("Notification") < len(kimi.types) - 1 - kimi.types[::-1].index("ToolResult")
        kimi.prompt("again")
        assert len(kimi.payloads("Notification")) == 1
        kimi.finish()
    told = [record for record in marked_place.context() if "<notification" in json.dumps(record)]
    assert len(told) == 1
    assert told[0]["role"] == "user"
    assert "all is well" in json.dumps(told[0])


@pytest.mark.spec("R-147", "W-88")
def test_task_that_ended_between_turns_is_notified_in_next_turn(marked_place: Place) -> None:
    marked_place.script(background("exit 4"), "text: Started.", "text: It failed.")
    with marked_place.wire("--yolo") as kimi:
        kimi.initialize(client={"name": "test", "version": "1"})
        kimi.prompt("go")
        assert eventually(lambda: status(only_task(marked_place)) == "failed")
        kimi.prompt("and now?")
        assert [note["type"] for note in kimi.payloads("Notification")] == ["task.failed"]
        second = kimi.types.index("TurnBegin", 1)
        assert kimi.types.index("Notification") > second == kimi.types.index("TurnEnd") + 1  # nothing between turns
        assert kimi.finish() == 0
    assert len([record for record in marked_place.context() if "exit_code: 4" in json.dumps(record)]) == 1


def test_worker_starts_with_the_standard_library_only(place: Place) -> None:
    """It is started for each task: nothing but the standard library may be needed."""
    program = (
        "import sys; sys.path.append(sys.argv[1]); import kimi.infrastructure.background.worker; "
        "print([name for name in ('anyio', 'pydantic', 'asyncio') if name in sys.modules])"
    )
    root = Path(__file__).resolve().parents[2] / "infrastructure"
    command = [sys.executable, "-I", "-S", "-c", program, str(root)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place.work)
    assert (outcome.stdout, outcome.stderr) == ("[]\n", "")
