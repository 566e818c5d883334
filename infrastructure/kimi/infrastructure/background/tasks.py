"""Background tasks of one session, each run by a detached worker process (runtime spec 7.8, tools spec 3.1)."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, get_args

import anyio
import anyio.to_thread

from kimi.application.ports import Now
from kimi.application.settings.settings import BackgroundSettings
from kimi.domain.background import (
    TERMINAL_STATUSES,
    BackgroundTask,
    BackgroundTaskSpec,
    NotificationSink,
    TaskKind,
    TaskOutput,
    TaskStatus,
    is_task_id,
    new_task_id,
)
from kimi.domain.errors import TooManyTasks
from kimi.infrastructure.background.output_log import OutputLog
from kimi.infrastructure.background.task_files import (
    CONSUMER_FILE,
    CONTROL_FILE,
    HEARTBEAT_FILE,
    OUTPUT_FILE,
    RUNTIME_FILE,
    SPEC_FILE,
    open_output,
    read_object,
    write_object,
)
from kimi.infrastructure.workspace.environment import close_memory_to_programs
from kimi.infrastructure.workspace.process_table import find_escaped, is_group_alive, read_start_mark, send_signal

logger = logging.getLogger(__name__)

_PACKAGES_ROOT: Final = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
"""The directory of the packages, passed to the worker, which starts without site directories."""

_WORKER_PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv[1]); from kimi.infrastructure.background.worker import main; "
    "main(sys.argv[2])"
)

_WORKER_SILENT: Final = "The worker of the task has not been heard of."
_PROGRAM_GONE: Final = "The program that carried out the task has ended."
_NO_DIRECTORY: Final = "this session has no directory"

_CLOCK_JUMP_S: Final = 1.0
"""A wall clock that moves this much more than the monotonic one was set, or the machine slept."""


class LocalBackgroundTasks:
    """Tasks under `<session>/tasks`; implements the port `BackgroundTasks`.

    `work_dir` and `environ` are those of the commands, `now` is the clock that their workers use. Nothing is read or
    made before the first use.
    """

    def __init__(
        self,
        session_dir: str | None,
        settings: BackgroundSettings,
        work_dir: str,
        environ: Mapping[str, str],
        *,
        now: Now = time.time,
    ) -> None:
        self._directory = os.path.join(session_dir, "tasks") if session_dir else None
        self._settings = settings
        self._work_dir = work_dir
        self._environ = environ
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._adopted: dict[str, Callable[[str], None]] = {}
        """The stop functions of the tasks that this program runs itself, until they have ended."""
        self._logs: dict[str, OutputLog] = {}
        """The output of those tasks that have written any."""
        self._open_tasks: dict[str, BackgroundTask] | None = None
        """Tasks that may still change, or whose end was not announced to every sink."""
        self._announced_sinks: dict[str, set[str]] = {}
        """The sinks to which the end of a task was announced while this program runs, even if that could not be stored.
        """
        self._now = now
        self._clock_offset = now() - time.monotonic()
        self._grace_until = -math.inf
        """On the monotonic clock: no worker is declared lost before."""

    # --- the port -------------------------------------------------------------------------------------------------

    def start(self, spec: BackgroundTaskSpec) -> BackgroundTask:
        """See `BackgroundTasks`."""

        def run(task_id: str, directory: str) -> None:
            self._workers[task_id] = self._start_worker(directory)

        return self._create_task(spec, run)

    def adopt(self, spec: BackgroundTaskSpec, stop: Callable[[str], None]) -> BackgroundTask:
        """See `BackgroundTasks`."""

        def keep(task_id: str, directory: str) -> None:
            self._adopted[task_id] = stop

        return self._create_task(spec, keep)

    def set_status(self, task_id: str, status: TaskStatus, *, reason: str = "", timed_out: bool = False) -> None:
        """See `BackgroundTasks`."""
        task = self.find(task_id)
        if self._directory is None or task is None or not task.is_active or task_id not in self._adopted:
            return
        directory = os.path.join(self._directory, task_id)
        runtime = {"started_at": self._now(), **read_object(directory, RUNTIME_FILE), "status": status}
        if status in TERMINAL_STATUSES:
            runtime |= {"ended_at": self._now(), "reason": reason, "timed_out": timed_out}
        write_object(directory, RUNTIME_FILE, runtime)
        # Only after the write: if it fails, the task is as before and can still be stopped.
        if status in TERMINAL_STATUSES:
            del self._adopted[task_id]
            if task_id in self._logs:
                self._logs.pop(task_id).close()

    def append_output(self, task_id: str, text: str) -> None:
        """See `BackgroundTasks`."""
        if self._directory is not None and task_id in self._adopted:
            if task_id not in self._logs:
                directory = os.path.join(self._directory, task_id)
                self._logs[task_id] = OutputLog(directory, self._settings.max_output_bytes)
            self._logs[task_id].write(text.encode("utf-8", "replace"))

    def list_tasks(self) -> Sequence[BackgroundTask]:
        """See `BackgroundTasks`."""
        found = [task for task_id in self._list_ids() if (task := self.find(task_id)) is not None]
        return sorted(found, key=lambda task: task.created_at, reverse=True)

    def find(self, task_id: str) -> BackgroundTask | None:
        """See `BackgroundTasks`."""
        if self._directory is None or not is_task_id(task_id):
            return None
        directory = os.path.join(self._directory, task_id)
        task = _load_task(directory)
        return self._mark_lost(directory, task) if task is not None and self._is_lost(directory, task) else task

    def read_output(self, task_id: str, max_bytes: int) -> TaskOutput:
        """See `BackgroundTasks`."""
        if self._directory is None or not is_task_id(task_id):
            return TaskOutput("", 0, 0)
        try:
            with open(os.path.join(self._directory, task_id, OUTPUT_FILE), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - max_bytes))
                data = file.read(max_bytes)
        except OSError:
            return TaskOutput("", 0, 0)
        return TaskOutput(_skip_partial_character(data, size).decode("utf-8", "replace"), size, len(data))

    def stop(self, task_id: str, reason: str) -> None:
        """See `BackgroundTasks`."""
        task = self.find(task_id)
        if task is not None and task.is_active and task_id in self._adopted:
            self._adopted[task_id](reason)
        elif self._directory is not None and task is not None and task.is_active:
            write_object(os.path.join(self._directory, task_id), CONTROL_FILE, {"stop": True, "reason": reason})

    def find_unannounced(self, sink: NotificationSink) -> Sequence[BackgroundTask]:
        """See `BackgroundTasks`."""
        if not self._load_open_tasks():
            return []
        ended = [task for task in self._refresh_open_tasks() if not task.is_active]
        return [task for task in ended if sink not in self._load_announced_sinks(task.id)]

    def mark_announced(self, task_id: str, sink: NotificationSink) -> None:
        """See `BackgroundTasks`."""
        # Memory first: if the file cannot be written, the task is still not announced twice by this program.
        sinks = self._announced_sinks[task_id] = {*self._load_announced_sinks(task_id), sink}
        if self._directory is not None:
            try:
                write_object(os.path.join(self._directory, task_id), CONSUMER_FILE, {"announced": sorted(sinks)})
            except OSError:
                logger.exception("that the end of %s was told could not be stored", task_id)
        if sinks >= {"llm", "wire"}:
            self._load_open_tasks().pop(task_id, None)

    def stop_all(self) -> None:
        """See `BackgroundTasks`."""
        # A copy, because a stop function may end its task at once.
        for stop in list(self._adopted.values()):
            stop(_PROGRAM_GONE)
        if self._settings.keep_alive_on_exit:
            return
        for worker in self._workers.values():
            if worker.stdin is not None:
                with contextlib.suppress(OSError):
                    # End of file on stdin is the worker's signal that the program is gone.
                    worker.stdin.close()

    async def wait_until_stopped(self, timeout_s: float) -> None:
        """See `BackgroundTasks`."""
        if self._settings.keep_alive_on_exit:
            return
        # Shielded: the wait also takes place when the program is cancelled, and only the timeout ends it.
        with anyio.move_on_after(timeout_s, shield=True):
            for worker in self._workers.values():
                if worker.returncode is None:
                    await anyio.to_thread.run_sync(worker.wait, abandon_on_cancel=True)

    # --- task records ---------------------------------------------------------------------------------------------

    def _load_open_tasks(self) -> dict[str, BackgroundTask]:
        if self._open_tasks is None:
            found = {task_id: self.find(task_id) for task_id in self._list_ids()}
            self._open_tasks = {
                task_id: task
                for task_id, task in found.items()
                if task and self._load_announced_sinks(task_id) != {"llm", "wire"}
            }
        return self._open_tasks

    def _refresh_open_tasks(self) -> list[BackgroundTask]:
        """Return the open tasks as they are now, oldest first."""
        known = self._load_open_tasks()
        for task_id, task in known.items():
            if task.is_active:
                known[task_id] = self.find(task_id) or task
        return sorted(known.values(), key=lambda task: task.created_at)

    def _list_ids(self) -> list[str]:
        if self._directory is None:
            return []
        try:
            return [name for name in os.listdir(self._directory) if is_task_id(name)]
        except OSError:
            return []

    def _load_announced_sinks(self, task_id: str) -> set[str]:
        assert self._directory is not None
        stored = _typed_member(read_object(os.path.join(self._directory, task_id), CONSUMER_FILE), "announced", list)
        return {*map(str, stored or ()), *self._announced_sinks.get(task_id, ())}

    # --- starting and losing --------------------------------------------------------------------------------------

    def _create_task(self, task_spec: BackgroundTaskSpec, launch: Callable[[str, str], None]) -> BackgroundTask:
        """Make the files of a new task, then call `launch` with its id and its directory."""
        if self._directory is None:
            raise OSError(_NO_DIRECTORY)
        if sum(task.is_active for task in self._refresh_open_tasks()) >= self._settings.max_running_tasks:
            raise TooManyTasks
        task_id = new_task_id(task_spec.kind, secrets.token_bytes(8))
        directory = os.path.join(self._directory, task_id)
        os.makedirs(directory, mode=0o700)
        try:
            self._write_spec(directory, task_id, task_spec)
            # The worker reads the files as soon as it runs, so they are complete before.
            launch(task_id, directory)
            task = _load_task(directory)
        except OSError:
            import shutil  # start-up time

            shutil.rmtree(directory, ignore_errors=True)
            raise
        assert task is not None
        self._load_open_tasks()[task_id] = task
        return task

    def _write_spec(self, directory: str, task_id: str, task_spec: BackgroundTaskSpec) -> None:
        spec = {
            "id": task_id,
            "kind": task_spec.kind,
            "description": task_spec.description,
            "command": task_spec.command,
            "words": task_spec.argv,
            "cwd": self._work_dir,
            "timeout_s": task_spec.timeout_s,
            "created_at": self._now(),
            "heartbeat_s": self._settings.worker_heartbeat_interval_ms / 1000,
            "grace_s": self._settings.kill_grace_period_ms / 1000,
            "keep_alive": self._settings.keep_alive_on_exit,
            "max_output_bytes": self._settings.max_output_bytes,
        }
        os.close(open_output(directory))
        write_object(directory, SPEC_FILE, spec)
        write_object(directory, RUNTIME_FILE, {"status": "starting"})

    def _start_worker(self, directory: str) -> subprocess.Popen[bytes]:
        close_memory_to_programs()
        worker = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WORKER_PROGRAM, _PACKAGES_ROOT, directory],
            cwd=directory,
            env=dict(self._environ),
            stdin=subprocess.DEVNULL if self._settings.keep_alive_on_exit else subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            creationflags=subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0,
        )
        threading.Thread(target=_reap, args=(worker,), name="background task", daemon=True).start()
        return worker

    def _is_lost(self, directory: str, task: BackgroundTask) -> bool:
        if not task.is_active or task.id in self._adopted:
            return False
        if task.kind == "agent":
            return True  # the program that ran it has ended: only one program has the session open
        try:
            heard = os.stat(os.path.join(directory, HEARTBEAT_FILE)).st_mtime
        except OSError:
            heard = task.created_at
        return self._is_silent(heard)

    def _is_silent(self, last_heard: float) -> bool:
        """Return whether nothing was heard for too long.

        After a jump of the clock every worker looks silent, so all get time for a new heartbeat.
        """
        patience_s = self._settings.worker_stale_after_ms / 1000
        passed = time.monotonic()
        offset = self._now() - passed
        if abs(offset - self._clock_offset) > _CLOCK_JUMP_S:
            self._clock_offset, self._grace_until = offset, passed + patience_s
        return passed >= self._grace_until and self._now() - last_heard > patience_s

    def _mark_lost(self, directory: str, task: BackgroundTask) -> BackgroundTask:
        """Kill what can be found of a task whose worker is gone, and store that it is lost."""
        logger.warning("background task %s is lost", task.id)
        runtime = read_object(directory, RUNTIME_FILE)
        # Before the status is stored: nothing looks for the processes of a lost task again.
        for pid, mark in (("worker_pid", "worker_mark"), ("pid", "mark")):
            _kill_leftovers(runtime.get(pid), runtime.get(mark))
        reason = _PROGRAM_GONE if task.kind == "agent" else _WORKER_SILENT
        runtime.update(status="lost", ended_at=self._now(), reason=reason)
        with contextlib.suppress(OSError):
            write_object(directory, RUNTIME_FILE, runtime)
        return _load_task(directory) or task


def _reap(worker: subprocess.Popen[bytes]) -> None:
    worker.wait()
    if worker.stdin is not None:
        with contextlib.suppress(OSError):
            worker.stdin.close()


def _kill_leftovers(pid: Any, mark: Any) -> None:
    """Kill the tree under a process if the process is certainly the one that was recorded."""
    if (
        sys.platform != "win32"
        and isinstance(pid, int)
        and mark
        and read_start_mark(pid) == mark
        and is_group_alive(pid)
    ):
        send_signal(pid, find_escaped(pid), signal.SIGKILL)


def _skip_partial_character(data: bytes, size: int) -> bytes:
    """Return `data` without the rest of a character whose beginning was cut off."""
    if len(data) == size:
        return data
    start = next((at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
    return data[start:]


def _load_task(directory: str) -> BackgroundTask | None:
    """Load the task of a directory; None if its spec is invalid.

    Other programs write such files too (runtime spec 4.1).
    """
    spec, runtime = read_object(directory, SPEC_FILE), read_object(directory, RUNTIME_FILE)
    kind, created_at = _typed_member(spec, "kind", str), _typed_member(spec, "created_at", int, float)
    if kind not in get_args(TaskKind) or created_at is None:
        return None
    status = runtime.get("status", "created")
    return BackgroundTask(
        id=os.path.basename(directory),
        kind=kind,
        status=status if status in get_args(TaskStatus) else "lost",
        description=_typed_member(spec, "description", str) or "",
        command=_typed_member(spec, "command", str) or "",
        timeout_s=_typed_member(spec, "timeout_s", int, float) or 0.0,
        created_at=created_at,
        output_path=os.path.join(directory, OUTPUT_FILE),
        started_at=_typed_member(runtime, "started_at", int, float),
        ended_at=_typed_member(runtime, "ended_at", int, float),
        exit_code=_typed_member(runtime, "exit_code", int),
        timed_out=bool(runtime.get("timed_out")),
        reason=_typed_member(runtime, "reason", str) or "",
    )


def _typed_member(source: Mapping[str, Any], key: str, *kinds: type) -> Any:
    """Return the member if it is of one of these types, else None."""
    value = source.get(key)
    return value if isinstance(value, kinds) else None
