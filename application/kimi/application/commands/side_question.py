"""`/btw <question>`: ask a side question (runtime spec 8; wire spec 4.2, BtwBegin and BtwEnd).

The model answers from the history without calling tools, and neither question nor answer enters the context.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio

from kimi.application.conversation.conversation import Conversation
from kimi.application.ports import ResponseEnd
from kimi.domain.content.message import Message, user_message
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import ModelError
from kimi.domain.events.event import BtwBegin, BtwEnd
from kimi.domain.history.history import find_unanswered_calls

logger = logging.getLogger(__name__)

MIN_PROTOCOL_VERSION = (1, 9)
"""Clients of this protocol version or later know the two events; other clients get the answer as text."""

_QUESTION_PROMPT = """\
<system>This is a question beside the work. Answer it shortly from what you know already. Call no tool: nothing would \
be done. Neither question nor answer will be part of the conversation.</system>

{question}"""
_NO_ANSWER = "The model gave no answer."
_USAGE = "Usage: /btw <question>"


async def run_btw_command(conversation: Conversation, arguments: str) -> None:
    """Answer the question; without one, show how the command is used. Raises ModelNotSet, StoreFailed."""
    if not arguments.strip():
        await conversation.events.emit(TextPart(_USAGE))
        return
    end = await answer_side_question(conversation, arguments.strip())
    if conversation.client.protocol_version < MIN_PROTOCOL_VERSION:
        await conversation.events.emit(TextPart(end.response or end.error or _NO_ANSWER))


async def answer_side_question(conversation: Conversation, question: str) -> BtwEnd:
    """Ask the model `question`, also while a turn runs, and emit the question and the answer as events.

    A failure of the model is the `error` of the result. Cancellation ends the request; BtwEnd is emitted in any case.
    Raises ModelNotSet, StoreFailed.
    """
    conversation.models.require_model()
    begin = BtwBegin(conversation.resources.new_id(), question)
    end = BtwEnd(begin.id, None, "The question was cancelled.")
    # Emitted without waiting: a cancellation between the event and the `try` would leave out BtwEnd.
    conversation.events.emit_nowait(begin)
    try:
        await conversation.events.channel.wait_for_capacity()
        end = await _answer_question(conversation, begin)
    finally:
        with anyio.CancelScope(shield=True):
            await conversation.events.emit(end)
    return end


async def _answer_question(conversation: Conversation, begin: BtwBegin) -> BtwEnd:
    try:
        text = await _request_answer(conversation, begin.question)
    except ModelError as error:
        logger.warning("a side question failed: %s", error)
        return BtwEnd(begin.id, None, str(error))
    return BtwEnd(begin.id, text, None) if text else BtwEnd(begin.id, None, _NO_ANSWER)


async def _request_answer(conversation: Conversation, question: str) -> str:
    """Return the text of the answer. Tools are passed, because providers require them when the history has calls."""
    model, history = conversation.model, conversation.history
    assert model is not None
    messages = [*_drop_unanswered_calls(history.messages), user_message(_QUESTION_PROMPT.format(question=question))]
    tools = conversation.toolset.visible_specs()
    parts: list[str] = []
    async with model.stream(
        conversation.context.ensure_system_prompt(), messages, tools, history.total_tokens
    ) as items:
        async for item in items:
            if isinstance(item, TextPart):
                parts.append(item.text)
            elif isinstance(item, ResponseEnd):
                conversation.models.usage.count(item)
    return "".join(parts).strip()


def _drop_unanswered_calls(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages before the last assistant message if one of its calls is unanswered, else all of them."""
    if not find_unanswered_calls(messages):
        return messages
    last = max(index for index, message in enumerate(messages) if message.role == "assistant")
    return messages[:last]
