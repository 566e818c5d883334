"""The Think tool (tools spec 3.9)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Annotated

from pydantic import BaseModel, Field

from kimi.application.ports import PreparedCall, ToolCallContext
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import ToolSpec, tool_ok
from kimi.infrastructure.tools.params import build_schema, prepare_call


class ThinkParams(BaseModel):
    """Arguments of Think."""

    thought: Annotated[str, Field(description="The thought to note down.")]


class ThinkTool:
    """Notes down a thought; implements the port `Tool`."""

    @property
    def spec(self) -> ToolSpec:
        """See `Tool`."""
        return think_spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`. The arguments of the call keep the thought."""
        yield prepare_call(ThinkParams, arguments, lambda params: tool_ok("", "Thought logged"))


@lru_cache(maxsize=1)
def think_spec() -> ToolSpec:
    """Return the spec of Think."""
    return ToolSpec(
        name="Think",
        description="""\
Note down a thought before you go on, for instance to weigh possibilities or to sum up what you have found.

It reads nothing and changes nothing; the thought merely stays in the conversation. Do not use it for what the user \
should read: say that in your answer.
""",
        parameters=build_schema(ThinkParams),
        read_only=True,
        kind="think",
        key_argument="thought",
    )
