"""The transport of the SDK's connection: lines in and out (acp spec 2.7).

The SDK accepts any object with `send`, `receive` and `close` as its transport. This one filters what would end or
mislead the SDK: lines that are not messages are answered here, `_meta` keys that would overwrite arguments are removed,
and an answer that cannot be encoded becomes an error.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

import anyio

from kimi.application.codec.envelope import encode_json
from kimi.domain.content.message import JsonObject
from kimi.interfaces.acp.transport.errors import RpcError, log_internal_error, to_rpc_error
from kimi.interfaces.acp.transport.update_outbox import UpdateOutbox
from kimi.interfaces.rpc.framing import LineReader, ReadBlock, frame_message
from kimi.interfaces.rpc.messages import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR, parse_json

logger = logging.getLogger(__name__)

RpcMessage: TypeAlias = dict[str, Any]

MAX_LINE_BYTES: Final = 256 * 1024 * 1024


@dataclass(slots=True)
class IncomingRequest:
    """The request that the current task answers: its id, and the actions to run once the answer is queued."""

    id: Any
    after_answer: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])


_current_request: ContextVar[IncomingRequest | None] = ContextVar("incoming", default=None)
_sent_ids: ContextVar[list[Any] | None] = ContextVar("sent_ids", default=None)


def current_request() -> IncomingRequest:
    """Return the request that this task answers. Raises LookupError in any other task."""
    found = _current_request.get()
    if found is None:
        raise LookupError("no request is being answered")
    return found


def collect_sent_ids() -> list[Any]:
    """Return a list to which the ids of the requests are added that this task sends from now on."""
    ids: list[Any] = []
    _sent_ids.set(ids)
    return ids


class AcpTransport:
    """Receives and sends the messages of one client. `initialize` is answered here, before the SDK is loaded."""

    def __init__(
        self, read_block: ReadBlock, outbox: UpdateOutbox, initialize: Callable[[JsonObject], JsonObject]
    ) -> None:
        self.outbox = outbox
        self._initialize = initialize
        self._lines = LineReader(read_block, MAX_LINE_BYTES)
        self._unanswered_count = 0
        self._ids_in_progress: set[object] = set()
        """The ids of the unanswered requests, but for null, which tells no requests apart."""
        self.request_answered = anyio.Event()
        """Set, and replaced, when a request is answered."""

    # --- in -------------------------------------------------------------------------------------------------------

    async def receive(self) -> RpcMessage | None:
        """Return the next request, notification or answer; None at the end of the input.

        A request is set in the context of the calling task, which the tasks that it starts inherit: see
        `current_request`.
        """
        async for line in self._lines:
            if self.outbox.is_flooded:
                await self.outbox.wait_for_reader()
            if (message := self._parse_line(line)) is None:
                continue
            _current_request.set(IncomingRequest(message.get("id")) if "method" in message else None)
            if "method" in message and "id" in message:
                self._unanswered_count += 1
                if message["id"] is not None:
                    self._ids_in_progress.add(message["id"])
            return message
        _current_request.set(None)
        return None

    async def wait_for_answers(self) -> None:
        """Wait until the answer to every request that `receive` returned is queued."""
        while self._unanswered_count:
            await self.request_answered.wait()

    def _parse_line(self, line: bytes | None) -> RpcMessage | None:
        """Return the message in a line; None when the line is answered or ignored here."""
        if line is None:
            self._put_error(INVALID_REQUEST, "Invalid request", "the message is too large")
            return None
        if not line.strip():
            return None
        try:
            value = parse_json(line)
        except ValueError:
            self._put_error(PARSE_ERROR, "Parse error")
            return None
        return self._check_message(value)

    def _check_message(self, value: Any) -> RpcMessage | None:
        if not isinstance(value, dict):
            kind = "a batch" if isinstance(value, list) else "not an object"
            self._put_error(INVALID_REQUEST, "Invalid request", f"the message is {kind}")
            return None
        message = cast("RpcMessage", value)
        if "method" not in message and "id" in message and ("result" in message or "error" in message):
            return _normalize_answer(message)
        if not is_request_id(message.get("id")):
            self._put_error(INVALID_REQUEST, "Invalid request", "id: must be a string, a finite number or null")
            return None
        if not isinstance(message.get("method"), str):
            self._put_error(INVALID_REQUEST, "Invalid request", "the message has no method", message.get("id"))
            return None
        if message.get("id") in self._ids_in_progress:
            # The id names two requests, which is the client's mistake: each gets its answer, this one at once.
            details = "another request with this id is in progress"
            self._put_error(INVALID_REQUEST, "Invalid request", details, message["id"])
            return None
        return self._accept_call(message)

    def _accept_call(self, message: RpcMessage) -> RpcMessage | None:
        """Return a request or notification without `_meta` in its parameters; None when it is handled here."""
        params = message.get("params")
        if params is None:
            params = {}
        if isinstance(params, dict):
            params = {name: value for name, value in cast("RpcMessage", params).items() if name != "_meta"}
        message["params"] = params
        if message["method"] != "initialize":
            return message
        if "id" in message:
            self._answer_initialize(message["id"], params)
        return None

    def _answer_initialize(self, call_id: Any, params: Any) -> None:
        try:
            self._put_message({"jsonrpc": "2.0", "id": call_id, "result": self._initialize(params)})
        except Exception as error:
            self._put_message(_build_error_answer(call_id, to_rpc_error(error, ())))

    def _put_error(self, code: int, text: str, details: str | None = None, call_id: Any = None) -> None:
        self._put_message(
            _build_error_answer(call_id, RpcError(code, text, None if details is None else {"details": details}))
        )

    # --- out ------------------------------------------------------------------------------------------------------

    async def send(self, message: RpcMessage) -> None:
        """Queue an answer or one of our requests, without waiting. After an answer, run the actions that follow it."""
        if "method" in message:
            if (ids := _sent_ids.get()) is not None and "id" in message:
                ids.append(message["id"])
            self._put_message(message)
            return
        error = message.get("error")
        if isinstance(error, dict) and cast("RpcMessage", error).get("data", "") is None:
            del error["data"]
        self._put_message(message)
        self._unanswered_count -= 1
        self._ids_in_progress.discard(message["id"])
        self.request_answered.set()
        self.request_answered = anyio.Event()
        if (request := _current_request.get()) is not None:
            # The list is emptied because idle worker threads keep the context, and with it the request.
            actions, request.after_answer = request.after_answer, []
            for action in actions:
                action()

    async def close(self) -> None:
        """Do nothing: the streams belong to the caller that opened them."""

    def send_notification(self, method: str, params: JsonObject) -> None:
        """Queue a notification."""
        self._put_message({"jsonrpc": "2.0", "method": method, "params": params})

    def _put_message(self, message: RpcMessage) -> None:
        try:
            line = encode_json(message)
        except Exception as error:
            if "method" in message:
                raise
            refused = log_internal_error(error)
            line = encode_json(
                _build_error_answer(message.get("id"), RpcError(INTERNAL_ERROR, refused.message, refused.data))
            )
        put = self.outbox.put if "method" in message else self.outbox.put_answer
        put(frame_message(line))


def is_request_id(value: object) -> bool:
    """Return whether this can be the id of a request: a string, a number or null. An infinite one has no JSON."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, (str, int)) and not isinstance(value, bool))


def _normalize_answer(message: RpcMessage) -> RpcMessage | None:
    """Return an answer to one of our requests in the form that the SDK accepts; None if its id is not one of ours."""
    if type(message["id"]) is not int:
        logger.info("answer to an unknown request: %r", message["id"])
        return None
    error = message.get("error")
    if error is None:
        return {"jsonrpc": "2.0", "id": message["id"], "result": message.get("result")}
    if not isinstance(error, dict):
        error = {"code": INTERNAL_ERROR, "message": str(error)}
    return {"jsonrpc": "2.0", "id": message["id"], "error": error}


def _build_error_answer(call_id: Any, rpc_error: RpcError) -> RpcMessage:
    error: RpcMessage = {"code": rpc_error.code, "message": rpc_error.message}
    if rpc_error.data is not None:
        error["data"] = rpc_error.data
    return {"jsonrpc": "2.0", "id": call_id, "error": error}
