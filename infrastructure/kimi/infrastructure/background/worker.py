"""The worker of one background task: a process of its own that runs the command and records its outcome.

Standard library only, and no more of it than needed, because it is started for every task. It lives as long as the
command. If the task must not outlive the program, standard input is a pipe whose other end only the program holds: its
end of file means that the program is gone, for whatever reason.

On Linux it is two processes: a guard, and its fork, which does the work and to which everything falls that the command
starts and lets go of. If one of them is killed, the other one ends all of that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from kimi.infrastructure.background.output_log import DEFAULT_MAX_BYTES, OutputLog
from kimi.infrastructure.background.task_files import (
    CONTROL_FILE,
    RUNTIME_FILE,
    SPEC_FILE,
    read_object,
    touch_heartbeat,
    write_object,
)
from kimi.infrastructure.workspace.process_table import end_tree_now, is_group_alive, read_start_mark

CONTROL_POLL_S: Final = 0.5
"""The interval at which the control file is read."""

LEAVING_GRACE_S: Final = 0.5
"""Seconds between termination and killing when the program is gone."""

_PAUSE_S: Final = 0.01
_PATIENCE_S: Final = 2.0
"""How long killed processes are awaited: those of another user cannot be killed."""
_DRAIN_S: Final = 1.0
"""How long the rest of the output is copied after everything has ended."""
_BLOCK_BYTES: Final = 256 * 1024

PROGRAM_GONE: Final = "The program that started the task has ended."


@dataclass
class _WorkerRun:
    """A running command. `stop_reason` is why to end it, if there is a reason; `wake_up` ends a wait early."""

    directory: str
    spec: Mapping[str, Any]
    runtime: dict[str, Any]
    child: subprocess.Popen[bytes]
    keeps_orphans: bool
    """Whether everything that the command lets go of falls to this process."""
    copying: threading.Thread
    """Copies the output."""
    wake_up: threading.Event = field(default_factory=threading.Event)
    stop_reason: str = ""
    grace_s: float = 0.0
    timed_out: bool = False


def main(directory: str) -> None:
    """Run the task of this directory to its end."""
    spec = read_object(directory, SPEC_FILE)
    leader = os.getpid()
    keeps_orphans = _fork_worker()
    runtime: dict[str, Any] = {"worker_pid": leader, "worker_mark": read_start_mark(leader)}
    # Before the command starts, so that a slow start does not look like a lost worker.
    touch_heartbeat(directory)
    try:
        child, copying = _start_command(directory, spec)
    except (OSError, ValueError) as error:
        # ValueError: a NUL or half a surrogate pair cannot be part of a command line.
        _write_runtime(
            directory, runtime, status="failed", ended_at=time.time(), reason=f"Command execution failed: {error}"
        )
        return
    mark = read_start_mark(child.pid)
    with suppress(OSError):  # a full disk is no reason to abandon the command
        _write_runtime(directory, runtime, status="running", started_at=time.time(), pid=child.pid, mark=mark)
    run = _WorkerRun(directory, spec, runtime, child, keeps_orphans, copying)
    _install_listeners(run)
    _wait_for_end(run)
    _finish(run)


def _fork_worker() -> bool:
    """Fork, and go on as the child of a guard; return whether orphans fall to this process now."""
    if sys.platform != "linux":
        return False
    from kimi.infrastructure.launcher.containment import die_with_parent, keep_descendants

    guard = os.getpid()
    try:
        keep_descendants("kimi-task-guard")
        worker = os.fork()
    except OSError:
        return False
    if worker:
        _guard_worker(worker)
    os.setpgid(0, 0)  # so that no signal to a group reaches both
    keep_descendants("kimi-task")
    die_with_parent(guard)
    return True


def _guard_worker(worker: int) -> NoReturn:
    """Wait for the end of the worker, then end everything that is left; ends this process."""
    from kimi.infrastructure.launcher.containment import end_children, send

    signal.signal(signal.SIGTERM, lambda number, frame: send(worker, signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(ChildProcessError):
        os.waitpid(worker, 0)
    end_children()
    os._exit(0)


def _start_command(directory: str, spec: Mapping[str, Any]) -> tuple[subprocess.Popen[bytes], threading.Thread]:
    log = OutputLog(directory, spec.get("max_output_bytes") or DEFAULT_MAX_BYTES)
    try:
        child = subprocess.Popen(
            spec["words"],
            cwd=spec["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
            creationflags=subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0,
        )
    except BaseException:
        log.close()
        raise
    copying = threading.Thread(target=_copy_output, args=(child, log), daemon=True)
    copying.start()
    return child, copying


def _copy_output(child: subprocess.Popen[bytes], log: OutputLog) -> None:
    """Copy the output until no process holds its other end."""
    assert child.stdout is not None
    while block := os.read(child.stdout.fileno(), _BLOCK_BYTES):
        with suppress(OSError):  # a full disk is no reason to hold up the command
            log.write(block)


def _install_listeners(run: _WorkerRun) -> None:
    """Watch for the end of the command, the end of the program, and a signal to end."""

    def ended() -> None:
        run.child.wait()
        run.wake_up.set()

    def program_gone() -> None:
        with suppress(OSError):
            while os.read(0, 1024):
                pass
        _request_stop(run, PROGRAM_GONE, LEAVING_GRACE_S)

    def told(number: int, frame: object) -> None:
        del frame
        # A signal handler must not take a lock, because the main thread may hold it: the event stays unset, and the
        # main thread notices the reason when its wait of `CONTROL_POLL_S` ends.
        run.stop_reason, run.grace_s = f"The worker was ended by {signal.Signals(number).name}.", LEAVING_GRACE_S

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=ended, daemon=True).start()
    if not run.spec["keep_alive"]:
        threading.Thread(target=program_gone, daemon=True).start()


def _request_stop(run: _WorkerRun, reason: str, grace_s: float) -> None:
    if not run.stop_reason:
        run.stop_reason, run.grace_s = reason, grace_s
    run.wake_up.set()


def _wait_for_end(run: _WorkerRun) -> None:
    """Wait for the end of the command, or for a reason to end it."""
    deadline = time.monotonic() + run.spec["timeout_s"]
    next_beat = 0.0
    while run.child.poll() is None and not run.stop_reason:
        now = time.monotonic()
        if now >= deadline:
            run.timed_out = True
            _request_stop(run, f"Command killed by timeout ({run.spec['timeout_s']:g}s)", run.spec["grace_s"])
            return
        if now >= next_beat:
            with suppress(OSError):  # a full disk is no reason to end the command
                touch_heartbeat(run.directory)
            next_beat = now + run.spec["heartbeat_s"]
        run.wake_up.wait(max(0.0, min(CONTROL_POLL_S, deadline - now, next_beat - now)))
        if run.keeps_orphans:
            _reap_orphans(run.child.pid)
        control = read_object(run.directory, CONTROL_FILE)
        if control.get("stop"):
            _request_stop(run, str(control.get("reason") or "Stopped."), run.spec["grace_s"])


def _finish(run: _WorkerRun) -> None:
    """End the rest of the command and its descendants, and record the outcome."""
    ended_by_us = run.child.poll() is None
    grace_s = run.grace_s if ended_by_us else LEAVING_GRACE_S
    if run.keeps_orphans:
        _end_rest(run.child.pid, grace_s)
    elif ended_by_us or is_group_alive(run.child.pid):
        end_tree_now(run.child.pid, grace_s)
    run.copying.join(_DRAIN_S)
    code = run.child.wait()
    status, reason = "completed", ""
    if ended_by_us:
        status, reason = ("failed" if run.timed_out else "killed"), run.stop_reason
    elif code != 0:
        status, reason = "failed", f"Command failed with exit code: {code}."
    timed_out = ended_by_us and run.timed_out
    _write_runtime(
        run.directory, run.runtime, status=status, ended_at=time.time(), exit_code=code, timed_out=timed_out,
        reason=reason,
    )  # fmt: skip


def _end_rest(command: int, grace_s: float) -> None:
    """End everything below this process: ask, wait at most `grace_s` seconds, kill."""
    from kimi.infrastructure.launcher.containment import ask_to_end, kill_trees

    ask_to_end(_reap_orphans(command))
    now = time.monotonic()
    while (rest := _reap_orphans(command)) and time.monotonic() < now + grace_s + _PATIENCE_S:
        if time.monotonic() >= now + grace_s:
            kill_trees(rest)
        time.sleep(_PAUSE_S)


def _reap_orphans(command: int) -> list[int]:
    """Reap what has ended, except the command, for which a thread waits; return the children that are left."""
    from kimi.infrastructure.launcher.containment import find_children

    left: list[int] = []
    for pid in find_children(os.getpid()):
        try:
            is_left = pid == command or os.waitpid(pid, os.WNOHANG)[0] == 0
        except ChildProcessError:
            continue
        if is_left:
            left.append(pid)
    return left


def _write_runtime(directory: str, runtime: dict[str, Any], **changes: Any) -> None:
    runtime.update(changes)
    write_object(directory, RUNTIME_FILE, runtime)
