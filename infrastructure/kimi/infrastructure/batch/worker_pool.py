"""Workers that share the attempts of a batch."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from kimi.application.batch.ports import AttemptOrder, AttemptSlot, OnUsage
from kimi.domain.batch import AttemptOutcome


class BatchWorker(Protocol):
    """One worker: a process here or on another machine."""

    @property
    def is_lost(self) -> bool:
        """Whether it takes no further attempts."""
        ...

    @property
    def load(self) -> int:
        """How many attempts it runs."""
        ...

    async def serve(self) -> None:
        """Run the worker until it ends, or is closed. Cancelled: it is ended first. Raises nothing else."""
        ...

    async def run(self, order: AttemptOrder, on_usage: OnUsage, slot: AttemptSlot) -> AttemptOutcome:
        """See `WorkerPool.run`."""
        ...

    async def close(self) -> None:
        """Let the worker end, because it is not needed any more."""
        ...


class SharedWorkers:
    """A `WorkerPool` of at most `size` workers, each of which runs several attempts; lost ones are replaced."""

    def __init__(self, make_worker: Callable[[], BatchWorker], size: int, serving: TaskGroup) -> None:
        self._make_worker = make_worker
        self._size = size
        self._serving = serving
        self._workers: list[BatchWorker] = []

    async def run(self, order: AttemptOrder, on_usage: OnUsage, slot: AttemptSlot, *, alone: bool) -> AttemptOutcome:
        """See `WorkerPool.run`."""
        if not alone:
            return await self._choose_worker().run(order, on_usage, slot)
        worker = self._start_worker()
        try:
            return await worker.run(order, on_usage, slot)
        finally:
            with anyio.CancelScope(shield=True):
                await worker.close()

    def _choose_worker(self) -> BatchWorker:
        """Return an idle worker, a new one if there may be more, else the one with the least to do."""
        self._workers = [worker for worker in self._workers if not worker.is_lost]
        least = min(self._workers, key=lambda worker: worker.load, default=None)
        if least is not None and (least.load == 0 or len(self._workers) >= self._size):
            return least
        worker = self._start_worker()
        self._workers.append(worker)
        return worker

    def _start_worker(self) -> BatchWorker:
        worker = self._make_worker()
        self._serving.start_soon(worker.serve)
        return worker


@asynccontextmanager
async def share_workers(make_worker: Callable[[], BatchWorker], size: int) -> AsyncGenerator[SharedWorkers, None]:
    """Open a pool of at most `size` workers; on leaving, all of them are ended."""
    async with anyio.create_task_group() as serving:
        try:
            yield SharedWorkers(make_worker, size, serving)
        finally:
            serving.cancel_scope.cancel()
