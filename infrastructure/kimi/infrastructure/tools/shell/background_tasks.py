"""TaskList, TaskOutput and TaskStop: the model's tools for background tasks (tools spec 3.16)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Annotated

from pydantic import BaseModel, Field

from kimi.application.conversation.background_tasks import wait_for_task
from kimi.application.ports import BackgroundTasks, PreparedCall, ToolCallContext
from kimi.domain.background import BackgroundTask, TaskOutput, task_fields
from kimi.domain.content.message import JsonObject
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.tools.tool import BackgroundTaskBlock, ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.infrastructure.tools.params import P, build_schema, prepare_call

MAX_OUTPUT_BYTES = 32 * 1024
"""How much of the end of an output TaskOutput shows."""

DEFAULT_STOP_REASON = "Stopped by TaskStop"

ROOT_ONLY_ERROR = tool_error("Background tasks can only be managed by the root agent.", "Background task unavailable")
_PLAN_MODE_ERROR = tool_error("TaskStop is not available in plan mode.", "Plan mode restriction")


class TaskListParams(BaseModel):
    """Arguments of TaskList."""

    active_only: Annotated[bool, Field(description="Leave out the tasks that have ended.")] = True
    limit: Annotated[int, Field(ge=1, le=100, description="How many tasks to list at most.")] = 20


class TaskOutputParams(BaseModel):
    """Arguments of TaskOutput; `timeout` is in seconds."""

    task_id: Annotated[str, Field(description="The id of the task.")]
    block: Annotated[bool, Field(description="Wait for the end of the task.")] = False
    timeout: Annotated[int, Field(ge=0, le=3600, description="Seconds to wait at most, with `block`.")] = 30


class TaskStopParams(BaseModel):
    """Arguments of TaskStop."""

    task_id: Annotated[str, Field(description="The id of the task.")]
    reason: Annotated[str, Field(description="Why it is stopped, in a few words.")] = DEFAULT_STOP_REASON


class TaskListTool:
    """Lists background tasks; implements the port `Tool`."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks

    @property
    def spec(self) -> ToolSpec:
        """See `Tool`."""
        return _list_spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`."""
        yield _prepare_root_call(
            TaskListParams, arguments, context, lambda params: PreparedCall(partial(self._run, params))
        )

    async def _run(self, params: TaskListParams) -> ToolReturnValue:
        found = [task for task in self._tasks.list_tasks() if task.is_active or not params.active_only]
        heading = "active_background_tasks" if params.active_only else "background_tasks"
        groups = [
            f"[{number}]\n{_format_facts(task_fields(task))}" for number, task in enumerate(found[: params.limit], 1)
        ]
        return tool_ok("\n".join([f"{heading}: {len(found)}", *(groups or ["[no tasks]"])]), "Task list retrieved.")


class TaskOutputTool:
    """Shows the state and the output of a task; implements the port `Tool`.

    `poll_s` is the interval in seconds at which it reads the state while it waits.
    """

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
        yield _prepare_root_call(
            TaskOutputParams, arguments, context, lambda params: PreparedCall(partial(self._run, params))
        )

    async def _run(self, params: TaskOutputParams) -> ToolReturnValue:
        wait_s = params.timeout if params.block else 0
        task = await wait_for_task(self._tasks, params.task_id, wait_s, self._poll_s)
        if task is None:
            return task_not_found_error(params.task_id)
        status = "success" if not task.is_active else "timeout" if params.block else "not_ready"
        output = self._tasks.read_output(task.id, MAX_OUTPUT_BYTES)
        facts = [("retrieval_status", status), *task_fields(task), *_output_facts(task, output)]
        shown = output.text or "[no output available]"
        truncation_note = f"[Truncated. Full output: {task.output_path}]\n" if output.is_truncated else ""
        message = "Task output retrieved." if params.block else "Task snapshot retrieved."
        return tool_ok(
            f"{_format_facts(facts)}\n\n[output]\n{truncation_note}{shown}", message, display=(_display_block(task),)
        )


class TaskStopTool:
    """Stops a task; implements the port `Tool`. `is_plan_mode` returns whether plan mode is on."""

    def __init__(self, tasks: BackgroundTasks, is_plan_mode: Callable[[], bool]) -> None:
        self._tasks = tasks
        self._is_plan_mode = is_plan_mode

    @property
    def spec(self) -> ToolSpec:
        """See `Tool`."""
        return _stop_spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`. A task that cannot be stopped is reported without a question."""
        yield _prepare_root_call(TaskStopParams, arguments, context, self._prepare_stop)

    def _prepare_stop(self, params: TaskStopParams) -> PreparedCall | ToolReturnValue:
        if self._is_plan_mode():
            return _PLAN_MODE_ERROR
        if self._tasks.find(params.task_id) is None:
            return task_not_found_error(params.task_id)
        return PreparedCall(partial(self._run, params), propose_stop(params.task_id))

    async def _run(self, params: TaskStopParams) -> ToolReturnValue:
        try:
            self._tasks.stop(params.task_id, params.reason.strip() or DEFAULT_STOP_REASON)
        except OSError as error:
            return tool_error(f"Failed to stop background task: {error}", "Stop failed")
        task = self._tasks.find(params.task_id)
        if task is None:
            return task_not_found_error(params.task_id)
        return tool_ok(_format_facts(task_fields(task)), "Task stop requested.", display=(_display_block(task),))


def _prepare_root_call(
    params: type[P],
    arguments: JsonObject,
    context: ToolCallContext,
    prepare: Callable[[P], PreparedCall | ToolReturnValue],
) -> PreparedCall:
    """Prepare a call with `prepare` if the root agent makes it, else an error."""
    return prepare_call(
        params, arguments, lambda parsed: ROOT_ONLY_ERROR if context.agent_id is not None else prepare(parsed)
    )


def propose_stop(task_id: str) -> ProposedAction:
    """Build the action of stopping a task, for the policy and the user."""
    return ProposedAction("stop background task", f"Stop background task `{task_id}`", subject=task_id)


def task_not_found_error(task_id: str) -> ToolReturnValue:
    """Return the error for an id that no task of the session has."""
    return tool_error(f"Task not found: {task_id}", "Task not found")


def _output_facts(task: BackgroundTask, output: TaskOutput) -> list[tuple[str, str]]:
    """Return the times, and where the rest of the output is."""
    times = [("created_at", task.created_at), ("started_at", task.started_at), ("ended_at", task.ended_at)]
    facts = [(key, f"{value:.3f}") for key, value in times if value is not None]
    facts += [
        ("timeout_s", f"{task.timeout_s:g}"),
        ("output_path", task.output_path),
        ("output_size_bytes", str(output.total_bytes)),
        ("output_shown_bytes", str(output.shown_bytes)),
        ("output_truncated", str(output.is_truncated).lower()),
    ]
    if output.is_truncated:
        facts.append(("full_output_hint", "ReadFile with output_path, line_offset and n_lines reads all of it."))
    return facts


def _display_block(task: BackgroundTask) -> BackgroundTaskBlock:
    return BackgroundTaskBlock(task.id, task.kind, task.status, task.description)


def _format_facts(facts: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"{key}: {value}" for key, value in facts)


@cache
def _list_spec() -> ToolSpec:
    return ToolSpec(
        "TaskList",
        "List the background tasks of this session with their ids and states: those that run or, with "
        "`active_only` false, all of them, newest first, at most `limit` (1 to 100, default 20). You are notified of "
        "the end of every task, so do not poll with it; use it when you have lost track of ids.",
        build_schema(TaskListParams),
        read_only=True,
        kind="read",
        key_argument="active_only",
        find_title=_describe_task_filter,
    )


def _describe_task_filter(arguments: JsonObject) -> str:
    return "active" if arguments.get("active_only", True) else "all"


@cache
def _output_spec() -> ToolSpec:
    return ToolSpec(
        "TaskOutput",
        "Show the state of a background task and the end of its output: at most 32 KiB, with the path of the file "
        "that holds all of it, which ReadFile can read in pieces. It answers at once; with `block` it waits for the "
        "end of the task, for `timeout` seconds (0 to 3600, default 30). You are notified of the end anyway: wait "
        "only when there is nothing else to do. `retrieval_status` is success when the task has ended, not_ready "
        "when it runs, timeout when it still ran after the wait.",
        build_schema(TaskOutputParams),
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
        build_schema(TaskStopParams),
        kind="execute",
        key_argument="task_id",
    )
