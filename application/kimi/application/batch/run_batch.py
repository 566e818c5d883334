"""Use-case run-batch: run every task of a file that has no result yet, and record one result each."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import anyio
import anyio.lowlevel

from kimi.application.batch.ports import (
    AttemptOrder,
    BatchJournal,
    BatchWorktrees,
    TaskProgress,
    WorkerLost,
    WorkerNotStarted,
    WorkerPool,
)
from kimi.application.settings.flags import Flags
from kimi.domain.batch import (
    AttemptOutcome,
    BatchError,
    BatchLimits,
    BatchRefused,
    BatchResult,
    BatchStatus,
    BatchTask,
    BatchWorktree,
    DiffStat,
    WorktreeFailed,
    add_usage,
)
from kimi.domain.errors import KimiError
from kimi.domain.turn import UsageTotal

logger = logging.getLogger(__name__)

MAX_LOSSES: Final = 3
"""After so many lost workers a task has failed: probably it is the task that ends them."""

MAX_FAILED_STARTS: Final = 3
"""After so many workers that could not be started, one after the other for one task, the batch ends."""

LONGEST_PAUSE_S: Final = 60.0

StopReason: TypeAlias = Literal["interrupt", "tokens", "time"]


@dataclass(slots=True)
class BatchState:
    """How far a batch is; what shows the progress reads it."""

    total: int
    counts: dict[BatchStatus, int] = field(default_factory=dict["BatchStatus", int])
    """The results of all runs by status."""
    earlier: int = 0
    """How many tasks had their result when this run began."""
    running: int = 0
    tokens: int = 0
    """Tokens of all attempts, those of earlier runs and of running ones among them."""
    stopped_by: StopReason | None = None
    sessions: dict[str, str | None] = field(default_factory=dict["str", "str | None"])
    """The last session of each directory that this run has worked in."""

    @property
    def finished(self) -> int:
        """How many tasks have a result."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class BatchParts:
    """What a batch is run with. `flags` are those of the program."""

    journal: BatchJournal
    pool: WorkerPool
    worktrees: BatchWorktrees
    flags: Flags
    pause: Callable[[int], float] = lambda failures: min(2.0 ** (failures - 1), LONGEST_PAUSE_S)
    """How many seconds to wait after this many failures of a task."""


class BatchRun:
    """One run of a batch. `stop` ends it early; `state` can be read at any time."""

    def __init__(self, tasks: Sequence[BatchTask], parts: BatchParts, limits: BatchLimits) -> None:
        """Raises BatchRefused: a task that has a result or was started is not the same any more."""
        self._parts = parts
        self._limits = limits
        self._scope = anyio.CancelScope()
        self._slots = anyio.Semaphore(limits.jobs)
        self._failure: KimiError | None = None
        known = parts.journal.tasks
        for task in tasks:
            _check_unchanged(task, known.get(task.id))
        self._open = [task for task in tasks if task.id not in known or known[task.id].status is None]
        self.state = BatchState(len(tasks), earlier=len(tasks) - len(self._open))
        for task in tasks:
            if task.id in known and (status := known[task.id].status) is not None:
                self._count(status)
        self.state.tokens = sum(progress.usage.tokens.total for progress in known.values())

    def stop(self, reason: StopReason) -> None:
        """Start nothing new and end what runs; it stays open for the next run. Idempotent."""
        self.state.stopped_by = self.state.stopped_by or reason
        self._scope.cancel()

    async def run(self) -> BatchState:
        """Run the open tasks, `jobs` of them at the same time; return the state at the end.

        While they run, worktrees and sessions of the next ones are prepared, and results of the last ones recorded.
        Raises StoreFailed, BatchRefused: what is not done yet is left for the next run.
        """
        ahead = anyio.Semaphore(2 * self._limits.jobs)
        if self._limits.max_seconds is not None:
            self._scope.deadline = anyio.current_time() + self._limits.max_seconds
        with self._scope:
            async with anyio.create_task_group() as running:
                for task in self._open:
                    await ahead.acquire()
                    running.start_soon(self._run_to_result, task, ahead)
        if self._failure is not None:
            raise self._failure
        if self._scope.cancelled_caught and self.state.stopped_by is None:
            self.state.stopped_by = "time"
        return self.state

    async def _run_to_result(self, task: BatchTask, ahead: anyio.Semaphore) -> None:
        try:
            outcome, worktree = await self._run_task(task)
            with anyio.CancelScope(shield=True):  # the task is done now: its record must not be cut short
                await self._record_result(task, outcome, worktree)
        except KimiError as error:  # all tasks meet it now, and it is told once
            self._failure = self._failure or error
            self._scope.cancel()
        finally:
            ahead.release()

    async def _record_result(self, task: BatchTask, outcome: AttemptOutcome, worktree: BatchWorktree | None) -> None:
        diff = await self._parts.worktrees.measure(worktree) if worktree else None
        result = self._build_result(task, outcome, worktree, diff)
        await self._parts.journal.record_result(task, result)
        if result.work_dir is not None and result.session_id is not None:
            self.state.sessions[result.work_dir] = result.session_id
        self._count(outcome.status)

    async def _run_task(self, task: BatchTask) -> tuple[AttemptOutcome, BatchWorktree | None]:
        """Attempt a task until it need not be tried again; return how the last attempt ended, and where it worked."""
        journal = self._parts.journal
        failed_starts = 0
        while True:
            before = journal.tasks.get(task.id, TaskProgress())
            try:
                worktree = await self._make_worktree(task, before) if task.worktree else None
            except WorktreeFailed as error:
                return AttemptOutcome("failed", error=BatchError("worktree", str(error))), None
            try:
                outcome = await self._attempt(task, worktree)
            except WorkerNotStarted as error:
                failed_starts += 1
                if failed_starts == MAX_FAILED_STARTS:
                    raise BatchRefused(f"No worker of the batch could be started: {error}") from error
                await anyio.sleep(self._parts.pause(failed_starts))
                continue
            failed_starts = 0
            progress = journal.tasks[task.id]
            if outcome is None:
                if progress.losses >= MAX_LOSSES:
                    return _describe_losses(progress.losses), worktree
            elif outcome.may_pass and progress.failures < task.retries:
                await journal.record_end(task.id, "failed", outcome.usage)
                await anyio.sleep(self._parts.pause(progress.failures))
            else:
                return outcome, worktree

    async def _make_worktree(self, task: BatchTask, before: TaskProgress) -> BatchWorktree:
        worktree = await self._parts.worktrees.plan(task, before.worktree)
        is_new = before.worktree is None or worktree.path != before.worktree.path
        await self._parts.journal.record_worktree(task, worktree)  # first, so that a later run may replace it
        await self._parts.worktrees.make(worktree, replace=not is_new)
        return worktree

    async def _attempt(self, task: BatchTask, worktree: BatchWorktree | None) -> AttemptOutcome | None:
        """Run one attempt; return its outcome, or None if its worker was lost."""
        journal = self._parts.journal
        before = journal.tasks.get(task.id, TaskProgress())
        directory = worktree.path if worktree else task.work_dir or ""
        order = AttemptOrder(task, directory, self._parts.flags, before.starts + 1)
        used = UsageTotal()
        starts, alone = before.starts, before.losses > 0

        def note_usage(usage: UsageTotal) -> None:
            nonlocal used
            self.state.tokens += usage.tokens.total - used.tokens.total
            used = usage
            if self._limits.max_tokens is not None and self.state.tokens > self._limits.max_tokens:
                self.stop("tokens")

        try:
            outcome = await self._parts.pool.run(order, note_usage, self._take_slot(task), alone=alone)
        except WorkerLost as error:
            logger.warning("task %s: %s", task.id, error)
            with anyio.CancelScope(shield=True):
                await journal.record_end(task.id, "lost", used)
            return None
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                if journal.tasks.get(task.id, before).starts > starts:
                    await journal.record_end(task.id, "stopped", used)
            raise
        note_usage(outcome.usage)
        return outcome

    @asynccontextmanager
    async def _take_slot(self, task: BatchTask) -> AsyncGenerator[None, None]:
        """Wait until one more attempt may run, and record that it begins."""
        async with self._slots:
            if self._limits.max_tokens is not None and self.state.tokens >= self._limits.max_tokens:
                self.stop("tokens")
                await anyio.lowlevel.checkpoint()
            await self._parts.journal.record_start(task)
            self.state.running += 1
            try:
                yield
            finally:
                self.state.running -= 1

    def _count(self, status: BatchStatus) -> None:
        self.state.counts[status] = self.state.counts.get(status, 0) + 1

    def _build_result(
        self, task: BatchTask, outcome: AttemptOutcome, worktree: BatchWorktree | None, diff: DiffStat | None
    ) -> BatchResult:
        progress = self._parts.journal.tasks.get(task.id, TaskProgress())
        return BatchResult(
            task.id,
            outcome.status,
            outcome.answer,
            outcome.session_id,
            add_usage(progress.usage, outcome.usage),
            round(outcome.seconds, 3),
            progress.starts,
            outcome.error,
            worktree.path if worktree else task.work_dir,
            worktree,
            diff,
            task.metadata,
        )


def _describe_losses(losses: int) -> AttemptOutcome:
    message = f"The worker died {losses} times while it ran this task; look into the log for what ended it."
    return AttemptOutcome("failed", error=BatchError("worker_lost", message))


def _check_unchanged(task: BatchTask, progress: TaskProgress | None) -> None:
    if progress is None or progress.status is None or progress.digest == task.digest:
        return
    raise BatchRefused(
        f"Task '{task.id}' was changed after it got its result; give it another id, or choose another --output."
    )
