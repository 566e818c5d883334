"""The context stores first, then changes the memory; a scratch context leaves no trace."""

from __future__ import annotations

import pytest

from kimi.application.conversation.context import ConversationContext
from kimi.application.ports import SessionFiles
from kimi.domain.content.message import user_message
from kimi.domain.errors import StoreFailed
from kimi.domain.history.session import SystemPromptRecord
from tests.support.conversations import memory_files

pytestmark = pytest.mark.anyio

PROMPT = SystemPromptRecord("You are a test.")
ONE, TWO, THREE = (user_message(text) for text in ("one", "two", "three"))


async def context_over_files() -> tuple[ConversationContext, SessionFiles]:
    """A new context, and its files."""
    files = await memory_files()
    return ConversationContext(files, lambda: PROMPT.content), files


async def test_what_cannot_be_stored_does_not_enter_the_history() -> None:
    context, files = await context_over_files()
    context.append(ONE)
    version = context.version
    files.close()
    with pytest.raises(StoreFailed):
        context.append(TWO)
    with pytest.raises(StoreFailed):
        context.replace_history([TWO])
    assert list(context.history.records) == [ONE]
    assert context.version == version


async def test_pending_records_go_before_the_next_ones() -> None:
    context, files = await context_over_files()
    context.add_pending_records(ONE)
    assert context.has_pending_records
    assert list(context.history.records) == []
    context.append(TWO)
    assert not context.has_pending_records
    assert list(context.history.records) == list(files.load_context()) == [ONE, TWO]


async def test_scratch_context_begins_with_the_prompt_and_is_gone_afterwards() -> None:
    context, files = await context_over_files()
    context.append(PROMPT, ONE)
    context.add_pending_records(TWO)
    with context.scratch_context():
        before = context.version
        assert context.is_scratch
        assert list(context.history.records) == [PROMPT]
        context.append(THREE)
        context.replace_history([PROMPT])
        assert context.version != before
    assert not context.is_scratch
    assert list(context.history.records) == list(files.load_context()) == [PROMPT, ONE]
    assert context.has_pending_records, "the scratch context stores nothing of the other one either"


async def test_system_prompt_is_frozen_as_the_first_record() -> None:
    context, files = await context_over_files()
    context.append(ONE)
    assert context.ensure_system_prompt() == PROMPT.content
    assert list(files.load_context()) == [PROMPT, ONE]
    assert ConversationContext(files, lambda: "Another.").ensure_system_prompt() == PROMPT.content
