"""A model of `anthropic`, the recording server that it talks to, and messages for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kimi.application.ports import ChatModel, ModelItem
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Message, ToolCall, user_message
from kimi.domain.content.parts import ContentPart
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.http.client import HttpClient, HttpLimits
from kimi.infrastructure.models.provider_types import open_model
from tests.support.dialects.anthropic import DIALECT
from tests.support.dialects.script import Answer
from tests.support.providers.provider_server import Json, ProviderServer, Reply, provider

HISTORY = [user_message("hello")]
TOOLS = [
    ToolSpec("Glob", "Finds files.", {"type": "object", "properties": {}}),
    ToolSpec("Shell", "Runs a command.", {"type": "object", "properties": {"command": {"type": "string"}}}),
]
MARK = {"cache_control": {"type": "ephemeral"}}
CAN = frozenset({"thinking", "image_in", "video_in"})
OK = DIALECT.reply(Answer(text="ok"))


class Client:
    """Opens models that talk to the server."""

    def __init__(self, server: ProviderServer, http: HttpClient) -> None:
        self.server = server
        self.http = http

    def model(self, **more: Any) -> ChatModel:
        given: dict[str, Any] = {"base_url": self.server.base_url, "api_key": "key-1", "model": "M", **more}
        given = {"max_context_size": 200_000, "capabilities": CAN, **given}
        settings = ModelSettings(provider_name="p", type="anthropic", **given)
        return open_model(settings, "session-1", self.http, lambda: "kimi-wire/2", {})

    async def body(self, history: Sequence[Message] = HISTORY, **more: Any) -> Json:
        """Send one request; return its body."""
        await ask(self.model(**more), history)
        return self.server.requests[-1].json


@asynccontextmanager
async def client(*replies: Reply) -> AsyncGenerator[Client]:
    """Open a client of a server that sends these replies; without any it answers "ok"."""
    async with provider(replies or [OK]) as server:
        http = HttpClient({}, HttpLimits(read_s=30))
        try:
            yield Client(server, http)
        finally:
            await http.close()


async def ask(
    model: ChatModel, history: Sequence[Message] = HISTORY, tools: Sequence[ToolSpec] = (), tokens: int = 0
) -> list[ModelItem]:
    """Return all items of the answer to one request."""
    async with model.stream("be kind", history, tools, tokens) as items:
        return [item async for item in items]


def assistant(*content: ContentPart, calls: tuple[ToolCall, ...] = ()) -> Message:
    """Return a message of the model."""
    return Message("assistant", content, calls)
