"""`kimi batch` from the outside: task file, results, kills, budgets, worktrees (runtime spec 10)."""

from __future__ import annotations

import json
import os
import pty
import random
import resource
import signal
import subprocess
import time
from contextlib import suppress
from importlib.util import find_spec

import pytest

from tests.support.program.batches import Batch, batch_of, slow_tasks, task
from tests.support.program.pace import slowdown
from tests.support.program.processes import all_gone, comes_true, find_below, is_alive
from tests.support.program.program import finished, kimi_command, start
from tests.support.program.wire_process import Json, Place

LONG = os.environ.get("KIMI_LONG_TESTS") == "1"
TASKS, DELAY_MS, KILLS, JOBS = (200, 200, 10, 8) if LONG else (30, 50, 3, 4)


def by_id(batch: Batch) -> dict[str, Json]:
    return {result["id"]: result for result in batch.results()}


# --- results ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-430")
def test_each_task_has_one_result_with_its_answer(place: Place) -> None:
    usage = "text: hello\nusage: input_other=7 output=3"
    batch = batch_of(place, task("one", usage, metadata={"row": 1}), task("two"))
    status, stderr = batch.run("-j", "2")
    assert (status, batch.answers()) == (0, {"one": "hello", "two": "answer of two"})
    result = by_id(batch)["one"]
    tokens = {"input_other": 7, "output": 3, "input_cache_read": 0, "input_cache_creation": 0, "cost": None}
    assert (result["status"], result["attempts"], result["usage"]) == ("done", 1, tokens)
    assert (result["metadata"], result["work_dir"]) == ({"row": 1}, str(place.root / "work/one"))
    assert set(result) == {
        *("id", "status", "answer", "session_id", "usage", "seconds", "attempts", "error", "work_dir", "worktree"),
        *("diff", "metadata"),
    }
    assert stderr == f"2 tasks; 2 done; 10 tokens in all. Results: {batch.results_path}\n"
    listed = json.loads(place.run("sessions", "list", "--all", "--json").stdout)["sessions"]
    assert {one["id"] for one in listed} == {one["session_id"] for one in batch.results()}
    done = finished(start(["--quiet", "--continue", "-p", "text: on"], place.root / "work/one", place.full_environ()))
    assert result["session_id"] in done.stderr.decode()


def test_what_cannot_be_stored_at_the_end_takes_no_summary_away(place: Place) -> None:
    index = place.share / "kimi.json"
    arguments = json.dumps({"command": f"rm -f {index}; mkdir -p {index}/taken"})
    call = json.dumps({"id": "c", "name": "Shell", "arguments": arguments})
    batch = batch_of(place, task("one", f"tool_call: {call}", max_tokens=1))
    status, stderr = batch.run()
    assert (status, set(by_id(batch))) == (1, {"one"})
    assert stderr.startswith("1 tasks; 1 ")
    assert str(index) in "".join(stderr.partition("\n")[2].split())


@pytest.mark.spec("R-431")
def test_a_wrong_line_is_named_before_anything_runs(place: Place) -> None:
    batch = batch_of(place, task("first"))
    with batch.path.open("a") as file:
        file.write('\n{"id": "a", "promt": "x", "work_dir": ".", "env": {"KEY": "sk-secret"}}\n')
    status, stderr = batch.run()
    told = " ".join(stderr.split())
    assert (status, batch.results_path.exists(), "sk-secret" in told) == (1, False, False)
    assert "tasks.jsonl, line 3: unknown key 'promt'; the keys are id, prompt, work_dir" in told


@pytest.mark.spec("R-432")
def test_what_a_task_says_wins_over_the_options(place: Place) -> None:
    slow = "delay_ms: 30000\ntext: late"
    spend = 'usage: input_other=90 output=90\ntool_call: {"id": "c", "name": "Think", "arguments": "{}"}'
    batch = batch_of(
        place,
        task("slow", slow, timeout=0.3),
        task("default", slow),
        task("spender", spend, max_tokens=100),
        task("model", model="nobody"),
        task("nowhere", work_dir="absent"),
        task("busy", "error: 503 busy", retries=1, timeout=30),
        task("bad", "error: 400 bad", retries=3),
    )
    status, stderr = batch.run("--timeout", "1", "-j", "7")
    found = {key: (one["status"], one["error"]["code"], one["attempts"]) for key, one in by_id(batch).items()}
    assert found == {
        "slow": ("timeout", "timeout", 1),
        "default": ("timeout", "timeout", 1),
        "spender": ("budget", "max_tokens", 1),
        "model": ("failed", "config", 1),
        "nowhere": ("failed", "work_dir", 1),
        "busy": ("failed", "provider", 2),
        "bad": ("failed", "provider", 1),
    }
    assert (status, by_id(batch)["slow"]["error"]["message"]) == (1, "It was not done within 0.3 s.")
    assert "7 tasks; 1 budget, 4 failed, 2 timeout" in stderr
    assert batch.run() == (1, stderr.replace("; 180", "; 7 had their result already; 180"))


@pytest.mark.spec("R-433")
def test_the_mode_decides_what_runs_without_a_user(place: Place) -> None:
    write = 'tool_call: {"id": "c", "name": "Shell", "arguments": "{\\"command\\": \\"touch made\\"}"}'
    place.write_config("_echo")
    modes = ("afk", "edits", "default", "plan")
    batch = batch_of(place, *(task(mode, write, mode=mode) for mode in modes), task("none", write))
    batch.run("-j", "5")
    assert {one for one in (*modes, "none") if (place.root / "work" / one / "made").exists()} == {"afk", "none"}
    (place.root / "work/none/made").unlink()
    batch.results_path.unlink()
    batch.journal_path.unlink()
    batch.run("-j", "5", before=("--plan",))
    assert not (place.root / "work/none/made").exists()


def test_variables_of_a_task_are_those_of_its_commands_alone(place: Place) -> None:
    show = 'tool_call: {"id": "c", "name": "Shell", "arguments": "{\\"command\\": \\"echo $WORD > word\\"}"}'
    batch = batch_of(place, task("one", show, env={"WORD": "first"}), task("two", show))
    batch.run("-j", "2", "--workers", "1")
    words = [(place.root / "work" / one / "word").read_text() for one in ("one", "two")]
    assert words == ["first\n", "\n"]


# --- resumed ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-434")
@pytest.mark.timeout(300 if LONG else 60)
def test_a_batch_killed_at_any_moment_gives_each_result_once(place: Place) -> None:
    batch = batch_of(place, *slow_tasks(TASKS, DELAY_MS))
    moments = random.Random(7)
    for kill in range(KILLS):
        with batch.started("-j", str(JOBS)) as coordinator:
            batch.wait_for_results(TASKS * kill // (KILLS + 1) + 1)
            time.sleep(moments.uniform(0, 2 * DELAY_MS / 1000))
            coordinator.kill()
    status, _ = batch.run("-j", str(JOBS))
    assert (status, batch.answers()) == (0, {f"t{number}": f"answer {number}" for number in range(TASKS)})
    finished: set[str] = set()
    for line in map(json.loads, batch.journal_path.read_bytes().splitlines()):
        assert line["type"] != "started" or line["id"] not in finished
        finished |= {line["id"]} if line["type"] == "finished" else set()
    written = batch.results_path.read_bytes()
    assert batch.run()[0] == 0
    assert batch.results_path.read_bytes() == written


@pytest.mark.spec("R-435")
def test_workers_of_a_killed_coordinator_end_and_then_another_may_begin(place: Place) -> None:
    batch = batch_of(place, task("a", "delay_ms: 60000\ntext: late"), task("b"))
    with batch.started("-j", "2", "--workers", "2") as coordinator:
        batch.wait_for_results(1)
        workers = find_below(coordinator.pid)
        assert len(workers) == 2
        coordinator.kill()
    batch.path.write_text(batch.path.read_text().replace("60000", "1"))  # what has no result may change
    assert batch.run()[0] == 0
    assert not any(is_alive(worker) for worker in workers)
    assert batch.answers() == {"a": "late", "b": "answer of b"}
    assert all_gone(str(place.share))


@pytest.mark.spec("R-436")
def test_a_second_coordinator_of_the_same_results_is_refused(place: Place) -> None:
    batch = batch_of(place, task("a", "delay_ms: 60000\ntext: late"))
    with batch.started() as coordinator:
        batch.wait_for_start()
        status, stderr = batch.run()
        assert status == 1
        assert f"process {coordinator.pid}" in " ".join(stderr.split())


@pytest.mark.spec("R-437")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_what_runs_and_leaves_it_for_the_next_run(place: Place, number: signal.Signals) -> None:
    batch = batch_of(place, task("quick"), task("slow", "delay_ms: 60000\ntext: late"), task("later"))
    with batch.started("-j", "2") as coordinator:
        batch.wait_for_results(2)
        batch.wait_for_start(3)  # which task gets a slot first is not said
        coordinator.send_signal(number)
        assert coordinator.wait(20) == (130 if number == signal.SIGINT else -signal.SIGTERM)
    assert set(batch.answers()) == {"quick", "later"}
    assert [(one["id"], one["reason"]) for one in batch.records("ended")] == [("slow", "stopped")]
    assert all_gone(str(place.share))
    batch.path.write_text(batch.path.read_text().replace("60000", "1"))
    assert batch.run()[0] == 0
    assert batch.answers()["slow"] == "late"


@pytest.mark.spec("R-438")
def test_a_torn_line_is_completed_and_nothing_is_cut_off(place: Place) -> None:
    batch = batch_of(place, task("a"), task("b"))
    assert batch.run("-j", "1")[0] == 0
    whole = batch.results_path.read_bytes()
    for torn in (b"", whole[:1], whole[:60], whole[: whole.index(b"\n") + 9], whole[:-1]):
        batch.results_path.write_bytes(torn)
        with batch.journal_path.open("ab") as file:
            file.write(b'{"type":"sta')
        assert batch.run()[0] == 0
        assert sorted(batch.results_path.read_bytes().splitlines()) == sorted(whole.splitlines())
        assert batch.results_path.read_bytes().startswith(torn)


@pytest.mark.spec("R-439")
def test_results_of_something_else_are_refused_and_left(place: Place) -> None:
    batch = batch_of(place, task("a"))
    for foreign in (b'{"id": "a", "status": "done"}\n', b"my notes", b"my notes\n"):
        batch.results_path.write_bytes(foreign)
        status, stderr = batch.run()
        assert (status, batch.results_path.read_bytes()) == (1, foreign)
        assert "choose another --output" in " ".join(stderr.split())
        batch.journal_path.unlink(missing_ok=True)
    batch.results_path.unlink()
    assert batch.run()[0] == 0
    batch.path.write_text(batch.path.read_text().replace("answer of", "another answer of"))
    status, stderr = batch.run()
    assert (status, "was changed after it got its result" in " ".join(stderr.split())) == (1, True)


def test_a_full_disk_ends_a_batch_with_a_sentence_and_loses_nothing(place: Place) -> None:
    batch = batch_of(place, *slow_tasks(8, 200))
    with batch.started("-j", "4", "--workers", "2") as coordinator:
        batch.wait_for_results(2)
        unlimited = resource.RLIM_INFINITY
        resource.prlimit(coordinator.pid, resource.RLIMIT_FSIZE, (batch.journal_path.stat().st_size + 30, unlimited))
        assert coordinator.wait(30) == 1
        assert coordinator.stderr is not None
        stderr = " ".join(coordinator.stderr.read().decode().split())
    assert stderr.startswith(f"Cannot write {batch.journal_path}: file too large; raise the limit"), stderr
    assert all_gone(str(place.share))
    assert batch.run()[0] == 0
    assert batch.answers() == {f"t{number}": f"answer {number}" for number in range(8)}


def test_workers_that_hang_on_are_told_from_another_coordinator(place: Place) -> None:
    """A stopped worker cannot notice that its coordinator has died, and would go on with it later."""
    batch = batch_of(place, task("a", "delay_ms: 60000\ntext: late"))
    with batch.started("--workers", "1") as coordinator:
        batch.wait_for_start()
        (worker,) = find_below(coordinator.pid)
        os.kill(worker, signal.SIGSTOP)
        coordinator.kill()
        coordinator.wait()
        try:
            status, stderr = batch.run()
        finally:
            os.kill(worker, signal.SIGKILL)
    assert (status, "Workers of a `kimi batch`" in " ".join(stderr.split())) == (1, True)


def test_a_directory_that_no_result_could_name_is_refused(place: Place) -> None:
    directory = place.root / os.fsdecode(b"d\xff")
    (directory / "work").mkdir(parents=True)
    batch = Batch(place, directory / "tasks.jsonl")
    batch.path.write_text(json.dumps(task("a", work_dir="work")))
    status, stderr = batch.run()
    assert (status, "is not UTF-8" in stderr, set(os.listdir(directory))) == (1, True, {"work", "tasks.jsonl"})


# --- budgets and workers ----------------------------------------------------------------------------------------


@pytest.mark.spec("R-440")
def test_total_tokens_hold_over_all_runs_of_a_batch(place: Place) -> None:
    spend = "text: done\nusage: input_other=60 output=40"
    batch = batch_of(place, *(task(f"t{number}", spend) for number in range(6)))
    status, stderr = batch.run("-j", "1", "--total-tokens", "300")
    assert (status, len(batch.answers())) == (1, 3)
    assert stderr.startswith("The tokens of the batch are used up. 6 tasks; 3 done; 3 left for the next run")
    assert batch.run("-j", "1", "--total-tokens", "300")[0] == 1
    assert len(batch.answers()) == 3
    assert batch.run("-j", "1", "--total-tokens", "601")[0] == 0


def test_what_uses_up_the_tokens_and_is_done_keeps_its_result(place: Place) -> None:
    """It is paid for; thrown away, the next run would pay for it again."""
    spend = "text: done\nusage: input_other=60 output=40"
    batch = batch_of(place, *(task(f"t{number}", spend) for number in range(6)))
    assert batch.run("-j", "1", "--total-tokens", "250")[0] == 1
    assert (len(batch.answers()), batch.records("ended")) == (3, [])


@pytest.mark.spec("R-441")
def test_total_time_leaves_the_rest_for_the_next_run(place: Place) -> None:
    batch = batch_of(place, task("slow", "delay_ms: 60000\ntext: late"), task("quick"))
    status, stderr = batch.run("-j", "2", "--total-time", str(3 * slowdown()))
    assert (status, list(batch.answers())) == (1, ["quick"])
    assert stderr.startswith("The time of the batch is over. 2 tasks; 1 done; 1 left for the next run")


@pytest.mark.spec("R-442")
def test_a_lost_worker_costs_its_attempts_and_nothing_else(place: Place) -> None:
    batch = batch_of(place, *slow_tasks(6, 300))
    with batch.started("-j", "3", "--workers", "1") as coordinator:
        batch.wait_for_results(1)
        (worker,) = find_below(coordinator.pid)
        os.kill(worker, signal.SIGKILL)
        assert coordinator.wait(30) == 0
    assert batch.answers() == {f"t{number}": f"answer {number}" for number in range(6)}
    assert {one["reason"] for one in batch.records("ended")} == {"lost"}


@pytest.mark.spec("R-443")
def test_a_task_that_ends_its_worker_fails_and_takes_no_other_along(place: Place) -> None:
    batch = batch_of(place, task("poison", "delay_ms: 60000\ntext: late"), *slow_tasks(4, 100))
    with batch.started("-j", "5", "--workers", "1") as coordinator:
        batch.wait_for_results(4)
        for losses in range(3):
            batch.wait_for_start(5 + losses)
            assert comes_true(lambda: len(find_below(coordinator.pid)) == 1)
            os.kill(find_below(coordinator.pid)[0], signal.SIGKILL)
        assert coordinator.wait(30) == 1
    result = by_id(batch)["poison"]
    assert (result["status"], result["error"]["code"], result["attempts"]) == ("failed", "worker_lost", 3)
    assert [one["status"] for one in batch.results()].count("done") == 4


def test_workers_that_do_not_start_end_the_batch_and_fail_no_task(place: Place) -> None:
    batch = batch_of(place, *(task(f"t{number}") for number in range(4)))
    trap = place.root / "trap"
    trap.mkdir()
    (trap / "sitecustomize.py").write_text(
        "import os, sys\nif 'kimi.interfaces.batch.worker' in sys.orig_argv: os._exit(7)\n"
    )
    place.environ["PYTHONPATH"] = str(trap)
    status, stderr = batch.run()
    told = " ".join(stderr.split())
    assert (status, batch.results()) == (1, [])
    assert told.startswith("No worker of the batch could be started: the last one ended with status 7"), told
    del place.environ["PYTHONPATH"]
    assert batch.run()[0] == 0
    assert {one["attempts"] for one in batch.results()} == {1}


def test_commands_cannot_read_keys_from_the_processes_of_a_batch(place: Place) -> None:
    secret = f"sk-{os.urandom(8).hex()}"
    look = f'cat /proc/[0-9]*/environ 2>/dev/null | tr -c "[:print:]" "\\n" | grep -a {secret} > seen; echo > looked'
    call = json.dumps({"id": "c", "name": "Shell", "arguments": json.dumps({"command": look})})
    batch = batch_of(place, task("a", f"tool_call: {call}"))
    place.environ["KIMI_API_KEY"] = secret
    batch.run()
    directory = place.root / "work/a"
    assert ((directory / "looked").exists(), (directory / "seen").read_text()) == (True, "")


@pytest.mark.spec("R-448")
@pytest.mark.timeout(300 if LONG else 60)
def test_jobs_are_kept_busy_while_their_models_take_their_time(place: Place) -> None:
    """Measured between two ends, so that neither the start of the workers counts nor the last attempts.

    A machine that others keep busy as well gives the attempts less than they need, and only a rough bound holds.
    """
    count, jobs, delay_s = (200, 8, 0.2) if LONG else (40, 4, 0.2)
    batch = batch_of(place, *slow_tasks(count, round(delay_s * 1000)))
    idle, total = processor_times()
    assert batch.run("-j", str(jobs))[0] == 0
    idle_share = (processor_times()[0] - idle) / (processor_times()[1] - total)
    ends = sorted(record["at"] for record in batch.records("finished"))
    first, last = jobs, count - jobs
    share = (last - first) * delay_s / jobs / (ends[last] - ends[first])
    print(f"{share:.1%} of {jobs / delay_s:g} tasks a second, the processor was idle for {idle_share:.0%}")
    assert share >= (0.9 if LONG and idle_share > 0.5 else 0.4 / slowdown())


def processor_times() -> tuple[int, int]:
    """How long the cores were idle, and how long in all, since the start of the machine."""
    with open("/proc/stat") as file:
        times = [int(word) for word in file.readline().split()[1:9]]
    return times[3] + times[4], sum(times)


@pytest.mark.spec("R-449")
def test_the_bar_is_shown_on_a_terminal_alone(place: Place) -> None:
    batch = batch_of(place, *slow_tasks(4, 400))
    assert "\x1b" not in batch.run("-j", "1")[1]
    for path in (batch.results_path, batch.journal_path):
        path.unlink()
    reader, terminal = pty.openpty()
    command = [*kimi_command(), "batch", str(batch.path), "-j", "1"]
    environ = {**place.full_environ(), "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stderr=terminal, stdout=subprocess.PIPE, cwd=place.work, env=environ) as program:
        os.close(terminal)
        shown = read_terminal(reader)
        assert (program.wait(), program.stdout and program.stdout.read()) == (0, b"")
    assert all(word in shown for word in ("\x1b[", "1/4", "1 running", "4 tasks; 4 done")), shown


def read_terminal(reader: int) -> str:
    """All that is shown until the other side is closed."""
    blocks: list[bytes] = []
    with suppress(OSError):  # how the end of a terminal looks on Linux
        while block := os.read(reader, 65536):
            blocks.append(block)
    os.close(reader)
    return b"".join(blocks).decode()


def test_a_batch_runs_without_stderr(place: Place) -> None:
    batch = batch_of(place, task("a"))
    script = ("sh", "-c", 'exec "$@" 2>&-', "sh", *kimi_command(), "batch", str(batch.path))
    assert subprocess.run(script, cwd=place.work, env=place.full_environ(), check=False).returncode == 0
    assert batch.answers() == {"a": "answer of a"}


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_a_cluster_without_ray_is_told_what_to_install(place: Place) -> None:
    status, stderr = batch_of(place, task("a")).run("--ray", "local")
    assert (status, "install `kimi-wire[ray]`" in " ".join(stderr.split())) == (1, True)


def test_options_of_another_use_are_refused(place: Place) -> None:
    batch = batch_of(place, task("a"))
    for before in (("--continue",), ("--session", "x"), ("-p", "x"), ("--print",)):
        status, stderr = batch.run(before=before)
        assert (status, "batch" in stderr) == (2, True)


# --- worktrees --------------------------------------------------------------------------------------------------


def make_repository(place: Place) -> None:
    repository = place.root / "repo"
    repository.mkdir()
    (repository / "f.txt").write_text("one\n")
    (repository / ".gitattributes").write_text("* filter=trap\n")
    (repository / "hook").write_text(f"#!/bin/sh\ntouch {place.root}/hook-ran\n")
    git(place, "init", "-q", "-b", "main")
    git(place, "add", "-A")
    git(place, "-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-q", "-m", "first")
    for name in ("smudge", "clean"):
        git(place, "config", f"filter.trap.{name}", f"touch {place.root}/filter-ran; cat")
    hook = repository / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {place.root}/hook-ran\n")
    hook.chmod(0o755)


def git(place: Place, *arguments: str) -> str:
    return subprocess.check_output(("git", *arguments), cwd=place.root / "repo", text=True).strip()


@pytest.mark.spec("R-444")
def test_each_worktree_task_has_a_branch_and_a_measure_of_its_changes(place: Place) -> None:
    make_repository(place)
    change = (
        'tool_call: {"id": "c", "name": "Shell", "arguments": "{\\"command\\": \\"echo two >> f.txt; touch new\\"}"}'
    )
    source = {"repository": "repo"}
    batch = batch_of(
        place,
        task("change", change, worktree=source),
        task("named", worktree={**source, "branch": "mine/x", "ref": "main"}),
        task("taken", worktree={**source, "branch": "main"}),
        task("absent", worktree={**source, "ref": "nothing"}),
        task("elsewhere", worktree={"repository": "work"}),
    )
    batch.run()
    found = by_id(batch)
    directory = place.root / "tasks.results.worktrees"
    commit = git(place, "rev-parse", "main")
    assert found["change"]["worktree"] == {
        "path": str(directory / "change"),
        "repository": str(place.root / "repo"),
        "branch": "kimi/batch/change",
        "commit": commit,
    }
    assert found["change"]["diff"] == {"files": 1, "insertions": 1, "deletions": 0, "untracked": 1}
    assert (found["named"]["status"], found["named"]["worktree"]["branch"]) == ("done", "mine/x")
    assert (directory / "change/f.txt").read_text() == "one\ntwo\n"
    assert (place.root / "repo/f.txt").read_text() == "one\n"
    codes = {key: found[key]["error"]["code"] for key in ("taken", "absent", "elsewhere")}
    assert set(codes.values()) == {"worktree"}
    assert "exists already" in found["taken"]["error"]["message"]
    assert {path.name for path in place.root.iterdir()} & {"hook-ran", "filter-ran"} == set()


@pytest.mark.spec("R-445")
def test_a_broken_off_attempt_is_run_anew_in_a_fresh_worktree(place: Place) -> None:
    make_repository(place)
    source = {"repository": "repo"}
    batch = batch_of(place, task("a", "delay_ms: 60000\ntext: late", worktree=source), task("b", worktree=source))
    with batch.started("-j", "2") as coordinator:
        batch.wait_for_results(1)
        batch.wait_for_start(2)
        (place.root / "tasks.results.worktrees/a/left").write_text("of the first attempt")
        coordinator.kill()
    batch.path.write_text(batch.path.read_text().replace("60000", "1"))
    assert batch.run()[0] == 0
    result = by_id(batch)["a"]
    assert (result["answer"], result["attempts"], result["diff"]["untracked"]) == ("late", 2, 0)
    assert git(place, "branch", "--format=%(refname:short)").splitlines() == ["kimi/batch/a", "kimi/batch/b", "main"]
