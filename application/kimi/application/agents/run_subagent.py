"""Use-case run-subagent: run a child conversation for one tool call of its parent (runtime spec 6.5, 6.6).

The child runs the same `run_turn`. Its events reach the parent's stream wrapped, its requests unwrapped; it shares
policy and pending requests with the parent. It runs inside the call that started it and is cancelled with that call.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio

from kimi.application.conversation.conversation import Conversation
from kimi.application.hooks.hook_points import fire_subagent_stop_hooks, run_subagent_start_hooks
from kimi.application.ports import ChatModel, SessionFiles, SubagentFiles
from kimi.application.turn.run_turn import run_turn
from kimi.domain.agents.agent import AgentSpec, SubagentType
from kimi.domain.agents.subagent import RUNNING_STATUSES, SubagentIdentity, SubagentRecord, SubagentStatus, is_agent_id
from kimi.domain.content.message import message_text
from kimi.domain.errors import APIStatusError, ModelError
from kimi.domain.events.event import Event
from kimi.domain.tools.tool import escape_host_tags
from kimi.domain.turn import TurnStatus

logger = logging.getLogger(__name__)

SHORT_ANSWER_CHARS = 200
CONTINUATION_PROMPT = (
    "Your last message is all that reaches the one who gave you the task, and it is very short. Write the report "
    "again, complete and on its own: what you did or found, the files and names that matter, how you checked it, and "
    "what is left open."
)

SubagentOutcome: TypeAlias = Literal[
    "completed",
    "unknown_type",
    "unknown_model",
    "unknown_agent",
    "still_running",
    "max_steps",
    "timed_out",
    "api_error",
    "provider_error",
    "invalid",
    "empty",
    "failed",
]

OpenNamedModel: TypeAlias = Callable[[str], ChatModel]
"""Opens the model of an alias. Raises KeyError for an unknown alias, ConfigError for a model that cannot be used."""

OpenChild: TypeAlias = Callable[[AgentSpec, SubagentFiles, ChatModel | None, SubagentIdentity], Conversation]
"""Opens a conversation of this agent, stored in these files, as a child of the registry's parent."""


@dataclass(frozen=True, slots=True)
class SubagentTask:
    """The task of a subagent. Without `resume_agent_id` a new subagent is created; `timeout_s` None sets no limit."""

    description: str
    prompt: str
    type: str
    model: str | None = None
    resume_agent_id: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class SubagentResult:
    """The result of a task.

    `text` is the subagent's answer if `outcome` is `completed`, else the reason. `limit_or_status` is the number of
    steps for `max_steps`, the seconds for `timed_out`, and the HTTP status for `api_error`.
    """

    outcome: SubagentOutcome
    text: str = ""
    agent_id: str = ""
    type: str = ""
    resumed: bool = False
    limit_or_status: int = 0


@dataclass(slots=True)
class SubagentRegistry:
    """The subagents of one conversation: the types to choose from, the running ones, and the functions to open them.

    `types` may grow while the conversation is open. `load_git_context` returns a few lines on the repository, or "".
    """

    parent: Conversation
    types: dict[str, SubagentType]
    open_child: OpenChild
    open_named_model: OpenNamedModel
    load_git_context: Callable[[], Awaitable[str]]
    default_model: str | None = None
    """The alias of the model of subagents that name none; without it they use that of the parent."""
    running_ids: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class Subagent:
    """A subagent that is ready to run: its stored record, its type, its model and its files."""

    record: SubagentRecord
    spec: AgentSpec
    model: ChatModel | None
    files: SubagentFiles
    resumed: bool

    def build_identity(self, call_id: str, task_id: str | None = None) -> SubagentIdentity:
        """Return its identity while it works for call `call_id`, or as background task `task_id`."""
        return SubagentIdentity(
            self.record.agent_id,
            self.record.type,
            call_id,
            self.spec.ask_commands,
            task_id,
            self.spec.is_read_only,
        )

    def build_result(self, outcome: SubagentOutcome, text: str = "", limit_or_status: int = 0) -> SubagentResult:
        """Return a result with the ids of this subagent."""
        record = self.record
        return SubagentResult(outcome, text, record.agent_id, record.type, self.resumed, limit_or_status)


async def run_subagent(subagents: SubagentRegistry, subagent_task: SubagentTask, call_id: str) -> SubagentResult:
    """Run a subagent for the call `call_id` of the parent and return its result; failures are results, too."""
    subagent = prepare_subagent(subagents, subagent_task)
    if isinstance(subagent, SubagentResult):
        return subagent
    return await run_prepared_subagent(subagents, subagent, subagent_task, subagent.build_identity(call_id))


# --- preparing --------------------------------------------------------------------------------------------------


def prepare_subagent(subagents: SubagentRegistry, subagent_task: SubagentTask) -> Subagent | SubagentResult:
    """Return a new subagent or the one to resume; return a result when the task cannot be run."""
    try:
        return _find_or_create_subagent(subagents, subagent_task)
    except Exception as error:
        logger.exception("a subagent could not be prepared")
        return SubagentResult("failed", str(error))


def _find_or_create_subagent(subagents: SubagentRegistry, subagent_task: SubagentTask) -> Subagent | SubagentResult:
    files = (
        None
        if subagent_task.resume_agent_id is None
        else _find_files(subagents.parent.files, subagent_task.resume_agent_id)
    )
    if subagent_task.resume_agent_id is not None and (files is None or files.record is None):
        return SubagentResult("unknown_agent", subagent_task.resume_agent_id)
    record = (
        files.record if files is not None and files.record is not None else _create_record(subagents, subagent_task)
    )
    if record.agent_id in subagents.running_ids:
        # A subagent that is about to start in the background still has the stored status of its last run.
        status = record.status if record.status in RUNNING_STATUSES else RUNNING_STATUSES[1]
        return SubagentResult("still_running", status, record.agent_id)
    kind = subagents.types.get(record.type)
    if kind is None:
        return SubagentResult("unknown_type", record.type)
    alias = subagent_task.model or record.model or kind.spec.model or subagents.default_model
    try:
        model = subagents.open_named_model(alias) if alias else subagents.parent.model
    except KeyError:
        return SubagentResult("unknown_model", alias or "")
    return Subagent(
        record, kind.spec, model, files or subagents.parent.files.subagent_files(record.agent_id), files is not None
    )


def _find_files(parent: SessionFiles, agent_id: str) -> SubagentFiles | None:
    return parent.subagent_files(agent_id) if is_agent_id(agent_id) else None


def _create_record(subagents: SubagentRegistry, subagent_task: SubagentTask) -> SubagentRecord:
    taken = subagents.parent.files.list_subagent_ids()
    while (agent_id := f"a{os.urandom(4).hex()}") in taken:
        continue
    now = subagents.parent.resources.now()
    return SubagentRecord(
        agent_id, subagent_task.type, "idle", subagent_task.description, subagent_task.model, now, now
    )


# --- running ----------------------------------------------------------------------------------------------------


async def run_prepared_subagent(
    subagents: SubagentRegistry,
    subagent: Subagent,
    subagent_task: SubagentTask,
    identity: SubagentIdentity,
    observe_requests: Callable[[Event], None] | None = None,
) -> SubagentResult:
    """Run a subagent within its timeout, and store its status in every case, also when it is cancelled.

    `observe_requests` is called for each request and answer of the subagent.
    """
    parent, files = subagents.parent, subagent.files
    subagents.running_ids.add(identity.agent_id)
    status: SubagentStatus = "killed"  # what a cancellation, which skips all assignments below, leaves
    try:
        files.save_record(
            subagent.record.with_status(RUNNING_STATUSES[identity.task_id is not None], parent.resources.now())
        )
        files.save_prompt(subagent_task.prompt)
        # Assigned before the scope, which leaves it in place when the time is up.
        result = subagent.build_result("timed_out", limit_or_status=int(subagent_task.timeout_s or 0))
        with anyio.move_on_after(subagent_task.timeout_s):
            result = await _run_child_conversation(subagents, subagent, subagent_task, identity, observe_requests)
        status = "completed" if result.outcome == "completed" else "failed"
    except Exception as error:
        logger.exception("subagent %s failed", identity.agent_id)
        status, result = "failed", subagent.build_result("failed", str(error))
    finally:
        # Without an await, so that it runs under cancellation. The id is released after the status is stored: a
        # resume in between would read an old status.
        _save_status(subagent, status, parent.resources.now())
        subagents.running_ids.discard(identity.agent_id)
        files.close()
    return result


def _save_status(subagent: Subagent, status: SubagentStatus, time: float) -> None:
    record = subagent.files.record or subagent.record
    try:
        subagent.files.save_record(record.with_status(status, time))
    except Exception:  # the result of the work matters more; opening the session again corrects the status
        logger.exception("the state of subagent %s could not be stored", record.agent_id)


async def _run_child_conversation(
    subagents: SubagentRegistry,
    subagent: Subagent,
    subagent_task: SubagentTask,
    identity: SubagentIdentity,
    observe_requests: Callable[[Event], None] | None,
) -> SubagentResult:
    spec = subagent.spec
    child = subagents.open_child(spec, subagent.files, subagent.model, identity)
    if observe_requests is not None:
        child.events.observe_requests(observe_requests)
    # In the background the parent may have no open turn. The child has none here, so its hooks emit no events.
    hook_conversation = subagents.parent if identity.task_id is None else child
    prompt = escape_host_tags(subagent_task.prompt)  # a model wrote it, perhaps after what it has read
    if spec.git_context and not subagent.resumed and (git_context := await subagents.load_git_context()):
        prompt = f"<git-context>\n{escape_host_tags(git_context)}\n</git-context>\n\n{prompt}"
    await run_subagent_start_hooks(hook_conversation, identity.type, subagent_task.prompt)
    result = await _run_child_turn(subagent, child, prompt)
    if result.outcome == "completed" and len(result.text) < SHORT_ANSWER_CHARS:
        fuller = await _run_child_turn(subagent, child, CONTINUATION_PROMPT)
        result = fuller if fuller.outcome == "completed" else result  # a short answer is better than none
    if result.outcome == "completed":
        subagent.files.append_output(result.text)
    await fire_subagent_stop_hooks(hook_conversation, identity.type, result.text)
    return result


async def _run_child_turn(subagent: Subagent, child: Conversation, prompt: str) -> SubagentResult:
    """Run one turn of the subagent and return the text of its last message as a result."""
    try:
        status = await run_turn(child, child.turns.begin(), prompt)
    except APIStatusError as error:
        return subagent.build_result("api_error", str(error), error.status_code)
    except ModelError as error:
        return subagent.build_result("provider_error", str(error))
    return _evaluate_child_turn(subagent, child, status)


def _evaluate_child_turn(subagent: Subagent, child: Conversation, status: TurnStatus) -> SubagentResult:
    if status.status == "max_steps_reached":
        return subagent.build_result("max_steps", limit_or_status=status.steps or 0)
    last = child.history.messages[-1] if child.history.messages else None
    if status.status == "cancelled" or last is None or last.role != "assistant":
        return subagent.build_result("invalid")
    text = message_text(last).strip()
    return subagent.build_result("completed" if text else "empty", text)


# --- dynamic types ----------------------------------------------------------------------------------------------


def create_subagent_type(subagents: SubagentRegistry, name: str, system_prompt: str, tools: tuple[str, ...]) -> bool:
    """Add a type that the model has defined; return False when the name is taken."""
    if name in subagents.types:
        return False
    spec = AgentSpec(name=name, tools=tools, prompt_text=system_prompt)
    subagents.types[name] = SubagentType("Created in this conversation.", spec)
    return True


def format_subagent_types(types: Mapping[str, SubagentType]) -> str:
    """Return the types for the description of a tool, one per line."""
    return escape_host_tags("\n".join(f"- `{name}`: {_describe_type(kind)}" for name, kind in types.items()))


def _describe_type(subagent_type: SubagentType) -> str:
    return subagent_type.description or subagent_type.spec.when_to_use or "No description."
