"""The wire driver: methods to use-cases, events to lines (wire spec 3). It decides nothing itself."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import anyio

from kimi.application.control.plan_mode import post_plan_mode, switch_plan_mode
from kimi.application.control.resolve_request import resolve_request
from kimi.application.control.steer import steer
from kimi.application.conversation.conversation import BUSY, IDLE, Conversation, RunningTurn
from kimi.application.conversation.event_channel import Delivery
from kimi.application.sessions.negotiate_initialize import ExternalToolOffer, Initialized
from kimi.domain.client import Client
from kimi.domain.content.parts import UserInput
from kimi.domain.errors import (
    AuthExpired,
    CapabilityMissing,
    ChatProviderError,
    ModelNotSet,
    StateError,
)
from kimi.domain.hook import HOOK_EVENTS, Hook, counted
from kimi.domain.turn import TurnStatus
from kimi.interfaces.rpc.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Call,
    Fault,
    Id,
    LineSplitter,
    Outbox,
    Reply,
    error_line,
    one_line,
    parse_message,
    result_line,
)
from kimi.interfaces.version import __version__
from kimi.interfaces.wire.answers import answer_for
from kimi.interfaces.wire.params import initialize_params, plan_mode_params, prompt_params
from kimi.interfaces.wire.translate import STRICT_VERSION, Translator

logger = logging.getLogger(__name__)

PROTOCOL_VERSION: Final = "1.10"
SERVER_NAME: Final = "Kimi Code CLI"
INVALID_STATE: Final = -32000
WIND_DOWN_S: Final = 1.5
"""How long the last events and responses may take; the process itself is bounded by two seconds."""


Read = Callable[[], Awaitable[bytes]]
"""The next block of input; empty at its end."""

Negotiate = Callable[[Client, Sequence[ExternalToolOffer]], Initialized]
"""The use-case negotiate-initialize with its ports bound."""

_CODES: tuple[tuple[type[Exception], int], ...] = (
    (StateError, INVALID_STATE),
    (ModelNotSet, -32001),
    (CapabilityMissing, -32002),
    (AuthExpired, -32004),
    (ChatProviderError, -32003),
)
"""From error to wire code; the first that matches counts, anything else is -32603."""


class WireServer:
    """One client, one conversation.

    Lines are taken strictly in order; each request is accepted or refused before the next line is looked at, and
    what takes time runs as a task. Everything that goes out goes through one outbox, in order.
    """

    def __init__(
        self,
        conversation: Conversation,
        negotiate: Negotiate,
        *,
        max_line_bytes: int,
        strict: bool | None,
        on_initialized: Callable[[], None],
    ) -> None:
        self._conversation = conversation
        self._negotiate = negotiate
        self._splitter = LineSplitter(max_line_bytes)
        self._strict_setting = strict
        self._strict = bool(strict)
        self._translator = Translator()
        self._on_initialized = on_initialized
        self._in_flight: set[Id] = set()
        self._answered = anyio.Event()
        self._reading = anyio.CancelScope()
        self._replaying: anyio.CancelScope | None = None

    def stop(self) -> None:
        """Stop reading, as at the end of the input. Idempotent."""
        self._reading.cancel()

    async def serve(self, read: Read, outbox: Outbox) -> None:
        """Serve until the end of the input or `stop`, then wind down within two seconds (wire spec 1.5)."""
        self._outbox = outbox
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(outbox.run)
            self._tasks.start_soon(self._pump)
            with self._reading:
                await self._read(read)
            await self._wind_down()
            self._tasks.cancel_scope.cancel()

    async def _read(self, read: Read) -> None:
        while block := await read():
            for line in self._splitter.feed(block):
                self._take(line)
        for line in self._splitter.end():
            self._take(line)

    async def _pump(self) -> None:
        """Events to lines. Waits while the client does not read: the channel fills and the turn pauses."""
        channel = self._conversation.channel
        try:
            while batch := await channel.receive():
                await self._outbox.room()
                self._send_events(batch)
        finally:
            channel.close()  # a turn waits for its events to be taken

    def _send_events(self, batch: list[Delivery]) -> None:
        lines = (self._translator.line(delivery, strict=self._strict) for delivery in batch)
        self._outbox.put(b"".join(line for line in lines if line is not None))

    async def _wind_down(self) -> None:
        """Settle what waits, cancel the turn, let its last events and its response out (W-26)."""
        self._conversation.waiting.close()
        if (scope := self._cancellable()) is not None:
            scope.cancel()
        with anyio.move_on_after(WIND_DOWN_S):
            while self._in_flight:
                await self._answered.wait()
            await self._outbox.flush()
        self._conversation.channel.close()

    # --- lines in ---------------------------------------------------------------------------------------------

    def _take(self, line: bytes | None) -> None:
        """Deal with one line; None is one that was too long."""
        if line is None:
            self._put(error_line(None, INVALID_REQUEST, "Message too large"))
            return
        match parse_message(line):
            case None:
                return
            case Fault(code, message):
                self._put(error_line(None, code, message))
            case Call() as call:
                self._take_call(call)
            case Reply() as reply:
                self._take_reply(reply)

    def _take_call(self, call: Call) -> None:
        if call.id is None:
            self._take_notification(call)
        elif call.id in self._in_flight:
            # An answer to the second would settle the first one in the client.
            logger.warning("request ignored: its id %r is still in flight", call.id)
        else:
            self._take_request(call, call.id)

    def _take_notification(self, call: Call) -> None:
        if call.method != "cancel":
            logger.info("notification ignored: %s", call.method)
        elif (scope := self._cancellable()) is not None:
            scope.cancel()

    def _take_request(self, call: Call, call_id: Id) -> None:
        methods: dict[str, Callable[[Id, Any], None]] = {
            "initialize": self._initialize,
            "prompt": self._prompt,
            "cancel": self._cancel,
            "replay": self._replay,
            "steer": self._steer,
            "set_plan_mode": self._set_plan_mode,
        }
        method = methods.get(call.method)
        if method is None:
            self._put(error_line(call_id, METHOD_NOT_FOUND, f"Unexpected method received: {call.method}"))
            return
        try:
            method(call_id, call.params)
        except ValueError as error:
            logger.info("wrong parameters for %s: %s", call.method, error)
            self._put(error_line(call_id, INVALID_PARAMS, f"Invalid parameters for method `{call.method}`"))
        except Exception as error:
            self._put(failure_line(call_id, error))

    def _take_reply(self, reply: Reply) -> None:
        request = self._conversation.waiting.find(reply.id) if isinstance(reply.id, str) else None
        if request is not None:
            resolve_request(self._conversation, request.id, answer_for(request, reply))
        elif not reply.has_result and reply.error is None:
            self._put(error_line(None, INVALID_REQUEST, "Invalid response"))
        else:
            logger.info("reply to a request that does not wait: %r", reply.id)

    # --- methods ----------------------------------------------------------------------------------------------

    def _initialize(self, call_id: Id, params: Any) -> None:
        asked = initialize_params(params)
        self._check_not_replaying()
        hooks = self._conversation.hooks
        subscribes = hooks.subscriptions if asked.hooks is None else asked.hooks  # the old readers know no hooks
        looks_strict = asked.looks_strict and not subscribes
        strict = looks_strict if self._strict_setting is None else self._strict_setting
        client = asked.client(self._conversation.client)
        if strict:  # it would never see the question, and so never answer it; nor what came after the version it knows
            client = replace(client, supports_question=False, supports_plan_mode=False, protocol_version=STRICT_VERSION)
        outcome = self._negotiate(client, asked.external_tools)
        self._strict = strict
        if asked.hooks is not None:
            if asked.hooks and self._strict_setting:
                logger.warning("hook subscriptions are ignored: the strict profile has no hook requests")
            hooks.subscribe(() if self._strict_setting else asked.hooks)
        self._put(result_line(call_id, initialize_result(outcome, hooks.all)))
        self._send_events([Delivery(request, None) for request in self._conversation.waiting.pending()])
        self._on_initialized()

    def _prompt(self, call_id: Id, params: Any) -> None:
        user_input = prompt_params(params)
        self._check_not_replaying()
        turn = self._conversation.begin_turn()
        self._in_flight.add(call_id)
        self._tasks.start_soon(self._run_prompt, call_id, turn, user_input)

    def _cancel(self, call_id: Id, params: Any) -> None:
        scope = self._cancellable()
        if scope is None:
            raise StateError(IDLE)
        scope.cancel()
        self._put(result_line(call_id, {}))

    def _cancellable(self) -> anyio.CancelScope | None:
        turn = self._conversation.turn
        return turn.scope if turn is not None else self._replaying

    def _steer(self, call_id: Id, params: Any) -> None:
        steer(self._conversation, prompt_params(params))
        self._put(result_line(call_id, {"status": "steered"}))

    def _set_plan_mode(self, call_id: Id, params: Any) -> None:
        enabled = plan_mode_params(params)
        switch_plan_mode(self._conversation, enabled)
        post_plan_mode(self._conversation)  # at once: the next line may say the opposite
        self._in_flight.add(call_id)
        self._tasks.start_soon(self._answer_set_plan_mode, call_id, enabled)

    async def _answer_set_plan_mode(self, call_id: Id, enabled: bool) -> None:
        """The announcement comes before the answer (wire spec 3.5)."""
        await self._conversation.channel.drained()
        self._answer(call_id, result_line(call_id, {"status": "ok", "plan_mode": enabled}))

    def _replay(self, call_id: Id, params: Any) -> None:
        self._check_not_replaying()
        if self._conversation.turn is not None:
            raise StateError(BUSY)
        self._replaying = anyio.CancelScope()
        self._in_flight.add(call_id)
        self._tasks.start_soon(self._run_replay, call_id, self._replaying)

    def _check_not_replaying(self) -> None:
        if self._replaying is not None:
            raise StateError(BUSY)

    async def _run_replay(self, call_id: Id, scope: anyio.CancelScope) -> None:
        from kimi.interfaces.wire.replay import Progress, send_replay

        progress = Progress()
        try:
            with scope:
                await send_replay(self._conversation.files, self._outbox, progress, strict=self._strict)
            line = result_line(call_id, progress.result(finished=not scope.cancelled_caught))
        except Exception:
            logger.exception("the replay failed")
            line = error_line(call_id, INTERNAL_ERROR, "Replay failed")
        self._replaying = None
        self._answer(call_id, line)

    async def _run_prompt(self, call_id: Id, turn: RunningTurn, user_input: UserInput) -> None:
        from kimi.application.turn.run_turn import run_turn  # start-up time

        try:
            line = result_line(call_id, prompt_result(await run_turn(self._conversation, turn, user_input)))
        except Exception as error:
            line = failure_line(call_id, error)
        self._answer(call_id, line)
        await self._conversation.files.sync()  # for a power failure; nobody has to wait for it

    def _answer(self, call_id: Id, line: bytes) -> None:
        """Answer a call that took its time."""
        self._in_flight.discard(call_id)
        self._put(line)
        self._answered.set()
        self._answered = anyio.Event()

    def _put(self, line: bytes) -> None:
        self._outbox.put(one_line(line))


def failure_line(call_id: Id, error: Exception) -> bytes:
    """The error response for what a method raised."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return error_line(call_id, code, str(error))
    logger.error("a method failed", exc_info=error)
    return error_line(call_id, INTERNAL_ERROR, f"{type(error).__name__}: {error}")


def prompt_result(status: TurnStatus) -> dict[str, Any]:
    """The result of `prompt`; `steps` only where the limit was reached."""
    result: dict[str, Any] = {"status": status.status}
    if status.steps is not None:
        result["steps"] = status.steps
    return result


def initialize_result(outcome: Initialized, hooks: Sequence[Hook]) -> dict[str, Any]:
    """The result of `initialize`: no nulls, and no member that the clients of old would not expect."""
    result: dict[str, Any] = {
        "protocol_version": PROTOCOL_VERSION,
        "server": {"name": SERVER_NAME, "version": __version__},
        "slash_commands": list(outcome.commands),
    }
    if outcome.accepted or outcome.rejected:
        result["external_tools"] = {"accepted": outcome.accepted, "rejected": outcome.rejected}
    result["hooks"] = {"supported_events": HOOK_EVENTS, "configured": counted(hooks)}
    result["capabilities"] = {"supports_question": True}
    return result
