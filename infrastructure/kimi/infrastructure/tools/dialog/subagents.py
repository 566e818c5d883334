"""The tools that start subagents: Agent, and Task with CreateSubagent of older agent files (tools spec 3.12, 3.13)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Annotated

from pydantic import BaseModel, Field

from kimi.application.agents.background_subagents import StartedSubagent
from kimi.application.agents.run_subagent import SubagentResult, SubagentTask, format_subagent_types
from kimi.application.ports import PreparedCall, ToolCallContext
from kimi.domain.agents.agent import SubagentType
from kimi.domain.background import collapse_whitespace
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.infrastructure.tools.params import P, build_schema, prepare_call, prepare_finished_call

RunSubagent = Callable[[SubagentTask, str], Awaitable[SubagentResult]]
"""Run a subagent: task and id of the call -> its result."""

StartSubagent = Callable[[SubagentTask, str, Callable[[SubagentResult], str]], StartedSubagent | SubagentResult]
"""Start a subagent in the background: as `RunSubagent`; the last argument formats a failure."""

GetSubagentTypes = Callable[[], Mapping[str, SubagentType]]
"""Return the present types of subagents."""

NESTED_SUBAGENT_ERROR = tool_error("Subagents cannot launch other subagents.", "Agent unavailable")

DescriptionField = Annotated[str, Field(description="The task in three to five words, for the person who watches.")]
PromptField = Annotated[
    str,
    Field(description="The whole task: the subagent knows nothing but this text and what it finds for itself."),
]


class AgentParams(BaseModel):
    """Arguments of Agent; `timeout` is in seconds."""

    description: DescriptionField
    prompt: PromptField
    subagent_type: Annotated[str, Field(description="The type of subagent.")] = "coder"
    model: Annotated[str | None, Field(description="Alias of a configured model; normally left out.")] = None
    resume: Annotated[str | None, Field(description="Id of an earlier subagent that shall go on.")] = None
    run_in_background: Annotated[
        bool, Field(description="Do not wait for the report: a notification brings it when it is there.")
    ] = False
    timeout: Annotated[
        int | None,
        Field(ge=30, le=3600, description="Seconds after which it is stopped; none by default, in the background 900."),
    ] = None


class AgentTool:
    """Runs a subagent and returns its last message, or starts one in the background; implements the port `Tool`."""

    def __init__(self, run: RunSubagent, start: StartSubagent, types: GetSubagentTypes) -> None:
        self._run = run
        self._start = start
        self._spec = _agent_spec(format_subagent_types(types()))

    @property
    def spec(self) -> ToolSpec:
        """See `Tool`."""
        return self._spec

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`. Needs no approval: each call of the subagent is decided by itself."""
        yield _prepare_root_call(
            AgentParams, arguments, context, lambda params: self._run_subagent(params, context.call_id)
        )

    async def _run_subagent(self, params: AgentParams, call_id: str) -> ToolReturnValue:
        subagent_task = SubagentTask(
            description=params.description,
            prompt=params.prompt,
            type=params.subagent_type,
            model=params.model,
            resume_agent_id=params.resume,
            timeout_s=params.timeout,
        )
        if params.run_in_background:
            return format_started_result(self._start(subagent_task, call_id, _format_failure), params.subagent_type)
        return format_agent_result(await self._run(subagent_task, call_id), params.subagent_type)


def _prepare_root_call(
    params: type[P], arguments: JsonObject, context: ToolCallContext, run: Callable[[P], Awaitable[ToolReturnValue]]
) -> PreparedCall:
    """Prepare a call that awaits `run` if the root agent makes it, else an error."""
    if context.agent_id is not None:
        return prepare_finished_call(NESTED_SUBAGENT_ERROR)
    return prepare_call(params, arguments, lambda parsed: PreparedCall(lambda: run(parsed)))


def format_started_result(started: StartedSubagent | SubagentResult, requested_type: str) -> ToolReturnValue:
    """Format the result of an Agent call that started in the background."""
    if isinstance(started, SubagentResult):
        return tool_error(*_describe_failure(started))
    task = started.task
    facts = [
        *(
            f"task_id: {task.id}",
            "kind: agent",
            f"status: {task.status}",
            f"description: {collapse_whitespace(task.description)}",
        ),
        *_format_subagent_facts(started.agent_id, started.type, requested_type, resumed=started.resumed),
        "automatic_notification: true",
        f'resume_hint: Use Agent(resume="{started.agent_id}", prompt="...") to go on with it when it has ended.',
    ]
    return tool_ok("\n".join(facts), "Background task started.")


def _format_subagent_facts(agent_id: str, actual_type: str, requested_type: str, *, resumed: bool) -> list[str]:
    facts = [f"agent_id: {agent_id}", f"resumed: {'true' if resumed else 'false'}"]
    if requested_type != actual_type:
        facts.append(f"requested_subagent_type: {requested_type}")
    return [*facts, f"actual_subagent_type: {actual_type}"]


def _format_failure(result: SubagentResult) -> str:
    return _describe_failure(result)[0]


def format_agent_result(result: SubagentResult, requested_type: str) -> ToolReturnValue:
    """Format the result of an Agent call."""
    if result.outcome != "completed":
        return tool_error(*_describe_failure(result))
    subagent_facts = _format_subagent_facts(result.agent_id, result.type, requested_type, resumed=result.resumed)
    return tool_ok("\n".join([*subagent_facts, "status: completed", "", "[summary]", result.text]))


def _describe_failure(result: SubagentResult) -> tuple[str, str]:
    """Return message and brief."""
    match result.outcome:
        case "unknown_type":
            return f"Unknown subagent type: {result.text}", "Invalid subagent type"
        case "unknown_model":
            return f"Unknown model alias: {result.text}", "Invalid model alias"
        case "unknown_agent":
            return f"Failed to run agent: there is no agent instance {result.text}", "Agent failed"
        case "still_running":
            still = f"Agent instance {result.agent_id} is still {result.text} and cannot be resumed concurrently."
            return f"Failed to run agent: {still}", "Agent failed"
        case "max_steps":
            return _format_max_steps_error(result, "agent"), "Max steps reached"
        case "timed_out":
            return f"Agent timed out after {result.limit_or_status}s.", f"Agent timed out ({result.limit_or_status}s)"
        case "api_error":
            status = result.limit_or_status
            return f"LLM API error (HTTP {status}) when running agent: {result.text}", f"API error ({status})"
        case "provider_error":
            return f"LLM provider error when running agent: {result.text}", "LLM provider error"
        case "invalid":
            return "The agent did not produce a valid assistant response.", "Invalid agent result"
        case "empty":
            return "Agent completed but produced no output.", "Empty agent output"
        case _:
            return f"Failed to run agent: {result.text}", "Agent failed"


def _format_max_steps_error(result: SubagentResult, runner: str) -> str:
    return (
        f"Max steps {result.limit_or_status} reached when running {runner}. "
        "Please try splitting the task into smaller subtasks."
    )


class TaskParams(BaseModel):
    """Arguments of Task."""

    description: DescriptionField
    subagent_name: Annotated[str, Field(description="The subagent that shall do it.")]
    prompt: PromptField


class TaskTool:
    """Task: Agent with the parameters and results of older agent files; implements the port `Tool`."""

    def __init__(self, run: RunSubagent, types: GetSubagentTypes) -> None:
        self._run = run
        self._spec = _task_spec(format_subagent_types(types()))

    @property
    def spec(self) -> ToolSpec:
        """See `Tool`."""
        return self._spec

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`. Needs no approval: each call of the subagent is decided by itself."""
        yield _prepare_root_call(
            TaskParams, arguments, context, lambda params: self._run_subagent(params, context.call_id)
        )

    async def _run_subagent(self, params: TaskParams, call_id: str) -> ToolReturnValue:
        return format_task_result(
            await self._run(SubagentTask(params.description, params.prompt, params.subagent_name), call_id)
        )


def format_task_result(result: SubagentResult) -> ToolReturnValue:
    """Format the result of a Task call."""
    match result.outcome:
        case "completed":
            return tool_ok(result.text)
        case "unknown_type":
            return tool_error(f"Subagent not found: {result.text}", "Subagent not found")
        case "max_steps":
            return tool_error(_format_max_steps_error(result, "subagent"), "Max steps reached")
        case "invalid" | "empty":
            message = "The subagent seemed not to run properly. Maybe you have to do the task yourself."
            return tool_error(message, "Failed to run subagent")
        case _:
            return tool_error(f"Failed to run subagent: {result.text}", "Failed to run subagent")


class CreateSubagentParams(BaseModel):
    """Arguments of CreateSubagent."""

    name: Annotated[str, Field(min_length=1, description="A name that Task can use afterwards.")]
    system_prompt: Annotated[str, Field(description="Who the subagent is and how it shall work.")]


class CreateSubagentTool:
    """CreateSubagent: adds a type that Task can use in this conversation; implements the port `Tool`.

    `create` adds a name with its system prompt and returns whether the name was free.
    """

    def __init__(self, create: Callable[[str, str], bool], types: GetSubagentTypes) -> None:
        self._create = create
        self._types = types

    @property
    def spec(self) -> ToolSpec:
        """See `Tool`."""
        return _create_subagent_spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`. Needs no approval: a new type may do nothing that its creator may not."""
        yield _prepare_root_call(CreateSubagentParams, arguments, context, self._create_type)

    async def _create_type(self, params: CreateSubagentParams) -> ToolReturnValue:
        if not self._create(params.name, params.system_prompt):
            return tool_error(f"Subagent with name '{params.name}' already exists.", "Subagent already exists")
        available = f"Available subagents: {', '.join(self._types())}"
        return tool_ok(available, f"Subagent '{params.name}' created successfully.")


_ADVICE = """\
It works with a context of its own, so use it for work that would fill yours: searches through much text, tasks that \
stand on their own. Do small things yourself.

- It knows nothing of this conversation. Say in `prompt` what is to be done, what is known already, which files \
matter, whether it may change something, and what the report shall hold.
- Its report is for you: the person does not see it, so tell them what matters of it.
- Several calls in one answer run at the same time. Do not let two of them change the same files.
"""


@lru_cache(maxsize=8)
def _agent_spec(types: str) -> ToolSpec:
    return ToolSpec(
        name="Agent",
        description=f"""\
Give a task to a subagent and get its report.

{_ADVICE}\
- The result names an `agent_id`. To go on with the same subagent, which still knows what it did, pass it as `resume`.
- With `run_in_background` the call returns at once with a task id; a notification brings the report. Use it only for \
work whose report you can do without for now, and go on with something else: do not poll for it.

Types for `subagent_type`:

{types}
""",
        parameters=build_schema(AgentParams),
        kind="think",
        key_argument="description",
    )


@lru_cache(maxsize=8)
def _task_spec(types: str) -> ToolSpec:
    return ToolSpec(
        name="Task",
        description=f"Give a task to a subagent and get its report.\n\n{_ADVICE}\nSubagents:\n\n{types}\n",
        parameters=build_schema(TaskParams),
        kind="think",
        key_argument="description",
    )


@lru_cache(maxsize=1)
def _create_subagent_spec() -> ToolSpec:
    return ToolSpec(
        name="CreateSubagent",
        description=(
            "Create a subagent with a system prompt of its own, for Task to use later in this conversation. It has the "
            "same tools as you, but it cannot start subagents.\n"
        ),
        parameters=build_schema(CreateSubagentParams),
    )
