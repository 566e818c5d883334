"""Use-case run-hooks: run all hooks that match an event in parallel; the first block wins (wire spec 4.5).

"First" means the order commands, then subscriptions, not the order of the answers. A hook that fails, times out or
answers nonsense allows, unless it is a command that is to block then. Inside a turn a batch starts with HookTriggered
and ends with HookResolved; outside a turn no events are emitted and only commands run.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import anyio

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.hook_registry import DetachedHookBatch
from kimi.domain.content.message import JsonObject
from kimi.domain.events.event import HookResolved, HookTriggered
from kimi.domain.events.request import HookAnswer, HookRequest
from kimi.domain.hook import (
    ALLOW,
    CommandHook,
    Hook,
    HookSubscription,
    clamp_timeout_s,
    combine_answers,
    deduplicate_commands,
    judge_failure,
    match_hooks,
)

logger = logging.getLogger(__name__)

AskHook: TypeAlias = Callable[[], Awaitable[HookAnswer]]


@dataclass(frozen=True, slots=True)
class _HookInvocation:
    """An event that hooks watch, with the hooks that match and the payload that they get."""

    event: str
    target: str
    hooks: Sequence[Hook]
    payload: JsonObject


async def run_hooks(conversation: Conversation, event: str, target: str, details: JsonObject) -> HookAnswer:
    """Fire `event`, wait for all hooks and return their combined answer: the first block wins.

    `details` is added to the payload, which holds event, session and work directory. Raises StoreFailed.
    """
    invocation = _match_hooks(conversation, event, target, details)
    if invocation is None:
        return ALLOW
    if conversation.turn is None:
        return await _run_matched_hooks(conversation, invocation)
    answer, started_at = ALLOW, anyio.current_time()
    # Emitted without waiting: a cancellation between the event and the `try` would leave out HookResolved.
    conversation.events.emit_nowait(HookTriggered(event, target, len(invocation.hooks)))
    try:
        await conversation.events.channel.wait_for_capacity()
        answer = await _run_matched_hooks(conversation, invocation)
    finally:
        with anyio.CancelScope(shield=True):
            await conversation.events.emit(_build_hook_resolved(event, target, answer, started_at))
    return answer


async def fire_hooks(conversation: Conversation, event: str, target: str, details: JsonObject) -> None:
    """Fire `event` without waiting for the hooks, whose answers are ignored. Raises StoreFailed.

    Commands may outlive the turn. The end of the turn resolves the requests to the client and emits HookResolved.
    Without a task group for detached hooks, this waits for them.
    """
    hooks = conversation.resources.hooks
    if hooks.task_group is None:
        await run_hooks(conversation, event, target, details)
        return
    invocation = _match_hooks(conversation, event, target, details)
    if invocation is None:
        return
    batch = DetachedHookBatch(
        conversation.turn, event, target, anyio.current_time(), is_resolved=conversation.turn is None
    )
    # Up to the start of the batch there is no await: a cancellation or the end of the turn finds it registered,
    # announced and started, or not at all.
    if not batch.is_resolved:
        hooks.detached_batches.append(batch)
        conversation.events.emit_nowait(HookTriggered(event, target, len(invocation.hooks)))
    hooks.start_detached(hooks.task_group, partial(_run_late_batch, conversation, invocation, batch))
    await conversation.events.channel.wait_for_capacity()


async def close_late_hooks(conversation: Conversation) -> None:
    """Close all detached batches of the current turn, which is ending (wire spec 4.6, 4.7).

    They emit no further events. Raises StoreFailed.
    """
    for batch in [batch for batch in conversation.resources.hooks.detached_batches if batch.owner is conversation.turn]:
        await _close_batch(conversation, batch, ALLOW)


async def _run_late_batch(conversation: Conversation, invocation: _HookInvocation, batch: DetachedHookBatch) -> None:
    try:
        answer = await _run_matched_hooks(conversation, invocation, batch)
        await _close_batch(conversation, batch, answer)
    except Exception:  # the turn may be over, so there is nothing to report the error to
        logger.exception("the hooks of %s failed", invocation.event)


async def _close_batch(conversation: Conversation, batch: DetachedHookBatch, answer: HookAnswer) -> None:
    if batch.is_resolved:
        return
    # Marked before the first await: the end of the turn and the batch itself may both close it.
    batch.is_resolved = True
    conversation.resources.hooks.detached_batches.remove(batch)
    for request_id in batch.request_ids:
        conversation.events.pending_requests.resolve(request_id, ALLOW)
    await conversation.events.emit(_build_hook_resolved(batch.event, batch.target, answer, batch.started_at))


def _match_hooks(conversation: Conversation, event: str, target: str, details: JsonObject) -> _HookInvocation | None:
    """Return the hooks that match with their payload; None when no hook matches."""
    hooks = conversation.resources.hooks
    if event not in hooks.watched_events:
        return None
    matched: list[Hook] = [*deduplicate_commands(match_hooks(hooks.commands, event, target, hooks.search))]
    if conversation.turn is not None:
        matched += match_hooks(hooks.subscriptions, event, target, hooks.search)
    if not matched:
        return None
    common = {"hook_event_name": event, "session_id": hooks.session_id, "cwd": hooks.work_dir}
    return _HookInvocation(event, target, matched, {**common, **details})


async def _run_matched_hooks(
    conversation: Conversation, invocation: _HookInvocation, batch: DetachedHookBatch | None = None
) -> HookAnswer:
    """Run all hooks in parallel; return their combined answer."""
    answers = [ALLOW] * len(invocation.hooks)

    async def ask(index: int, hook: Hook) -> None:
        answers[index] = await _run_hook(conversation, hook, invocation, batch)

    async with anyio.create_task_group() as tasks:
        for index, hook in enumerate(invocation.hooks):
            tasks.start_soon(ask, index, hook)
    return combine_answers(answers)


async def _run_hook(
    conversation: Conversation, hook: Hook, invocation: _HookInvocation, batch: DetachedHookBatch | None
) -> HookAnswer:
    """Run one hook and return its answer, or what its failure means."""
    ask: AskHook = (
        partial(conversation.resources.hooks.run_command, hook, invocation.payload)
        if isinstance(hook, CommandHook)
        else partial(_ask_client, conversation, hook, invocation, batch)
    )
    try:
        return await ask()
    except Exception:
        answer = judge_failure(hook, "failed")
        logger.exception("a hook on %s failed, so it %ss", invocation.event, answer.action)
        return answer


async def _ask_client(
    conversation: Conversation,
    subscription: HookSubscription,
    invocation: _HookInvocation,
    batch: DetachedHookBatch | None,
) -> HookAnswer:
    """Send a HookRequest to the client and return its answer; allow on a timeout and when the client is gone."""
    request_id = conversation.resources.new_id().replace("-", "")[:12]
    request = HookRequest(request_id, subscription.id, invocation.event, invocation.target, invocation.payload)
    if batch is not None:
        if batch.is_resolved:  # the turn has ended since the batch was started: the client expects no requests
            return ALLOW
        batch.request_ids.append(request_id)
    with anyio.move_on_after(clamp_timeout_s(subscription)):
        answer = await conversation.events.pending_requests.ask(request, conversation.events.emit)
        return answer if isinstance(answer, HookAnswer) else ALLOW
    logger.warning(
        "hook %r of the client did not answer within %s s; it allows", subscription.id, clamp_timeout_s(subscription)
    )
    return ALLOW


def _build_hook_resolved(event: str, target: str, answer: HookAnswer, started_at: float) -> HookResolved:
    return HookResolved(event, target, answer.action, answer.reason, int((anyio.current_time() - started_at) * 1000))
