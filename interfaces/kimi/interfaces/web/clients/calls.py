"""The calls of one client of a session: the methods of the wire, for one of several clients (wire spec 3, 13)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kimi.application.control.resolve_request import resolve_request
from kimi.application.conversation.running_turn import BUSY, IDLE
from kimi.application.sessions.replay_events import replay
from kimi.domain.errors import StateError, StoreFailed
from kimi.interfaces.rpc.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RpcFault,
    RpcId,
    RpcNotification,
    RpcReply,
    RpcRequest,
    encode_error,
    encode_result,
    parse_message,
)
from kimi.interfaces.rpc.wire_answers import decode_answer
from kimi.interfaces.rpc.wire_calls import (
    build_initialize_result,
    decode_initialize_params,
    decode_plan_mode_params,
    decode_prompt_params,
    describe_failure,
)
from kimi.interfaces.rpc.wire_replay import ReplayProgress
from kimi.interfaces.web.clients.stream import ClientStream
from kimi.interfaces.web.sessions.hosted_session import HostedSession, Member

logger = logging.getLogger(__name__)


class ClientCalls:
    """Handles the messages of one client in their order. A call is accepted or refused before the next message."""

    def __init__(self, session: HostedSession, member: Member, stream: ClientStream) -> None:
        self._session = session
        self._conversation = session.conversation
        self._member = member
        self._stream = stream
        self._is_replaying = False
        self._stops_replay = False
        self._methods: Mapping[str, Callable[[RpcId, Any], None]] = {
            "initialize": self._initialize,
            "prompt": self._prompt,
            "cancel": self._cancel,
            "replay": self._replay,
            "steer": self._steer,
            "set_plan_mode": self._set_plan_mode,
        }

    def handle(self, message: bytes) -> None:
        """Handle one message."""
        match parse_message(message):
            case None:
                return
            case RpcFault(code, text):
                self._stream.answer(encode_error(None, code, text))
            case RpcNotification(method):
                if method != "cancel" or not self._cancel_running():
                    logger.info("notification ignored: %s", method)
            case RpcRequest(method, params, call_id):
                self._handle_call(call_id, method, params)
            case RpcReply() as reply:
                self._handle_reply(reply)

    def _handle_call(self, call_id: RpcId, name: str, params: Any) -> None:
        answer = self._stream.answer
        if self._stream.is_in_flight(call_id):
            answer(encode_error(call_id, INVALID_REQUEST, "Another request with this id is in progress"))
        elif (method := self._methods.get(name)) is None:
            answer(encode_error(call_id, METHOD_NOT_FOUND, f"Unexpected method received: {name}"))
        else:
            try:
                method(call_id, params)
            except ValueError as error:
                logger.info("wrong parameters for %s: %s", name, error)
                answer(encode_error(call_id, INVALID_PARAMS, f"Invalid parameters for method `{name}`"))
            except Exception as error:
                answer(encode_error(call_id, *describe_failure(error)))

    def _handle_reply(self, reply: RpcReply) -> None:
        request = self._conversation.events.pending_requests.find(reply.id) if isinstance(reply.id, str) else None
        if request is not None:
            resolve_request(self._conversation, request.id, decode_answer(request, reply))
            self._session.announce_settled()
        elif not reply.has_result and reply.error is None:
            self._stream.answer(encode_error(None, INVALID_REQUEST, "Invalid response"))
        else:
            logger.info("reply to a request that does not wait: %r", reply.id)

    # --- methods --------------------------------------------------------------------------------------------------

    def _initialize(self, call_id: RpcId, params: Any) -> None:
        asked = decode_initialize_params(params)
        self._check_not_replaying()
        client = replace(asked.merge_client(self._member.client), wants_model_command=True)
        outcome = self._session.introduce(self._member, client, asked.external_tools)
        if asked.hooks is not None:
            self._session.subscribe_hooks(self._member, asked.hooks)
        self._stream.with_usage = client.supports_usage
        hooks = self._conversation.resources.hooks.all_hooks
        self._stream.answer(encode_result(call_id, build_initialize_result(outcome, hooks)))

    def _prompt(self, call_id: RpcId, params: Any) -> None:
        user_input = decode_prompt_params(params)
        self._check_not_replaying()

        def answer(outcome: dict[str, Any]) -> None:
            error = outcome.get("error")
            message = (
                encode_result(call_id, outcome)
                if error is None
                else encode_error(call_id, error["code"], error["message"])
            )
            self._stream.answer_deferred(call_id, message)

        self._session.begin_prompt(self._member, user_input, answer)
        self._stream.defer_answer(call_id)

    def _cancel(self, call_id: RpcId, params: Any) -> None:
        if not self._cancel_running():
            raise StateError(IDLE)
        self._stream.answer(encode_result(call_id, {}))

    def _cancel_running(self) -> bool:
        """Cancel the running turn, whoever began it, or the replay of this client; return False if there is none."""
        turn = self._conversation.turn
        if turn is not None:
            turn.scope.cancel()
        elif self._is_replaying:
            self._stops_replay = True
        return turn is not None or self._is_replaying

    def _steer(self, call_id: RpcId, params: Any) -> None:
        from kimi.application.control.steer import steer

        steer(self._conversation, decode_prompt_params(params))
        self._stream.answer(encode_result(call_id, {"status": "steered"}))

    def _set_plan_mode(self, call_id: RpcId, params: Any) -> None:
        enabled = decode_plan_mode_params(params)
        self._stream.defer_answer(call_id)
        message = encode_result(call_id, {"status": "ok", "plan_mode": enabled})
        try:
            self._session.set_plan_mode(enabled, lambda: self._stream.answer_deferred(call_id, message))
        except Exception as error:
            self._stream.answer_deferred(call_id, encode_error(call_id, *describe_failure(error)))

    def _replay(self, call_id: RpcId, params: Any) -> None:
        self._check_not_replaying()
        if self._conversation.turn is not None:
            raise StateError(BUSY)
        self._is_replaying, self._stops_replay = True, False
        self._stream.defer_answer(call_id)
        self._stream.answer_at_length(self._make_replay(call_id))

    def _check_not_replaying(self) -> None:
        if self._is_replaying:
            raise StateError(BUSY)

    def _make_replay(self, call_id: RpcId) -> Iterator[bytes]:
        """Yield what is recorded, then the answer to the call."""
        progress, finished = ReplayProgress(), False
        try:
            for _, envelope, request in replay(self._conversation.files):
                if self._stops_replay:
                    break
                yield progress.encode_next(envelope, request)
            else:
                finished = True
            answer = encode_result(call_id, progress.build_result(finished=finished))
        except StoreFailed:
            logger.exception("the replay failed")
            answer = encode_error(call_id, INTERNAL_ERROR, "Replay failed")
        self._is_replaying = False
        self._stream.finish_deferred(call_id)
        yield answer
