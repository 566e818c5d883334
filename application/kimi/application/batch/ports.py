"""What a batch needs from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from kimi.application.settings.flags import Flags
from kimi.domain.batch import AttemptOutcome, BatchResult, BatchStatus, BatchTask, BatchWorktree, DiffStat
from kimi.domain.errors import KimiError
from kimi.domain.turn import UsageTotal

OnUsage: TypeAlias = Callable[[UsageTotal], None]
"""Is told what an attempt has used so far."""


AttemptSlot: TypeAlias = AbstractAsyncContextManager[None]
"""Is entered for the turn of an attempt, to wait until there may be one more. It is entered once."""


class WorkerLost(KimiError):
    """The worker that an attempt ran in has died, or does not respond; nothing is known of the attempt."""


class WorkerNotStarted(KimiError):
    """The worker that an attempt was meant for could not be started; the attempt has not begun."""


@dataclass(frozen=True, slots=True)
class AttemptOrder:
    """One attempt at a task, with all that a worker must know. `flags` are those of the program, without the task."""

    task: BatchTask
    directory: str
    flags: Flags
    number: int = 1


class WorkerPool(Protocol):
    """Workers that attempts run in: processes of this machine or of a cluster."""

    async def run(self, order: AttemptOrder, on_usage: OnUsage, slot: AttemptSlot, *, alone: bool) -> AttemptOutcome:
        """Run one attempt to its end. With `alone` nothing else runs in its worker.

        Its session is opened at once; `slot` is entered before its turn begins, and left when the turn has ended.
        Cancelled: the attempt is ended, and its programs with it, before this raises; if it was done by then, its
        outcome is returned all the same. Raises WorkerLost, WorkerNotStarted.
        """
        ...


@dataclass(slots=True)
class TaskProgress:
    """What the journal tells of a task: how often it was started, how it went, and what was used."""

    digest: str = ""
    starts: int = 0
    failures: int = 0
    """Attempts that failed in a way that may pass."""
    losses: int = 0
    """Attempts whose worker was lost."""
    usage: UsageTotal = field(default_factory=UsageTotal)
    worktree: BatchWorktree | None = None
    status: BatchStatus | None = None
    """How the task ended; None while it has no result."""


class BatchJournal(Protocol):
    """The record of a batch, which survives a kill at any moment.

    What a method has recorded is on the disk when it returns. All methods may be called by several tasks at once.
    """

    @property
    def tasks(self) -> Mapping[str, TaskProgress]:
        """What is known of each task that was started, in this run or an earlier one."""
        ...

    async def record_worktree(self, task: BatchTask, worktree: BatchWorktree) -> None:
        """Record the worktree of a task, before it is made."""
        ...

    async def record_start(self, task: BatchTask) -> None:
        """Record that an attempt begins, before it does."""
        ...

    async def record_end(self, task_id: str, reason: str, usage: UsageTotal) -> None:
        """Record that an attempt ended without a result: `failed` (and will be tried again), `lost` or `stopped`."""
        ...

    async def record_result(self, task: BatchTask, result: BatchResult) -> None:
        """Record the result of a task, and append it to the results: once, whatever happens in between."""
        ...


class BatchWorktrees(Protocol):
    """Worktrees of git for the tasks that ask for one."""

    async def plan(self, task: BatchTask, earlier: BatchWorktree | None) -> BatchWorktree:
        """Return the worktree that `make` is to make. `earlier` is that of an earlier attempt, which it replaces.

        Nothing is changed. Raises WorktreeFailed: no repository, no such ref, a branch or directory that is there.
        """
        ...

    async def make(self, worktree: BatchWorktree, *, replace: bool) -> None:
        """Make the worktree with its branch; with `replace` instead of what an earlier attempt left of both.

        Raises WorktreeFailed.
        """
        ...

    async def measure(self, worktree: BatchWorktree) -> DiffStat | None:
        """Return what has changed since its commit; None if git cannot tell."""
        ...
