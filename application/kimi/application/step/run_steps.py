"""The step loop of a turn: model, content, tool calls, results, again (runtime spec 5.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, cast

import anyio
import anyio.lowlevel

from kimi.application.control.plan_mode import announce_plan_mode
from kimi.application.control.steer import inject_steers
from kimi.application.conversation.conversation import Conversation, RunningTurn
from kimi.application.ports import ChatModel, Random, ResponseEnd
from kimi.application.step.backoff import retry_wait
from kimi.application.step.before_step import before_step
from kimi.application.step.call_tools import StepCalls
from kimi.application.step.checkpoints import checkpoint, rewind_if_due
from kimi.application.step.compact import compact_if_due
from kimi.domain.content.message import Message, ToolCall, ToolCallPart
from kimi.domain.content.parts import ContentPart, TextPart, ThinkPart
from kimi.domain.content.stream import MergedPart, PartMerger
from kimi.domain.errors import APIEmptyResponseError, APIStatusError, ChatProviderError
from kimi.domain.events.event import StatusUpdate, StepBegin, StepRetry
from kimi.domain.history.session import UsageRecord
from kimi.domain.tools.repeat_guard import STOP_AT
from kimi.domain.turn import TurnStatus

BURST: Final = 32
"""How many parts of a stream are passed on in one go before other turns of the process get theirs."""


@dataclass(slots=True)
class StepOutcome:
    """What a step came to: does the turn go on, and why did the model stop?"""

    goes_on: bool
    end: ResponseEnd


async def run_steps(conversation: Conversation, turn: RunningTurn, model: ChatModel, random: Random) -> TurnStatus:
    """Run steps until the model calls no more tools, or a limit is reached.

    Raises ChatProviderError when a step fails for good, StoreFailed when the disk does.
    """
    for number in range(1, conversation.limits.max_steps + 1):
        conversation.post(StepBegin(number))  # with the next line one step: a cancel finds it open
        turn.step = number
        turn.steps_taken += 1
        await conversation.channel.room()
        await compact_if_due(conversation, model, random)
        conversation.mail = None  # an attempt that failed may have left one
        conversation.append(*checkpoint(conversation))
        await before_step(conversation)
        model = conversation.model or model  # it may have been switched
        outcome = await _run_step(conversation, turn, model, random)
        turn.step = 0
        await announce_plan_mode(conversation)
        if conversation.waiting.closed:
            return TurnStatus("cancelled")
        steered = await inject_steers(conversation, turn, model)
        if not outcome.goes_on and not steered:
            turn.accepts_steers = False
            return TurnStatus("finished", stop_reason=outcome.end.stop_reason)
    return TurnStatus("max_steps_reached", steps=conversation.limits.max_steps)


async def _run_step(conversation: Conversation, turn: RunningTurn, model: ChatModel, random: Random) -> StepOutcome:
    """One model call with its retries, and the calls that it asks for."""
    for attempt in range(1, conversation.limits.max_attempts + 1):
        outcome = await _attempt(conversation, turn, model)
        if isinstance(outcome, StepOutcome):
            return outcome
        if not outcome.transient or attempt == conversation.limits.max_attempts:
            raise outcome
        turn.open_calls.clear()
        await _back_off(conversation, turn.step, attempt, outcome, random)
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _back_off(
    conversation: Conversation, step: int, attempt: int, error: ChatProviderError, random: Random
) -> None:
    """Tell the client that the attempt failed, then wait."""
    wait = retry_wait(attempt, error, random)
    status = error.status_code if isinstance(error, APIStatusError) else None
    limit = conversation.limits.max_attempts
    await conversation.emit(StepRetry(step, attempt + 1, limit, wait, type(error).__name__, status))
    await anyio.sleep(wait)


class _Spoken(NamedTuple):
    """A model call that worked: the stored message, the end of the stream, the calls, which have been started."""

    message: Message
    end: ResponseEnd
    calls: StepCalls


async def _attempt(conversation: Conversation, turn: RunningTurn, model: ChatModel) -> StepOutcome | ChatProviderError:
    """One attempt of a step. A failure of the model is returned: calls that had started are cancelled first."""
    spoken: _Spoken | ChatProviderError | None = None
    try:
        async with anyio.create_task_group() as tasks:
            spoken = await _speak(conversation, turn, model, StepCalls(conversation, turn, tasks))
            if isinstance(spoken, ChatProviderError):
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _first(group) from None
    assert spoken is not None  # the group swallows only its own cancellation
    if isinstance(spoken, ChatProviderError):
        return spoken
    rejected = turn.rejected = spoken.calls.rejected
    if rewind_if_due(conversation, rejected=rejected):
        return StepOutcome(True, spoken.end)
    goes_on = bool(spoken.message.tool_calls) and not rejected and spoken.calls.longest_streak < STOP_AT
    return StepOutcome(goes_on, spoken.end)


async def _speak(
    conversation: Conversation, turn: RunningTurn, model: ChatModel, calls: StepCalls
) -> _Spoken | ChatProviderError:
    """Call the model, store its message, then let the calls go."""
    try:
        message, end = await _stream(conversation, turn, model, calls)
    except ChatProviderError as error:
        return error
    _store(conversation, message, end)
    await conversation.emit(_status(model, end, plan_mode=conversation.policy.plan))
    calls.start()
    return _Spoken(message, end, calls)


async def _stream(
    conversation: Conversation, turn: RunningTurn, model: ChatModel, calls: StepCalls
) -> tuple[Message, ResponseEnd]:
    """Pass the model's parts on as they come, and put them together."""
    merger, parts, end = PartMerger(), list[MergedPart](), ResponseEnd()
    emit, passed = conversation.emit, 0

    def take(done: list[MergedPart]) -> None:
        parts.extend(done)
        for part in done:
            if isinstance(part, ToolCall):
                calls.add(part)

    system, tools = conversation.system_prompt(), conversation.toolset.for_model()
    history = conversation.history
    async with model.stream(system, history.messages, tools, history.total) as items:
        async for item in items:
            if isinstance(item, ResponseEnd):
                end = item
                continue
            if isinstance(item, ToolCall):
                item = _with_own_id(item, turn, conversation)
                turn.open_calls.append(item.id)
            elif isinstance(item, ToolCallPart) and not merger.grows_call:
                continue  # a piece of no call means nothing to anybody
            if done := merger.push(item):
                take(done)
            await emit(item)
            passed += 1
            if passed % BURST == 0:  # the network may have brought thousands at once: others want their turn
                await anyio.lowlevel.checkpoint()
    take(merger.flush())
    content = tuple(part for part in parts if not isinstance(part, ToolCall))
    tool_calls = tuple(part for part in parts if isinstance(part, ToolCall))
    if not tool_calls and not _visible(content):
        raise APIEmptyResponseError("The model gave no answer: the response held no text and no tool call.")
    return Message("assistant", content, tool_calls), end


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to report for several that happened at once: the first one."""
    error = group.exceptions[0]
    return _first(cast("BaseExceptionGroup[BaseException]", error)) if isinstance(error, BaseExceptionGroup) else error


def _with_own_id(call: ToolCall, turn: RunningTurn, conversation: Conversation) -> ToolCall:
    """`call`, with a fresh id if it has none, or that of another call of the step (tools spec 1.7), or that of a
    request whose late answer would be taken for its own.
    """
    taken = call.id in turn.open_calls or call.id in conversation.waiting.abandoned
    return replace(call, id=conversation.new_id()) if taken or not call.id else call


def _visible(content: tuple[ContentPart, ...]) -> bool:
    """Is there anything for the person: text that is not empty, or a medium?"""
    return any(part.text if isinstance(part, TextPart) else not isinstance(part, ThinkPart) for part in content)


def _store(conversation: Conversation, message: Message, end: ResponseEnd) -> None:
    """Store the assistant message with the token counts before and after it (runtime spec 3.9, 4.2)."""
    if end.usage is None:
        conversation.append(message)
    else:
        conversation.append(UsageRecord(end.usage.input), message, UsageRecord(end.usage.total))


def _status(model: ChatModel, end: ResponseEnd, *, plan_mode: bool) -> StatusUpdate:
    if end.usage is None:
        return StatusUpdate(message_id=end.message_id, plan_mode=plan_mode)
    return StatusUpdate(
        context_usage=end.usage.input / model.context_size,
        context_tokens=end.usage.input,
        max_context_tokens=model.context_size,
        token_usage=end.usage,
        message_id=end.message_id,
        plan_mode=plan_mode,
    )
