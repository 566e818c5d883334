"""`kimi batch`: run the tasks of a file, and write a line for each result (runtime spec 10)."""

from __future__ import annotations

import os
import signal
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final

from kimi.application.batch.ports import WorkerPool
from kimi.application.batch.run_batch import BatchParts, BatchRun, BatchState
from kimi.application.batch.task_file import TaskDefaults, parse_tasks
from kimi.application.codec.envelope import replace_surrogates
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import Settings
from kimi.domain.batch import BatchLimits, BatchRefused, BatchTask
from kimi.interfaces.batch.progress import show_progress, summarize
from kimi.interfaces.bootstrap.batch import (
    build_worktrees,
    open_journal,
    open_local_pool,
    open_ray_pool,
    store_last_sessions,
)
from kimi.interfaces.process.driver_process import DriverProcess, ExitRules
from kimi.interfaces.process.streams import Streams

EXIT_NOT_DONE: Final = 1
EXIT_INTERRUPTED: Final = 130

_EXIT_RULES: Final = ExitRules(timeout_s=20.0, timeout_status=EXIT_INTERRUPTED, hints_after_signal=False)
"""Workers have ten seconds to end what they do."""

_STOPPED: Final = {
    "interrupt": "Interrupted",
    "tokens": "The tokens of the batch are used up",
    "time": "The time of the batch is over",
}


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The options of `kimi batch`. Paths are absolute."""

    tasks_path: str
    results_path: str
    limits: BatchLimits
    workers: int | None
    """How many workers share the attempts; None for one a core."""
    defaults: TaskDefaults
    ray_address: str | None = None
    """The Ray cluster to run on; None for processes of this machine."""


def run_batch(options: BatchOptions, stderr_fd: int, flags: Flags, settings: Settings, streams: Streams) -> int:
    """Run a batch until every task has a result, or until it is stopped; return the exit status.

    Raises BatchRefused, StoreFailed.
    """
    tasks = _read_tasks(options)
    with open_journal(options.results_path) as journal:
        process = DriverProcess(streams, _EXIT_RULES)
        worktree_dir = f"{os.path.splitext(options.results_path)[0]}.worktrees"
        worktrees = build_worktrees(worktree_dir, os.environ, journal.lock_fd)
        # At once, and not by each attempt: the file with them grows with the batch, and they would wait for its lock.
        directories = (task.work_dir or os.path.join(worktree_dir, task.id) for task in tasks)
        store_last_sessions(settings.share_dir, dict.fromkeys(directories))
        pool = _open_pool(options, settings, journal.lock_fd)

        async def run() -> int:
            async with pool as workers:
                batch = BatchRun(tasks, BatchParts(journal, workers, worktrees, flags), options.limits)
                async with process.watch(partial(batch.stop, "interrupt")) as beside:
                    beside.start_soon(show_progress, batch.state, stderr_fd)
                    state = await batch.run()
            status = _report(state, process, options.results_path)
            store_last_sessions(settings.share_dir, state.sessions)
            return status

        return process.run(run)


def _open_pool(
    options: BatchOptions, settings: Settings, lock_fd: int | None
) -> AbstractAsyncContextManager[WorkerPool]:
    if options.ray_address is not None:
        return open_ray_pool(options.ray_address, options.workers, settings.share_dir)
    workers = min(options.limits.jobs, options.workers or os.cpu_count() or 1)
    return open_local_pool(workers, os.environ, lock_fd)


def _read_tasks(options: BatchOptions) -> list[BatchTask]:
    for path in (options.tasks_path, options.results_path):
        if (shown := replace_surrogates(path)) != path:  # journal, results and workers could not name what is there
            raise BatchRefused(f"The path {shown} is not UTF-8; rename its directory or the file.")
    try:
        with open(options.tasks_path, "rb") as lines:
            return parse_tasks(lines, options.tasks_path, options.defaults)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise BatchRefused(f"Cannot read {options.tasks_path}: {reason}; name a file with one task a line.") from error


def _report(state: BatchState, process: DriverProcess, results_path: str) -> int:
    """Write the last line; return the exit status."""
    stopped = f"{_STOPPED[state.stopped_by]}. " if state.stopped_by else ""
    process.streams.write_error(f"{stopped}{summarize(state, results_path)}\n")
    if process.shutdown.first_signal == signal.SIGINT:
        return EXIT_INTERRUPTED
    return 0 if state.finished == state.total and set(state.counts) <= {"done"} else EXIT_NOT_DONE
