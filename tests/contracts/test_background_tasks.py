"""The contract of `BackgroundTasks`, over worker processes and over the double; then what only processes can show."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from kimi.application.conversation.background_tasks import wait_for_task
from kimi.application.ports import BackgroundTasks
from kimi.application.settings.settings import BackgroundSettings
from kimi.domain.background import BackgroundTask, BackgroundTaskSpec
from kimi.domain.errors import TooManyTasks
from kimi.infrastructure.background.tasks import LocalBackgroundTasks
from tests.support.background_tasks import FakeTasks
from tests.support.program.escapes import ESCAPES, Fugitives
from tests.support.program.pace import slowdown
from tests.support.program.processes import all_gone, comes_true, find_below, marked

pytestmark = pytest.mark.anyio

MakeLocal = Callable[..., LocalBackgroundTasks]


def order(command: str, timeout_s: float = 60) -> BackgroundTaskSpec:
    """A command line of the shell that every system of the tests has."""
    return BackgroundTaskSpec(command, "a test", ("/bin/sh", "-c", command), timeout_s)


async def outcome(tasks: BackgroundTasks, task: BackgroundTask) -> BackgroundTask:
    """The task when it has ended."""
    found = await wait_for_task(tasks, task.id, 20, 0.02)
    assert found is not None
    assert not found.is_active
    return found


@pytest.fixture
def word() -> str:
    """A name that marks the environment of everything that a test starts."""
    return f"MARK_{uuid.uuid4().hex}"


@pytest.fixture
def local(tmp_path: Path, word: str) -> Iterator[MakeLocal]:
    """Makes the real adapter over one session directory; keywords are settings. All its tasks are ended."""
    made: list[LocalBackgroundTasks] = []

    def make(**settings: Any) -> LocalBackgroundTasks:
        environ = {**os.environ, word: "1"}
        made.append(LocalBackgroundTasks(str(tmp_path), BackgroundSettings(**settings), str(tmp_path), environ))
        return made[-1]

    yield make
    for tasks in made:
        tasks.stop_all()
    assert all_gone(word)


@pytest.fixture(params=["processes", "double"])
def tasks(request: pytest.FixtureRequest, local: MakeLocal) -> BackgroundTasks:
    """Each adapter in turn."""
    return local() if request.param == "processes" else FakeTasks()


# --- the contract ---------------------------------------------------------------------------------------------


@pytest.mark.spec("T-59")
async def test_task_outcomes_are_distinguished(tasks: BackgroundTasks) -> None:
    done = await outcome(tasks, tasks.start(order("exit 0")))
    failed = await outcome(tasks, tasks.start(order("exit 3")))
    running = tasks.start(order("sleep 100"))
    tasks.stop(running.id, "no longer needed")
    killed = await outcome(tasks, running)
    assert (done.status, done.exit_code, done.reason) == ("completed", 0, "")
    assert (failed.status, failed.exit_code, failed.reason) == ("failed", 3, "Command failed with exit code: 3.")
    assert (killed.status, killed.reason) == ("killed", "no longer needed")
    assert [task.id for task in tasks.list_tasks()] == [killed.id, failed.id, done.id]


async def test_output_returns_the_tail(tasks: BackgroundTasks) -> None:
    task = await outcome(tasks, tasks.start(order("echo one two three")))
    whole, part = tasks.read_output(task.id, 1000), tasks.read_output(task.id, 6)
    assert (whole.text, whole.total_bytes, whole.is_truncated) == ("one two three\n", 14, False)
    assert (part.text, part.total_bytes, part.is_truncated) == ("three\n", 14, True)


async def test_each_sink_is_announced_once(tasks: BackgroundTasks) -> None:
    assert tasks.find_unannounced("llm") == []
    running = tasks.start(order("sleep 100"))
    ended = await outcome(tasks, tasks.start(order("exit 1")))
    assert [task.id for task in tasks.find_unannounced("llm")] == [ended.id]
    tasks.mark_announced(ended.id, "llm")
    assert tasks.find_unannounced("llm") == []
    assert [task.id for task in tasks.find_unannounced("wire")] == [ended.id]
    tasks.mark_announced(ended.id, "wire")
    assert tasks.find_unannounced("wire") == []
    tasks.stop_all()
    await tasks.wait_until_stopped(5)
    await outcome(tasks, running)
    assert [task.id for task in tasks.find_unannounced("wire")] == [running.id]


async def test_adopted_task_has_the_status_set_by_its_owner(tasks: BackgroundTasks) -> None:
    reasons: list[str] = []
    task = tasks.adopt(BackgroundTaskSpec("", "by hand", (), 60, "agent"), reasons.append)
    assert (task.kind, task.is_active, task.id.startswith("agent-")) == ("agent", True, True)
    tasks.set_status(task.id, "awaiting_approval")
    waiting = tasks.find(task.id)
    assert waiting is not None
    assert waiting.status == "awaiting_approval"
    tasks.stop(task.id, "enough")
    assert reasons == ["enough"]
    tasks.append_output(task.id, "half ")
    tasks.append_output(task.id, "done")
    tasks.set_status(task.id, "failed", reason="too late", timed_out=True)
    tasks.set_status(task.id, "completed")
    tasks.append_output(task.id, " and more")
    tasks.stop(task.id, "too late, too")
    tasks.stop_all()
    assert reasons == ["enough"]
    ended = await outcome(tasks, task)
    assert (ended.status, ended.reason, ended.timed_out) == ("failed", "too late", True)
    assert tasks.read_output(task.id, 100).text == "half done"
    assert [one.id for one in tasks.find_unannounced("llm")] == [task.id]


async def test_adopted_task_is_notified_of_program_end(tasks: BackgroundTasks) -> None:
    reasons: list[str] = []
    tasks.adopt(BackgroundTaskSpec("", "by hand", (), 60, "agent"), reasons.append)
    tasks.stop_all()
    assert len(reasons) == 1


async def test_task_that_was_not_adopted_cannot_be_changed(tasks: BackgroundTasks) -> None:
    task = tasks.start(order("sleep 100"))
    tasks.set_status(task.id, "completed")
    tasks.append_output(task.id, "text")
    found = tasks.find(task.id)
    assert found is not None
    assert (found.is_active, tasks.read_output(task.id, 100).text) == (True, "")


async def test_running_tasks_are_limited(tasks: BackgroundTasks) -> None:
    started = [tasks.start(order("sleep 100")) for _ in range(4)]
    with pytest.raises(TooManyTasks, match=r"^Too many background tasks are already running\.$"):
        tasks.start(order("exit 0"))
    tasks.stop(started[0].id, "room")
    await outcome(tasks, started[0])
    tasks.start(order("exit 0"))


async def test_unknown_ids_are_no_tasks(tasks: BackgroundTasks) -> None:
    for task_id in ("bash-zzzzzzzz", "../../etc", "", "B"):
        assert tasks.find(task_id) is None
        assert tasks.read_output(task_id, 10).text == ""
        tasks.stop(task_id, "why not")
        tasks.set_status(task_id, "completed")
        tasks.append_output(task_id, "text")


# --- processes ------------------------------------------------------------------------------------------------


@pytest.mark.spec("T-59", "R-146")
async def test_command_is_killed_at_its_timeout(local: MakeLocal) -> None:
    tasks = local()
    ended = await outcome(tasks, tasks.start(order("echo so far; sleep 100", 1)))
    assert (ended.status, ended.timed_out, ended.reason) == ("failed", True, "Command killed by timeout (1s)")
    assert tasks.read_output(ended.id, 100).text == "so far\n"


STUBBORN = "trap '' TERM; (trap '' TERM; sleep 100) & setsid sh -c \"trap '' TERM; sleep 100\" & sleep 100; sleep 100"


@pytest.mark.spec("T-58", "R-146")
async def test_stopping_ends_the_whole_tree(local: MakeLocal, word: str) -> None:
    tasks = local(kill_grace_period_ms=300)
    task = tasks.start(order(STUBBORN))
    assert comes_true(lambda: len(marked(word)) >= 6)
    tasks.stop(task.id, "enough")
    assert (await outcome(tasks, task)).status == "killed"
    assert all_gone(word)


async def test_children_of_an_ended_command_are_killed(local: MakeLocal, word: str) -> None:
    tasks = local()
    ended = await outcome(tasks, tasks.start(order("sleep 100 & exit 0")))
    assert ended.status == "completed"
    assert all_gone(word)


async def test_program_that_cannot_be_started_fails_the_task(local: MakeLocal) -> None:
    tasks = local()
    ended = await outcome(tasks, tasks.start(BackgroundTaskSpec("x", "a test", ("/no/such/shell", "-c", "x"), 5)))
    assert (ended.status, ended.exit_code) == ("failed", None)
    assert ended.reason.startswith("Command execution failed: [Errno 2]")


async def test_a_session_without_a_directory_has_no_tasks() -> None:
    tasks = LocalBackgroundTasks(None, BackgroundSettings(), "/", {})
    with pytest.raises(OSError, match="this session has no directory"):
        tasks.start(order("exit 0"))
    assert (tasks.list_tasks(), tasks.find("bash-00000000"), tasks.find_unannounced("llm")) == ([], None, [])


async def test_tasks_end_with_their_program(local: MakeLocal, word: str) -> None:
    tasks = local()
    task = tasks.start(order("sleep 100 & setsid sleep 100"))
    assert comes_true(lambda: len(marked(word)) >= 4)
    tasks.stop_all()
    await tasks.wait_until_stopped(5)
    assert all_gone(word)
    assert (await outcome(tasks, task)).reason == "The program that started the task has ended."


async def test_kept_alive_tasks_outlive_their_program(local: MakeLocal) -> None:
    first = local(keep_alive_on_exit=True)
    task = first.start(order("sleep 100"))
    first.stop_all()
    await first.wait_until_stopped(0.1)
    second = local(keep_alive_on_exit=True)
    assert comes_true(lambda: getattr(second.find(task.id), "status", "") == "running")
    second.stop(task.id, "after all")
    assert (await outcome(second, task)).status == "killed"
    assert [one.id for one in second.find_unannounced("llm")] == [task.id]


async def test_restart_announces_only_unannounced_tasks(local: MakeLocal) -> None:
    first = local()
    told = await outcome(first, first.start(order("exit 0")))
    untold = await outcome(first, first.start(order("exit 1")))
    for sink in ("llm", "wire"):
        first.mark_announced(told.id, sink)
    second = local()
    assert [task.id for task in second.find_unannounced("llm")] == [untold.id]
    assert len(second.list_tasks()) == 2


def runtime(tmp_path: Path, task: BackgroundTask) -> dict[str, Any]:
    return json.loads((tmp_path / "tasks" / task.id / "runtime.json").read_text())


async def test_an_adopted_task_is_lost_as_soon_as_another_program_opens_the_session(local: MakeLocal) -> None:
    task = local().adopt(BackgroundTaskSpec("", "by hand", (), 60, "agent"), lambda reason: None)
    later = local()
    lost = await outcome(later, task)
    assert (lost.status, lost.reason) == ("lost", "The program that carried out the task has ended.")
    assert [one.id for one in later.find_unannounced("llm")] == [task.id]


async def test_a_dead_worker_is_lost_and_its_command_ended(local: MakeLocal, tmp_path: Path, word: str) -> None:
    tasks = local(worker_stale_after_ms=1000)
    task = tasks.start(order("sleep 100"))
    assert comes_true(lambda: runtime(tmp_path, task)["status"] == "running")
    guard = runtime(tmp_path, task)["worker_pid"]
    for pid in (guard, *find_below(guard)):  # so that nobody is left who could end the command
        os.kill(pid, signal.SIGKILL)
    await anyio.sleep(0.2)
    found = tasks.find(task.id)
    assert found is not None
    assert found.is_active
    lost = await outcome(tasks, task)
    assert (lost.status, lost.reason) == ("lost", "The worker of the task has not been heard of.")
    assert all_gone(word)
    assert [one.id for one in tasks.find_unannounced("llm")] == [task.id]


async def test_without_its_guard_a_worker_ends_the_task(local: MakeLocal, tmp_path: Path, word: str) -> None:
    tasks = local()
    task = tasks.start(order("setsid -f sleep 100; sleep 100"))
    assert comes_true(lambda: runtime(tmp_path, task)["status"] == "running")
    os.kill(runtime(tmp_path, task)["worker_pid"], signal.SIGKILL)
    ended = await outcome(tasks, task)
    assert (ended.status, ended.reason) == ("killed", "The worker was ended by SIGTERM.")
    assert all_gone(word)


async def test_without_its_worker_the_guard_ends_the_command(local: MakeLocal, tmp_path: Path, word: str) -> None:
    task = local().start(order("setsid -f sleep 100; sleep 100"))
    assert comes_true(lambda: runtime(tmp_path, task)["status"] == "running")
    [worker] = find_below(runtime(tmp_path, task)["worker_pid"])
    os.kill(worker, signal.SIGKILL)
    assert all_gone(word)


@pytest.mark.spec("R-170")
@pytest.mark.parametrize("how", ["stop", "time-out", "end of the program"])
async def test_nothing_that_a_task_has_started_outlives_it(local: MakeLocal, how: str) -> None:
    fugitives = Fugitives()
    tasks = local(kill_grace_period_ms=200, max_running_tasks=len(ESCAPES))
    timeout_s = 3 if how == "time-out" else 60
    started = [
        tasks.start(BackgroundTaskSpec(line, "a test", ("/bin/bash", "-c", line), timeout_s))
        for line in fugitives.lines(then_wait=True)
    ]
    if how != "time-out":
        assert await anyio.to_thread.run_sync(fugitives.all_ran)
        for task in started if how == "stop" else ():
            tasks.stop(task.id, "no longer needed")
    if how == "end of the program":
        tasks.stop_all()
    for task in started:
        await outcome(tasks, task)
    assert fugitives.left_after(1.0 * slowdown()) == set()


@pytest.mark.spec("R-172")
async def test_of_long_output_the_beginning_and_the_end_are_kept(local: MakeLocal, tmp_path: Path) -> None:
    tasks = local(max_output_bytes=65_536)
    task = tasks.start(order("seq 1 100000; sleep 0.2; echo the end"))
    log = tmp_path / "tasks" / task.id / "output.log"
    largest = 0
    with anyio.fail_after(20):
        while (found := tasks.find(task.id)) is not None and found.is_active:
            largest = max(largest, log.stat().st_size)
            await anyio.sleep(0.002)
    text = log.read_bytes()
    assert max(largest, len(text)) <= 65_536 + 200
    assert text.startswith(b"1\n2\n3\n")
    assert text.endswith(b"99999\n100000\nthe end\n")
    [missing] = re.findall(rb"\n\[(\d+) bytes were left out here, because the output is longer than \S+\]\n", text)
    note = len(b"\n[ bytes were left out here, because the output is longer than background.max_output_bytes]\n")
    whole = len("".join(f"{number}\n" for number in range(1, 100_001))) + len("the end\n")
    assert len(text) - note - len(missing) + int(missing) == whole


@pytest.mark.spec("R-172")
def test_output_of_a_subagent_is_bounded_too(local: MakeLocal, tmp_path: Path) -> None:
    tasks = local(max_output_bytes=65_536)
    task = tasks.adopt(BackgroundTaskSpec("", "by hand", (), 60, "agent"), lambda reason: None)
    for number in range(200):
        tasks.append_output(task.id, f"{number} " + "x" * 1000)
    tasks.set_status(task.id, "completed")
    text = (tmp_path / "tasks" / task.id / "output.log").read_text()
    assert len(text) <= 65_536 + 200
    assert text.startswith("0 xxx")
    assert "199 xxx" in text


@pytest.mark.spec("T-59", "R-146")
@pytest.mark.parametrize(("age_s", "status"), [(14, "running"), (16, "lost")])
async def test_worker_is_lost_after_fifteen_seconds_without_heartbeat(
    local: MakeLocal, tmp_path: Path, age_s: int, status: str
) -> None:
    tasks = local(worker_heartbeat_interval_ms=60_000)
    task = tasks.start(order("sleep 100"))
    assert comes_true(lambda: runtime(tmp_path, task)["status"] == "running")
    await anyio.sleep(0.2)  # its one heartbeat is over
    heard = time.time() - age_s
    os.utime(tmp_path / "tasks" / task.id / "heartbeat", (heard, heard))
    found = tasks.find(task.id)
    assert found is not None
    assert found.status == status


async def test_worker_gets_time_for_a_heartbeat_after_system_sleep(tmp_path: Path, word: str) -> None:
    slept_s = 0.0
    settings = BackgroundSettings(worker_stale_after_ms=1000)
    environ = {**os.environ, word: "1"}
    tasks = LocalBackgroundTasks(str(tmp_path), settings, str(tmp_path), environ, now=lambda: time.time() + slept_s)
    task = tasks.start(order("sleep 100"))
    assert comes_true(lambda: runtime(tmp_path, task)["status"] == "running")
    slept_s = 3600
    for _ in range(2):
        found = tasks.find(task.id)
        assert found is not None
        assert found.is_active
    await anyio.sleep(1.1)  # the next heartbeat is five seconds away
    found = tasks.find(task.id)
    assert found is not None
    assert found.status == "lost"
    assert all_gone(word)


async def test_a_multibyte_character_is_not_cut_in_two(local: MakeLocal) -> None:
    tasks = local()
    task = await outcome(tasks, tasks.start(order("printf 'a\\303\\251b'")))
    assert tasks.read_output(task.id, 2).text == "b"
    assert tasks.read_output(task.id, 3).text == "\u00e9b"


async def test_task_files_are_private_to_the_owner(local: MakeLocal, tmp_path: Path) -> None:
    tasks = local()
    task = await outcome(tasks, tasks.start(order("exit 0")))
    directory = tmp_path / "tasks" / task.id
    assert directory.stat().st_mode & 0o077 == 0
    assert [path.name for path in directory.iterdir() if path.stat().st_mode & 0o077] == []


async def test_announcement_that_cannot_be_stored_is_not_repeated(local: MakeLocal, tmp_path: Path) -> None:
    tasks = local()
    task = await outcome(tasks, tasks.start(order("exit 0")))
    assert [one.id for one in tasks.find_unannounced("llm")] == [task.id]
    directory = tmp_path / "tasks" / task.id
    shutil.rmtree(directory)
    directory.write_text("a file where the directory was")
    tasks.mark_announced(task.id, "llm")
    assert tasks.find_unannounced("llm") == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("consumer.json", {"announced": 5}),
        ("runtime.json", {"status": ["odd"], "ended_at": "late", "exit_code": "x", "reason": None}),
        ("spec.json", {"id": "../x", "kind": "agent", "created_at": 1, "command": None, "timeout_s": None}),
        ("spec.json", {"id": 5, "kind": "odd", "created_at": "x"}),
    ],
)
async def test_invalid_files_of_other_programs_are_tolerated(
    local: MakeLocal, tmp_path: Path, name: str, content: dict[str, Any]
) -> None:
    tasks = local()
    task = await outcome(tasks, tasks.start(order("exit 0")))
    (tmp_path / "tasks" / task.id / name).write_text(json.dumps(content))
    later = local()
    for one in (*later.list_tasks(), *later.find_unannounced("llm")):
        assert one.id == task.id
        assert [type(value) for value in (one.command, one.reason)] == [str, str]
        assert one.timeout_s >= 0
        assert not one.is_active
        later.mark_announced(one.id, "llm")
    assert later.find_unannounced("llm") == []
