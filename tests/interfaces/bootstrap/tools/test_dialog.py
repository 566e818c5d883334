"""The todo list of an agent is stored as every other part of its session's state."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event

import anyio
import anyio.to_thread
import pytest

from kimi.application.conversation.conversation import Conversation
from kimi.domain.agents.agent import AgentSpec
from kimi.domain.agents.subagent import SubagentIdentity
from kimi.domain.history.session import SessionState
from kimi.domain.tools.tool import TodoItem
from tests.interfaces.bootstrap.test_containers import app_in, session_in
from tests.support.fakes import FakeModel
from tests.support.tool_calls import call

pytestmark = pytest.mark.anyio

TOOL_ID = "kimi_cli.tools.todo:SetTodoList"
ENTRIES = {"todos": [{"title": "x", "status": "done"}]}
ITEMS = (TodoItem("x", "done"),)


async def main_and_subagent(directory: Path) -> tuple[Conversation, Conversation]:
    """A conversation, and that of a subagent of it, which has the todo list only."""
    container = await session_in(directory, app_in(directory, FakeModel([])))
    conversation = container.conversation()
    files = conversation.files.subagent_files("a00000001")
    spec = AgentSpec("coder", tools=(TOOL_ID,))
    return conversation, container.open_child()(spec, files, None, SubagentIdentity("a00000001", "coder", "c1"))


@asynccontextmanager
async def titled_meanwhile(conversation: Conversation) -> AsyncGenerator[None, None]:
    """A thread is in the middle of storing a title."""
    was_read = Event()

    def set_title(state: SessionState) -> SessionState:
        was_read.set()
        time.sleep(0.1)
        return replace(state, custom_title="Kept")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, conversation.session.update_state, set_title)
        assert await anyio.to_thread.run_sync(was_read.wait, 5)
        yield


async def set_todo_list(conversation: Conversation) -> None:
    tool = conversation.toolset.find("SetTodoList")
    assert tool is not None
    assert not (await call(tool, ENTRIES)).is_error


@pytest.mark.parametrize("which", ["main", "subagent"])
async def test_todo_list_and_change_of_another_thread_are_both_stored(tmp_path: Path, which: str) -> None:
    main, subagent = await main_and_subagent(tmp_path)
    conversation = main if which == "main" else subagent

    async with titled_meanwhile(conversation):
        await set_todo_list(conversation)

    assert (conversation.files.state.todos, conversation.files.state.custom_title) == (ITEMS, "Kept")


async def test_subagent_has_a_todo_list_of_its_own(tmp_path: Path) -> None:
    main, subagent = await main_and_subagent(tmp_path)

    await set_todo_list(subagent)

    assert (main.files.state.todos, subagent.files.state.todos) == ((), ITEMS)
