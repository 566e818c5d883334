"""A model of chat completions and the recording server that it talks to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kimi.application.ports import ChatModel, ModelItem
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Message, user_message
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.http.client import HttpClient, HttpLimits
from kimi.infrastructure.models.provider_types import open_model
from tests.support.providers.provider_server import ProviderServer, Reply, provider, text_reply

HISTORY = [user_message("hello")]


class Client:
    """Opens models that talk to the server."""

    def __init__(self, server: ProviderServer, http: HttpClient) -> None:
        self.server = server
        self.http = http

    def model(self, kind: str = "kimi", agent: str = "kimi-wire/2.0.0", **more: Any) -> ChatModel:
        given: dict[str, Any] = {"base_url": self.server.base_url, "max_context_size": 200_000, **more}
        settings = ModelSettings(provider_name="p", type=kind, model="M", **given)
        return open_model(settings, "session-1", self.http, lambda: agent, {"KIMI_SHARE_DIR": "/nowhere"})

    async def body(self, kind: str = "kimi", history: Sequence[Message] = HISTORY, **more: Any) -> dict[str, Any]:
        """Send one request; return its body."""
        await ask(self.model(kind, **more), history)
        return self.server.requests[-1].json


@asynccontextmanager
async def client(*replies: Reply, read_s: float = 5) -> AsyncGenerator[Client]:
    """Open a client of a server that sends these replies; without any it answers "ok"."""
    async with provider(replies or [text_reply("ok")]) as server:
        http = HttpClient({}, HttpLimits(read_s=read_s))
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
