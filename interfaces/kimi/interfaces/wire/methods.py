"""The methods of the wire: they call the use-cases for a client's requests (wire spec 3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.event_channel import Delivery
from kimi.application.conversation.running_turn import BUSY, IDLE, RunningTurn
from kimi.application.sessions.negotiate_initialize import set_client
from kimi.domain.content.parts import UserInput
from kimi.domain.errors import StateError
from kimi.interfaces.rpc.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RpcId,
    encode_error,
    encode_result,
)
from kimi.interfaces.rpc.wire_calls import (
    Negotiate,
    build_initialize_result,
    build_prompt_result,
    decode_initialize_params,
    decode_plan_mode_params,
    decode_prompt_params,
    describe_failure,
)
from kimi.interfaces.rpc.wire_events import STRICT_VERSION
from kimi.interfaces.wire.output import WireOutput

if TYPE_CHECKING:
    from kimi.interfaces.rpc.wire_shapes import EmptyResult, PlanModeResult, SteerResult

logger = logging.getLogger(__name__)


class WireMethods:
    """Handles the calls of one client. A call is accepted or refused at once; what takes time runs in `tasks`."""

    def __init__(
        self,
        conversation: Conversation,
        negotiate: Negotiate,
        output: WireOutput,
        tasks: TaskGroup,
        *,
        strict_setting: bool | None,
    ) -> None:
        self._conversation = conversation
        self._negotiate = negotiate
        self._output = output
        self._tasks = tasks
        self._strict_setting = strict_setting
        self._replay_scope: anyio.CancelScope | None = None
        self.initialized = anyio.Event()
        set_client(conversation, conversation.client)  # until a handshake says more: some tools need the client
        self.methods: Mapping[str, Callable[[RpcId, Any], None]] = {
            "initialize": self._initialize,
            "prompt": self._start_prompt,
            "cancel": self._cancel,
            "replay": self._start_replay,
            "steer": self._steer,
            "set_plan_mode": self._set_plan_mode,
        }

    def handle_notification(self, name: str) -> None:
        """Handle a notification; all but `cancel` are ignored."""
        if name != "cancel":
            logger.info("notification ignored: %s", name)
        else:
            self.cancel_running()

    def handle_request(self, call_id: RpcId, name: str, params: Any) -> None:
        """Answer a request, or start the task that answers it."""
        if self._output.is_in_flight(call_id):
            # The id names two requests, which is the client's mistake: each gets its answer, this one at once.
            self._output.send(encode_error(call_id, INVALID_REQUEST, "Another request with this id is in progress"))
            return
        method = self.methods.get(name)
        if method is None:
            message = f"Unexpected method received: {name}"
            self._output.send(encode_error(call_id, METHOD_NOT_FOUND, message))
            return
        try:
            method(call_id, params)
        except ValueError as error:
            logger.info("wrong parameters for %s: %s", name, error)
            message = f"Invalid parameters for method `{name}`"
            self._output.send(encode_error(call_id, INVALID_PARAMS, message))
        except Exception as error:
            self._output.send(encode_error(call_id, *describe_failure(error)))

    def cancel_running(self) -> bool:
        """Cancel the running turn or replay; return False if there is none."""
        turn = self._conversation.turn
        scope = turn.scope if turn is not None else self._replay_scope
        if scope is not None:
            scope.cancel()
        return scope is not None

    # --- methods ----------------------------------------------------------------------------------------------

    def _initialize(self, call_id: RpcId, params: Any) -> None:
        asked = decode_initialize_params(params)
        self._check_not_replaying()
        hooks = self._conversation.resources.hooks
        subscribes = hooks.subscriptions if asked.hooks is None else asked.hooks  # strict clients know no hooks
        looks_strict = asked.looks_strict and not subscribes
        strict = looks_strict if self._strict_setting is None else self._strict_setting
        client = asked.merge_client(self._conversation.client)
        if strict:  # the profile hides questions, so none would be answered, and what is newer than its version
            client = replace(client, supports_question=False, supports_plan_mode=False, protocol_version=STRICT_VERSION)
        outcome = self._negotiate(client, asked.external_tools)
        self._output.strict = strict
        self._output.with_usage = client.supports_usage
        if asked.hooks is not None:
            if asked.hooks and self._strict_setting:
                logger.warning("hook subscriptions are ignored: the strict profile has no hook requests")
            hooks.subscribe(() if self._strict_setting else asked.hooks)
        self._output.send(encode_result(call_id, build_initialize_result(outcome, hooks.all_hooks)))
        # After the result (W-50): background agents may already wait for approvals.
        pending = self._conversation.events.pending_requests.list_requests()
        self._output.send_events([Delivery(request, None) for request in pending])
        self.initialized.set()

    def _start_prompt(self, call_id: RpcId, params: Any) -> None:
        user_input = decode_prompt_params(params)
        self._check_not_replaying()
        # The turn begins here and not in the task: the next line may cancel or steer it before the task runs. The
        # answer is deferred after everything that may raise, because an error is answered at once.
        turn = self._conversation.turns.begin()
        self._output.defer_answer(call_id)
        self._tasks.start_soon(self._run_prompt, call_id, turn, user_input)

    async def _run_prompt(self, call_id: RpcId, turn: RunningTurn, user_input: UserInput) -> None:
        from kimi.application.turn.run_turn import run_turn  # start-up time

        try:
            message = encode_result(call_id, build_prompt_result(await run_turn(self._conversation, turn, user_input)))
        except Exception as error:
            message = encode_error(call_id, *describe_failure(error))
        self._output.send_answer(call_id, message)
        await self._conversation.files.sync()  # after the answer: only a power failure needs it, and it takes time

    def _cancel(self, call_id: RpcId, params: Any) -> None:
        if not self.cancel_running():
            raise StateError(IDLE)
        result: EmptyResult = {}
        self._output.send(encode_result(call_id, result))

    def _steer(self, call_id: RpcId, params: Any) -> None:
        from kimi.application.control.steer import steer  # start-up time

        steer(self._conversation, decode_prompt_params(params))
        result: SteerResult = {"status": "steered"}
        self._output.send(encode_result(call_id, result))

    def _set_plan_mode(self, call_id: RpcId, params: Any) -> None:
        from kimi.application.control.plan_mode import emit_plan_mode_nowait, switch_plan_mode  # start-up time

        enabled = decode_plan_mode_params(params)
        switch_plan_mode(self._conversation, enabled)
        emit_plan_mode_nowait(self._conversation)  # at once: the next line may switch it back
        self._output.defer_answer(call_id)
        self._tasks.start_soon(self._answer_set_plan_mode, call_id, enabled)

    async def _answer_set_plan_mode(self, call_id: RpcId, enabled: bool) -> None:
        """Answer after the event that announces the change has been sent (wire spec 3.5)."""
        await self._conversation.events.channel.join()
        result: PlanModeResult = {"status": "ok", "plan_mode": enabled}
        self._output.send_answer(call_id, encode_result(call_id, result))

    def _start_replay(self, call_id: RpcId, params: Any) -> None:
        self._check_not_replaying()
        if self._conversation.turn is not None:
            raise StateError(BUSY)
        self._replay_scope = anyio.CancelScope()  # here and not in the task: the next line may cancel the replay
        self._output.defer_answer(call_id)
        self._tasks.start_soon(self._run_replay, call_id, self._replay_scope)

    def _check_not_replaying(self) -> None:
        if self._replay_scope is not None:
            raise StateError(BUSY)

    async def _run_replay(self, call_id: RpcId, scope: anyio.CancelScope) -> None:
        from kimi.interfaces.rpc.wire_replay import ReplayProgress, send_replay  # start-up time

        progress, output = ReplayProgress(), self._output
        try:
            with scope:
                await send_replay(self._conversation.files, output.outbox, progress, strict=output.strict)
            message = encode_result(call_id, progress.build_result(finished=not scope.cancelled_caught))
        except Exception:
            logger.exception("the replay failed")
            message = encode_error(call_id, INTERNAL_ERROR, "Replay failed")
        self._replay_scope = None
        output.send_answer(call_id, message)
