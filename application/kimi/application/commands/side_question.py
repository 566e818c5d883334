"""`/btw <question>`: a question beside the work. The model answers it with what the conversation knows, calls no tool,
and nothing of it enters the context (runtime spec 8; wire spec 4.2, BtwBegin and BtwEnd).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio

from kimi.application.conversation.conversation import Conversation
from kimi.domain.content.message import Message, user_message
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import ModelError, ModelNotSet
from kimi.domain.events.event import BtwBegin, BtwEnd
from kimi.domain.history.history import unanswered_calls

logger = logging.getLogger(__name__)

FIRST_VERSION = (1, 9)
"""Clients of this protocol version know the two events; the others get the answer as text."""

_ASIDE = """\
<system>This is a question beside the work. Answer it shortly from what you know already. Call no tool: nothing would \
be done. Neither question nor answer will be part of the conversation.</system>

{question}"""
_NOTHING = "The model gave no answer."
_USAGE = "Usage: /btw <question>"


async def btw_command(conversation: Conversation, arguments: str) -> None:
    """Answer the question; one without text gets a line of usage. Raises ModelNotSet, StoreFailed."""
    if not arguments.strip():
        await conversation.emit(TextPart(_USAGE))
        return
    end = await ask_beside(conversation, arguments.strip())
    if conversation.client.protocol_version < FIRST_VERSION:
        await conversation.emit(TextPart(end.response or end.error or _NOTHING))


async def ask_beside(conversation: Conversation, question: str) -> BtwEnd:
    """Ask the model `question`, also while a turn runs, and announce question and answer.

    What fails is the `error` of the result. Cancellation ends the request; BtwEnd goes out all the same.
    Raises ModelNotSet, StoreFailed.
    """
    if conversation.model is None:
        raise ModelNotSet
    begin = BtwBegin(conversation.new_id(), question)
    end = BtwEnd(begin.id, None, "The question was cancelled.")
    conversation.post(begin)  # a cancel cannot come before the next line
    try:
        await conversation.channel.room()
        end = await _answer(conversation, begin)
    finally:
        with anyio.CancelScope(shield=True):
            await conversation.emit(end)
    return end


async def _answer(conversation: Conversation, asked: BtwBegin) -> BtwEnd:
    try:
        text = await _text(conversation, asked.question)
    except ModelError as error:
        logger.warning("a side question failed: %s", error)
        return BtwEnd(asked.id, None, str(error))
    return BtwEnd(asked.id, text, None) if text else BtwEnd(asked.id, None, _NOTHING)


async def _text(conversation: Conversation, question: str) -> str:
    """The text of the answer. The tools are named all the same: providers want them where the history has calls."""
    model, history = conversation.model, conversation.history
    assert model is not None
    messages = [*_answerable(history.messages), user_message(_ASIDE.format(question=question))]
    tools = conversation.toolset.visible()
    parts: list[str] = []
    async with model.stream(conversation.system_prompt(), messages, tools, history.total) as items:
        async for item in items:
            if isinstance(item, TextPart):
                parts.append(item.text)
    return "".join(parts).strip()


def _answerable(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages up to the last one whose calls have not all been answered."""
    if not unanswered_calls(messages):
        return messages
    last = max(index for index, message in enumerate(messages) if message.role == "assistant")
    return messages[:last]
