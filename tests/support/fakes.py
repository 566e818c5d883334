"""The doubles of `ChatModel`, `Tool` and `RunHook`. They need no network, files or processes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio

from kimi.application.ports import ModelItem, PreparedCall, ResponseEnd, ToolCallContext
from kimi.domain.content.message import JsonObject, Message
from kimi.domain.events.request import HookAnswer
from kimi.domain.hook import ALLOW, CommandHook
from kimi.domain.permissions.approval import ActionKind, ProposedAction
from kimi.domain.tools.diff import ChangedText
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec, tool_ok

Pause: TypeAlias = Callable[[], Awaitable[None]]
Script: TypeAlias = Sequence["ModelItem | Exception | Pause"]


@dataclass
class Asked:
    """A snapshot of one request to the model."""

    system: str
    history: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    tokens_used: int


@dataclass
class FakeModel:
    """Plays one script per request: an exception in it is raised, a callable is awaited. Passes the contract suite."""

    scripts: list[Script]
    name: str = "fake"
    capabilities: frozenset[str] = frozenset()
    context_size: int = 100_000
    asked: list[Asked] = field(default_factory=list[Asked])

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem], None]:
        self.asked.append(Asked(system, tuple(history), tuple(tools), tokens_used))
        yield self._items(self.scripts.pop(0))

    async def _items(self, script: Script) -> AsyncIterator[ModelItem]:
        ended = False
        for item in script:
            if isinstance(item, Exception):
                raise item
            if callable(item):
                await item()
                continue
            ended = isinstance(item, ResponseEnd)
            yield item
        if not ended:
            yield ResponseEnd()


async def forever() -> None:
    """Sleep until cancelled."""
    await anyio.sleep_forever()


@dataclass
class FakeTool:
    """A tool that calls `run`. With an `action` it needs approval; `changed` is the file that its calls change,
    `subject` and `kind` are what rules match."""

    name: str
    run: Callable[[JsonObject, ToolCallContext], Awaitable[ToolReturnValue]] | None = None
    action: str | None = None
    read_only: bool = False
    exact_text: bool = False
    changed: ChangedText | None = None
    subject: str = ""
    kind: ActionKind = "other"
    ran: list[JsonObject] = field(default_factory=list[JsonObject])

    @property
    def spec(self) -> ToolSpec:
        """A spec with an open schema."""
        return ToolSpec(self.name, "A tool for tests.", {"type": "object"}, self.read_only, exact_text=self.exact_text)

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        async def run() -> ToolReturnValue:
            self.ran.append(arguments)
            return await self.run(arguments, context) if self.run else tool_ok("done")

        effect = (
            ProposedAction(self.action, f"Do {self.action}", kind=self.kind, subject=self.subject)
            if self.action
            else None
        )
        yield PreparedCall(run, effect, self.changed, self.subject)


@dataclass
class FakeHookRunner:
    """Returns the answer that is configured for a hook's command; passes the contract of `RunHook`."""

    verdicts: Mapping[str, HookAnswer] = field(default_factory=dict[str, HookAnswer])
    pause: Pause | None = None
    told: list[tuple[str, JsonObject]] = field(default_factory=list[tuple[str, JsonObject]])

    async def __call__(self, hook: CommandHook, payload: JsonObject) -> HookAnswer:
        self.told.append((hook.command, payload))
        if self.pause is not None:
            await self.pause()
        return self.verdicts.get(hook.command, ALLOW)
