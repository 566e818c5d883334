"""TaskList, TaskOutput and TaskStop: what the model can do about background tasks (tools spec 3.16)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Annotated

from pydantic import BaseModel, Field

from kimi.application.conversation.background_tasks import wait_for_task
from kimi.application.ports import BackgroundTasks, PreparedCall, ToolCallContext
from kimi.domain.background import BackgroundTask, TaskOutput, task_facts
from kimi.domain.content.message import JsonObject
from kimi.domain.permissions.approval import Effect
from kimi.domain.tools.tool import BackgroundTaskBlock, ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.infrastructure.tools.params import P, prepared, schema_of

OUTPUT_BYTES = 32 * 1024
"""How much of the end of a log TaskOutput shows."""

STOP_REASON = "Stopped by TaskStop"

ROOT_ONLY = tool_error("Background tasks can only be managed by the root agent.", "Background task unavailable")
_IN_PLAN_MODE = tool_error("TaskStop is not available in plan mode.", "Plan mode restriction")


class ListParams(BaseModel):
    """Arguments of TaskList."""

    active_only: Annotated[bool, Field(description="Leave out the tasks that have ended.")] = True
    limit: Annotated[int, Field(ge=1, le=100, description="How many tasks to list at most.")] = 20


class OutputParams(BaseModel):
    """Arguments of TaskOutput; `timeout` is in seconds."""

    task_id: Annotated[str, Field(description="The id of the task.")]
    block: Annotated[bool, Field(description="Wait for the end of the task.")] = False
    timeout: Annotated[int, Field(ge=0, le=3600, description="Seconds to wait at most, with `block`.")] = 30


class StopParams(BaseModel):
    """Arguments of TaskStop."""

    task_id: Annotated[str, Field(description="The id of the task.")]
    reason: Annotated[str, Field(description="Why it is stopped, in a few words.")] = STOP_REASON


class TaskList:
    """Lists background tasks; implements `Tool` of the application's ports."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks

    @property
    def spec(self) -> ToolSpec:
        """See `Tool`."""
        return _list_spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`."""
        yield _of_root(ListParams, arguments, context, lambda params: PreparedCall(partial(self._run, params)))

    async def _run(self, params: ListParams) -> ToolReturnValue:
        found = [task for task in self._tasks.tasks() if task.active or not params.active_only]
        heading = "active_background_tasks" if params.active_only else "background_tasks"
        groups = [f"[{number}]\n{_lines(task_facts(task))}" for number, task in enumerate(found[: params.limit], 1)]
        return tool_ok("\n".join([f"{heading}: {len(found)}", *(groups or ["[no tasks]"])]), "Task list retrieved.")


class TaskOutputTool:
    """Shows the state and the output of a task; implements `Tool`. `poll_s` is how often it looks while it waits."""

    def __init__(self, tasks: BackgroundTasks, poll_s: float) -> None:
        self._tasks = tasks
        self._poll_s = poll_s

    @property
    def spec(self) -> ToolSpec:
        """See `Tool`."""
        return _output_spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`."""
        yield _of_root(OutputParams, arguments, context, lambda params: PreparedCall(partial(self._run, params)))

    async def _run(self, params: OutputParams) -> ToolReturnValue:
        wait_s = params.timeout if params.block else 0
        task = await wait_for_task(self._tasks, params.task_id, wait_s, self._poll_s)
        if task is None:
            return not_found(params.task_id)
        status = "success" if not task.active else "timeout" if params.block else "not_ready"
        output = self._tasks.output(task.id, OUTPUT_BYTES)
        facts = [("retrieval_status", status), *task_facts(task), *_output_facts(task, output)]
        shown = output.text or "[no output available]"
        cut = f"[Truncated. Full output: {task.output_path}]\n" if output.cut else ""
        message = "Task output retrieved." if params.block else "Task snapshot retrieved."
        return tool_ok(f"{_lines(facts)}\n\n[output]\n{cut}{shown}", message, display=(_block(task),))


class TaskStop:
    """Ends a task; implements `Tool`. `plan_mode` says whether plan mode is on."""

    def __init__(self, tasks: BackgroundTasks, plan_mode: Callable[[], bool]) -> None:
        self._tasks = tasks
        self._plan_mode = plan_mode

    @property
    def spec(self) -> ToolSpec:
        """See `Tool`."""
        return _stop_spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`. What cannot be stopped is said without asking."""
        yield _of_root(StopParams, arguments, context, self._ready)

    def _ready(self, params: StopParams) -> PreparedCall | ToolReturnValue:
        if self._plan_mode():
            return _IN_PLAN_MODE
        if self._tasks.find(params.task_id) is None:
            return not_found(params.task_id)
        return PreparedCall(partial(self._run, params), stop_effect(params.task_id))

    async def _run(self, params: StopParams) -> ToolReturnValue:
        try:
            self._tasks.stop(params.task_id, params.reason.strip() or STOP_REASON)
        except OSError as error:
            return tool_error(f"Failed to stop background task: {error}", "Stop failed")
        task = self._tasks.find(params.task_id)
        if task is None:
            return not_found(params.task_id)
        return tool_ok(_lines(task_facts(task)), "Task stop requested.", display=(_block(task),))


def _of_root(
    params: type[P],
    arguments: JsonObject,
    context: ToolCallContext,
    prepare: Callable[[P], PreparedCall | ToolReturnValue],
) -> PreparedCall:
    """What `prepare` makes of the arguments when the call is one of the root agent."""
    return prepared(params, arguments, lambda parsed: ROOT_ONLY if context.agent_id is not None else prepare(parsed))


def stop_effect(task_id: str) -> Effect:
    """What stopping a task means for the policy and the person."""
    return Effect("stop background task", f"Stop background task `{task_id}`", subject=task_id)


def not_found(task_id: str) -> ToolReturnValue:
    """The error for an id that no task of the session has."""
    return tool_error(f"Task not found: {task_id}", "Task not found")


def _output_facts(task: BackgroundTask, output: TaskOutput) -> list[tuple[str, str]]:
    """Times, and where the rest of the output is."""
    times = [("created_at", task.created_at), ("started_at", task.started_at), ("ended_at", task.ended_at)]
    facts = [(key, f"{value:.3f}") for key, value in times if value is not None]
    facts += [
        ("timeout_s", f"{task.timeout_s:g}"),
        ("output_path", task.output_path),
        ("output_size_bytes", str(output.size)),
        ("output_shown_bytes", str(output.shown)),
        ("output_truncated", str(output.cut).lower()),
    ]
    if output.cut:
        facts.append(("full_output_hint", "ReadFile with output_path, line_offset and n_lines reads all of it."))
    return facts


def _block(task: BackgroundTask) -> BackgroundTaskBlock:
    return BackgroundTaskBlock(task.id, task.kind, task.status, task.description)


def _lines(facts: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"{key}: {value}" for key, value in facts)


@cache
def _list_spec() -> ToolSpec:
    return ToolSpec(
        "TaskList",
        "List the background tasks of this session with their ids and states: those that run or, with "
        "`active_only` false, all of them, newest first, at most `limit` (1 to 100, default 20). You are notified of "
        "the end of every task, so do not poll with it; use it when you have lost track of ids.",
        schema_of(ListParams),
        read_only=True,
        kind="read",
        key_argument="active_only",
    )


@cache
def _output_spec() -> ToolSpec:
    return ToolSpec(
        "TaskOutput",
        "Show the state of a background task and the end of its output: at most 32 KiB, with the path of the file "
        "that holds all of it, which ReadFile can read in pieces. It answers at once; with `block` it waits for the "
        "end of the task, for `timeout` seconds (0 to 3600, default 30). You are notified of the end anyway: wait "
        "only when there is nothing else to do. `retrieval_status` is success when the task has ended, not_ready "
        "when it runs, timeout when it still ran after the wait.",
        schema_of(OutputParams),
        read_only=True,
        kind="read",
        key_argument="task_id",
    )


@cache
def _stop_spec() -> ToolSpec:
    return ToolSpec(
        "TaskStop",
        "End a background task together with everything that it has started: first it is asked to, then killed. The "
        "person may be asked first. Use it for tasks that are no longer needed or do the wrong thing, not to read "
        "output. It does not wait: a notification follows when the task has ended. Not available in plan mode.",
        schema_of(StopParams),
        kind="execute",
        key_argument="task_id",
    )
