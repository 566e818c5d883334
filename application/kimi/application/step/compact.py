"""Use-case compact: replace the older part of the context by a summary (runtime spec 5.4)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from random import random as uniform

import anyio

from kimi.application.conversation.conversation import Conversation
from kimi.application.hooks.hook_points import fire_post_compact_hooks, run_pre_compact_hooks
from kimi.application.ports import ChatModel, Random, ResponseEnd
from kimi.application.step.backoff import compute_retry_delay
from kimi.domain.background import format_active_tasks
from kimi.domain.content.message import Message, estimate_message
from kimi.domain.content.parts import TextPart
from kimi.domain.content.stream import MergedPart, PartMerger
from kimi.domain.errors import APIEmptyResponseError, ChatProviderError
from kimi.domain.events.event import CompactionBegin, CompactionEnd
from kimi.domain.history.compaction import (
    COMPACTION_SYSTEM_PROMPT,
    build_compacted_context,
    build_compaction_request,
    has_unsummarised_messages,
    is_compaction_due,
    retry_growth_tokens,
    split_messages,
)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _CompactionThreshold:
    """The number of tokens below which automatic compaction is not tried, after one that failed or did not help.

    It applies to the context of version `context_version` only.
    """

    min_tokens: int = 0
    context_version: int = 0


async def compact_if_needed(conversation: Conversation, model: ChatModel, random: Random) -> None:
    """Compact before a step when the context is too full and there is something to summarise.

    When compaction fails, the step continues with the old context as long as that fits the model. When it fails or
    does not help, it is not tried again until the context has grown.

    Raises ChatProviderError when compaction fails and the context no longer fits, StoreFailed.
    """
    tokens, window = conversation.history.total_tokens, model.context_size
    limits = conversation.turns.limits
    if tokens < _min_compaction_tokens(conversation) or not is_compaction_due(tokens, window, limits):
        return
    if not has_unsummarised_messages(split_messages(conversation.history.messages)[0]):
        return
    try:
        await compact(conversation, model, "auto", random=random)
    except ChatProviderError as error:
        if tokens >= window:
            raise
        logger.warning("the context could not be compacted, the turn goes on with it: %s", error)
        _set_min_compaction_tokens(conversation, min(tokens + retry_growth_tokens(window), window))


def _min_compaction_tokens(conversation: Conversation) -> int:
    threshold = conversation.feature_states.get(_CompactionThreshold)
    return threshold.min_tokens if threshold.context_version == conversation.context.version else 0


def _set_min_compaction_tokens(conversation: Conversation, tokens: int) -> None:
    threshold = conversation.feature_states.get(_CompactionThreshold)
    threshold.min_tokens, threshold.context_version = tokens, conversation.context.version


async def compact(
    conversation: Conversation, model: ChatModel, trigger: str, *, instruction: str = "", random: Random = uniform
) -> None:
    """Compact now. CompactionEnd follows CompactionBegin in every case.

    When there is nothing to summarise, the model is not called and the messages stay as they are.

    Raises ChatProviderError, StoreFailed; the context is then unchanged.
    """
    await run_pre_compact_hooks(conversation, trigger, conversation.history.total_tokens)
    # Emitted without waiting: a cancellation between the event and the `try` would leave out CompactionEnd.
    conversation.events.emit_nowait(CompactionBegin())
    try:
        await conversation.events.channel.wait_for_capacity()
        await _replace_with_summary(conversation, model, instruction, random)
    finally:
        with anyio.CancelScope(shield=True):
            await conversation.events.emit(CompactionEnd())
    await fire_post_compact_hooks(conversation, trigger, conversation.history.total_tokens)


async def _replace_with_summary(conversation: Conversation, model: ChatModel, instruction: str, random: Random) -> None:
    conversation.context.append()  # stores pending records first: they are part of what is summarised
    older, kept = split_messages(tuple(conversation.history.messages))
    summary: Sequence[TextPart] = ()
    tokens: int | None = None
    if older:
        request = build_compaction_request(older, instruction, model.context_size * 3 // 4)
        summary, end = await _summarize_with_retries(model, request, conversation.turns.limits.max_attempts, random)
        conversation.models.usage.count(end)
        tokens = end.usage.output if end.usage else None
    prompt, reminder = conversation.history.system_prompt, _build_tasks_reminder(conversation)
    # Replaced in one write, after the last await: a cancellation before it leaves the context as it was.
    conversation.context.replace_history(build_compacted_context(prompt, summary, tokens, kept, reminder))
    after, window = conversation.history.total_tokens, model.context_size
    helped = not is_compaction_due(after, window, conversation.turns.limits)
    if not helped:
        _set_min_compaction_tokens(conversation, after + retry_growth_tokens(window))


def _build_tasks_reminder(conversation: Conversation) -> str:
    tasks = conversation.resources.background.tasks
    return format_active_tasks(tasks.list_tasks()) if tasks else ""


async def _summarize_with_retries(
    model: ChatModel, request: Message, max_attempts: int, random: Random
) -> tuple[list[TextPart], ResponseEnd]:
    """Return the summary and the end of the answer. Failures are retried as those of a step are."""
    for attempt in range(1, max_attempts + 1):
        try:
            return await _request_summary(model, request)
        except ChatProviderError as error:
            if not error.transient or attempt == max_attempts:
                raise
            wait = compute_retry_delay(attempt, error, random)
            logger.info("compaction, attempt %d of %d failed, next in %.1f s: %s", attempt, max_attempts, wait, error)
            await anyio.sleep(wait)
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _request_summary(model: ChatModel, request: Message) -> tuple[list[TextPart], ResponseEnd]:
    merger, parts, end = PartMerger(), list[MergedPart](), ResponseEnd()
    async with model.stream(COMPACTION_SYSTEM_PROMPT, [request], (), estimate_message(request)) as items:
        async for item in items:
            if isinstance(item, ResponseEnd):
                end = item
            else:
                parts += merger.push(item)
    parts += merger.flush()
    texts = [part for part in parts if isinstance(part, TextPart) and part.text.strip()]
    if not texts:
        raise APIEmptyResponseError("The model gave no summary: the response held no text.")
    return texts, end
