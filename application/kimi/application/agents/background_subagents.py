"""A subagent in the background: it works beside the turns of its parent, and its end is told like that of any task
(runtime spec 7.8; tools spec 3.13).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import anyio

from kimi.application.agents.run_subagent import Instance, Order, Report, Subagents, prepared, work
from kimi.application.ports import BackgroundTasks
from kimi.domain.agents.subagent import Subagent
from kimi.domain.background import BackgroundTask, TaskOrder, TaskStatus
from kimi.domain.errors import TooManyTasks

logger = logging.getLogger(__name__)

UNAVAILABLE = "background tasks are not available here"


@dataclass(slots=True)
class Started:
    """A subagent that works in the background, and the task that stands for it."""

    task: BackgroundTask
    agent_id: str
    type: str
    resumed: bool


@dataclass(slots=True)
class _Ending:
    """What somebody who wants the work to end does: the first reason counts."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    reason: str = ""

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.scope.cancel()


def start_in_background(
    subagents: Subagents, order: Order, call_id: str, tell_report: Callable[[Report], str]
) -> Started | Report:
    """Let `order` be carried out beside the turns; gives the task at once, or a report when that cannot be.

    `tell_report` puts a failure into words. The work ends with the task, with its time, or with the conversation.
    """
    parent = subagents.parent
    tasks, group = parent.background.tasks, parent.hooks.tasks
    if tasks is None or group is None:
        return Report("failed", UNAVAILABLE)
    instance = prepared(subagents, order)
    if isinstance(instance, Report):
        return instance
    timeout_s, ending = order.timeout_s or parent.background.settings.agent_task_timeout_s, _Ending()
    try:
        task = tasks.adopt(TaskOrder("", order.description, (), timeout_s, "agent"), ending.ask)
    except (OSError, TooManyTasks) as error:
        instance.files.close()
        return Report("failed", str(error))
    who = instance.who(call_id, task.id)
    subagents.working.add(who.agent_id)  # before the next call looks
    run = _Run(subagents, tasks, replace(order, timeout_s=timeout_s), ending, tell_report)
    group.start_soon(run.carry_out, instance, who)
    return Started(task, who.agent_id, who.type, instance.resumed)


@dataclass(slots=True)
class _Run:
    subagents: Subagents
    tasks: BackgroundTasks
    order: Order
    ending: _Ending
    tell_report: Callable[[Report], str]
    waiting: int = 0

    async def carry_out(self, instance: Instance, who: Subagent) -> None:
        """Work, and keep the books of the task right, whatever happens."""
        report: Report | None = None
        try:
            self._note(who, "running")
            with self.ending.scope:
                report = await work(self.subagents, instance, self.order, who, partial(self._wait, who))
        finally:
            self.subagents.working.discard(who.agent_id)
            self._close(who, report)

    def _wait(self, who: Subagent, waiting: bool) -> None:
        """Several calls of the subagent may wait for an approval at a time."""
        self.waiting += 1 if waiting else -1
        self._note(who, "awaiting_approval" if self.waiting else "running")

    def _close(self, who: Subagent, report: Report | None) -> None:
        head = f"agent_id: {who.agent_id}\n\n"
        if report is not None and report.ending == "completed":
            self._write(who, head + report.text)
            self._note(who, "completed")
        elif report is None or self.subagents.parent.waiting.closed:  # refused because nobody was there any more
            self._note(who, "killed", self.ending.reason or "The conversation has ended.")
        else:
            reason = self.tell_report(report)
            self._write(who, head + reason)
            self._note(who, "failed", reason, timed_out=report.ending == "timed_out")

    def _note(self, who: Subagent, status: TaskStatus, reason: str = "", *, timed_out: bool = False) -> None:
        try:
            self.tasks.note(who.task_id or "", status, reason=reason, timed_out=timed_out)
        except OSError:
            logger.exception("the state of background task %s could not be stored", who.task_id)

    def _write(self, who: Subagent, text: str) -> None:
        try:
            self.tasks.write(who.task_id or "", text)
        except OSError:
            logger.exception("the report of background task %s could not be stored", who.task_id)
