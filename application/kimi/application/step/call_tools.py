"""The calls of one step: parse, look up, hook, prepare, decide, ask, run, answer - in that order (tools spec 1.3).

All calls of a step run concurrently. Results go out in the order of completion, into the history in the order of
the calls. A call starts while the model still speaks only if its tool is read-only; every other one waits until
the assistant message is stored (R-63). No result is announced before that either, so what a client has seen
completed is always in the context.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import anyio
from anyio.abc import TaskGroup

from kimi.application.conversation.conversation import Conversation, RunningTurn
from kimi.application.hooks.hook_points import blocked_call, call_done
from kimi.application.ports import CallRejected, PreparedCall, Tool, ToolCallContext
from kimi.domain.content.message import JsonObject, ToolCall
from kimi.domain.events.event import ApprovalResponse, ToolResult
from kimi.domain.events.request import Answer, ApprovalAnswer, ApprovalRequest, Request
from kimi.domain.permissions.approval import Effect, Policy, Verdict, decide, forbids, memory_key
from kimi.domain.tools.repeat_guard import with_reminder
from kimi.domain.tools.tool import ToolReturnValue, neutralised, tool_error, tool_message

logger = logging.getLogger(__name__)

REJECTED = (
    "The tool call is rejected by the user. Stop what you are doing and wait for the user to tell you how to proceed."
)
REJECTED_IN_SUBAGENT = (
    "The tool call is rejected by the user. Try a different approach to complete your task, or explain the limitation "
    "in your summary if no alternative is available. Do not retry the same tool call, and do not attempt to bypass "
    "this restriction through indirect means."
)
FORBIDDEN = "This action is not allowed by the user's approval rules or the current mode. Do not try it again."


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished call. `rejected` is how the person refused it, if so: without a word, or with feedback.

    `ran_with` are the arguments of a call that was let through to its tool.
    """

    result: ToolReturnValue
    broken: bool = False
    rejected: Literal["bare", "feedback"] | None = None
    trusted: bool = True
    ran_with: JsonObject | None = None


class StepCalls:
    """The calls of one step, from the moment each is complete to the moment all are answered."""

    def __init__(self, conversation: Conversation, turn: RunningTurn, tasks: TaskGroup) -> None:
        self._conversation = conversation
        self._turn = turn
        self._tasks = tasks
        self._calls: list[ToolCall] = []
        self._early: set[int] = set()
        self._outcomes: dict[int, Outcome] = {}
        self._streaks: list[int] = []
        self._answered = 0
        self._stored = anyio.Event()

    def add(self, call: ToolCall) -> None:
        """Take a call whose arguments are complete; a read-only one starts at once."""
        index = len(self._calls)
        self._calls.append(call)
        tool = self._conversation.toolset.find(call.function.name)
        if tool is not None and tool.spec.read_only and "PreToolUse" not in self._conversation.hooks.watched:
            self._early.add(index)
            self._tasks.start_soon(self._run, index)

    def start(self) -> None:
        """The assistant message is stored: start what waited for it, let results out."""
        self._streaks = self._conversation.repeats.count(self._calls)
        self._stored.set()
        for index in range(len(self._calls)):
            if index not in self._early:
                self._tasks.start_soon(self._run, index)

    @property
    def rejected(self) -> bool:
        """Did the person reject calls, and none of them with feedback? Then the turn ends (tools spec 5.3)."""
        return {outcome.rejected for outcome in self._outcomes.values()} - {None} == {"bare"}

    @property
    def longest_streak(self) -> int:
        """In how many steps in a row the most repeated of these calls was made."""
        return max(self._streaks, default=0)

    async def _run(self, index: int) -> None:
        call = self._calls[index]
        outcome = await run_call(self._conversation, self._turn, call)
        await self._stored.wait()
        reminded = with_reminder(outcome.result, call, self._streaks[index])
        await self.publish(index, replace(outcome, result=reminded))
        if outcome.ran_with is not None:
            await call_done(self._conversation, call, outcome.ran_with, outcome.result)

    async def publish(self, index: int, outcome: Outcome) -> None:
        """Announce a result and store every answer whose turn it is, in the order of the calls."""
        call, turn = self._calls[index], self._turn
        self._outcomes[index] = outcome
        result = outcome.result if outcome.trusted else neutralised(outcome.result)
        turn.answers[call.id] = tool_message(call.id, result, broken=outcome.broken)
        turn.open_calls.remove(call.id)
        await self._conversation.emit(ToolResult(call.id, outcome.result))
        while self._answered < len(self._calls) and (answer := turn.answers.get(self._next_id)):
            self._conversation.append(answer)
            del turn.answers[self._next_id]
            self._answered += 1

    @property
    def _next_id(self) -> str:
        return self._calls[self._answered].id


async def run_call(conversation: Conversation, turn: RunningTurn, call: ToolCall) -> Outcome:
    """Run one call to its result. Raises StoreFailed when its PreToolUse hooks cannot be recorded, nothing else but
    cancellation."""
    name = call.function.name
    tool = conversation.toolset.find(name)
    if tool is None:
        return Outcome(tool_error(f"Tool `{name}` not found", f"Tool `{name}` not found"))
    arguments = parse_arguments(call.function.arguments)
    if isinstance(arguments, ToolReturnValue):
        return Outcome(arguments)
    if (blocked := await blocked_call(conversation, call, arguments)) is not None:
        return Outcome(blocked)
    try:
        async with tool.prepare(arguments, _context(conversation, turn, call)) as prepared:
            _tell_of_change(conversation, call, prepared)
            if (refused := await _refused(conversation, turn, call, prepared)) is not None:
                return refused
            _tell_of_begin(conversation, call)
            return await _carried_out(tool, prepared, arguments)
    except CallRejected:
        return _rejected(conversation)
    except Exception as error:
        logger.exception("tool %s raised", name)
        return Outcome(
            tool_error(f"Error running tool: {error}", "Tool runtime error"), broken=True, ran_with=arguments
        )


def parse_arguments(text: str | None) -> JsonObject | ToolReturnValue:
    """The arguments as an object, or the error result (T-06 to T-08, T-11). Nothing and null count as `{}`."""
    try:
        value: Any = json.loads(text, strict=False) if text and text.strip() else {}
    except (ValueError, RecursionError) as error:
        reason = str(error) or "nested too deeply"
        return tool_error(f"Error parsing JSON arguments: {reason}", "Invalid arguments")
    if value is None:
        return {}
    if not isinstance(value, dict):
        reason = f"expected a JSON object, got {type(value).__name__}"
        return tool_error(f"Error validating JSON arguments: {reason}", "Invalid arguments")
    return cast("dict[str, Any]", value)


def _context(conversation: Conversation, turn: RunningTurn, call: ToolCall) -> ToolCallContext:
    async def ask(request: Request) -> Answer:
        return await conversation.waiting.ask(request, conversation.emit)

    subagent = conversation.subagent
    return ToolCallContext(
        session_id=conversation.id,
        turn_id=turn.id,
        step=turn.step,
        call_id=call.id,
        call_name=call.function.name,
        raw_arguments=call.function.arguments,
        emit=conversation.emit,
        ask=ask,
        agent_id=subagent.agent_id if subagent else None,
        subagent_type=subagent.type if subagent else None,
    )


def _tell_of_change(conversation: Conversation, call: ToolCall, prepared: PreparedCall) -> None:
    if conversation.call_watch is not None and prepared.changed is not None:
        conversation.call_watch.will_change(_agent_id(conversation), call.id, prepared.changed)


def _tell_of_begin(conversation: Conversation, call: ToolCall) -> None:
    if conversation.call_watch is not None:
        conversation.call_watch.begins(_agent_id(conversation), call.id)


def _agent_id(conversation: Conversation) -> str | None:
    return conversation.subagent.agent_id if conversation.subagent else None


async def _carried_out(tool: Tool, prepared: PreparedCall, arguments: JsonObject) -> Outcome:
    result = cast("object", await prepared.run())
    if not isinstance(result, ToolReturnValue):
        return Outcome(tool_error(f"Invalid return type: {type(result)}", "Invalid return type"), ran_with=arguments)
    return Outcome(result, trusted=tool.spec.trusted_text, ran_with=arguments)


async def _refused(
    conversation: Conversation, turn: RunningTurn, call: ToolCall, prepared: PreparedCall
) -> Outcome | None:
    """None when the call may run, else the outcome that says why not."""
    if prepared.effect is not None:
        return await _decided(conversation, turn, call, prepared.effect)
    if not forbids(conversation.policy, call.function.name, prepared.subject):
        return None
    logger.info("call %s of %s: deny by rule", call.id, call.function.name)
    return Outcome(tool_error(FORBIDDEN, "Not allowed"))


async def _decided(conversation: Conversation, turn: RunningTurn, call: ToolCall, effect: Effect) -> Outcome | None:
    """The same for a call with an effect. Each decision is logged (tools 5.6)."""
    verdict = _verdict(conversation, conversation.policy, call, effect)
    decision, origin = verdict.decision, str(verdict.origin)
    answer = ApprovalAnswer("approve")
    if decision == "ask":
        answer = await _ask(conversation, turn, call, effect)
        decision, origin = ("deny" if answer.response == "reject" else "allow"), "person"
    logger.info("call %s of %s: %s %s by %s", call.id, call.function.name, decision, effect.action, origin)
    if decision == "allow":
        return None
    if origin != "person":
        return Outcome(tool_error(FORBIDDEN, "Not allowed"))
    if answer.feedback:
        message = f"The tool call is rejected by the user. User feedback: {answer.feedback}"
        return Outcome(tool_error(message, f"Rejected: {answer.feedback}"), rejected="feedback")
    return _rejected(conversation)


def _verdict(conversation: Conversation, policy: Policy, call: ToolCall, effect: Effect) -> Verdict:
    standing = conversation.subagent is None or not conversation.subagent.asks_for(effect)
    return decide(policy, call.function.name, effect, standing=standing)


def _rejected(conversation: Conversation) -> Outcome:
    """Rejected without a word: the turn ends, except in a subagent (tools spec 5.3)."""
    if conversation.subagent is not None:
        return Outcome(tool_error(REJECTED_IN_SUBAGENT, "Rejected by user"))
    return Outcome(tool_error(REJECTED, "Rejected by user"), rejected="bare")


async def _ask(conversation: Conversation, turn: RunningTurn, call: ToolCall, effect: Effect) -> ApprovalAnswer:
    """Ask the person and announce how it was settled, also when the wait is cancelled. Who is gone is not asked."""
    if conversation.waiting.closed:
        return ApprovalAnswer("reject")
    request = _approval_request(conversation, turn, call, effect)
    policy = conversation.policy
    key = memory_key(effect, policy.scope)
    releasable = _verdict(conversation, policy.remember(effect), call, effect).decision == "allow"
    answer = ApprovalAnswer("reject")
    conversation.tell_waiting(True)
    try:
        given = await conversation.waiting.ask(request, conversation.emit, key, releasable=releasable)
        if isinstance(given, ApprovalAnswer):
            answer = given
    finally:
        conversation.tell_waiting(False)
        with anyio.CancelScope(shield=True):
            await conversation.emit(ApprovalResponse(request.id, answer.response, answer.feedback))
    return answer


def _approval_request(conversation: Conversation, turn: RunningTurn, call: ToolCall, effect: Effect) -> ApprovalRequest:
    subagent = conversation.subagent
    task_id = subagent.task_id if subagent else None
    return ApprovalRequest(
        id=conversation.new_id(),
        tool_call_id=call.id,
        sender=call.function.name,
        action=effect.action,
        description=effect.description,
        source_kind="background_agent" if task_id else "foreground_turn",
        source_id=task_id or turn.id,
        agent_id=subagent.agent_id if subagent else None,
        subagent_type=subagent.type if subagent else None,
        display=effect.display,
    )
