"""Call a single tool as `call_tools` does, without a conversation around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kimi.application.ports import Tool, ToolCallContext
from kimi.domain.events.event import Event
from kimi.domain.events.request import Answer, Request
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.tools.tool import ToolReturnValue


async def _emit(event: Event) -> None:
    raise AssertionError(f"no event is expected: {event}")


async def _ask(request: Request) -> Answer:
    raise AssertionError(f"no question is expected: {request}")


def call_context(name: str) -> ToolCallContext:
    """Return the context of a call that emits no events and sends no requests."""
    return ToolCallContext("session", "turn", 1, "call", name, None, _emit, _ask)


async def call(tool: Tool, arguments: Mapping[str, Any]) -> ToolReturnValue:
    """Prepare and run one call as if it were approved."""
    async with tool.prepare(arguments, call_context(tool.spec.name)) as prepared:
        return await prepared.run()


async def effect_of(tool: Tool, arguments: Mapping[str, Any]) -> ProposedAction | None:
    """Return what the call would do, without running it."""
    async with tool.prepare(arguments, call_context(tool.spec.name)) as prepared:
        return prepared.proposed_action
