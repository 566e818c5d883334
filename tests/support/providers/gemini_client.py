"""Models of `gemini` and `vertexai` and the recording server that they talk to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kimi.application.ports import ChatModel, ModelItem
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Message, user_message
from kimi.domain.content.parts import ContentPart, ImagePart, MediaUrl
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.http.client import HttpClient, HttpLimits
from kimi.infrastructure.models.provider_types import open_model
from tests.support.dialects.gemini import DIALECT
from tests.support.dialects.script import Answer
from tests.support.providers.provider_server import Json, ProviderServer, Reply, provider

HISTORY = [user_message("hello")]
SCHEMA = {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"enum": ["a"]}}}
TOOL = ToolSpec("Shell", "Runs a command.", SCHEMA)
PIXEL = "iVBORw0KGgo="
OK = DIALECT.reply(Answer(text="ok"))


class Client:
    """Opens models that talk to the server."""

    def __init__(self, server: ProviderServer, http: HttpClient) -> None:
        self.server = server
        self.http = http
        self.root = server.base_url.removesuffix("/v1")

    def model(self, kind: str = "gemini", environ: dict[str, str] | None = None, **more: Any) -> ChatModel:
        given: dict[str, Any] = {"base_url": self.root, "api_key": "the-secret-key", "model": "gemini-2.5-pro", **more}
        settings = ModelSettings(provider_name="p", type=kind, **given)
        return open_model(settings, "session-1", self.http, lambda: "kimi-wire/2", environ or {})

    async def body(self, history: Sequence[Message] = HISTORY, **more: Any) -> Json:
        """Send one request; return its body."""
        await ask(self.model(**more), history)
        return self.server.requests[-1].json


@asynccontextmanager
async def client(*replies: Reply) -> AsyncGenerator[Client]:
    """Open a client of a server that sends these replies; without any it answers "ok"."""
    async with provider(replies or [OK]) as server:
        http = HttpClient({}, HttpLimits(read_s=5))
        try:
            yield Client(server, http)
        finally:
            await http.close()


async def ask(
    model: ChatModel, history: Sequence[Message] = HISTORY, tools: Sequence[ToolSpec] = (), system: str = ""
) -> list[ModelItem]:
    """Return all items of the answer to one request."""
    async with model.stream(system, history, tools, 0) as items:
        return [item async for item in items]


def result(call_id: str, *parts: ContentPart) -> Message:
    """Return the message that answers a call."""
    return Message("tool", parts, tool_call_id=call_id)


def image(url: str) -> ImagePart:
    """Return an image at this URL."""
    return ImagePart(image_url=MediaUrl(url))
