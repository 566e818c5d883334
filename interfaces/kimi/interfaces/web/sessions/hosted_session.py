"""A session that is open in this process, with all its clients: one stream of messages, one turn (wire spec 13)."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from kimi.application.codec.envelope import encode_json
from kimi.application.control.session_title import session_title
from kimi.application.control.switch_model import current_choice
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.event_channel import Delivery
from kimi.application.conversation.running_turn import BUSY, RunningTurn
from kimi.application.sessions.negotiate_initialize import ExternalToolOffer, InitializeOutcome, set_client
from kimi.application.sessions.replay_events import ReplayedEvent, replay
from kimi.domain.client import Client
from kimi.domain.content.parts import UserInput
from kimi.domain.errors import StateError
from kimi.domain.events.event import REQUEST_TYPES, StatusUpdate
from kimi.domain.hook import HookSubscription
from kimi.interfaces.rpc.messages import encode_notification
from kimi.interfaces.rpc.wire_calls import Negotiate, build_prompt_result, describe_failure
from kimi.interfaces.rpc.wire_events import WireEventEncoder, encode_delivery
from kimi.interfaces.web.sessions.event_log import EventLog

logger = logging.getLogger(__name__)

SESSION_ENDED: Final = 1011
"""The code with which clients are closed whose session has failed; they may come back."""

ENDING: Final = "The server is ending; send the prompt again when it is back."

START: Final = "start"
"""The position before everything that is recorded."""


@dataclass(eq=False)
class Member:
    """A client of a session as the session sees it: what it can do, how it is woken for messages, how it is closed."""

    wake: Callable[[], None]
    close: Callable[[int], None]
    name: str | None = None
    """What the client calls itself in each of its connections, if it does."""
    came_at: float = 0.0
    """When the connection came, on the clock of the event loop."""
    client: Client = field(default_factory=lambda: Client(wants_model_command=True))
    hooks: tuple[HookSubscription, ...] = ()


@dataclass
class _Barrier:
    """A place in the order of events that the log has not reached; `position` is set when it has."""

    delivery: int
    reached: anyio.Event = field(default_factory=anyio.Event)
    position: int = 0


@dataclass
class Opening:
    """How the stream of a client begins: what it gets first, and where in the log it goes on."""

    mode: str
    past: Iterator[ReplayedEvent]
    _barrier: _Barrier

    async def wait_for_position(self) -> int:
        """Wait until the log has what was announced before the opening; return the position that follows."""
        await self._barrier.reached.wait()
        return self._barrier.position


class HostedSession:
    """One conversation and its clients. A turn belongs to the session: it goes on when its client leaves."""

    def __init__(self, conversation: Conversation, work_dir: str, negotiate: Negotiate, tasks: TaskGroup) -> None:
        self.conversation = conversation
        self.work_dir = work_dir
        self._negotiate = negotiate
        self._tasks = tasks
        self.log = EventLog(secrets.token_hex(4))
        self._members: dict[Member, None] = {}
        self._encoder = WireEventEncoder()
        self._delivered = 0
        """How many events have been taken from the channel."""
        self._barriers: list[_Barrier] = []
        self._announced: dict[str, int] = {}
        """The positions of the requests that clients have been sent and that wait for an answer, by id."""
        self._shown_choice = self._read_choice()
        self._turn_ended = anyio.Event()
        self._turn_ended.set()
        self.last_used = anyio.current_time()

    # --- what it is doing -----------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Whether it is idle, running a turn, or waiting for an answer of the user."""
        if self.conversation.events.pending_requests.list_requests():
            return "waiting"
        return "idle" if self.conversation.turn is None else "running"

    @property
    def is_idle(self) -> bool:
        """Whether it can be closed without a loss: no client, no turn, no request, no background task."""
        tasks = self.conversation.resources.background.tasks
        is_working = tasks is not None and any(task.is_active for task in tasks.list_tasks())
        return not self._members and self.state == "idle" and not is_working

    # --- events to clients ----------------------------------------------------------------------------------------

    async def forward_events(self) -> None:
        """Put events into the log until the channel is closed. No client can hold this up."""
        channel = self.conversation.events.channel
        try:
            while batch := await channel.receive():
                # Without an await up to the next `receive`: then `channel.unfinished` is what is not in the log yet.
                self._publish_batch(batch)
        finally:
            channel.close()

    def _publish_batch(self, batch: Sequence[Delivery]) -> None:
        for delivery in batch:
            self._delivered += 1
            self._publish_event(delivery)
            for barrier in [one for one in self._barriers if one.delivery <= self._delivered]:
                self._barriers.remove(barrier)
                barrier.position = self.log.next
                barrier.reached.set()
        self._publish_settled()
        self._wake_members()

    def _publish_event(self, delivery: Delivery) -> None:
        line = self._encoder.encode(delivery, strict=False)
        if line is None:
            return
        with_usage = None
        if isinstance(delivery.event, StatusUpdate):
            with_usage = encode_delivery(delivery, with_usage=True)
        position = self.log.append(line[:-1], None if with_usage is None else with_usage[:-1])
        if isinstance(delivery.event, REQUEST_TYPES):
            self._announced[delivery.event.id] = position

    def _publish_settled(self) -> None:
        """Tell the clients which of the requests that they got need no answer any more."""
        pending = self.conversation.events.pending_requests
        for request_id in [one for one in self._announced if pending.find(one) is None]:
            del self._announced[request_id]
            self.log.append(encode_connection("RequestSettled", {"request_id": request_id}))

    def tell_all(self, kind: str, payload: object) -> None:
        """Send a message about the session itself to all clients."""
        self.log.append(encode_connection(kind, payload))
        self._wake_members()

    def announce_settled(self) -> None:
        """Tell the clients at once of requests that were settled without an event."""
        self._publish_settled()
        self._wake_members()

    def _wake_members(self) -> None:
        for member in self._members:
            member.wake()

    # --- clients come and go --------------------------------------------------------------------------------------

    @asynccontextmanager
    async def join(self, member: Member) -> AsyncGenerator[None, None]:
        """Count a client in while the context is open."""
        self._members[member] = None
        try:
            yield
        finally:
            del self._members[member]
            self._subscribe_hooks()  # nobody would answer those of this client
            self.last_used = anyio.current_time()

    def open_stream(self, after: str | None) -> Opening:
        """Return how the stream of a client begins that has seen everything up to `after`. Raises StoreFailed."""
        position = None if after in (None, START) else self.log.find_next(after or "")
        if position is not None:
            return Opening("resumed", iter(()), _reached_barrier(position))
        channel = self.conversation.events.channel
        barrier = _Barrier(self._delivered + channel.unfinished)
        if not channel.unfinished:
            barrier = _reached_barrier(self.log.next)
        else:
            self._barriers.append(barrier)
        if after is None:
            return Opening("live", iter(()), barrier)
        # After this all that was emitted is on disk, whether it is in the log or still waits in the channel. Nothing is
        # awaited in between, so that each event is either in the record or comes after the barrier.
        self.conversation.events.flush()
        return Opening("replayed", replay(self.conversation.files), barrier)

    def list_waiting(self, before: int) -> list[bytes]:
        """Return the requests that wait for an answer and that have a position before this one."""
        pending = self.conversation.events.pending_requests
        found = [pending.find(one) for one, position in self._announced.items() if position < before]
        lines = [encode_delivery(Delivery(request, None)) for request in found if request is not None]
        return [line[:-1] for line in lines if line is not None]

    # --- what clients ask for -------------------------------------------------------------------------------------

    def introduce(self, member: Member, client: Client, offers: Sequence[ExternalToolOffer]) -> InitializeOutcome:
        """Apply the handshake of a client. During a turn its abilities count from the next one on.

        Raises StateError for tools that are offered during a turn.
        """
        if self.conversation.turn is not None and offers:
            raise StateError(BUSY)
        member.client = client
        if self.conversation.turn is None:
            return self._negotiate(self._merge_abilities(client), offers)
        from kimi.application.commands.registry import list_agent_commands

        commands = list_agent_commands(self.conversation) if client.wants_commands else ()
        return InitializeOutcome(commands, (), ())

    def subscribe_hooks(self, member: Member, hooks: tuple[HookSubscription, ...]) -> None:
        """Replace the hooks that a client subscribed to."""
        member.hooks = hooks
        self._subscribe_hooks()

    def _subscribe_hooks(self) -> None:
        self.conversation.resources.hooks.subscribe(tuple(hook for one in self._members for hook in one.hooks))

    def _merge_abilities(self, client: Client) -> Client:
        """Return this client with what any of the clients can do: any of them may answer."""
        clients = [one.client for one in self._members]
        return replace(
            client,
            supports_question=any(one.supports_question for one in clients),
            supports_plan_mode=any(one.supports_plan_mode for one in clients),
            supports_usage=any(one.supports_usage for one in clients),
        )

    def begin_prompt(self, member: Member, user_input: UserInput, on_end: Callable[[dict[str, Any]], None]) -> None:
        """Begin a turn; `on_end` is called with its outcome: members `status`, or `error`. Raises StateError."""
        if self.conversation.events.pending_requests.is_closed:
            raise StateError(ENDING)
        if self.conversation.turn is None:
            # Whether a prompt may be a command is a matter of the client that sends it.
            set_client(self.conversation, self._merge_abilities(member.client))
        turn = self.conversation.turns.begin()
        self._turn_ended = anyio.Event()
        self._tasks.start_soon(self._run_prompt, turn, user_input, on_end)

    async def _run_prompt(
        self, turn: RunningTurn, user_input: UserInput, on_end: Callable[[dict[str, Any]], None]
    ) -> None:
        from kimi.application.turn.run_turn import run_turn

        outcome: dict[str, Any]
        try:
            outcome = {**build_prompt_result(await run_turn(self.conversation, turn, user_input))}
        except Exception as error:
            code, message = describe_failure(error)
            outcome = {"error": {"code": code, "message": message}}
        self.last_used = anyio.current_time()
        self._publish_settled()
        self.tell_all("PromptFinished", outcome)
        on_end(outcome)
        self.announce_change()
        self._turn_ended.set()
        await self.conversation.files.sync()

    async def wait_for_turn(self) -> None:
        """Wait until no turn runs and the clients have been told of its end."""
        await self._turn_ended.wait()

    def set_plan_mode(self, enabled: bool, on_told: Callable[[], None]) -> None:
        """Switch plan mode; `on_told` is called when the event that announces it is in the log. Raises StateError."""
        from kimi.application.control.plan_mode import emit_plan_mode_nowait, switch_plan_mode

        switch_plan_mode(self.conversation, enabled)
        emit_plan_mode_nowait(self.conversation)  # at once: the next message may switch it back
        self._tasks.start_soon(self._report_when_told, on_told)

    async def _report_when_told(self, on_told: Callable[[], None]) -> None:
        await self.conversation.events.channel.join()
        on_told()
        self.announce_change()

    def announce_change(self, *, always: bool = False) -> None:
        """Tell the clients that title, model or modes are others than before, if they are."""
        choice = self._read_choice()
        if always or choice != self._shown_choice:
            self._shown_choice = choice
            self.tell_all("SessionChanged", {})

    def _read_choice(self) -> object:
        conversation = self.conversation
        model = conversation.models.choice and current_choice(conversation)
        return session_title(conversation), model, conversation.policy

    def keep_latest(self, newcomer: Member, code: int) -> None:
        """Close all connections of one client but the last, also where an earlier one was opened later."""
        if newcomer.name is not None:
            connections = [one for one in (*self._members, newcomer) if one.name == newcomer.name]
            latest = max(connections, key=lambda one: one.came_at)
            for member in connections:
                if member is not latest:
                    member.close(code)

    def close_clients(self, code: int) -> None:
        """Close the connections of all clients with this code."""
        for member in list(self._members):
            member.close(code)

    def stop(self) -> None:
        """Refuse what waits and cancel the turn, because the server ends."""
        self.conversation.events.pending_requests.close()
        if (turn := self.conversation.turn) is not None:
            turn.scope.cancel()


def encode_connection(kind: str, payload: object) -> bytes:
    """Return a message about the connection or the session itself."""
    return encode_notification(b"connection", encode_json({"type": kind, "payload": payload}))


def _reached_barrier(position: int) -> _Barrier:
    barrier = _Barrier(0, position=position)
    barrier.reached.set()
    return barrier


@asynccontextmanager
async def host_session(
    conversation: Conversation, work_dir: str, negotiate: Negotiate
) -> AsyncGenerator[HostedSession, None]:
    """Serve a conversation to any number of clients while the context is open."""
    async with anyio.create_task_group() as tasks:
        session = HostedSession(conversation, work_dir, negotiate, tasks)
        tasks.start_soon(session.forward_events)
        try:
            yield session
        finally:
            conversation.events.pending_requests.close()
            conversation.events.channel.close()
            session.close_clients(SESSION_ENDED)  # they would wait for messages that cannot come any more
            tasks.cancel_scope.cancel()
