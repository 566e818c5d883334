"""The step loop of a turn: call the model, run its tool calls, repeat (runtime spec 5.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, cast

import anyio
import anyio.lowlevel

from kimi.application.control.plan_mode import announce_plan_mode
from kimi.application.control.steer import inject_steers
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.running_turn import RunningTurn
from kimi.application.ports import ChatModel, Random, ResponseEnd
from kimi.application.step.backoff import compute_retry_delay
from kimi.application.step.call_tools import StepCalls
from kimi.application.step.checkpoints import discard_dmail, next_checkpoint_records, rewind_if_requested
from kimi.application.step.compact import compact_if_needed
from kimi.application.step.prepare_step import prepare_step
from kimi.domain.content.message import Message, ToolCall, ToolCallPart
from kimi.domain.content.parts import ContentPart, TextPart, ThinkPart
from kimi.domain.content.stream import MergedPart, PartMerger
from kimi.domain.errors import APIEmptyResponseError, APIStatusError, ChatProviderError
from kimi.domain.events.event import StatusUpdate, StepBegin, StepRetry
from kimi.domain.history.session import UsageRecord
from kimi.domain.tools.repeat_guard import STOP_AT
from kimi.domain.turn import TurnStatus

PARTS_PER_CHECKPOINT: Final = 32
"""The number of streamed parts that are emitted before other tasks of the process may run."""


@dataclass(slots=True)
class StepOutcome:
    """The outcome of a step: whether the turn continues, and the end of the model's response."""

    should_continue: bool
    response_end: ResponseEnd


async def run_steps(conversation: Conversation, turn: RunningTurn, model: ChatModel, random: Random) -> TurnStatus:
    """Run steps until the model calls no more tools, or the limit of steps is reached.

    Raises ChatProviderError when a step fails after all retries, StoreFailed when the disk fails.
    """
    for number in range(1, conversation.turns.limits.max_steps + 1):
        # No await between these two lines: the end of a cancelled turn must find every announced step open.
        conversation.events.emit_nowait(StepBegin(number))
        turn.step = number
        turn.total_steps += 1
        await conversation.events.channel.wait_for_capacity()
        await compact_if_needed(conversation, model, random)
        discard_dmail(conversation)
        # The checkpoint is set after compaction, which would remove it, and before the notifications and reminders.
        conversation.context.append(*next_checkpoint_records(conversation))
        await prepare_step(conversation)
        model = conversation.model or model  # a client may have switched it during the last step
        outcome = await _run_step(conversation, turn, model, random)
        turn.step = 0
        await announce_plan_mode(conversation)
        if conversation.events.pending_requests.is_closed:
            return TurnStatus("cancelled")
        steered = await inject_steers(conversation, turn, model)
        if not outcome.should_continue and not steered:
            turn.accepts_steers = False  # no await since the queue was found empty, so no accepted steer is lost
            return TurnStatus("finished", stop_reason=outcome.response_end.stop_reason)
    return TurnStatus("max_steps_reached", steps=conversation.turns.limits.max_steps)


async def _run_step(conversation: Conversation, turn: RunningTurn, model: ChatModel, random: Random) -> StepOutcome:
    """Call the model, with retries, and run the tool calls that it asks for."""
    for attempt in range(1, conversation.turns.limits.max_attempts + 1):
        outcome = await _attempt_step(conversation, turn, model)
        if isinstance(outcome, StepOutcome):
            return outcome
        if not outcome.transient or attempt == conversation.turns.limits.max_attempts:
            raise outcome
        turn.open_calls.clear()  # clients drop the calls of a failed attempt on StepRetry: they get no results
        await _back_off(conversation, turn.step, attempt, outcome, random)
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _back_off(
    conversation: Conversation, step: int, attempt: int, error: ChatProviderError, random: Random
) -> None:
    """Emit StepRetry, then wait until the next attempt."""
    wait = compute_retry_delay(attempt, error, random)
    status = error.status_code if isinstance(error, APIStatusError) else None
    limit = conversation.turns.limits.max_attempts
    await conversation.events.emit(StepRetry(step, attempt + 1, limit, wait, type(error).__name__, status))
    await anyio.sleep(wait)


class _StartedResponse(NamedTuple):
    """A successful model call: the stored message, the end of the stream, and the calls, which have been started."""

    message: Message
    response_end: ResponseEnd
    calls: StepCalls


async def _attempt_step(
    conversation: Conversation, turn: RunningTurn, model: ChatModel
) -> StepOutcome | ChatProviderError:
    """Run one attempt of a step. An error of the model is returned, after calls that had started are cancelled."""
    response: _StartedResponse | ChatProviderError | None = None
    try:
        async with anyio.create_task_group() as tasks:
            # The error is returned, not raised: raised, the group would wrap it together with those of the calls.
            response = await _call_model(conversation, turn, model, StepCalls(conversation, turn, tasks))
            if isinstance(response, ChatProviderError):
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _first_error(group) from None
    assert response is not None  # the group suppresses only its own cancellation
    if isinstance(response, ChatProviderError):
        return response
    rejected = turn.has_rejected_call = response.calls.is_rejected
    if rewind_if_requested(conversation, turn, rejected=rejected):
        return StepOutcome(True, response.response_end)
    should_continue = bool(response.message.tool_calls) and not rejected and response.calls.longest_streak < STOP_AT
    return StepOutcome(should_continue, response.response_end)


async def _call_model(
    conversation: Conversation, turn: RunningTurn, model: ChatModel, calls: StepCalls
) -> _StartedResponse | ChatProviderError:
    """Call the model, store its message, then start the calls that wait for it."""
    try:
        message, end = await _stream_response(conversation, turn, model, calls)
    except ChatProviderError as error:
        return error
    _store_message(conversation, message, end)
    conversation.models.usage.count(end)
    await conversation.events.emit(_build_status_update(conversation, model, end))
    calls.start()
    return _StartedResponse(message, end, calls)


async def _stream_response(
    conversation: Conversation, turn: RunningTurn, model: ChatModel, calls: StepCalls
) -> tuple[Message, ResponseEnd]:
    """Emit the model's parts as they arrive, and return the assembled message with the end of the stream."""
    merger, parts, end = PartMerger(), list[MergedPart](), ResponseEnd()
    emit, passed = conversation.events.emit, 0

    def collect_parts(done: list[MergedPart]) -> None:
        parts.extend(done)
        for part in done:
            if isinstance(part, ToolCall):
                calls.add(part)

    system, tools = conversation.context.ensure_system_prompt(), conversation.toolset.specs_for_model()
    history = conversation.history
    async with model.stream(system, history.messages, tools, history.total_tokens) as items:
        async for item in items:
            if isinstance(item, ResponseEnd):
                end = item
                continue
            if isinstance(item, ToolCall):
                item = _ensure_unique_id(item, turn, conversation)
                turn.open_calls.append(item.id)
            elif isinstance(item, ToolCallPart) and not merger.is_growing_call:
                continue  # an argument piece that belongs to no call is dropped
            if done := merger.push(item):
                collect_parts(done)
            await emit(item)
            passed += 1
            # Thousands of parts may have arrived at once, and `emit` does not yield: let other tasks run in between.
            if passed % PARTS_PER_CHECKPOINT == 0:
                await anyio.lowlevel.checkpoint()
    collect_parts(merger.flush())
    content = tuple(part for part in parts if not isinstance(part, ToolCall))
    tool_calls = tuple(part for part in parts if isinstance(part, ToolCall))
    if not tool_calls and not _has_visible_content(content):
        raise APIEmptyResponseError("The model gave no answer: the response held no text and no tool call.")
    return Message("assistant", content, tool_calls), end


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first of several errors that happened at once; it is the one to report."""
    error = group.exceptions[0]
    return (
        _first_error(cast("BaseExceptionGroup[BaseException]", error))
        if isinstance(error, BaseExceptionGroup)
        else error
    )


def _ensure_unique_id(call: ToolCall, turn: RunningTurn, conversation: Conversation) -> ToolCall:
    """Return `call`, with a new id if it has none or if its id is taken (tools spec 1.7).

    An id is taken by another call of the step, or by an orphaned request: a late answer to that request would be
    taken for an answer to this call.
    """
    taken = call.id in turn.open_calls or call.id in conversation.events.pending_requests.orphaned
    return replace(call, id=conversation.resources.new_id()) if taken or not call.id else call


def _has_visible_content(content: tuple[ContentPart, ...]) -> bool:
    """Return whether `content` has something for the user: text that is not empty, or media."""
    return any(part.text if isinstance(part, TextPart) else not isinstance(part, ThinkPart) for part in content)


def _store_message(conversation: Conversation, message: Message, response_end: ResponseEnd) -> None:
    """Store the assistant message with the token counts before and after it (runtime spec 3.9, 4.2)."""
    if response_end.usage is None:
        conversation.context.append(message)
    else:
        conversation.context.append(
            UsageRecord(response_end.usage.input), message, UsageRecord(response_end.usage.total)
        )


def _build_status_update(conversation: Conversation, model: ChatModel, response_end: ResponseEnd) -> StatusUpdate:
    plan_mode = conversation.policy.plan
    if response_end.usage is None:
        return StatusUpdate(message_id=response_end.message_id, plan_mode=plan_mode)
    return StatusUpdate(
        context_usage=response_end.usage.input / model.context_size,
        context_tokens=response_end.usage.input,
        max_context_tokens=model.context_size,
        token_usage=response_end.usage,
        message_id=response_end.message_id,
        plan_mode=plan_mode,
        usage=conversation.models.usage.figures,
    )
