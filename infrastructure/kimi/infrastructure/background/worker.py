"""The worker of one background task: a process of its own that runs the command and records its outcome.

Standard library only, and no more of it than needed, because it is started for every task. It lives as long as the
command. If the task must not outlive the program, standard input is a pipe whose other end only the program holds: its
end of file means that the program is gone, for whatever reason.
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
from typing import Any, Final

from kimi.infrastructure.background.task_files import (
    CONTROL_FILE,
    RUNTIME_FILE,
    SPEC_FILE,
    open_output,
    read_object,
    touch_heartbeat,
    write_object,
)
from kimi.infrastructure.workspace.process_table import end_tree_now, is_group_alive, read_start_mark

CONTROL_POLL_S: Final = 0.5
"""The interval at which the control file is read."""

LEAVING_GRACE_S: Final = 0.5
"""Seconds between termination and killing when the program is gone."""

PROGRAM_GONE: Final = "The program that started the task has ended."


@dataclass
class _WorkerRun:
    """A running command. `stop_reason` is why to end it, if there is a reason; `wake_up` ends a wait early."""

    directory: str
    spec: Mapping[str, Any]
    runtime: dict[str, Any]
    child: subprocess.Popen[bytes]
    wake_up: threading.Event = field(default_factory=threading.Event)
    stop_reason: str = ""
    grace_s: float = 0.0
    timed_out: bool = False


def main(directory: str) -> None:
    """Run the task of this directory to its end."""
    spec = read_object(directory, SPEC_FILE)
    runtime: dict[str, Any] = {"worker_pid": os.getpid(), "worker_mark": read_start_mark(os.getpid())}
    # Before the command starts, so that a slow start does not look like a lost worker.
    touch_heartbeat(directory)
    try:
        child = _start_command(directory, spec)
    except (OSError, ValueError) as error:
        # ValueError: a NUL or half a surrogate pair cannot be part of a command line.
        _write_runtime(
            directory, runtime, status="failed", ended_at=time.time(), reason=f"Command execution failed: {error}"
        )
        return
    mark = read_start_mark(child.pid)
    with suppress(OSError):  # a full disk is no reason to abandon the command
        _write_runtime(directory, runtime, status="running", started_at=time.time(), pid=child.pid, mark=mark)
    run = _WorkerRun(directory, spec, runtime, child)
    _install_listeners(run)
    _wait_for_end(run)
    _finish(run)


def _start_command(directory: str, spec: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    output = open_output(directory)
    try:
        return subprocess.Popen(
            spec["words"],
            cwd=spec["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            creationflags=subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0,
        )
    finally:
        os.close(output)


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
        control = read_object(run.directory, CONTROL_FILE)
        if control.get("stop"):
            _request_stop(run, str(control.get("reason") or "Stopped."), run.spec["grace_s"])


def _finish(run: _WorkerRun) -> None:
    """End the rest of the command and its descendants, and record the outcome."""
    ended_by_us = run.child.poll() is None
    if ended_by_us or is_group_alive(run.child.pid):
        end_tree_now(run.child.pid, run.grace_s if ended_by_us else LEAVING_GRACE_S)
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


def _write_runtime(directory: str, runtime: dict[str, Any], **changes: Any) -> None:
    runtime.update(changes)
    write_object(directory, RUNTIME_FILE, runtime)
