"""Opens the models that the checks of `ChatModel` run on: over HTTP, or from a script."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import pytest

from kimi.application.ports import ChatModel, ModelItem, ResponseEnd
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Message, ToolCall, user_message
from kimi.domain.content.parts import TextPart
from kimi.domain.content.stream import MergedPart, PartMerger
from kimi.domain.errors import ChatProviderError, ModelError
from kimi.infrastructure.http.client import HttpClient, HttpLimits
from kimi.infrastructure.models.offline.scripted import make_scripted_model
from kimi.infrastructure.models.provider_types import open_model
from tests.support.dialects.script import Answer, Row
from tests.support.providers.provider_server import ProviderServer, Reply, dumps, provider

KEY = "sk-never-shown-0123"
WINDOW = 100_000
CAPABILITIES = frozenset({"thinking", "image_in"})
HISTORY = (user_message("hello"),)
TIMEOUT_S = 0.2
"""The read timeout in seconds where a check waits for it; elsewhere the timeout is long."""


@dataclass(frozen=True)
class Failure:
    """How the model fails instead of an answer: "connection", "timeout", or an HTTP status."""

    what: str


@dataclass
class Rig:
    """A model, and the server behind it if there is one."""

    model: ChatModel
    server: ProviderServer | None = None
    patience_s: float = 5
    """Seconds that a check waits for what must happen at once."""

    @property
    def provider(self) -> ProviderServer:
        """The server of the model. The model must have one."""
        assert self.server is not None
        return self.server


class Stage(Protocol):
    """Opens models."""

    def say(self, *turns: Answer | Failure) -> AbstractAsyncContextManager[Rig]:
        """Open a model that answers or fails like this, turn after turn."""
        ...


@dataclass(frozen=True)
class HttpStage:
    """Opens models of a row, which talk to a server on the loopback interface; `wrap` may break them."""

    row: Row
    wrap: Callable[[ChatModel], ChatModel] = lambda model: model
    patience_s: float = 5

    def say(self, *turns: Answer | Failure) -> AbstractAsyncContextManager[Rig]:
        """See `Stage`."""
        patience = TIMEOUT_S if Failure("timeout") in turns else 30
        return self.serve(*map(self.reply, turns), read_s=patience)

    def reply(self, turn: Answer | Failure) -> Reply:
        """Return the reply that the server sends."""
        if isinstance(turn, Answer):
            return self.row.dialect.reply(turn)
        if turn.what == "connection":
            return self.row.dialect.cut(Answer(text="lost"), fault="reset")
        return Reply(fault="mute") if turn.what == "timeout" else self.error(int(turn.what), "out of luck")

    def error(self, status: int, text: str, **headers: str) -> Reply:
        """Return an error status with a body of the dialect; underscores in header names become dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Reply(status=status, body=dumps(self.row.dialect.error(status, text)), headers=named)

    @asynccontextmanager
    async def serve(
        self, *replies: Reply, read_s: float = 30, environ: Mapping[str, str] | None = None, **more: Any
    ) -> AsyncGenerator[Rig]:
        """Open a model whose server sends these replies; `more` are settings."""
        async with provider(replies) as server:
            http = HttpClient(environ or {}, HttpLimits(read_s=read_s, connect_s=30))
            try:
                yield Rig(self.wrap(self._model(http, {"base_url": server.base_url, **more})), server, self.patience_s)
            finally:
                await http.close()

    def _model(self, http: HttpClient, more: dict[str, Any]) -> ChatModel:
        given: dict[str, Any] = {
            "api_key": KEY,
            "max_context_size": WINDOW,
            "capabilities": CAPABILITIES,
            **self.row.settings,
            **more,
        }
        settings = ModelSettings(provider_name="p", type=self.row.type, model="m", **given)
        return open_model(settings, "session-1", http, lambda: "kimi-wire/2", {})


@dataclass(frozen=True)
class ScriptStage:
    """Opens scripted models."""

    @asynccontextmanager
    async def say(self, *turns: Answer | Failure) -> AsyncGenerator[Rig]:
        """See `Stage`."""
        yield Rig(make_scripted_model([_script(turn) for turn in turns], False, CAPABILITIES, WINDOW))


def _script(turn: Answer | Failure) -> str:
    if isinstance(turn, Failure):
        return f"text: lost\nerror: {turn.what}"
    lines = ["id: m1"]
    if turn.think is not None:
        lines.append(f"think: {turn.think}")
    if turn.text is not None:
        lines.append(f"text: {turn.text}")
    lines += ["tool_call: " + json.dumps({"id": i, "name": n, "arguments": a}) for i, n, a in turn.calls]
    lines += ["usage: input_other=6 input_cache_read=4 output=5"] if turn.usage else []
    return "\n".join(lines)


# --- asking -----------------------------------------------------------------------------------------------------


async def ask(
    model: ChatModel, history: Sequence[Message] = HISTORY, *, seen: list[ModelItem] | None = None
) -> list[ModelItem]:
    """Return all items of one answer; those before a failure are in `seen`."""
    items: list[ModelItem] = [] if seen is None else seen
    with anyio.fail_after(20):
        async with model.stream("system", history, [], 0) as stream:
            try:
                async for item in stream:
                    items.append(item)
            except ModelError:
                raise
            except Exception as error:
                raise AssertionError("no error of the model branch") from error
    return items


def merged(items: Sequence[ModelItem]) -> list[MergedPart]:
    """Return the merged parts."""
    merger = PartMerger()
    parts = [part for item in items if not isinstance(item, ResponseEnd) for part in merger.push(item)]
    return parts + merger.flush()


def end_of(items: Sequence[ModelItem]) -> ResponseEnd:
    """Return the last item, which must be the end."""
    end = items[-1]
    assert isinstance(end, ResponseEnd)
    return end


def calls_of(items: Sequence[ModelItem]) -> list[tuple[str, object]]:
    """Return name and arguments of each call."""
    calls = [part for part in merged(items) if isinstance(part, ToolCall)]
    return [(call.function.name, json.loads(call.function.arguments or "{}")) for call in calls]


def exchange(items: Sequence[ModelItem]) -> list[Message]:
    """Return the message that the items form, and a result for each of its calls."""
    parts = merged(items)
    calls = tuple(part for part in parts if isinstance(part, ToolCall))
    content = tuple(part for part in parts if not isinstance(part, ToolCall))
    results = [Message("tool", (TextPart("done"),), tool_call_id=call.id) for call in calls]
    return [Message("assistant", content, calls), *results]


async def failure(rig: Rig, seen: list[ModelItem] | None = None) -> ChatProviderError:
    """Return the error of the next answer."""
    with pytest.raises(ModelError) as raised:
        await ask(rig.model, seen=seen)
    assert isinstance(raised.value, ChatProviderError)
    return raised.value


async def gone(rig: Rig) -> None:
    """Assert that the server notices at once that the client closed the connection."""
    with anyio.fail_after(rig.patience_s):
        await rig.provider.requests[0].gone.wait()
