"""Use-case background: the background tasks of a conversation, from first use to shutdown (runtime spec 7.8)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from kimi.application.ports import BackgroundTasks
from kimi.application.settings.settings import BackgroundSettings

if TYPE_CHECKING:
    from kimi.domain.background import BackgroundTask

STOP_TIMEOUT_S = 0.8
"""Seconds that shutdown waits for tasks to end. Tasks that take longer still end, but nothing waits for them."""


class BackgroundTaskRegistry:
    """The background tasks of a conversation, opened on first use. Without `open_tasks` there are none."""

    def __init__(
        self,
        open_tasks: Callable[[], BackgroundTasks] | None = None,
        settings: BackgroundSettings | None = None,
    ) -> None:
        self._open_tasks = open_tasks
        self._tasks: BackgroundTasks | None = None
        self._settings = settings

    @property
    def settings(self) -> BackgroundSettings:
        """The limits and timeouts of background tasks."""
        self._settings = self._settings or BackgroundSettings()
        return self._settings

    @property
    def is_available(self) -> bool:
        """Whether this conversation can have background tasks."""
        return self._open_tasks is not None

    @property
    def tasks(self) -> BackgroundTasks | None:
        """The background tasks; None where they are not available."""
        if self._tasks is None and self._open_tasks is not None:
            self._tasks = self._open_tasks()
        return self._tasks

    def stop_all(self) -> None:
        """Ask all tasks to end, without waiting for them."""
        if self._tasks is not None:
            self._tasks.stop_all()

    async def wait_until_stopped(self) -> None:
        """Wait until all tasks have ended, at most `STOP_TIMEOUT_S` seconds."""
        if self._tasks is not None:
            await self._tasks.wait_until_stopped(STOP_TIMEOUT_S)


async def wait_for_task(tasks: BackgroundTasks, task_id: str, timeout_s: float, poll_s: float) -> BackgroundTask | None:
    """Return the task when it has ended, or its state after `timeout_s` seconds; None for an unknown id."""
    deadline = anyio.current_time() + timeout_s
    while True:
        task = tasks.find(task_id)
        left = deadline - anyio.current_time()
        if task is None or not task.is_active or left <= 0:
            return task
        await anyio.sleep(min(poll_s, left))


@asynccontextmanager
async def wait_for_tasks_on_exit(registry: BackgroundTaskRegistry) -> AsyncGenerator[None, None]:
    """Wait on exit until the tasks that `stop_all` asked to end have ended, at most `STOP_TIMEOUT_S` seconds."""
    try:
        yield
    finally:
        await registry.wait_until_stopped()


@asynccontextmanager
async def stop_tasks_on_exit(registry: BackgroundTaskRegistry) -> AsyncGenerator[None, None]:
    """Ask the tasks to end on exit. `wait_for_tasks_on_exit`, further out, waits for them."""
    try:
        yield
    finally:
        registry.stop_all()
