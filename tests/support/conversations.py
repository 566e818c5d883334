"""A conversation over fakes, and a driver for it that collects events and answers requests."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import anyio

from kimi.application.control.resolve_request import resolve_request
from kimi.application.conversation.context import ConversationContext
from kimi.application.conversation.conversation import Conversation, ConversationResources
from kimi.application.conversation.event_stream import EventStream
from kimi.application.conversation.model_selection import ModelCatalog, ModelSelection
from kimi.application.conversation.permissions import Permissions
from kimi.application.conversation.running_turn import TurnSlot
from kimi.application.conversation.session import ConversationSession
from kimi.application.ports import SessionFiles, Tool
from kimi.application.toolset.toolset import Toolset
from kimi.application.turn.run_turn import run_turn
from kimi.domain.content.parts import UserInput
from kimi.domain.events.event import INTERNAL_TYPES, REQUEST_TYPES, Event
from kimi.domain.events.request import Answer, Request
from kimi.domain.permissions.approval import Policy
from kimi.domain.turn import TurnLimits, TurnStatus
from kimi.infrastructure.store.memory import MemoryStore
from tests.support.fakes import FakeModel

Reaction: TypeAlias = Callable[[Conversation, Event], Awaitable[None] | None]


async def memory_files() -> SessionFiles:
    """Return a new session in memory."""
    return await MemoryStore("/w").create("s1")


async def conversation_with(
    model: FakeModel | None,
    tools: Sequence[Tool] = (),
    *,
    policy: Policy | None = None,
    limits: TurnLimits | None = None,
    files: SessionFiles | None = None,
    models: ModelCatalog | None = None,
) -> Conversation:
    """Return a conversation whose ids are `id-1`, `id-2`, ... and whose clock does not advance."""
    numbers = itertools.count(1)
    by_id = {f"tests:{tool.spec.name}": tool for tool in tools}
    resources = ConversationResources(now=lambda: 1000.0, new_id=lambda: f"id-{next(numbers)}")
    session = ConversationSession(files or await memory_files())
    return Conversation(
        session=session,
        context=ConversationContext(session.files, lambda: "You are a test."),
        events=EventStream(session.files, resources.now),
        turns=TurnSlot(limits or TurnLimits(), resources.new_id),
        models=ModelSelection(model, (lambda: models) if models else None),
        toolset=Toolset(by_id.__getitem__, by_id),
        permissions=Permissions(policy or Policy(), session.files, session.state_lock),
        resources=resources,
    )


def with_resources(conversation: Conversation, **changes: Any) -> Conversation:
    """Return the same conversation, before its first use, with other `ConversationResources`."""
    return replace(conversation, resources=replace(conversation.resources, **changes))


@dataclass
class Run:
    """The outcome of a turn. `events` are those that clients see; only a reaction sees the internal ones."""

    events: list[Event] = field(default_factory=list[Event])
    status: TurnStatus | None = None
    error: Exception | None = None

    @property
    def names(self) -> list[str]:
        """The class names of the events."""
        return [type(event).__name__ for event in self.events]


async def run(
    conversation: Conversation,
    user_input: UserInput,
    *,
    answer: Callable[[Request], Answer | None] | None = None,
    react: Reaction | None = None,
) -> Run:
    """Run one turn to its end. `answer` answers requests (None leaves one open); `react` sees every event."""
    outcome = Run()

    async def drive() -> None:
        try:
            await take()
        except Exception:
            conversation.events.channel.close()  # else the turn would wait for its failed driver forever
            raise

    async def take() -> None:
        while batch := await conversation.events.channel.receive():
            for event, _ in batch:
                if not isinstance(event, INTERNAL_TYPES):
                    outcome.events.append(event)
                if react is not None and (pending := react(conversation, event)) is not None:
                    await pending
                if answer is not None and isinstance(event, REQUEST_TYPES):
                    given = answer(event)
                    if given is not None:
                        resolve_request(conversation, event.id, given)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive)
        turn = conversation.turns.begin()
        try:
            outcome.status = await run_turn(conversation, turn, user_input, random=lambda: 0.0)
        except Exception as error:
            outcome.error = error
        tasks.cancel_scope.cancel()
    return outcome
