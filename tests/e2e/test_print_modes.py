"""Print mode and what a person would decide or wait for: plans, questions, background tasks (runtime spec 1.7)."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from tests.support.program.processes import all_gone, comes_true, marked
from tests.support.program.program import kimi_command
from tests.support.program.terminal import terminal
from tests.support.program.wire_process import Json, Place
from tests.support.providers.scripts import call, shell, step

QUESTION = {"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}


def ask(call_id: str) -> str:
    return call(call_id, "AskUserQuestion", {"questions": [QUESTION]})


def stored(place: Place) -> Json:
    """The state of the only session."""
    [session] = place.session_dirs()
    return json.loads((session / "state.json").read_text())


def converse(place: Place, mode: str, *more: str) -> dict[str, str]:
    """Run the script to its end in this mode; gives the results of its calls, as the model reads them."""
    if mode == "print":
        assert place.run("--print", *more, "-p", "go").returncode == 0
    else:
        with place.wire("--afk", *more) as kimi:
            kimi.initialize(capabilities={"supports_question": True, "supports_plan_mode": True})
            kimi.prompt("go")
            assert not {"QuestionRequest", "ApprovalRequest"} & set(kimi.types)
            assert kimi.finish() == 0
    return {record["tool_call_id"]: json.dumps(record) for record in place.context() if record["role"] == "tool"}


@pytest.mark.spec("T-107", "T-95")
@pytest.mark.parametrize("mode", ["print", "afk"])
def test_plan_mode_works_unattended(place: Place, mode: str) -> None:
    place.script(call("p1", "EnterPlanMode"), "text: planning")
    assert "Plan mode is on." in converse(place, mode)["p1"]
    plan = place.share / "plans" / f"{stored(place)['plan_slug']}.md"
    place.script(
        step(call("w1", "WriteFile", {"path": str(plan), "content": "1. do it"}), ask("q1"), shell("s1", "touch made")),
        call("p2", "ExitPlanMode"),
        shell("s2", "touch carried-out"),
        "text: done",
    )
    results = converse(place, mode, "--continue")
    assert plan.read_text() == "1. do it"
    assert "No user is present." in results["q1"]
    assert not (place.work / "made").exists()
    assert "ERROR" in results["s1"]
    assert "the plan counts as approved" in results["p2"]
    assert (place.work / "carried-out").exists()
    assert stored(place)["approval"] == {"yolo": False, "afk": mode == "afk", "auto_approve_actions": []}
    assert stored(place)["plan_mode"] is False


# --- background tasks -------------------------------------------------------------------------------------------


def background(call_id: str, command: str, **more: object) -> str:
    return shell(call_id, command, run_in_background=True, description="a long job", **more)


def once_said(text: str) -> str:
    """A command that runs until the agent has said this."""
    return f"until grep -q '\"{text}\"' ../share/sessions/*/*/context.jsonl; do sleep 0.05; done"


def task_states(place: Place) -> list[str]:
    [session] = place.session_dirs()
    return sorted(json.loads(path.read_text())["status"] for path in session.glob("tasks/*/runtime.json"))


def notifications(place: Place) -> list[str]:
    """What the model was told of ended tasks."""
    return [json.dumps(record) for record in place.context() if "<notification " in json.dumps(record)]


def without_hint(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stderr.decode().partition("\nTo resume")[0]


@pytest.mark.spec("R-148")
def test_print_mode_waits_for_tasks_and_runs_a_turn_for_each(marked_place: Place, word: str) -> None:
    marked_place.script(
        step(
            background("c1", f"{once_said('both run')}; echo one"),
            background("c2", f"{once_said('the first is done')}; echo two; exit 3"),
        ),
        "text: both run",
        "text: the first is done",
        "error: 400 cannot deal with it",
    )
    done = marked_place.run("--quiet", "-p", "go")
    assert done.returncode == 0  # a failure after the answer does not count
    assert done.stdout.decode() == "both run\nthe first is done\n"
    assert without_hint(done) == "The result of background work was not dealt with: cannot deal with it\n"
    assert task_states(marked_place) == ["completed", "failed"]
    first, second = notifications(marked_place)
    assert "one" in first
    assert "exit_code: 3" in second
    assert all_gone(word)


@pytest.mark.spec("R-148")
def test_print_mode_waits_for_background_agent(place: Place) -> None:
    work = {"description": "a long job", "prompt": "Do it, please.", "run_in_background": True}
    said = "x" * 250  # long enough for a report, whichever of the two gets it
    place.script(
        call("c1", "Agent", work), f"text: {said}", f"text: {said}", "text: all done", "text: and nothing more"
    )
    done = place.run("--quiet", "-p", "go")
    assert (done.returncode, without_hint(done)) == (0, "")
    assert done.stdout.decode() in (f"{said}\nall done\n", f"{said}\n")  # it may have ended before the last step
    assert "task.completed" in notifications(place)[0]


@pytest.mark.spec("R-148")
@pytest.mark.parametrize("limit", ["ceiling", "longest task"])
def test_waiting_for_tasks_is_limited(marked_place: Place, word: str, limit: str) -> None:
    if limit == "ceiling":
        marked_place.config = "[background]\nprint_wait_ceiling_s = 1\n"
    timeout = 1 if limit == "longest task" else 100
    marked_place.script(background("c1", "sleep 100", timeout=timeout), "text: it runs", "text: it was stopped")
    done = marked_place.run("--quiet", "-p", "go")
    assert done.stdout.decode() == "it runs\nit was stopped\n"
    if limit == "ceiling":
        assert done.returncode == 1
        assert without_hint(done) == "timed out waiting for background tasks (1s), killed 1 tasks\n"
        assert task_states(marked_place) == ["killed"]
        assert "task.killed" in notifications(marked_place)[0]
    assert all_gone(word)


@pytest.mark.spec("R-148")
@pytest.mark.parametrize("reason", ["kept alive", "messages", "failed"])
def test_print_mode_does_not_wait_after_failure_or_for_kept_alive_tasks(
    marked_place: Place, word: str, reason: str
) -> None:
    if reason == "kept alive":
        marked_place.config = "[background]\nkeep_alive_on_exit = true\n"
    answer = "error: 400 no" if reason == "failed" else "text: ok"
    marked_place.script(background("c1", "sleep 100"), answer, "text: never")
    arguments = ("--input-format", "stream-json") if reason == "messages" else ()
    done = marked_place.run("--quiet", *arguments, "-p", "go", timeout=15)
    assert done.returncode == (1 if reason == "failed" else 0)
    assert done.stdout.decode() == ("no\n" if reason == "failed" else "ok\n")
    if reason == "kept alive":
        assert marked(word)
        for control in marked_place.share.glob("sessions/*/*/tasks/*"):
            (control / "control.json").write_text('{"stop": true}')
    assert all_gone(word)


def test_interrupt_ends_waiting_for_tasks(marked_place: Place, word: str) -> None:
    marked_place.script(background("c1", "sleep 100"), "text: it runs")
    with subprocess.Popen(
        [*kimi_command(), "--quiet", "-p", "go"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=marked_place.work,
        env=marked_place.full_environ(),
    ) as kimi:
        assert kimi.stdout is not None
        assert kimi.stdout.readline() == b"it runs\n"
        kimi.send_signal(signal.SIGINT)
        assert kimi.stdout.read() == b"Interrupted by user\n"
        assert kimi.wait(20) == 1
    assert all_gone(word)


def test_closed_stdout_ends_waiting_for_tasks(marked_place: Place, word: str) -> None:
    marked_place.script(background("c1", "sleep 100"), "text: it runs")
    done = subprocess.run(
        ["sh", "-c", '"$@" | head -n 1 > out', "sh", *kimi_command(), "--quiet", "-p", "go"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=marked_place.work,
        env=marked_place.full_environ(),
        timeout=20,
        check=False,
    )
    assert done.returncode == 0
    assert (marked_place.work / "out").read_text() == "it runs\n"
    assert comes_true(lambda: not marked(word))


# --- print mode without its name, and what it tells of sessions and subagents ------------------------------------


@pytest.mark.spec("R-287")
def test_a_prompt_without_a_terminal_is_for_print_mode(place: Place) -> None:
    place.write_config("_echo")
    named = place.run("--print", "-p", "text: hello")
    for option in ("-p", "--prompt", "-c", "--command"):
        done = place.run(option, "text: hello")
        assert (done.returncode, done.stdout) == (0, named.stdout) == (0, b"text: hello\n\nhello\n")
    done = place.run("-p", "text: hello", "--output-format", "stream-json")
    assert json.loads(done.stdout.splitlines()[0]) == {"role": "assistant", "content": "hello"}
    place.config = "[loop_control]\nmax_retries_per_step = 1\n"
    assert place.script("error: 503 busy").run("-p", "go").returncode == 75
    assert place.run().returncode == 1  # no prompt: the shell, which needs a terminal
    assert b"needs a terminal" in place.run().stderr


@pytest.mark.spec("R-287")
def test_an_option_of_print_mode_makes_a_prompt_on_a_terminal_one_of_print_mode(place: Place) -> None:
    place.script("text: hello")
    with terminal(place, "-p", "go", "--final-message-only") as shown:
        assert shown.wait() == 0
        assert shown.text.strip().splitlines()[0] == "hello"
        assert "To resume this session: kimi -r" in shown.text


@pytest.mark.spec("R-288")
def test_stream_json_ends_with_the_session_that_stderr_names(place: Place) -> None:
    for script, status in (("text: fine", 0), ("error: 400 bad", 1)):
        done = place.script(script).run("-p", "go", "--output-format", "stream-json")
        assert done.returncode == status
        last = json.loads(done.stdout.splitlines()[-1])
        assert last == {"role": "meta", "type": "session", "session_id": place.session_dirs()[-1].name}
        assert done.stderr.decode() == f"\nTo resume this session: kimi -r {last['session_id']}\n"
    done = place.script("text: more").run("-r", last["session_id"], "-p", "go on", "--output-format", "stream-json")
    assert json.loads(done.stdout.splitlines()[-1]) == last
    empty = place.run("--print", "--output-format", "stream-json")
    assert (empty.returncode, empty.stdout, empty.stderr) == (0, b"", b"")
    only = place.script("text: fine").run("-p", "go", "--output-format", "stream-json", "--final-message-only")
    assert [json.loads(line) for line in only.stdout.splitlines()] == [{"role": "assistant", "content": "fine"}]


@pytest.mark.spec("R-289")
def test_steps_of_a_subagent_are_in_stream_json(place: Place) -> None:
    report = "I looked at everything that matters and wrote down what I found. " * 4
    started = call("p1", "Agent", {"description": "look", "prompt": "look around", "subagent_type": "coder"})
    place.script(started, shell("c1", "echo found"), f"text: {report}", "text: done")
    done = place.run("-p", "go", "--output-format", "stream-json")
    assert done.returncode == 0
    told: list[Json] = [json.loads(line) for line in done.stdout.splitlines()]
    inner = [one for one in told if one.get("type") == "subagent"]
    assert {(one["subagent_type"], one["tool_call_id"]) for one in inner} == {("coder", "p1")}
    (agent_id,) = {one["agent_id"] for one in inner}
    records = (place.session_dirs()[-1] / "subagents" / agent_id / "context.jsonl").read_text().splitlines()
    stored = [json.loads(line) for line in records]
    assert [one["message"] for one in inner] == [one for one in stored if one["role"] in ("assistant", "tool")]
    assert [one["role"] for one in told if one["role"] != "meta"] == ["assistant", "tool", "assistant"]
