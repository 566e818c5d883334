"""Wait for background tasks before print mode ends, with a turn of the model after each (runtime spec 1.7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio

from kimi.application.conversation.background_tasks import wait_for_task
from kimi.application.conversation.conversation import Conversation
from kimi.application.ports import BackgroundTasks
from kimi.application.settings.settings import BackgroundSettings
from kimi.domain.background import BackgroundTask

POLL_S: Final = 1.0
"""Seconds between two polls of the tasks."""

KILL_TIMEOUT_S: Final = 2.0
"""Seconds that killed tasks have to end, beyond their grace period."""

TASK_ENDED_PROMPT: Final = (
    "<system-reminder>\nBackground work that you started has ended; the notification tells how. Nobody is there to "
    "ask. Do what is left to do with its result, and say what came of it.\n</system-reminder>"
)
TIMEOUT_PROMPT: Final = (
    "<system-reminder>\nThe program ends now: background work that was still running was stopped. Say what was "
    "finished and what was not; start nothing new.\n</system-reminder>"
)

RunFollowUpTurn = Callable[[str], Awaitable[None]]
"""Runs a turn with this text as its input. It must not raise when the turn fails."""


@dataclass(frozen=True, slots=True)
class TasksTimedOut:
    """The wait timed out, and the tasks that were still active were killed."""

    seconds: int
    killed: int

    def __str__(self) -> str:
        return f"timed out waiting for background tasks ({self.seconds}s), killed {self.killed} tasks"


async def wait_for_tasks(conversation: Conversation, run_follow_up: RunFollowUpTurn) -> TasksTimedOut | None:
    """Wait until no background task is active; run a turn of the model after each end.

    The wait is limited by the longest timeout of the tasks and by `background.print_wait_ceiling_s`. Then the active
    tasks are killed, the model gets a last turn, and the timeout is returned.
    """
    tasks = conversation.resources.background.tasks
    if tasks is None:
        return None
    ceiling = conversation.resources.background.settings.print_wait_ceiling_s
    longest, started, heard = 0.0, anyio.current_time(), frozenset[str]()
    while True:
        news = frozenset(task.id for task in tasks.find_unannounced("llm"))
        if news and news != heard:  # the same again: the turn failed before the model saw it
            heard = news
            await run_follow_up(TASK_ENDED_PROMPT)
            continue
        active = _list_active_tasks(tasks)
        if not active:
            return None
        longest = max(longest, *(task.timeout_s for task in active))
        limit = min(longest, ceiling)
        left = started + limit - anyio.current_time()
        if left <= 0:
            for task in active:
                await _kill_task(tasks, task, conversation.resources.background.settings)
            await run_follow_up(TIMEOUT_PROMPT)
            return TasksTimedOut(round(limit), len(active))
        await anyio.sleep(min(POLL_S, left))


async def _kill_task(tasks: BackgroundTasks, task: BackgroundTask, settings: BackgroundSettings) -> None:
    tasks.stop(task.id, "The program waited for it as long as it may.")
    await wait_for_task(tasks, task.id, settings.kill_grace_period_ms / 1000 + KILL_TIMEOUT_S, POLL_S / 10)


def _list_active_tasks(tasks: BackgroundTasks) -> list[BackgroundTask]:
    return [task for task in tasks.list_tasks() if task.is_active]
