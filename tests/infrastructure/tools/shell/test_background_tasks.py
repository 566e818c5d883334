"""TaskList, TaskOutput and TaskStop (tools spec 3.16), over tasks without processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kimi.application.ports import Tool
from kimi.domain.background import BackgroundTask, BackgroundTaskSpec
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.tools.tool import BackgroundTaskBlock, tool_error
from kimi.infrastructure.tools.shell.background_tasks import TaskListTool, TaskOutputTool, TaskStopTool
from tests.support.background_tasks import FakeTasks
from tests.support.tool_calls import call, call_context, effect_of

pytestmark = pytest.mark.anyio


def started(tasks: FakeTasks, command: str) -> BackgroundTask:
    return tasks.start(BackgroundTaskSpec(command, f"a job: {command}", ("sh", "-c", command), 60))


def stopping(tasks: FakeTasks, *, plan_mode: bool = False) -> TaskStopTool:
    return TaskStopTool(tasks, lambda: plan_mode)


def output_of(tasks: FakeTasks) -> TaskOutputTool:
    return TaskOutputTool(tasks, 0.01)


@pytest.mark.spec("T-96")
async def test_tasks_are_listed_newest_first() -> None:
    tasks = FakeTasks()
    tool = TaskListTool(tasks)
    assert (await call(tool, {})).output == "active_background_tasks: 0\n[no tasks]"
    one, two = started(tasks, "sleep 9"), started(tasks, "exit 3")
    active, every = await call(tool, {}), await call(tool, {"active_only": False})
    assert active.message == "Task list retrieved."
    group = f"[1]\ntask_id: {one.id}\nkind: bash\nstatus: running\ndescription: a job: sleep 9\ncommand: sleep 9"
    assert active.output == f"active_background_tasks: 1\n{group}"
    assert str(every.output).startswith(f"background_tasks: 2\n[1]\ntask_id: {two.id}\nkind: bash\nstatus: failed\n")
    short = str((await call(tool, {"active_only": False, "limit": 1})).output)
    assert short.startswith("background_tasks: 2\n[1]\n")
    assert "[2]" not in short
    for limit in (0, 101):
        assert (await call(tool, {"limit": limit})).is_error


@pytest.mark.spec("T-96")
async def test_output_returns_a_snapshot_or_waits() -> None:
    tasks = FakeTasks()
    tool = output_of(tasks)
    running, done = started(tasks, "sleep 9"), started(tasks, "echo all is well")
    snapshot = await call(tool, {"task_id": running.id})
    assert str(snapshot.output).startswith(f"retrieval_status: not_ready\ntask_id: {running.id}\nkind: bash\n")
    assert str(snapshot.output).endswith("\n\n[output]\n[no output available]")
    assert snapshot.message == "Task snapshot retrieved."
    late = await call(tool, {"task_id": running.id, "block": True, "timeout": 0})
    assert str(late.output).startswith("retrieval_status: timeout\n")
    assert late.message == "Task output retrieved."
    ended = await call(tool, {"task_id": done.id, "block": True})
    assert str(ended.output).startswith("retrieval_status: success\n")
    assert str(ended.output).endswith("\n\n[output]\nall is well\n")
    assert ended.display == (BackgroundTaskBlock(done.id, "bash", "completed", done.description),)
    for timeout in (-1, 3601):
        assert (await call(tool, {"task_id": done.id, "timeout": timeout})).is_error


@pytest.mark.spec("T-96", "R-146")
async def test_long_output_is_cut_to_its_last_32_kilobytes() -> None:
    tasks = FakeTasks()
    task = started(tasks, "exit 0")
    tasks.said[task.id] = b"a" + b"b" * 32 * 1024
    text = str((await call(output_of(tasks), {"task_id": task.id})).output)
    head, _, shown = text.partition("\n\n[output]\n")
    assert "output_size_bytes: 32769\noutput_shown_bytes: 32768\noutput_truncated: true" in head
    assert shown == f"[Truncated. Full output: {task.output_path}]\n" + "b" * 32 * 1024


@pytest.mark.spec("T-96")
async def test_stopping_requires_approval() -> None:
    tasks = FakeTasks()
    task = started(tasks, "sleep 9")
    tool = stopping(tasks)
    assert await effect_of(tool, {"task_id": task.id}) == ProposedAction(
        "stop background task", f"Stop background task `{task.id}`", subject=task.id
    )
    result = await call(tool, {"task_id": task.id})
    assert (result.is_error, result.message) == (False, "Task stop requested.")
    assert tasks.held[task.id].reason == "Stopped by TaskStop"
    assert await call(stopping(tasks, plan_mode=True), {"task_id": task.id}) == tool_error(
        "TaskStop is not available in plan mode.", "Plan mode restriction"
    )


def every_tool(tasks: FakeTasks) -> Mapping[Tool, dict[str, Any]]:
    return {TaskListTool(tasks): {}, output_of(tasks): {"task_id": "x"}, stopping(tasks): {"task_id": "x"}}


@pytest.mark.spec("T-96")
async def test_unknown_ids_and_subagents_are_refused() -> None:
    tasks = FakeTasks()
    for tool in (output_of(tasks), stopping(tasks)):
        result = await call(tool, {"task_id": "bash-00000000"})
        assert result == tool_error("Task not found: bash-00000000", "Task not found")
    refused = tool_error("Background tasks can only be managed by the root agent.", "Background task unavailable")
    for tool, arguments in every_tool(tasks).items():
        inside = replace(call_context(tool.spec.name), agent_id="a1234567")
        async with tool.prepare(arguments, inside) as prepared:
            assert await prepared.run() == refused
