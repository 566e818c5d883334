"""Values of a batch: its tasks, what an attempt at one brought, and the results (runtime spec 10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from kimi.domain.errors import KimiError
from kimi.domain.turn import UsageTotal

BatchMode: TypeAlias = Literal["afk", "edits", "default", "plan"]
"""What a task may do without a user: everything that no rule denies, edits, only what never asks, or a plan."""

BatchStatus: TypeAlias = Literal["done", "failed", "timeout", "budget", "cancelled"]
"""How a task ended. `budget` means that it used up its tokens or steps."""


@dataclass(frozen=True, slots=True)
class WorktreeSource:
    """What the worktree of a task is made from; without a branch, one is named after the task."""

    repository: str
    ref: str = "HEAD"
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class BatchTask:
    """One line of a task file. Paths are absolute; times are in seconds, None means without a limit."""

    id: str
    prompt: str
    digest: str
    """What the line asks for, in short: a line that changes gets another one."""
    work_dir: str | None = None
    worktree: WorktreeSource | None = None
    model: str | None = None
    agent: str | None = None
    """The name of a built-in agent, or the path of a file."""
    mode: BatchMode | None = None
    timeout_s: float | None = None
    max_tokens: int | None = None
    max_steps: int | None = None
    retries: int = 0
    """How often the task is tried again after a failure that may pass."""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    metadata: Any = None


@dataclass(frozen=True, slots=True)
class BatchWorktree:
    """The worktree of one task: where it is, the branch that was made for it, and the commit that it began with."""

    path: str
    repository: str
    branch: str
    commit: str


@dataclass(frozen=True, slots=True)
class DiffStat:
    """What a task has changed since its commit: files, lines that came and went, and files that git does not know."""

    files: int
    insertions: int
    deletions: int
    untracked: int


@dataclass(frozen=True, slots=True)
class BatchError:
    """Why a task was not done: a code for programs and a sentence for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """How one attempt at a task ended. `may_pass` means that another attempt may succeed."""

    status: BatchStatus
    answer: str | None = None
    session_id: str | None = None
    usage: UsageTotal = field(default_factory=UsageTotal)
    seconds: float = 0.0
    error: BatchError | None = None
    may_pass: bool = False


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The one result of a task. Tokens are those of all attempts that are known of, seconds those of the last one."""

    id: str
    status: BatchStatus
    answer: str | None
    session_id: str | None
    usage: UsageTotal
    seconds: float
    attempts: int
    error: BatchError | None
    work_dir: str | None
    worktree: BatchWorktree | None
    diff: DiffStat | None
    metadata: Any


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of a whole batch: attempts at the same time, tokens of all runs, seconds of this run."""

    jobs: int
    max_tokens: int | None = None
    max_seconds: float | None = None


class BatchRefused(KimiError):
    """A batch cannot be run; the message says why, and what to do."""


class WorktreeFailed(KimiError):
    """The worktree of a task cannot be made; the message is a sentence about it."""


def add_usage(one: UsageTotal, two: UsageTotal) -> UsageTotal:
    """Return the sum; one of nothing adds nothing, also to the cost."""
    if not one.tokens.total:
        return two
    return one.add(two.tokens, two.cost) if two.tokens.total else one
