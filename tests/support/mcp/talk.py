"""A conversation over fakes whose tools come from a tool source."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from kimi.application.conversation.conversation import Conversation
from kimi.application.ports import SessionFiles, Tool, ToolSource
from kimi.application.settings.settings import McpServer, McpSettings
from kimi.application.toolset.mcp_tool import ServerToolDeps
from kimi.application.toolset.mcp_tools import ServerTools
from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import ToolResult
from kimi.domain.permissions.approval import Policy
from kimi.domain.tools.tool import ToolReturnValue
from kimi.infrastructure.json_schema import check_arguments
from tests.support.conversations import Run, conversation_with
from tests.support.fakes import FakeModel, Script


async def talking(
    source: ToolSource,
    scripts: Sequence[Script],
    *,
    settings: McpSettings | None = None,
    tools: Sequence[Tool] = (),
    policy: Policy | None = None,
    may_ask: Callable[[], bool] = lambda: True,
    spill_to: Path | None = None,
    files: SessionFiles | None = None,
) -> tuple[Conversation, FakeModel]:
    """Yield the conversation and its model. Servers that `settings` does not name have default settings."""
    settings = settings or McpSettings()
    named = {server.name for server in settings.servers}
    more = [McpServer(name=server.name, command="x") for server in source.servers() if server.name not in named]
    settings = settings.model_copy(update={"servers": (*settings.servers, *more)})

    async def spill(text: str) -> str | None:
        if spill_to is None:
            return None
        path = spill_to / "full.txt"
        path.write_text(text)
        return str(path)

    model = FakeModel(list(scripts))
    conversation = await conversation_with(model, tools, policy=policy or Policy(yolo=True), files=files)
    deps = ServerToolDeps(
        source, check_arguments, conversation.resources.new_id, may_ask, spill, settings.max_output_chars
    )
    conversation.toolset.use_servers(ServerTools(settings, deps))
    return conversation, model


def call(name: str, call_id: str = "c1", **arguments: object) -> ToolCall:
    """Return a call of the model."""
    return ToolCall(call_id, Function(name, json.dumps(arguments)))


def says(*calls: ToolCall) -> Script:
    """Return a script with these calls, or with one word of text without any."""
    return [*calls] or [TextPart("ok")]


def result(outcome: Run, call_id: str = "c1") -> ToolReturnValue:
    """Return the result of a call."""
    return next(e.return_value for e in outcome.events if isinstance(e, ToolResult) and e.tool_call_id == call_id)


def offered(model: FakeModel, index: int = -1) -> list[str]:
    """Return the names of the tools in a request to the model."""
    return [spec.name for spec in model.asked[index].tools]
