"""Background tasks: their states, and the notification about one that has ended (runtime spec 7.8)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from kimi.domain.events.event import Notification
from kimi.domain.tools.tool import escape_host_tags

TaskKind: TypeAlias = Literal["bash", "agent"]
TaskStatus: TypeAlias = Literal[
    "created", "starting", "running", "awaiting_approval", "completed", "failed", "killed", "lost"
]
NotificationSink: TypeAlias = Literal["llm", "wire"]
"""The receiver of a notification about the end of a task: the model or the client."""

TERMINAL_STATUSES: Final = frozenset({"completed", "failed", "killed", "lost"})
"""The states that a task never leaves."""

TASK_ID_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9\-]{1,24}")
"""The pattern of task ids (tools spec 3.1)."""

_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_ID_LENGTH: Final = 8


@dataclass(frozen=True, slots=True)
class BackgroundTaskSpec:
    """A command that is to run in the background: `argv` is what is started, `command` is what the user reads.

    The task is killed after `timeout_s` seconds. The task of a subagent has neither a command nor a timeout.
    """

    command: str
    description: str
    argv: tuple[str, ...]
    timeout_s: float
    kind: TaskKind = "bash"


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """A snapshot of a background task.

    Times are in Unix seconds. `exit_code` is negative for a signal and None while it is unknown. `reason` says why a
    task did not complete. `output_path` is the file with all of its output.
    """

    id: str
    kind: TaskKind
    status: TaskStatus
    description: str
    command: str
    timeout_s: float
    created_at: float
    output_path: str
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    timed_out: bool = False
    reason: str = ""

    @property
    def is_active(self) -> bool:
        """Whether the task has not ended yet."""
        return self.status not in TERMINAL_STATUSES


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """The end of a task's output: `total_bytes` counts all of the output, `shown_bytes` counts this part."""

    text: str
    total_bytes: int
    shown_bytes: int

    @property
    def is_truncated(self) -> bool:
        """Whether there is output before this part."""
        return self.shown_bytes < self.total_bytes


def new_task_id(kind: TaskKind, random_bytes: bytes) -> str:
    """Return an id such as `bash-4k0x7d2p`, made from eight random bytes."""
    return f"{kind}-" + "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in random_bytes[:_ID_LENGTH])


def is_task_id(text: str) -> bool:
    """Return whether `text` is a well-formed task id. Only then may it become part of a path."""
    return TASK_ID_PATTERN.fullmatch(text) is not None


def task_fields(task: BackgroundTask) -> Iterator[tuple[str, str]]:
    """Yield what is known of a task as keys and values; fields without a value are left out."""
    yield "task_id", task.id
    yield "kind", task.kind
    yield "status", task.status
    yield "description", collapse_whitespace(task.description)
    if task.command:
        yield "command", task.command
    if task.exit_code is not None:
        yield "exit_code", str(task.exit_code)
    if task.timed_out:
        yield "timed_out", "true"
    if task.reason:
        yield "reason", collapse_whitespace(task.reason)


def format_active_tasks(tasks: Iterable[BackgroundTask]) -> str:
    """Format the list of active tasks for the model; empty if there are none."""
    active = [
        f"- {task.id} ({task.status}): {collapse_whitespace(task.description)}" for task in tasks if task.is_active
    ]
    if not active:
        return ""
    return "\n".join(["<system>", "These background tasks are active:", *map(escape_host_tags, active), "</system>"])


def collapse_whitespace(text: str) -> str:
    """Return `text` on one line, with every run of whitespace replaced by one space."""
    return " ".join(text.split())


# --- notifications ----------------------------------------------------------------------------------------------

_SEVERITY: Final[dict[str, Literal["success", "warning", "error"]]] = {
    "completed": "success",
    "failed": "error",
    "timed_out": "error",
    "killed": "warning",
    "lost": "warning",
}
_TITLE: Final = {
    "completed": "Background task completed",
    "failed": "Background task failed",
    "timed_out": "Background task ran out of time",
    "killed": "Background task stopped",
    "lost": "Background task lost",
}
_INTERRUPTED: Final = ("killed", "timed_out")
"""The outcomes of a task that was ended before it had finished its work."""


def task_outcome(task: BackgroundTask) -> str:
    """Return how a task ended: its terminal state, or `timed_out`."""
    return "timed_out" if task.timed_out else task.status


def build_task_notification(task: BackgroundTask) -> Notification:
    """Build the notification about the end of a task. Its id is the same whenever it is built."""
    outcome = task_outcome(task)
    return Notification(
        id=f"n-{task.id}",
        category="agent" if task.kind == "agent" else "task",
        type=f"task.{outcome}",
        source_kind="background_task",
        source_id=task.id,
        title=f"{_TITLE[outcome]}: {collapse_whitespace(task.description)}",
        body="\n".join(f"{key}: {value}" for key, value in task_fields(task)),
        severity=_SEVERITY[outcome],
        created_at=task.ended_at or task.created_at,
        payload={
            "task_id": task.id,
            "task_kind": task.kind,
            "status": task.status,
            "description": task.description,
            "exit_code": task.exit_code,
            "interrupted": outcome in _INTERRUPTED,
            "timed_out": task.timed_out,
            "reason": task.reason,
            "terminal_reason": outcome,
            "failure_reason": task.reason or None,
            "finished_at": task.ended_at,
            "duration_s": _task_duration_s(task),
        },
    )


def _task_duration_s(task: BackgroundTask) -> float | None:
    """Return how long the task ran, in seconds; None while its beginning or its end is unknown."""
    if task.started_at is None or task.ended_at is None:
        return None
    return round(max(0.0, task.ended_at - task.started_at), 3)  # a clock may have been set back meanwhile


def take_tail(text: str, max_lines: int, max_chars: int) -> str:
    """Return the last `max_lines` lines of `text`, and of these the last `max_chars` characters."""
    return "\n".join(text.splitlines()[-max_lines:])[-max_chars:]


def format_notification(notification: Notification, tail: str) -> str:
    """Format a notification for the model; `tail` is the end of the task's output.

    Host tags in the text are escaped, so that it can neither end the element early nor look like a message of this
    program (tools spec 1.8).
    """
    named = ("id", "category", "type", "source_kind", "source_id")
    attributes = " ".join(f'{name}="{getattr(notification, name)}"' for name in named)
    shown = f"\n[output, the end of it]\n{escape_host_tags(tail)}" if tail.strip() else "\n[no output]"
    body = (
        f"{escape_host_tags(notification.title)}\nseverity: {notification.severity}\n"
        f"{escape_host_tags(notification.body)}{shown}"
    )
    return f"<notification {attributes}>\n{body}\n</notification>"
