"""Background tasks: what a task is, its states, and what is said of one that has ended (runtime spec 7.8)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from kimi.domain.events.event import Notification

TaskKind: TypeAlias = Literal["bash", "agent"]
TaskStatus: TypeAlias = Literal[
    "created", "starting", "running", "awaiting_approval", "completed", "failed", "killed", "lost"
]
NotificationSink: TypeAlias = Literal["llm", "wire"]
"""Who is told of the end of a task: the model, the client."""

TERMINAL_STATUSES: Final = frozenset({"completed", "failed", "killed", "lost"})
"""The states that a task does not leave."""

TASK_ID_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9\-]{1,24}")
"""What the id of a task may look like (tools spec 3.1)."""

_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_ID_LENGTH: Final = 8


@dataclass(frozen=True, slots=True)
class BackgroundTaskSpec:
    """A command that is to run in the background: `words` is what is started, `command` what a person reads.

    After `timeout_s` seconds it is killed. The task of a subagent has neither.
    """

    command: str
    description: str
    argv: tuple[str, ...]
    timeout_s: float
    kind: TaskKind = "bash"


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """A task as it stands. Times are in Unix seconds; `exit_code` is negative for a signal, None while unknown.

    `reason` says why a task did not complete. `output_path` is where all its output is.
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
        """Has it not ended yet?"""
        return self.status not in TERMINAL_STATUSES


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """The end of what a task has written; `size` is the number of bytes of all of it, `shown` of this part."""

    text: str
    total_bytes: int
    shown_bytes: int

    @property
    def is_truncated(self) -> bool:
        """Is there more before it?"""
        return self.shown_bytes < self.total_bytes


def new_task_id(kind: TaskKind, random_bytes: bytes) -> str:
    """An id such as `bash-4k0x7d2p` from eight random bytes."""
    return f"{kind}-" + "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in random_bytes[:_ID_LENGTH])


def is_task_id(text: str) -> bool:
    """Can this be the id of a task? Only then may it become part of a path."""
    return TASK_ID_PATTERN.fullmatch(text) is not None


def task_fields(task: BackgroundTask) -> Iterator[tuple[str, str]]:
    """What is known of a task, as keys and values; what has no value yet is left out."""
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
    """What the model reads about the tasks that have not ended; empty without any."""
    active = [
        f"- {task.id} ({task.status}): {collapse_whitespace(task.description)}" for task in tasks if task.is_active
    ]
    if not active:
        return ""
    return "\n".join(["<system>", "These background tasks are active:", *map(_escape_host_tags, active), "</system>"])


def collapse_whitespace(text: str) -> str:
    """`text` without line breaks."""
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


def task_outcome(task: BackgroundTask) -> str:
    """How a task ended: its terminal state, or `timed_out`."""
    return "timed_out" if task.timed_out else task.status


def build_task_notification(task: BackgroundTask) -> Notification:
    """The one notification about the end of a task: the same id whenever it is made."""
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
            "exit_code": task.exit_code,
            "timed_out": task.timed_out,
            "reason": task.reason,
        },
    )


def take_tail(text: str, max_lines: int, max_chars: int) -> str:
    """The last lines of `text`, and of these the last characters."""
    return "\n".join(text.splitlines()[-max_lines:])[-max_chars:]


def format_notification(notification: Notification, tail: str) -> str:
    """What the model reads about it; `tail` is the end of the task's output.

    Nothing in it can end the element early or pass for a remark of ours (tools spec 1.8).
    """
    named = ("id", "category", "type", "source_kind", "source_id")
    attributes = " ".join(f'{name}="{getattr(notification, name)}"' for name in named)
    shown = f"\n[output, the end of it]\n{_escape_host_tags(tail)}" if tail.strip() else "\n[no output]"
    body = (
        f"{_escape_host_tags(notification.title)}\nseverity: {notification.severity}\n"
        f"{_escape_host_tags(notification.body)}{shown}"
    )
    return f"<notification {attributes}>\n{body}\n</notification>"


_HOST_TAG: Final = re.compile(r"<(/?(?:notification|system|system-reminder)\b)", re.IGNORECASE)


def _escape_host_tags(text: str) -> str:
    return _HOST_TAG.sub(r"&lt;\1", text)
