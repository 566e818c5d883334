"""The Think tool (tools spec 3.9)."""

from __future__ import annotations

import pytest

from kimi.domain.tools.tool import tool_ok
from kimi.infrastructure.tools.dialog.think import ThinkTool
from tests.support.tool_calls import call

pytestmark = pytest.mark.anyio


async def test_a_thought_is_logged() -> None:
    assert await call(ThinkTool(), {"thought": "hm"}) == tool_ok("", "Thought logged")


async def test_a_call_without_a_thought_is_an_error() -> None:
    result = await call(ThinkTool(), {})
    assert result.message.startswith("Error validating JSON arguments: 1 validation error for Params\nthought\n")
