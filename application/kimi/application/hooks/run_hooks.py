"""Use-case run-hooks: which hooks watch an event, all of them in parallel, the first block wins (wire spec 4.5).

The first is the first in the order commands, then subscriptions, whichever of them answers first. What fails, takes
too long or makes no sense allows. Inside a turn a batch is framed by HookTriggered and HookResolved; outside of one
nothing goes onto the stream and only commands run.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import anyio

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.hook_registry import LateBatch
from kimi.domain.content.message import JsonObject
from kimi.domain.events.event import HookResolved, HookTriggered
from kimi.domain.events.request import HookAnswer, HookRequest
from kimi.domain.hook import ALLOW, CommandHook, Hook, HookSubscription, distinct, matching, patience

logger = logging.getLogger(__name__)

Ask: TypeAlias = Callable[[], Awaitable[HookAnswer]]


@dataclass(frozen=True, slots=True)
class _Fired:
    """An event that something watches: the hooks that match, and what they are told."""

    event: str
    target: str
    hooks: Sequence[Hook]
    payload: JsonObject


async def run_hooks(conversation: Conversation, event: str, target: str, details: JsonObject) -> HookAnswer:
    """Fire `event` and wait for the verdict. `details` is what hooks learn beyond event, session and directory.

    Raises StoreFailed; nothing else but cancellation.
    """
    fired = _fired(conversation, event, target, details)
    if fired is None:
        return ALLOW
    if conversation.turn is None:
        return await _verdict(conversation, fired)
    answer, began = ALLOW, anyio.current_time()
    conversation.post(HookTriggered(event, target, len(fired.hooks)))  # a cancel cannot come before the next line
    try:
        await conversation.channel.room()
        answer = await _verdict(conversation, fired)
    finally:
        with anyio.CancelScope(shield=True):
            await conversation.emit(_resolved(event, target, answer, began))
    return answer


async def fire_hooks(conversation: Conversation, event: str, target: str, details: JsonObject) -> None:
    """Fire `event` without waiting: its verdict means nothing. Raises StoreFailed.

    Commands may outlive the turn; its end settles what was asked of the client and closes the batch on the stream.
    """
    hooks = conversation.hooks
    if hooks.tasks is None:
        await run_hooks(conversation, event, target, details)
        return
    fired = _fired(conversation, event, target, details)
    if fired is None:
        return
    batch = LateBatch(conversation.turn, event, target, anyio.current_time(), over=conversation.turn is None)
    if not batch.over:
        hooks.late.append(batch)
        conversation.post(HookTriggered(event, target, len(fired.hooks)))
    hooks.start(hooks.tasks, partial(_run_late, conversation, fired, batch))
    await conversation.channel.room()


async def close_late_hooks(conversation: Conversation) -> None:
    """The turn ends: nothing that was fired in it goes onto the stream any more (wire spec 4.6, 4.7).

    Raises StoreFailed.
    """
    for batch in [batch for batch in conversation.hooks.late if batch.owner is conversation.turn]:
        await _close(conversation, batch, ALLOW)


async def _run_late(conversation: Conversation, fired: _Fired, batch: LateBatch) -> None:
    try:
        answer = await _verdict(conversation, fired, batch)
        await _close(conversation, batch, answer)
    except Exception:  # in nobody's turn: there is nobody to report to
        logger.exception("the hooks of %s failed", fired.event)


async def _close(conversation: Conversation, batch: LateBatch, answer: HookAnswer) -> None:
    if batch.over:
        return
    batch.over = True
    conversation.hooks.late.remove(batch)
    for request_id in batch.requests:
        conversation.waiting.settle(request_id, ALLOW)
    await conversation.emit(_resolved(batch.event, batch.target, answer, batch.began))


def _fired(conversation: Conversation, event: str, target: str, details: JsonObject) -> _Fired | None:
    """The hooks that match, and what they are told; None when there are none."""
    hooks = conversation.hooks
    if event not in hooks.watched:
        return None
    matched: list[Hook] = [*distinct(matching(hooks.commands, event, target))]
    if conversation.turn is not None:
        matched += matching(hooks.subscriptions, event, target)
    if not matched:
        return None
    common = {"hook_event_name": event, "session_id": hooks.session_id, "cwd": hooks.work_dir}
    return _Fired(event, target, matched, {**common, **details})


async def _verdict(conversation: Conversation, fired: _Fired, batch: LateBatch | None = None) -> HookAnswer:
    """Ask all hooks at once; the first block in their order, or allow."""
    answers = [ALLOW] * len(fired.hooks)

    async def ask(index: int, hook: Hook) -> None:
        answers[index] = await _answer(conversation, hook, fired, batch)

    async with anyio.create_task_group() as tasks:
        for index, hook in enumerate(fired.hooks):
            tasks.start_soon(ask, index, hook)
    return next((answer for answer in answers if answer.action == "block"), ALLOW)


async def _answer(conversation: Conversation, hook: Hook, fired: _Fired, batch: LateBatch | None) -> HookAnswer:
    """The verdict of one hook. Fails open."""
    ask: Ask = (
        partial(conversation.hooks.run, hook, fired.payload)
        if isinstance(hook, CommandHook)
        else partial(_ask_client, conversation, hook, fired, batch)
    )
    try:
        return await ask()
    except Exception:
        logger.exception("a hook on %s failed; it allows", fired.event)
        return ALLOW


async def _ask_client(
    conversation: Conversation, subscription: HookSubscription, fired: _Fired, batch: LateBatch | None
) -> HookAnswer:
    """Ask the client; its silence allows, and so does everything once it is gone."""
    request_id = conversation.new_id().replace("-", "")[:12]
    request = HookRequest(request_id, subscription.id, fired.event, fired.target, fired.payload)
    if batch is not None:
        if batch.over:
            return ALLOW
        batch.requests.append(request_id)
    with anyio.move_on_after(patience(subscription)):
        answer = await conversation.waiting.ask(request, conversation.emit)
        return answer if isinstance(answer, HookAnswer) else ALLOW
    logger.warning(
        "hook %r of the client did not answer within %s s; it allows", subscription.id, patience(subscription)
    )
    return ALLOW


def _resolved(event: str, target: str, answer: HookAnswer, began: float) -> HookResolved:
    return HookResolved(event, target, answer.action, answer.reason, int((anyio.current_time() - began) * 1000))
