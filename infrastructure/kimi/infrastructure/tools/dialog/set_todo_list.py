"""The SetTodoList tool (tools spec 3.8)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from kimi.application.ports import PreparedCall, ToolCallContext
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import TodoBlock, TodoItem, TodoStatus, ToolReturnValue, ToolSpec, tool_ok
from kimi.infrastructure.tools.params import build_schema, prepare_call

MAX_ITEMS = 200
MAX_TITLE_CHARS = 500

TodoTitle = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Todo(BaseModel):
    """One entry of the list."""

    title: Annotated[TodoTitle, Field(description="What is to be done.")]
    status: Annotated[TodoStatus, Field(description="How far it is.")]


class SetTodoListParams(BaseModel):
    """Arguments of SetTodoList."""

    todos: Annotated[
        list[Todo] | None,
        Field(description="The whole new list. Leave it out to see the current one; an empty list clears it."),
        Field(max_length=MAX_ITEMS),
    ] = None


class SetTodoListTool:
    """Shows and replaces the todo list; implements the port `Tool`.

    `read` returns the list of this agent, `write` stores a new one.
    """

    def __init__(self, read: Callable[[], Sequence[TodoItem]], write: Callable[[tuple[TodoItem, ...]], None]) -> None:
        self._read = read
        self._write = write

    @property
    def spec(self) -> ToolSpec:
        """See `Tool`."""
        return todo_spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`. Needs no approval: the list belongs to the agent."""
        yield prepare_call(SetTodoListParams, arguments, lambda params: PreparedCall(partial(self._run, params)))

    async def _run(self, params: SetTodoListParams) -> ToolReturnValue:
        return self._show_list() if params.todos is None else self._replace_list(params.todos)

    def _show_list(self) -> ToolReturnValue:
        items = self._read()
        if not items:
            return tool_ok("Todo list is empty.")
        return tool_ok("\n".join(["Current todo list:", *(f"- [{item.status}] {item.title}" for item in items)]))

    def _replace_list(self, todos: list[Todo]) -> ToolReturnValue:
        items = tuple(TodoItem(todo.title[:MAX_TITLE_CHARS], todo.status) for todo in todos)
        self._write(items)
        return tool_ok("Todo list updated", "Todo list updated", display=(TodoBlock(items),))


@lru_cache(maxsize=1)
def todo_spec() -> ToolSpec:
    """Return the spec of SetTodoList."""
    return ToolSpec(
        name="SetTodoList",
        description=f"""\
Keep a list of what is to be done, which the user sees too.

Use it for work of several steps: write the list when the plan is clear, set an entry to `in_progress` before you \
begin with it and to `done` as soon as it is. Do not use it for a single step or for a question.

- `todos` replaces the whole list: always send every entry, at most {MAX_ITEMS}.
- An empty list clears it. Without `todos` the current list is shown and nothing changes.
- Titles are trimmed and cut at {MAX_TITLE_CHARS} characters. The status is `pending`, `in_progress` or `done`.
""",
        parameters=build_schema(SetTodoListParams),
        kind="think",
    )
