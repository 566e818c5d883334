"""The SetTodoList tool (tools spec 3.8)."""

from __future__ import annotations

from typing import Any

import pytest

from kimi.domain.tools.tool import TodoBlock, TodoItem, ToolReturnValue
from kimi.infrastructure.tools.dialog.set_todo_list import SetTodoListTool
from tests.support.tool_calls import call, effect_of

pytestmark = pytest.mark.anyio


class Kept:
    """A list that somebody keeps."""

    def __init__(self) -> None:
        self.items: tuple[TodoItem, ...] = ()

    def write(self, items: tuple[TodoItem, ...]) -> None:
        self.items = items

    def tool(self) -> SetTodoListTool:
        return SetTodoListTool(lambda: self.items, self.write)


ENTRIES = [{"title": "  find it ", "status": "done"}, {"title": "fix it", "status": "in_progress"}]
ITEMS = (TodoItem("find it", "done"), TodoItem("fix it", "in_progress"))


async def test_a_new_list_replaces_the_old_one_and_is_shown() -> None:
    kept = Kept()
    kept.items = (TodoItem("old"),)
    assert await call(kept.tool(), {"todos": ENTRIES}) == ToolReturnValue(
        False, "Todo list updated", "Todo list updated", (TodoBlock(ITEMS),)
    )
    assert kept.items == ITEMS


@pytest.mark.parametrize("arguments", [{}, {"todos": None}])
async def test_call_without_a_list_returns_the_current_one(arguments: dict[str, Any]) -> None:
    kept = Kept()
    assert await call(kept.tool(), arguments) == ToolReturnValue(False, "Todo list is empty.", "")
    kept.items = ITEMS
    text = "Current todo list:\n- [done] find it\n- [in_progress] fix it"
    assert await call(kept.tool(), arguments) == ToolReturnValue(False, text, "")
    assert kept.items == ITEMS


async def test_empty_list_clears_the_todos() -> None:
    kept = Kept()
    kept.items = ITEMS
    result = await call(kept.tool(), {"todos": []})
    assert result.display == (TodoBlock(()),)
    assert kept.items == ()


async def test_long_titles_are_cut() -> None:
    kept = Kept()
    await call(kept.tool(), {"todos": [{"title": "x" * 600, "status": "pending"}]})
    assert kept.items == (TodoItem("x" * 500),)


@pytest.mark.parametrize(
    "todos",
    [
        [{"title": " ", "status": "done"}],
        [{"title": "a", "status": "doing"}],
        [{"title": "a"}],
        [{"title": "a", "status": "done"}] * 201,
    ],
)
async def test_invalid_list_changes_nothing(todos: list[dict[str, str]]) -> None:
    kept = Kept()
    kept.items = ITEMS
    result = await call(kept.tool(), {"todos": todos})
    assert result.is_error
    assert result.message.startswith("Error validating JSON arguments: 1 validation error for Params\n")
    assert kept.items == ITEMS


async def test_todo_list_needs_no_approval() -> None:
    assert await effect_of(Kept().tool(), {"todos": []}) is None


def test_schema_states_titles_and_limits() -> None:
    spec = Kept().tool().spec
    [todos, _] = spec.parameters["properties"]["todos"]["anyOf"]
    assert todos["maxItems"] == 200
    assert todos["items"]["properties"]["title"]["minLength"] == 1
    assert todos["items"]["required"] == ["title", "status"]
