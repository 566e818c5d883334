"""The tool calls of one step: look up, parse, run hooks, prepare, check the policy, ask, run (tools spec 1.3).

All calls of a step run concurrently. Their results are emitted in the order of completion and stored in the history
in the order of the calls. A read-only call starts while the model is still streaming; every other call waits until
the assistant message is stored (R-63). Results are not announced before that either, so every result that a client
has seen is in the context.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import anyio
from anyio.abc import TaskGroup

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.running_turn import RunningTurn
from kimi.application.hooks.hook_points import fire_post_tool_hooks, run_pre_tool_hooks
from kimi.application.ports import CallRejected, PreparedCall, Tool, ToolCallContext
from kimi.domain.content.message import JsonObject, ToolCall
from kimi.domain.events.event import ApprovalResponse, FileChangePlanned, ToolCallStarted, ToolResult
from kimi.domain.events.request import Answer, ApprovalAnswer, ApprovalRequest, Request
from kimi.domain.permissions.approval import (
    PolicyDecision,
    ProposedAction,
    Rule,
    check_policy,
    find_deny_or_ask_rule,
    memory_key,
)
from kimi.domain.tools.repeat_guard import with_reminder
from kimi.domain.tools.tool import ToolReturnValue, build_model_result, tool_error, tool_message

logger = logging.getLogger(__name__)

REJECTED = (
    "The tool call is rejected by the user. Stop what you are doing and wait for the user to tell you how to proceed."
)
REJECTED_IN_SUBAGENT = (
    "The tool call is rejected by the user. Try a different approach to complete your task, or explain the limitation "
    "in your summary if no alternative is available. Do not retry the same tool call, and do not attempt to bypass "
    "this restriction through indirect means."
)
FORBIDDEN_BY_RULE = "This action is not allowed by the user's approval rules: {rule}. Do not try it again."
FORBIDDEN_UNASKED = (
    "This action is not allowed by the user's approval rules: {rule}, and nobody can be asked. Do not try it again."
)
FORBIDDEN_BY_PLAN_MODE = (
    "This action is not allowed by the current mode: plan mode is on, and nobody can be asked. Do not try it again."
)
FORBIDDEN_IN_READ_ONLY_AGENT = (
    "This action is not allowed to a read-only subagent, unless one of the user's approval rules allows this host. "
    "Do not try it again: say in your report what you would have looked up."
)


@dataclass(frozen=True, slots=True)
class ToolCallOutcome:
    """A finished call. `rejection` says how the user rejected it: without feedback ("bare") or with feedback.

    `is_exact` is True when the model must read the output as it is. `executed_arguments` are the arguments of a call
    that reached its tool, None for every other call.
    """

    result: ToolReturnValue
    crashed: bool = False
    rejection: Literal["bare", "feedback"] | None = None
    is_exact: bool = False
    executed_arguments: JsonObject | None = None


class StepCalls:
    """The calls of one step, from the first complete call to the last stored result.

    The calls run in the task group of the step, which waits for them and cancels them together.
    """

    def __init__(self, conversation: Conversation, turn: RunningTurn, tasks: TaskGroup) -> None:
        self._conversation = conversation
        self._turn = turn
        self._tasks = tasks
        self._calls: list[ToolCall] = []
        self._started_early: set[int] = set()
        self._outcomes: dict[int, ToolCallOutcome] = {}
        self._streaks: list[int] = []
        self._answered_count = 0
        self._message_stored = anyio.Event()

    def add(self, call: ToolCall) -> None:
        """Add a call whose arguments are complete, and start it if its tool is read-only."""
        index = len(self._calls)
        self._calls.append(call)
        tool = self._conversation.toolset.find(call.function.name)
        # With a PreToolUse hook every call waits: HookTriggered must not come between the streamed parts.
        if (
            tool is not None
            and tool.spec.read_only
            and "PreToolUse" not in self._conversation.resources.hooks.watched_events
        ):
            self._started_early.add(index)
            self._tasks.start_soon(self._run, index)

    def start(self) -> None:
        """Start the remaining calls and release the results. Must be called after the assistant message is stored."""
        # Before the event is set: `_run` reads the streaks as soon as it wakes up.
        self._streaks = self._turn.repeat_guard.count_streaks(self._calls)
        self._message_stored.set()
        for index in range(len(self._calls)):
            if index not in self._started_early:
                self._tasks.start_soon(self._run, index)

    @property
    def is_rejected(self) -> bool:
        """Whether the user rejected calls, all of them without feedback. The turn then ends (tools spec 5.3)."""
        return {outcome.rejection for outcome in self._outcomes.values()} - {None} == {"bare"}

    @property
    def longest_streak(self) -> int:
        """The number of consecutive steps in which the most repeated of these calls was made."""
        return max(self._streaks, default=0)

    async def _run(self, index: int) -> None:
        call = self._calls[index]
        outcome = await run_call(self._conversation, self._turn, call, self._message_stored)
        # A call that was started early may be done before its message is stored; its result must come after it.
        await self._message_stored.wait()
        await self.publish(index, outcome)
        if outcome.executed_arguments is not None:
            await fire_post_tool_hooks(self._conversation, call, outcome.executed_arguments, outcome.result)

    async def publish(self, index: int, outcome: ToolCallOutcome) -> None:
        """Announce a result, then store every answer that no longer waits for an earlier call."""
        call, turn = self._calls[index], self._turn
        # The answer is kept and the call is closed before the first await: a cancellation there finds the answer in
        # `held_answers` and stores it, and does not announce a second result.
        self._outcomes[index] = outcome
        # The mark is made after the call, so that nothing the call has read can hold it.
        result = build_model_result(outcome.result, os.urandom(8).hex() if outcome.is_exact else None)
        result, told = (with_reminder(one, call, self._streaks[index]) for one in (result, outcome.result))
        turn.held_answers[call.id] = tool_message(call.id, result, has_crashed=outcome.crashed)
        turn.open_calls.remove(call.id)
        await self._conversation.events.emit(ToolResult(call.id, told))
        while self._answered_count < len(self._calls) and (answer := turn.held_answers.get(self._next_call_id)):
            self._conversation.context.append(answer)
            del turn.held_answers[self._next_call_id]
            self._answered_count += 1

    @property
    def _next_call_id(self) -> str:
        return self._calls[self._answered_count].id


async def run_call(
    conversation: Conversation, turn: RunningTurn, call: ToolCall, message_stored: anyio.Event
) -> ToolCallOutcome:
    """Run one call and return its outcome; an exception of the tool becomes an error result.

    The user is asked about it only after `message_stored`: no question comes between the streamed parts, or twice when
    the stream breaks off and the step is tried again. Raises StoreFailed when the PreToolUse hooks cannot be recorded.
    """
    name = call.function.name
    tool = conversation.toolset.find(name)
    if tool is None:
        return ToolCallOutcome(tool_error(f"Tool `{name}` not found", f"Tool `{name}` not found"))
    arguments = parse_arguments(call.function.arguments)
    if isinstance(arguments, ToolReturnValue):
        return ToolCallOutcome(arguments)
    verdict = await run_pre_tool_hooks(conversation, call, arguments)
    if isinstance(verdict, ToolReturnValue):
        return ToolCallOutcome(verdict)
    is_approved = verdict.permission == "allow"
    try:
        async with tool.prepare(arguments, _build_call_context(conversation, turn, call)) as prepared_call:
            if prepared_call.changed_text is not None:
                planned = FileChangePlanned(_agent_id(conversation), call.id, prepared_call.changed_text)
                conversation.events.emit_nowait(planned)
            action = _find_action_to_check(conversation, call, prepared_call)
            if action is not None:
                policy_decision = _evaluate_policy(conversation, call, action, is_approved=is_approved)
                if policy_decision.decision == "ask":
                    await message_stored.wait()
                    policy_decision = _evaluate_policy(conversation, call, action, is_approved=is_approved)
                if (denied := await _authorize_action(conversation, turn, call, action, policy_decision)) is not None:
                    return denied
            # Not `emit`, which can wait for the driver: nothing may happen between the permission and the run.
            conversation.events.emit_nowait(ToolCallStarted(_agent_id(conversation), call.id))
            return await _execute_call(tool, prepared_call, arguments)
    except CallRejected:
        return _build_rejection(conversation)
    except Exception as error:
        logger.exception("tool %s raised", name)
        return ToolCallOutcome(
            tool_error(f"Error running tool: {error}", "Tool runtime error"), crashed=True, executed_arguments=arguments
        )


def parse_arguments(text: str | None) -> JsonObject | ToolReturnValue:
    """Return the arguments as an object, or an error result (T-06 to T-08, T-11). Empty text and null mean `{}`."""
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


def _build_call_context(conversation: Conversation, turn: RunningTurn, call: ToolCall) -> ToolCallContext:
    async def ask(request: Request) -> Answer:
        return await conversation.events.pending_requests.ask(request, conversation.events.emit)

    subagent = conversation.subagent
    return ToolCallContext(
        session_id=conversation.id,
        turn_id=turn.id,
        step=turn.step,
        call_id=call.id,
        call_name=call.function.name,
        raw_arguments=call.function.arguments,
        emit=conversation.events.emit,
        ask=ask,
        agent_id=subagent.agent_id if subagent else None,
        subagent_type=subagent.type if subagent else None,
        has_rule=lambda subject: _finds_rule(conversation, call, _propose_use(call, subject)),
    )


def _agent_id(conversation: Conversation) -> str | None:
    return conversation.subagent.agent_id if conversation.subagent else None


async def _execute_call(tool: Tool, prepared_call: PreparedCall, arguments: JsonObject) -> ToolCallOutcome:
    result = cast("object", await prepared_call.run())
    if not isinstance(result, ToolReturnValue):
        return ToolCallOutcome(
            tool_error(f"Invalid return type: {type(result)}", "Invalid return type"), executed_arguments=arguments
        )
    return ToolCallOutcome(result, is_exact=tool.spec.exact_text, executed_arguments=arguments)


def _find_action_to_check(
    conversation: Conversation, call: ToolCall, prepared_call: PreparedCall
) -> ProposedAction | None:
    """Return the action that the policy decides on; None for a call that needs no approval and no rule applies to."""
    subject, action = prepared_call.subject, prepared_call.proposed_action
    if action is not None and not subject:
        return action
    # A call may have a subject beside that of its action: an address beside its host. Rules may name either.
    other = _propose_use(call, subject) if action is None else replace(action, subject=subject)
    return other if _finds_rule(conversation, call, other) else action


def _propose_use(call: ToolCall, subject: str) -> ProposedAction:
    name = call.function.name
    return ProposedAction(f"use {name}", f"Use {name} on `{subject}`", subject=subject)


def _finds_rule(conversation: Conversation, call: ToolCall, action: ProposedAction) -> bool:
    return find_deny_or_ask_rule(conversation.policy, call.function.name, action) is not None


async def _authorize_action(
    conversation: Conversation,
    turn: RunningTurn,
    call: ToolCall,
    action: ProposedAction,
    policy_decision: PolicyDecision,
) -> ToolCallOutcome | None:
    """Do what the policy has decided on an action, and ask the user if it says so; it is logged (tools spec 5.6).

    Return None when the call may run, else the outcome that says why it may not.
    """
    decision, origin = policy_decision.decision, _format_origin(policy_decision)
    answer = None
    if decision == "ask":
        answer = await _request_approval(conversation, turn, call, action, policy_decision.rule)
        decision = "deny" if answer.response == "reject" else "allow"
        origin = f"person, asked by {origin}" if policy_decision.rule else "person"
    logger.info("call %s of %s: %s %s by %s", call.id, call.function.name, decision, action.action, origin)
    if decision == "allow":
        return None
    if answer is None:
        return ToolCallOutcome(tool_error(_explain_refusal(policy_decision), "Not allowed"))
    if answer.feedback:
        message = f"The tool call is rejected by the user. User feedback: {answer.feedback}"
        return ToolCallOutcome(tool_error(message, f"Rejected: {answer.feedback}"), rejection="feedback")
    return _build_rejection(conversation)


def _format_origin(policy_decision: PolicyDecision) -> str:
    return f"rule ({policy_decision.rule})" if policy_decision.rule else policy_decision.origin


def _explain_refusal(policy_decision: PolicyDecision) -> str:
    if rule := policy_decision.rule:
        return (FORBIDDEN_UNASKED if rule.decision == "ask" else FORBIDDEN_BY_RULE).format(rule=rule)
    return FORBIDDEN_IN_READ_ONLY_AGENT if policy_decision.origin == "read_only" else FORBIDDEN_BY_PLAN_MODE


def _evaluate_policy(
    conversation: Conversation, call: ToolCall, action: ProposedAction, *, is_approved: bool = False
) -> PolicyDecision:
    """Return what the policy decides; `is_approved` says that a hook approves the call."""
    subagent = conversation.subagent
    return check_policy(
        conversation.policy,
        call.function.name,
        action,
        remembered=subagent is None or not subagent.ignores_remembered_approval(action),
        read_only=subagent is not None and subagent.is_read_only,
        approved_by_hook=is_approved,
    )


def _build_rejection(conversation: Conversation) -> ToolCallOutcome:
    """Return the outcome of a rejection without feedback. It ends the turn, except in a subagent (tools spec 5.3)."""
    if conversation.subagent is not None:
        return ToolCallOutcome(tool_error(REJECTED_IN_SUBAGENT, "Rejected by user"))
    return ToolCallOutcome(tool_error(REJECTED, "Rejected by user"), rejection="bare")


async def _request_approval(
    conversation: Conversation, turn: RunningTurn, call: ToolCall, action: ProposedAction, rule: Rule | None
) -> ApprovalAnswer:
    """Ask the user for approval, because of an ask rule if there is one, and emit the answer.

    A cancelled wait is announced as a rejection. A client that has disconnected is not asked: the call is rejected.
    """
    if conversation.events.pending_requests.is_closed:
        return ApprovalAnswer("reject")
    request = _build_approval_request(conversation, turn, call, action)
    if rule is not None:
        request = replace(request, description=f"{request.description} (asked by the rule: {rule})")

    def is_allowed() -> bool:
        return _evaluate_policy(conversation, call, action).decision == "allow"

    # An action that a rule wants asked about each time is approved once only.
    key = None if rule else memory_key(action, conversation.policy.scope)
    answer = ApprovalAnswer("reject")
    try:
        response = await conversation.events.pending_requests.ask(
            request, conversation.events.emit, key, is_allowed=is_allowed
        )
        if isinstance(response, ApprovalAnswer):
            answer = response
    finally:
        # Shielded: each announced request gets its ApprovalResponse, also when the call is cancelled.
        with anyio.CancelScope(shield=True):
            await conversation.events.emit(ApprovalResponse(request.id, answer.response, answer.feedback))
    return answer


def _build_approval_request(
    conversation: Conversation, turn: RunningTurn, call: ToolCall, action: ProposedAction
) -> ApprovalRequest:
    from kimi.domain.tools.visible_text import reveal_blocks, reveal_hidden  # start-up time

    subagent = conversation.subagent
    task_id = subagent.task_id if subagent else None
    return ApprovalRequest(
        id=conversation.resources.new_id(),
        tool_call_id=call.id,
        sender=call.function.name,
        action=action.action,
        description=reveal_hidden(action.description),
        source_kind="background_agent" if task_id else "foreground_turn",
        source_id=task_id or turn.id,
        agent_id=subagent.agent_id if subagent else None,
        subagent_type=subagent.type if subagent else None,
        display=reveal_blocks(action.display),
    )
