"""Compose what a batch needs: its journal, worktrees and workers (runtime spec 10)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kimi.application.batch.ports import BatchWorktrees, WorkerPool
    from kimi.infrastructure.batch.journal import JournalFile

_WORKER_ARGUMENTS: Final = ("-P", "-m", "kimi.interfaces.batch.worker")
"""What follows the interpreter; -P: not a `kimi` package in the work directory."""


def open_journal(results_path: str) -> AbstractContextManager[JournalFile]:
    """Return the journal beside a results file; entering it raises BatchRefused or StoreFailed."""
    from kimi.infrastructure.batch.journal import open_journal as open_file

    return open_file(results_path)


def store_last_sessions(share_dir: str, session_ids: Mapping[str, str | None]) -> None:
    """Make work directories known, with their last sessions, in one write. Raises StoreFailed."""
    from kimi.infrastructure.store.kimi_json import set_last_session_ids

    set_last_session_ids(share_dir, session_ids)


def build_worktrees(directory: str, environ: Mapping[str, str], lock_fd: int | None) -> BatchWorktrees:
    """Return the maker of worktrees below a directory; its git holds the descriptor of the batch's lock."""
    from kimi.infrastructure.batch.worktrees import GitWorktrees

    return GitWorktrees(directory, environ, lock_fd)


def open_local_pool(
    size: int, environ: Mapping[str, str], lock_fd: int | None
) -> AbstractAsyncContextManager[WorkerPool]:
    """Return a pool of worker processes, which hold the descriptor of the batch's lock until they end."""
    from kimi.infrastructure.batch.worker_pool import share_workers
    from kimi.infrastructure.batch.worker_process import WorkerProcess

    return share_workers(lambda: WorkerProcess(_WORKER_ARGUMENTS, environ, lock_fd), size)


def open_ray_pool(address: str, size: int | None, share_dir: str) -> AbstractAsyncContextManager[WorkerPool]:
    """Return a pool of workers on a Ray cluster; entering it raises BatchRefused: it cannot be reached."""
    from kimi.infrastructure.batch.ray_pool import share_ray_workers

    return share_ray_workers(address, size, _WORKER_ARGUMENTS, {"KIMI_SHARE_DIR": share_dir})
