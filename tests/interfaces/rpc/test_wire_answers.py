"""Whatever a client replies, the request is settled: every kind of request, every odd reply (wire spec 4.7)."""

from __future__ import annotations

from typing import Any

import pytest

from kimi.domain.events.request import (
    Answer,
    ApprovalAnswer,
    ApprovalRequest,
    HookAnswer,
    HookRequest,
    Question,
    QuestionAnswer,
    QuestionRequest,
    Request,
    ToolCallAnswer,
    ToolCallRequest,
)
from kimi.domain.tools.tool import tool_error
from kimi.interfaces.rpc.messages import RpcReply, parse_message
from kimi.interfaces.rpc.wire_answers import decode_answer

FAILED = tool_error("no window", "External tool error")
INVALID = tool_error("Invalid tool result payload from client.", "Invalid tool result")
APPROVAL = ApprovalRequest("r", "c1", "Shell", "run command", "Run it")
TOOL_CALL = ToolCallRequest("r", "ext", "{}")
QUESTION = QuestionRequest("r", "c1", (Question("Which?", "", ()),))
HOOK = HookRequest("r", "h", "PreToolUse", "Shell", {})


def refused(request: Request, tool_answer: Any) -> Answer:
    """The answer that refuses, for a tool call this one."""
    answers: dict[type, Answer] = {
        ApprovalRequest: ApprovalAnswer("reject"),
        ToolCallRequest: ToolCallAnswer(tool_answer),
        QuestionRequest: QuestionAnswer({}),
        HookRequest: HookAnswer(),
    }
    return answers[type(request)]


def reply(line: bytes) -> RpcReply:
    """The reply in a line."""
    found = parse_message(line)
    assert isinstance(found, RpcReply)
    return found


@pytest.mark.spec("W-109", "W-110")
@pytest.mark.parametrize("request_", [APPROVAL, TOOL_CALL, QUESTION, HOOK], ids=lambda one: type(one).__name__)
def test_malformed_replies_resolve_every_request_kind(request_: Request) -> None:
    for error in (b'"no window"', b'{"code":1,"message":"no window"}'):
        assert decode_answer(request_, reply(b'{"id":"r","error":%b}' % error)) == refused(request_, FAILED)
    for members in (b"", b',"result":null', b',"error":null', b',"result":[1]'):
        assert decode_answer(request_, reply(b'{"id":"r"%b}' % members)) == refused(request_, INVALID)


@pytest.mark.spec("W-110")
@pytest.mark.parametrize(
    ("request_", "result", "answer"),
    [
        (APPROVAL, b'{"response":"approve"}', ApprovalAnswer("approve")),
        (QUESTION, b'{"answers":{"Which?":"A"}}', QuestionAnswer({"Which?": "A"})),
        (HOOK, b'{"action":"block","reason":"no"}', HookAnswer("block", "no")),
    ],
)
def test_null_error_with_a_result_is_a_success(request_: Request, result: bytes, answer: Answer) -> None:
    assert decode_answer(request_, reply(b'{"id":"r","error":null,"result":%b}' % result)) == answer
