"""Parse and encode messages of JSON-RPC 2.0 (wire spec 1.1, 1.3, 1.4)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias, TypeGuard, cast

from pydantic_core import from_json, to_json

from kimi.application.codec.envelope import encode_json, replace_surrogates

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

RpcId: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class RpcRequest:
    """A call that must be answered with its id."""

    method: str
    params: Any
    id: RpcId


@dataclass(frozen=True, slots=True)
class RpcNotification:
    """A call that is never answered."""

    method: str
    params: Any


@dataclass(frozen=True, slots=True)
class RpcReply:
    """A response to one of our requests.

    `error` is None if it is absent or null; `has_result` tells a null result from an absent one.
    """

    id: RpcId
    result: Any
    has_result: bool
    error: Any


@dataclass(frozen=True, slots=True)
class RpcFault:
    """The error that answers a line which is not a message; its `id` is null."""

    code: int
    message: str


InboundMessage: TypeAlias = RpcRequest | RpcNotification | RpcReply | RpcFault


def parse_json(line: bytes) -> Any:
    """Parse a line of JSON. Undecodable bytes and lone surrogates become U+FFFD.

    Raises ValueError if the line is not JSON, contains `NaN` or `Infinity`, or is nested too deeply.
    """
    try:
        return from_json(line, allow_inf_nan=False)
    except ValueError:
        pass
    # The fast parser refuses bad UTF-8 and lone surrogates, which must be repaired.
    try:
        return replace_surrogates(json.loads(line.decode("utf-8", "replace"), parse_constant=_reject_constant))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def parse_message(line: bytes) -> InboundMessage | None:
    """Parse the message in a line; None for a blank line (wire spec 1.3)."""
    if not line.strip():
        return None
    try:
        value = parse_json(line)
    except ValueError:
        return RpcFault(PARSE_ERROR, "Invalid JSON format")
    if not isinstance(value, dict):
        return _INVALID_REQUEST_FAULT
    message = cast("dict[str, Any]", value)
    if message.get("jsonrpc", "2.0") != "2.0":
        return _INVALID_REQUEST_FAULT
    return _parse_call(message) if "method" in message else _parse_reply(message)


_INVALID_REQUEST_FAULT: Final = RpcFault(INVALID_REQUEST, "Invalid request")


def _parse_call(message: dict[str, Any]) -> InboundMessage:
    method, call_id = message["method"], message.get("id")
    if not isinstance(method, str):
        return _INVALID_REQUEST_FAULT
    if call_id is None:
        return RpcNotification(method, message.get("params"))
    return RpcRequest(method, message.get("params"), call_id) if _is_id(call_id) else _INVALID_REQUEST_FAULT


def _parse_reply(message: dict[str, Any]) -> InboundMessage:
    reply_id = message.get("id")
    if not _is_id(reply_id):
        return _INVALID_REQUEST_FAULT
    return RpcReply(reply_id, message.get("result"), "result" in message, message.get("error"))


def _is_id(value: object) -> TypeGuard[RpcId]:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def encode_result(call_id: RpcId, result: object) -> bytes:
    """Encode a success response; it has no `error` key."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode_json(call_id), encode_json(result))


def encode_error(call_id: RpcId | None, code: int, message: str) -> bytes:
    """Encode an error response; it has no `result` key, and `data` is null."""
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":%b,"data":null}}' % (
        encode_json(call_id),
        code,
        encode_json(message),
    )


def encode_notification(method: bytes, params: bytes) -> bytes:
    """Encode a notification; `params` is JSON."""
    return b'{"jsonrpc":"2.0","method":"%b","params":%b}' % (method, params)


def encode_request(method: bytes, request_id: str, params: bytes) -> bytes:
    """Encode one of our requests; `params` is JSON."""
    return b'{"jsonrpc":"2.0","method":"%b","id":%b,"params":%b}' % (method, to_json(request_id), params)
