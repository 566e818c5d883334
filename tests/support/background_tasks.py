"""The double of the port `BackgroundTasks`: tasks without processes. It passes the port's contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kimi.domain.background import BackgroundTask, BackgroundTaskSpec, NotificationSink, TaskOutput, TaskStatus
from kimi.domain.errors import TooManyTasks


@dataclass
class FakeTasks:
    """Runs three commands: `exit N` ends at once, `echo TEXT` prints and ends, anything else runs until stopped."""

    limit: int = 4
    held: dict[str, BackgroundTask] = field(default_factory=dict[str, BackgroundTask])
    said: dict[str, bytes] = field(default_factory=dict[str, bytes])
    stops: dict[str, Callable[[str], None]] = field(default_factory=dict[str, Callable[[str], None]])
    told: set[tuple[str, NotificationSink]] = field(default_factory=set[tuple[str, NotificationSink]])

    def start(self, spec: BackgroundTaskSpec) -> BackgroundTask:
        """See `BackgroundTasks`."""
        if sum(task.is_active for task in self.held.values()) >= self.limit:
            raise TooManyTasks
        number = len(self.held) + 1
        task_id = f"{spec.kind}-{number:08d}"
        task = BackgroundTask(
            task_id,
            spec.kind,
            "running",
            spec.description,
            spec.command,
            spec.timeout_s,
            float(number),
            f"/{task_id}",
        )
        self.held[task_id] = task
        name, _, rest = spec.command.partition(" ")
        if name == "exit":
            self.finish(task_id, int(rest))
        elif name == "echo":
            self.said[task_id] = rest.encode() + b"\n"
            self.finish(task_id, 0)
        return task

    def adopt(self, spec: BackgroundTaskSpec, stop: Callable[[str], None]) -> BackgroundTask:
        """See `BackgroundTasks`."""
        task = self.start(replace(spec, command=""))
        self.stops[task.id] = stop
        return task

    def set_status(self, task_id: str, status: TaskStatus, *, reason: str = "", timed_out: bool = False) -> None:
        """See `BackgroundTasks`."""
        task = self.held.get(task_id)
        if task is not None and task.is_active and task_id in self.stops:
            self.held[task_id] = replace(task, status=status, reason=reason, timed_out=timed_out)

    def append_output(self, task_id: str, text: str) -> None:
        """See `BackgroundTasks`."""
        if task_id in self.stops and self.held[task_id].is_active:
            self.said[task_id] = self.said.get(task_id, b"") + text.encode()

    def finish(self, task_id: str, code: int) -> None:
        """Let the command of a task end by itself."""
        status, reason = ("completed", "") if code == 0 else ("failed", f"Command failed with exit code: {code}.")
        self.held[task_id] = replace(
            self.held[task_id], status=status, exit_code=code, reason=reason, ended_at=self.held[task_id].created_at + 1
        )

    def list_tasks(self) -> Sequence[BackgroundTask]:
        """See `BackgroundTasks`."""
        return list(reversed(self.held.values()))

    def find(self, task_id: str) -> BackgroundTask | None:
        """See `BackgroundTasks`."""
        return self.held.get(task_id)

    def read_output(self, task_id: str, max_bytes: int) -> TaskOutput:
        """See `BackgroundTasks`."""
        said = self.said.get(task_id, b"")
        shown = said[-max_bytes:]
        return TaskOutput(shown.decode("utf-8", "ignore"), len(said), len(shown))

    def stop(self, task_id: str, reason: str) -> None:
        """See `BackgroundTasks`."""
        task = self.held.get(task_id)
        if task is not None and task.is_active and task_id in self.stops:
            self.stops[task_id](reason)
        elif task is not None and task.is_active:
            self.held[task_id] = replace(task, status="killed", reason=reason, exit_code=-15)

    def find_unannounced(self, sink: NotificationSink) -> Sequence[BackgroundTask]:
        """See `BackgroundTasks`."""
        return [task for task in self.held.values() if not task.is_active and (task.id, sink) not in self.told]

    def mark_announced(self, task_id: str, sink: NotificationSink) -> None:
        """See `BackgroundTasks`."""
        self.told.add((task_id, sink))

    def stop_all(self) -> None:
        """See `BackgroundTasks`."""
        for task_id in self.held:
            self.stop(task_id, "The program has ended.")

    async def wait_until_stopped(self, timeout_s: float) -> None:
        """See `BackgroundTasks`."""
