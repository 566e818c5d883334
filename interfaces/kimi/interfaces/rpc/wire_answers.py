"""Decode a client's replies to our requests; every reply resolves its request (wire spec 4.7)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, cast, get_args

from kimi.application.codec.envelope import encode_json
from kimi.application.codec.payloads import decode_tool_return_value, require_object
from kimi.application.conversation.pending_requests import build_refusal
from kimi.domain.events.request import (
    Answer,
    ApprovalAnswer,
    ApprovalKind,
    ApprovalRequest,
    HookAnswer,
    HookRequest,
    QuestionAnswer,
    QuestionRequest,
    Request,
    ToolCallAnswer,
    ToolCallRequest,
)
from kimi.domain.tools.tool import tool_error
from kimi.interfaces.rpc.messages import RpcReply

logger = logging.getLogger(__name__)

_INVALID_RESULT: Final = tool_error("Invalid tool result payload from client.", "Invalid tool result")


def decode_answer(request: Request, reply: RpcReply) -> Answer:
    """Return the answer in `reply`. An error reply or a wrong shape refuses, so that no request stays pending."""
    if reply.error is not None:
        return build_refusal(request, tool_error(_format_error(reply.error), "External tool error"))
    try:
        match request:
            case ApprovalRequest():
                return _decode_approval(request, reply.result)
            case ToolCallRequest():
                return _decode_tool_result(request, reply.result)
            case QuestionRequest():
                return _decode_question(request, reply.result)
            case HookRequest():
                return _decode_hook(reply.result)
    except ValueError as error:
        logger.warning("the client's answer to %s has a wrong shape: %s", request.id, error)
        return build_refusal(request, _INVALID_RESULT)


def _decode_approval(request: ApprovalRequest, result: object) -> Answer:
    source = require_object(result, "an approval")
    _require_same_id(source, request.id)
    response, feedback = source.get("response"), source.get("feedback", "")
    if response not in get_args(ApprovalKind) or not isinstance(feedback, str):
        raise ValueError("`response` must be approve, approve_for_session or reject")
    return ApprovalAnswer(cast("ApprovalKind", response), feedback)


def _decode_tool_result(request: ToolCallRequest, result: object) -> Answer:
    source = require_object(result, "a tool result")
    if source.get("tool_call_id") != request.id:  # a result permits nothing: the id of the message counts
        logger.warning("the client's result names %r, the request is %s", source.get("tool_call_id"), request.id)
    return ToolCallAnswer(decode_tool_return_value(source.get("return_value")))


def _format_error(error: Any) -> str:
    """Return the text of an error of any shape; a published client answers with a bare string."""
    if isinstance(error, dict):
        message = cast("dict[str, Any]", error).get("message")
        if isinstance(message, str) and message:
            return message
    return error if isinstance(error, str) and error else encode_json(cast("object", error)).decode()


def _decode_question(request: QuestionRequest, result: object) -> Answer:
    source = require_object(result, "a question answer")
    _require_same_id(source, request.id)
    return QuestionAnswer(require_object(source.get("answers"), "`answers`"))


def _decode_hook(result: object) -> Answer:
    source = require_object(result, "a hook answer")
    action, reason = source.get("action", "allow"), source.get("reason", "")
    if action not in ("allow", "block") or not isinstance(reason, str):
        raise ValueError("`action` must be allow or block")
    return HookAnswer(action, reason)


def _require_same_id(source: Mapping[str, object], expected: str) -> None:
    """Check that an answer that names a request names this one. Raises ValueError."""
    named = source.get("request_id")
    if named is not None and named != expected:
        raise ValueError(f"it names the request {named!r}")
