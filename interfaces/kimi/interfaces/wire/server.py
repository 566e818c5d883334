"""The wire driver: methods to use-cases, events to lines (wire spec 3). It decides nothing itself."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import anyio

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.event_channel import Delivery
from kimi.application.conversation.running_turn import BUSY, IDLE, RunningTurn
from kimi.application.sessions.negotiate_initialize import ExternalToolOffer, InitializeOutcome
from kimi.domain.client import Client
from kimi.domain.content.parts import UserInput
from kimi.domain.errors import (
    AuthExpired,
    CapabilityMissing,
    ChatProviderError,
    ModelNotSet,
    StateError,
)
from kimi.domain.hook import HOOK_EVENTS, Hook, count_hooks_by_event
from kimi.domain.turn import TurnStatus
from kimi.interfaces.rpc.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    LineSplitter,
    Outbox,
    RpcCall,
    RpcFault,
    RpcId,
    RpcReply,
    encode_error,
    encode_result,
    frame_message,
    parse_message,
)
from kimi.interfaces.version import __version__
from kimi.interfaces.wire.event_encoder import STRICT_VERSION, WireEventEncoder
from kimi.interfaces.wire.params import decode_initialize_params, decode_plan_mode_params, decode_prompt_params

logger = logging.getLogger(__name__)

PROTOCOL_VERSION: Final = "1.10"
SERVER_NAME: Final = "Kimi Code CLI"
INVALID_STATE: Final = -32000
WIND_DOWN_TIMEOUT_S: Final = 1.5
"""How long the last events and responses may take; the process itself is bounded by two seconds."""


ReadBlock = Callable[[], Awaitable[bytes]]
"""The next block of input; empty at its end."""

Negotiate = Callable[[Client, Sequence[ExternalToolOffer]], InitializeOutcome]
"""The use-case negotiate-initialize with its ports bound."""

_ERROR_CODES: tuple[tuple[type[Exception], int], ...] = (
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
        self._encoder = WireEventEncoder()
        self._on_initialized = on_initialized
        self._in_flight: set[RpcId] = set()
        self._request_answered = anyio.Event()
        self._read_scope = anyio.CancelScope()
        self._replay_scope: anyio.CancelScope | None = None

    def stop(self) -> None:
        """Stop reading, as at the end of the input. Idempotent."""
        self._read_scope.cancel()

    async def serve(self, read_block: ReadBlock, outbox: Outbox) -> None:
        """Serve until the end of the input or `stop`, then wind down within two seconds (wire spec 1.5)."""
        self._outbox = outbox
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(outbox.run)
            self._tasks.start_soon(self._forward_events)
            with self._read_scope:
                await self._read_lines(read_block)
            await self._wind_down()
            self._tasks.cancel_scope.cancel()

    async def _read_lines(self, read_block: ReadBlock) -> None:
        while block := await read_block():
            for line in self._splitter.feed(block):
                self._handle_line(line)
        for line in self._splitter.end():
            self._handle_line(line)

    async def _forward_events(self) -> None:
        """Events to lines. Waits while the client does not read: the channel fills and the turn pauses."""
        channel = self._conversation.events.channel
        try:
            while batch := await channel.receive():
                await self._outbox.wait_for_capacity()
                self._send_events(batch)
        finally:
            channel.close()  # a turn waits for its events to be taken

    def _send_events(self, batch: list[Delivery]) -> None:
        lines = (self._encoder.encode(delivery, strict=self._strict) for delivery in batch)
        self._outbox.put(b"".join(line for line in lines if line is not None))

    async def _wind_down(self) -> None:
        """Settle what waits, cancel the turn, let its last events and its response out (W-26)."""
        self._conversation.events.pending_requests.close()
        if (scope := self._find_cancel_scope()) is not None:
            scope.cancel()
        with anyio.move_on_after(WIND_DOWN_TIMEOUT_S):
            while self._in_flight:
                await self._request_answered.wait()
            await self._outbox.flush()
        self._conversation.events.channel.close()

    # --- lines in ---------------------------------------------------------------------------------------------

    def _handle_line(self, line: bytes | None) -> None:
        """Deal with one line; None is one that was too long."""
        if line is None:
            self._put_message(encode_error(None, INVALID_REQUEST, "Message too large"))
            return
        match parse_message(line):
            case None:
                return
            case RpcFault(code, message):
                self._put_message(encode_error(None, code, message))
            case RpcCall() as call:
                self._handle_call(call)
            case RpcReply() as reply:
                self._handle_reply(reply)

    def _handle_call(self, call: RpcCall) -> None:
        if call.id is None:
            self._handle_notification(call)
        elif call.id in self._in_flight:
            # An answer to the second would settle the first one in the client.
            logger.warning("request ignored: its id %r is still in flight", call.id)
        else:
            self._handle_request(call, call.id)

    def _handle_notification(self, call: RpcCall) -> None:
        if call.method != "cancel":
            logger.info("notification ignored: %s", call.method)
        elif (scope := self._find_cancel_scope()) is not None:
            scope.cancel()

    def _handle_request(self, call: RpcCall, call_id: RpcId) -> None:
        methods: dict[str, Callable[[RpcId, Any], None]] = {
            "initialize": self._initialize,
            "prompt": self._start_prompt,
            "cancel": self._cancel,
            "replay": self._start_replay,
            "steer": self._steer,
            "set_plan_mode": self._set_plan_mode,
        }
        method = methods.get(call.method)
        if method is None:
            self._put_message(encode_error(call_id, METHOD_NOT_FOUND, f"Unexpected method received: {call.method}"))
            return
        try:
            method(call_id, call.params)
        except ValueError as error:
            logger.info("wrong parameters for %s: %s", call.method, error)
            self._put_message(encode_error(call_id, INVALID_PARAMS, f"Invalid parameters for method `{call.method}`"))
        except Exception as error:
            self._put_message(encode_failure(call_id, error))

    def _handle_reply(self, reply: RpcReply) -> None:
        request = self._conversation.events.pending_requests.find(reply.id) if isinstance(reply.id, str) else None
        if request is not None:
            from kimi.application.control.resolve_request import resolve_request  # start-up time
            from kimi.interfaces.wire.answers import decode_answer

            resolve_request(self._conversation, request.id, decode_answer(request, reply))
        elif not reply.has_result and reply.error is None:
            self._put_message(encode_error(None, INVALID_REQUEST, "Invalid response"))
        else:
            logger.info("reply to a request that does not wait: %r", reply.id)

    # --- methods ----------------------------------------------------------------------------------------------

    def _initialize(self, call_id: RpcId, params: Any) -> None:
        asked = decode_initialize_params(params)
        self._check_not_replaying()
        hooks = self._conversation.resources.hooks
        subscribes = hooks.subscriptions if asked.hooks is None else asked.hooks  # the old readers know no hooks
        looks_strict = asked.looks_strict and not subscribes
        strict = looks_strict if self._strict_setting is None else self._strict_setting
        client = asked.merge_client(self._conversation.client)
        if strict:  # it would never see the question, and so never answer it; nor what came after the version it knows
            client = replace(client, supports_question=False, supports_plan_mode=False, protocol_version=STRICT_VERSION)
        outcome = self._negotiate(client, asked.external_tools)
        self._strict = strict
        if asked.hooks is not None:
            if asked.hooks and self._strict_setting:
                logger.warning("hook subscriptions are ignored: the strict profile has no hook requests")
            hooks.subscribe(() if self._strict_setting else asked.hooks)
        self._put_message(encode_result(call_id, build_initialize_result(outcome, hooks.all_hooks)))
        self._send_events(
            [Delivery(request, None) for request in self._conversation.events.pending_requests.list_requests()]
        )
        self._on_initialized()

    def _start_prompt(self, call_id: RpcId, params: Any) -> None:
        user_input = decode_prompt_params(params)
        self._check_not_replaying()
        turn = self._conversation.turns.begin()
        self._in_flight.add(call_id)
        self._tasks.start_soon(self._run_prompt, call_id, turn, user_input)

    def _cancel(self, call_id: RpcId, params: Any) -> None:
        scope = self._find_cancel_scope()
        if scope is None:
            raise StateError(IDLE)
        scope.cancel()
        self._put_message(encode_result(call_id, {}))

    def _find_cancel_scope(self) -> anyio.CancelScope | None:
        turn = self._conversation.turn
        return turn.scope if turn is not None else self._replay_scope

    def _steer(self, call_id: RpcId, params: Any) -> None:
        from kimi.application.control.steer import steer  # start-up time

        steer(self._conversation, decode_prompt_params(params))
        self._put_message(encode_result(call_id, {"status": "steered"}))

    def _set_plan_mode(self, call_id: RpcId, params: Any) -> None:
        from kimi.application.control.plan_mode import emit_plan_mode_nowait, switch_plan_mode  # start-up time

        enabled = decode_plan_mode_params(params)
        switch_plan_mode(self._conversation, enabled)
        emit_plan_mode_nowait(self._conversation)  # at once: the next line may say the opposite
        self._in_flight.add(call_id)
        self._tasks.start_soon(self._answer_set_plan_mode, call_id, enabled)

    async def _answer_set_plan_mode(self, call_id: RpcId, enabled: bool) -> None:
        """The announcement comes before the answer (wire spec 3.5)."""
        await self._conversation.events.channel.join()
        self._send_answer(call_id, encode_result(call_id, {"status": "ok", "plan_mode": enabled}))

    def _start_replay(self, call_id: RpcId, params: Any) -> None:
        self._check_not_replaying()
        if self._conversation.turn is not None:
            raise StateError(BUSY)
        self._replay_scope = anyio.CancelScope()
        self._in_flight.add(call_id)
        self._tasks.start_soon(self._run_replay, call_id, self._replay_scope)

    def _check_not_replaying(self) -> None:
        if self._replay_scope is not None:
            raise StateError(BUSY)

    async def _run_replay(self, call_id: RpcId, scope: anyio.CancelScope) -> None:
        from kimi.interfaces.wire.send_replay import ReplayProgress, send_replay

        progress = ReplayProgress()
        try:
            with scope:
                await send_replay(self._conversation.files, self._outbox, progress, strict=self._strict)
            line = encode_result(call_id, progress.build_result(finished=not scope.cancelled_caught))
        except Exception:
            logger.exception("the replay failed")
            line = encode_error(call_id, INTERNAL_ERROR, "Replay failed")
        self._replay_scope = None
        self._send_answer(call_id, line)

    async def _run_prompt(self, call_id: RpcId, turn: RunningTurn, user_input: UserInput) -> None:
        from kimi.application.turn.run_turn import run_turn  # start-up time

        try:
            line = encode_result(call_id, build_prompt_result(await run_turn(self._conversation, turn, user_input)))
        except Exception as error:
            line = encode_failure(call_id, error)
        self._send_answer(call_id, line)
        await self._conversation.files.sync()  # for a power failure; nobody has to wait for it

    def _send_answer(self, call_id: RpcId, line: bytes) -> None:
        """Answer a call that took its time."""
        self._in_flight.discard(call_id)
        self._put_message(line)
        self._request_answered.set()
        self._request_answered = anyio.Event()

    def _put_message(self, line: bytes) -> None:
        self._outbox.put(frame_message(line))


def encode_failure(call_id: RpcId, error: Exception) -> bytes:
    """The error response for what a method raised."""
    for kind, code in _ERROR_CODES:
        if isinstance(error, kind):
            return encode_error(call_id, code, str(error))
    logger.error("a method failed", exc_info=error)
    return encode_error(call_id, INTERNAL_ERROR, f"{type(error).__name__}: {error}")


def build_prompt_result(status: TurnStatus) -> dict[str, Any]:
    """The result of `prompt`; `steps` only where the limit was reached."""
    result: dict[str, Any] = {"status": status.status}
    if status.steps is not None:
        result["steps"] = status.steps
    return result


def build_initialize_result(outcome: InitializeOutcome, hooks: Sequence[Hook]) -> dict[str, Any]:
    """The result of `initialize`: no nulls, and no member that the clients of old would not expect."""
    result: dict[str, Any] = {
        "protocol_version": PROTOCOL_VERSION,
        "server": {"name": SERVER_NAME, "version": __version__},
        "slash_commands": list(outcome.commands),
    }
    if outcome.accepted or outcome.rejected:
        result["external_tools"] = {"accepted": outcome.accepted, "rejected": outcome.rejected}
    result["hooks"] = {"supported_events": HOOK_EVENTS, "configured": count_hooks_by_event(hooks)}
    result["capabilities"] = {"supports_question": True}
    return result
