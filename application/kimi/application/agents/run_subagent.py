"""Use-case run-subagent: a child conversation that works for one call of its parent (runtime spec 6.5, 6.6).

The child runs the same `run_turn`. Its events reach the parent's stream wrapped, its requests unwrapped; policy and
waiting requests are the parent's own. It ends with the call that started it, whatever ends that.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import anyio

from kimi.application.conversation.conversation import Conversation, ignore_waiting
from kimi.application.hooks.hook_points import subagent_starts, subagent_stops
from kimi.application.ports import ChatModel, SessionFiles, SubagentFiles
from kimi.application.turn.run_turn import run_turn
from kimi.domain.agents.agent import AgentSpec, SubagentType
from kimi.domain.agents.subagent import Subagent, SubagentRecord, SubagentStatus, is_agent_id
from kimi.domain.content.message import message_text
from kimi.domain.errors import APIStatusError, ModelError
from kimi.domain.turn import TurnStatus

logger = logging.getLogger(__name__)

SHORT_ANSWER_CHARS = 200
CONTINUATION = (
    "Your last message is all that reaches the one who gave you the task, and it is very short. Write the report "
    "again, complete and on its own: what you did or found, the files and names that matter, how you checked it, and "
    "what is left open."
)

RUNNING: Final[tuple[SubagentStatus, SubagentStatus]] = ("running_foreground", "running_background")
"""The states of an instance that works: for a call that waits, and in the background."""

Ending: TypeAlias = Literal[
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

OpenChild: TypeAlias = Callable[[AgentSpec, SubagentFiles, ChatModel | None, Subagent], Conversation]
"""A conversation of this agent over these files, a child of the one that the use-case belongs to."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a subagent shall do. Without `resume` a new instance is made; `timeout_s` None means as long as it takes."""

    description: str
    prompt: str
    type: str
    model: str | None = None
    resume: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What became of an order.

    `text` is the subagent's answer if `ending` is `completed`, else what went wrong. `number` belongs to the ending:
    the limit of steps, the seconds, or the HTTP status.
    """

    ending: Ending
    text: str = ""
    agent_id: str = ""
    type: str = ""
    resumed: bool = False
    number: int = 0


@dataclass(slots=True)
class Subagents:
    """The subagents of one conversation: the types there are, the instances that work now, and what they are made of.

    `types` may grow while the conversation lives. `git_context` gives a few lines on the repository, or nothing.
    """

    parent: Conversation
    types: dict[str, SubagentType]
    open_child: OpenChild
    open_named_model: OpenNamedModel
    git_context: Callable[[], Awaitable[str]]
    working: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class Instance:
    """A subagent that is ready to work: what is stored of it, and what it works with."""

    record: SubagentRecord
    spec: AgentSpec
    model: ChatModel | None
    files: SubagentFiles
    resumed: bool

    def who(self, call_id: str, task_id: str | None = None) -> Subagent:
        """Who it is while it works for this call."""
        return Subagent(self.record.agent_id, self.record.type, call_id, self.spec.ask_commands, task_id)

    def report(self, ending: Ending, text: str = "", number: int = 0) -> Report:
        """A report of this subagent."""
        record = self.record
        return Report(ending, text, record.agent_id, record.type, self.resumed, number)


async def run_subagent(subagents: Subagents, order: Order, call_id: str) -> Report:
    """Carry out `order` for the call `call_id` of the parent; only cancellation comes out as an exception."""
    instance = prepared(subagents, order)
    if isinstance(instance, Report):
        return instance
    return await work(subagents, instance, order, instance.who(call_id))


def settle_subagents(files: SessionFiles, time: float) -> None:
    """A session was opened: what was working when its process ended has failed. Raises StoreFailed."""
    for agent_id in files.children():
        if is_agent_id(agent_id):
            child = files.child(agent_id)
            if child.record is not None and child.record.status in RUNNING:
                child.save_record(child.record.now("failed", time))
            child.close()


# --- which instance ---------------------------------------------------------------------------------------------


def prepared(subagents: Subagents, order: Order) -> Instance | Report:
    """A new instance, or the one to resume; a report when the order cannot be carried out, for whatever reason."""
    try:
        return _chosen(subagents, order)
    except Exception as error:
        logger.exception("a subagent could not be prepared")
        return Report("failed", str(error))


def _chosen(subagents: Subagents, order: Order) -> Instance | Report:
    files = None if order.resume is None else _files(subagents.parent.files, order.resume)
    if order.resume is not None and (files is None or files.record is None):
        return Report("unknown_agent", order.resume)
    record = files.record if files is not None and files.record is not None else _new_record(subagents, order)
    if record.agent_id in subagents.working:
        # What is stored of one that is about to begin in the background is older than that.
        status = record.status if record.status in RUNNING else RUNNING[1]
        return Report("still_running", status, record.agent_id)
    kind = subagents.types.get(record.type)
    if kind is None:
        return Report("unknown_type", record.type)
    alias = order.model or record.model or kind.spec.model
    try:
        model = subagents.open_named_model(alias) if alias else subagents.parent.model
    except KeyError:
        return Report("unknown_model", alias or "")
    return Instance(record, kind.spec, model, files or subagents.parent.files.child(record.agent_id), files is not None)


def _files(parent: SessionFiles, agent_id: str) -> SubagentFiles | None:
    return parent.child(agent_id) if is_agent_id(agent_id) else None


def _new_record(subagents: Subagents, order: Order) -> SubagentRecord:
    taken = subagents.parent.files.children()
    while (agent_id := f"a{os.urandom(4).hex()}") in taken:
        continue
    now = subagents.parent.now()
    return SubagentRecord(agent_id, order.type, "idle", order.description, order.model, now, now)


# --- its work ---------------------------------------------------------------------------------------------------


async def work(
    subagents: Subagents,
    instance: Instance,
    order: Order,
    who: Subagent,
    tell_waiting: Callable[[bool], None] = ignore_waiting,
) -> Report:
    """Work within the time, and keep the state of the instance right in every case, cancellation too.

    `tell_waiting` hears when an approval is waited for, and when no longer.
    """
    parent, files = subagents.parent, instance.files
    subagents.working.add(who.agent_id)
    status: SubagentStatus = "killed"
    try:
        files.save_record(instance.record.now(RUNNING[who.task_id is not None], parent.now()))
        files.save_prompt(order.prompt)
        report = instance.report("timed_out", number=int(order.timeout_s or 0))
        with anyio.move_on_after(order.timeout_s):
            report = await _reported(subagents, instance, order, who, tell_waiting)
        status = "completed" if report.ending == "completed" else "failed"
    except Exception as error:
        logger.exception("subagent %s failed", who.agent_id)
        status, report = "failed", instance.report("failed", str(error))
    finally:
        _keep_status(instance, status, parent.now())
        subagents.working.discard(who.agent_id)
        files.close()
    return report


def _keep_status(instance: Instance, status: SubagentStatus, time: float) -> None:
    record = instance.files.record or instance.record
    try:
        instance.files.save_record(record.now(status, time))
    except Exception:  # the outcome of the work counts more; a session that is opened again puts the state right
        logger.exception("the state of subagent %s could not be stored", record.agent_id)


async def _reported(
    subagents: Subagents, instance: Instance, order: Order, who: Subagent, tell_waiting: Callable[[bool], None]
) -> Report:
    spec = instance.spec
    child = subagents.open_child(spec, instance.files, instance.model, who)
    child.tell_waiting = tell_waiting
    watched = subagents.parent if who.task_id is None else child  # between turns nothing of hooks is announced
    prompt = order.prompt
    if spec.git_context and not instance.resumed and (about := await subagents.git_context()):
        prompt = f"<git-context>\n{about}\n</git-context>\n\n{prompt}"
    await subagent_starts(watched, who.type, order.prompt)
    report = await _turn(instance, child, prompt)
    if report.ending == "completed" and len(report.text) < SHORT_ANSWER_CHARS:
        fuller = await _turn(instance, child, CONTINUATION)
        report = fuller if fuller.ending == "completed" else report  # a short answer is better than none
    if report.ending == "completed":
        instance.files.append_output(report.text)
    await subagent_stops(watched, who.type, report.text)
    return report


async def _turn(instance: Instance, child: Conversation, prompt: str) -> Report:
    """One turn of the subagent, and what its last message says."""
    try:
        status = await run_turn(child, child.begin_turn(), prompt)
    except APIStatusError as error:
        return instance.report("api_error", str(error), error.status_code)
    except ModelError as error:
        return instance.report("provider_error", str(error))
    return _judged(instance, child, status)


def _judged(instance: Instance, child: Conversation, status: TurnStatus) -> Report:
    if status.status == "max_steps_reached":
        return instance.report("max_steps", number=status.steps or 0)
    last = child.history.messages[-1] if child.history.messages else None
    if status.status == "cancelled" or last is None or last.role != "assistant":
        return instance.report("invalid")
    text = message_text(last).strip()
    return instance.report("completed" if text else "empty", text)


# --- dynamic types ----------------------------------------------------------------------------------------------


def create_subagent_type(subagents: Subagents, name: str, system_prompt: str, tools: tuple[str, ...]) -> bool:
    """Add a type that was made up in the conversation; False when there is one of this name."""
    if name in subagents.types:
        return False
    spec = AgentSpec(name=name, tools=tools, prompt_text=system_prompt)
    subagents.types[name] = SubagentType("Created in this conversation.", spec)
    return True


def subagent_list(types: Mapping[str, SubagentType]) -> str:
    """The types for the description of a tool, one a line."""
    return "\n".join(f"- `{name}`: {_described(kind)}" for name, kind in types.items())


def _described(kind: SubagentType) -> str:
    return kind.description or kind.spec.when_to_use or "No description."
