"""Use-case run-subagent: a child conversation that works for one call of its parent (runtime spec 6.5, 6.6).

The child runs the same `run_turn`. Its events reach the parent's stream wrapped, its requests unwrapped; policy and
waiting requests are the parent's own. It ends with the call that started it, whatever ends that.
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
"""Alias of the configuration -> a model. Raises KeyError: no such alias; ConfigError: it cannot be used."""

OpenChild: TypeAlias = Callable[[AgentSpec, SubagentFiles, ChatModel | None, SubagentIdentity], Conversation]
"""A conversation of this agent over these files, a child of the one that the use-case belongs to."""


@dataclass(frozen=True, slots=True)
class SubagentTask:
    """What a subagent shall do. Without `resume_agent_id` a new one is made; `timeout_s` None sets no limit."""

    description: str
    prompt: str
    type: str
    model: str | None = None
    resume_agent_id: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class SubagentResult:
    """What became of a task.

    `text` is the subagent's answer if `outcome` is `completed`, else what went wrong. `limit_or_status` belongs to it:
    the limit of steps, the seconds, or the HTTP status.
    """

    outcome: SubagentOutcome
    text: str = ""
    agent_id: str = ""
    type: str = ""
    resumed: bool = False
    limit_or_status: int = 0


@dataclass(slots=True)
class SubagentRegistry:
    """The subagents of one conversation: the types there are, those that work now, and what they are made of.

    `types` may grow while the conversation lives. `load_git_context` returns a few lines on the repository, or nothing.
    """

    parent: Conversation
    types: dict[str, SubagentType]
    open_child: OpenChild
    open_named_model: OpenNamedModel
    load_git_context: Callable[[], Awaitable[str]]
    running_ids: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class Subagent:
    """A subagent that is ready to work: what is stored of it, and what it works with."""

    record: SubagentRecord
    spec: AgentSpec
    model: ChatModel | None
    files: SubagentFiles
    resumed: bool

    def build_identity(self, call_id: str, task_id: str | None = None) -> SubagentIdentity:
        """Who it is while it works for this call."""
        return SubagentIdentity(self.record.agent_id, self.record.type, call_id, self.spec.ask_commands, task_id)

    def build_result(self, outcome: SubagentOutcome, text: str = "", limit_or_status: int = 0) -> SubagentResult:
        """A result of this subagent."""
        record = self.record
        return SubagentResult(outcome, text, record.agent_id, record.type, self.resumed, limit_or_status)


async def run_subagent(subagents: SubagentRegistry, subagent_task: SubagentTask, call_id: str) -> SubagentResult:
    """Carry out `subagent_task` for the call `call_id` of the parent; only cancellation comes out as an exception."""
    subagent = prepare_subagent(subagents, subagent_task)
    if isinstance(subagent, SubagentResult):
        return subagent
    return await run_prepared_subagent(subagents, subagent, subagent_task, subagent.build_identity(call_id))


# --- which subagent ---------------------------------------------------------------------------------------------


def prepare_subagent(subagents: SubagentRegistry, subagent_task: SubagentTask) -> Subagent | SubagentResult:
    """Return a new subagent, or the one to resume; a result when the task cannot be carried out."""
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
        # What is stored of one that is about to begin in the background is older than that.
        status = record.status if record.status in RUNNING_STATUSES else RUNNING_STATUSES[1]
        return SubagentResult("still_running", status, record.agent_id)
    kind = subagents.types.get(record.type)
    if kind is None:
        return SubagentResult("unknown_type", record.type)
    alias = subagent_task.model or record.model or kind.spec.model
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


# --- its work ---------------------------------------------------------------------------------------------------


async def run_prepared_subagent(
    subagents: SubagentRegistry,
    subagent: Subagent,
    subagent_task: SubagentTask,
    identity: SubagentIdentity,
    observe_requests: Callable[[Event], None] | None = None,
) -> SubagentResult:
    """Work within the time, and keep the stored state of the subagent right in every case, cancellation too.

    `observe_requests` is called for each request and answer of the subagent.
    """
    parent, files = subagents.parent, subagent.files
    subagents.running_ids.add(identity.agent_id)
    status: SubagentStatus = "killed"
    try:
        files.save_record(
            subagent.record.with_status(RUNNING_STATUSES[identity.task_id is not None], parent.resources.now())
        )
        files.save_prompt(subagent_task.prompt)
        result = subagent.build_result("timed_out", limit_or_status=int(subagent_task.timeout_s or 0))
        with anyio.move_on_after(subagent_task.timeout_s):
            result = await _run_child_conversation(subagents, subagent, subagent_task, identity, observe_requests)
        status = "completed" if result.outcome == "completed" else "failed"
    except Exception as error:
        logger.exception("subagent %s failed", identity.agent_id)
        status, result = "failed", subagent.build_result("failed", str(error))
    finally:
        _save_status(subagent, status, parent.resources.now())
        subagents.running_ids.discard(identity.agent_id)
        files.close()
    return result


def _save_status(subagent: Subagent, status: SubagentStatus, time: float) -> None:
    record = subagent.files.record or subagent.record
    try:
        subagent.files.save_record(record.with_status(status, time))
    except Exception:  # the outcome of the work counts more; a session that is opened again puts the state right
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
    hook_conversation = (
        subagents.parent if identity.task_id is None else child
    )  # between turns nothing of hooks is announced
    prompt = subagent_task.prompt
    if spec.git_context and not subagent.resumed and (git_context := await subagents.load_git_context()):
        prompt = f"<git-context>\n{git_context}\n</git-context>\n\n{prompt}"
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
    """One turn of the subagent, and what its last message says."""
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
    """Add a type that was made up in the conversation; False when there is one of this name."""
    if name in subagents.types:
        return False
    spec = AgentSpec(name=name, tools=tools, prompt_text=system_prompt)
    subagents.types[name] = SubagentType("Created in this conversation.", spec)
    return True


def format_subagent_types(types: Mapping[str, SubagentType]) -> str:
    """The types for the description of a tool, one a line."""
    return "\n".join(f"- `{name}`: {_describe_type(kind)}" for name, kind in types.items())


def _describe_type(subagent_type: SubagentType) -> str:
    return subagent_type.description or subagent_type.spec.when_to_use or "No description."
