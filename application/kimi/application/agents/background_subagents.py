"""Subagents in the background, which run beside the turns of their parent (runtime spec 7.8; tools spec 3.13).

The end of such a subagent is announced as that of any other background task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import anyio

from kimi.application.agents.run_subagent import (
    Subagent,
    SubagentRegistry,
    SubagentResult,
    SubagentTask,
    prepare_subagent,
    run_prepared_subagent,
)
from kimi.application.ports import BackgroundTasks
from kimi.domain.agents.subagent import SubagentIdentity
from kimi.domain.background import BackgroundTask, BackgroundTaskSpec, TaskStatus
from kimi.domain.errors import TooManyTasks
from kimi.domain.events.event import ApprovalResponse, Event
from kimi.domain.events.request import ApprovalRequest

logger = logging.getLogger(__name__)

UNAVAILABLE = "background tasks are not available here"


@dataclass(slots=True)
class StartedSubagent:
    """A subagent that was started in the background, and its background task."""

    task: BackgroundTask
    agent_id: str
    type: str
    resumed: bool


@dataclass(slots=True)
class _StopSignal:
    """Cancels the work of a background subagent and keeps the reason; the first reason counts."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    reason: str = ""

    def trigger(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.scope.cancel()


def start_in_background(
    subagents: SubagentRegistry,
    subagent_task: SubagentTask,
    call_id: str,
    describe_failure: Callable[[SubagentResult], str],
) -> StartedSubagent | SubagentResult:
    """Start `subagent_task` in the background; return the background task, or a result when it cannot be started.

    `describe_failure` returns the text of a failed result. The subagent is cancelled when its background task is
    stopped, its time is up, or the conversation ends.
    """
    parent = subagents.parent
    tasks, group = parent.resources.background.tasks, parent.resources.hooks.task_group
    if tasks is None or group is None:
        return SubagentResult("failed", UNAVAILABLE)
    subagent = prepare_subagent(subagents, subagent_task)
    if isinstance(subagent, SubagentResult):
        return subagent
    timeout_s = subagent_task.timeout_s or parent.resources.background.settings.agent_task_timeout_s
    stop_signal = _StopSignal()
    try:
        task = tasks.adopt(
            BackgroundTaskSpec("", subagent_task.description, (), timeout_s, "agent"), stop_signal.trigger
        )
    except (OSError, TooManyTasks) as error:
        subagent.files.close()
        return SubagentResult("failed", str(error))
    identity = subagent.build_identity(call_id, task.id)
    # Here and not in the task, which begins later: the next call could resume the same subagent before that.
    subagents.running_ids.add(identity.agent_id)
    run = _BackgroundRun(subagents, tasks, replace(subagent_task, timeout_s=timeout_s), stop_signal, describe_failure)
    group.start_soon(run.execute, subagent, identity)
    return StartedSubagent(task, identity.agent_id, identity.type, subagent.resumed)


@dataclass(slots=True)
class _BackgroundRun:
    subagents: SubagentRegistry
    tasks: BackgroundTasks
    subagent_task: SubagentTask
    stop_signal: _StopSignal
    describe_failure: Callable[[SubagentResult], str]
    pending_approval_ids: set[str] = field(default_factory=set[str])

    async def execute(self, subagent: Subagent, identity: SubagentIdentity) -> None:
        """Run the subagent, and keep the stored status of its background task correct in every case."""
        result: SubagentResult | None = None
        try:
            self._record_status(identity, "running")
            with self.stop_signal.scope:
                result = await run_prepared_subagent(
                    self.subagents,
                    subagent,
                    self.subagent_task,
                    identity,
                    partial(self._update_pending_approvals, identity),
                )
        finally:
            # No await from here on: the status must be stored also when the conversation is being cancelled.
            self.subagents.running_ids.discard(identity.agent_id)
            self._record_result(identity, result)

    def _update_pending_approvals(self, identity: SubagentIdentity, event: Event) -> None:
        """Set the status by the number of pending approvals; several calls may wait for one at the same time."""
        if isinstance(event, ApprovalRequest):
            self.pending_approval_ids.add(event.id)
        elif isinstance(event, ApprovalResponse):
            self.pending_approval_ids.discard(event.request_id)
        else:
            return
        self._record_status(identity, "awaiting_approval" if self.pending_approval_ids else "running")

    def _record_result(self, identity: SubagentIdentity, result: SubagentResult | None) -> None:
        head = f"agent_id: {identity.agent_id}\n\n"
        if result is not None and result.outcome == "completed":
            self._write_output(identity, head + result.text)
            self._record_status(identity, "completed")
        # After the client is gone requests are refused, so any other result counts as killed.
        elif result is None or self.subagents.parent.events.pending_requests.is_closed:
            self._record_status(identity, "killed", self.stop_signal.reason or "The conversation has ended.")
        else:
            reason = self.describe_failure(result)
            self._write_output(identity, head + reason)
            self._record_status(identity, "failed", reason, timed_out=result.outcome == "timed_out")

    def _record_status(
        self, identity: SubagentIdentity, status: TaskStatus, reason: str = "", *, timed_out: bool = False
    ) -> None:
        try:
            self.tasks.set_status(identity.task_id or "", status, reason=reason, timed_out=timed_out)
        except OSError:
            logger.exception("the state of background task %s could not be stored", identity.task_id)

    def _write_output(self, identity: SubagentIdentity, text: str) -> None:
        try:
            self.tasks.append_output(identity.task_id or "", text)
        except OSError:
            logger.exception("the report of background task %s could not be stored", identity.task_id)
