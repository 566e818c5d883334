"""The table of slash commands: every row leads to a command (runtime spec 7.2)."""

from __future__ import annotations

import inspect

import pytest

from kimi.application.commands.registry import COMMANDS, MODEL_COMMAND, CommandRow, find_command, load_command
from tests.support.conversations import conversation_with

ROWS = (*COMMANDS, MODEL_COMMAND)


@pytest.mark.parametrize("row", ROWS, ids=[row.info.name for row in ROWS])
def test_each_row_leads_to_a_command(row: CommandRow) -> None:
    run = load_command(row)

    assert inspect.iscoroutinefunction(run)
    assert len(inspect.signature(run).parameters) == 2


@pytest.mark.anyio
async def test_command_is_found_by_name_and_alias_only_where_it_is_wanted() -> None:
    conversation = await conversation_with(None)

    assert find_command(conversation, "reset") is find_command(conversation, "clear") is not None
    assert find_command(conversation, "model") is None
    assert find_command(conversation, "clea") is None
