"""Messages: what a line says, and what goes out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.interfaces.rpc.framing import frame_message
from kimi.interfaces.rpc.messages import (
    INVALID_REQUEST,
    PARSE_ERROR,
    RpcFault,
    RpcNotification,
    RpcReply,
    RpcRequest,
    encode_error,
    encode_result,
    parse_json,
    parse_message,
)

INVALID = RpcFault(INVALID_REQUEST, "Invalid request")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"method":"m","id":"1","params":{"a":1}}', RpcRequest("m", {"a": 1}, "1")),
        (b'{"jsonrpc":"2.0","method":"m","id":""}\r', RpcRequest("m", None, "")),
        (b'{"method":"m","id":7}', RpcRequest("m", None, 7)),
        (b'{"method":"m"}', RpcNotification("m", None)),
        (b'{"method":"m","id":null}', RpcNotification("m", None)),
        (b'{"id":"1","result":null}', RpcReply("1", None, True, None)),
        (b'{"id":"1","error":"text"}', RpcReply("1", None, False, "text")),
        (b'{"id":"1"}', RpcReply("1", None, False, None)),
        (b"   ", None),
        (b"{", RpcFault(PARSE_ERROR, "Invalid JSON format")),
        (b'{"method":"m","params":NaN}', RpcFault(PARSE_ERROR, "Invalid JSON format")),
        (b"[" * 10_000, RpcFault(PARSE_ERROR, "Invalid JSON format")),
        (b'[{"method":"m","id":"1"}]', INVALID),
        (b"{}", INVALID),
        (b'{"jsonrpc":"2.1","method":"m","id":"1"}', INVALID),
        (b'{"method":7,"id":"1"}', INVALID),
        (b'{"method":"m","id":1.5}', INVALID),
        (b'{"method":"m","id":true}', INVALID),
        (b'{"method":"m","id":{}}', INVALID),
        (b'{"id":1.5,"result":1}', INVALID),
    ],
)
def test_messages_are_classified(line: bytes, expected: object) -> None:
    assert parse_message(line) == expected


def test_bad_utf8_and_lone_surrogates_are_replaced() -> None:
    assert parse_json(b'"a\xffb"') == "a\ufffdb"
    assert parse_json(b'{"a":"\\ud800x"}') == {"a": "\ufffdx"}
    assert parse_json(b'"\\ud83d\\ude00"') == "\U0001f600"


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_a_fault_or_blank(line: bytes) -> None:
    assert isinstance(parse_message(line), (RpcRequest, RpcNotification, RpcReply, RpcFault, type(None)))


any_text = st.text(st.characters(codec=None, categories=None), max_size=10)


@given(any_text, any_text)
def test_every_line_that_goes_out_is_one_line_of_valid_json(call_id: str, text: str) -> None:
    for line in (encode_result(call_id, {"text": text}), encode_error(call_id, -32000, text)):
        out = frame_message(line)
        assert len(out.decode().splitlines()) == 1
        assert out.endswith(b"\n")
        assert json.loads(out)["jsonrpc"] == "2.0"


def test_responses_hold_either_a_result_or_an_error() -> None:
    assert json.loads(encode_result(3, None)) == {"jsonrpc": "2.0", "id": 3, "result": None}
    error = {"code": -32601, "message": "no", "data": None}
    assert json.loads(encode_error(None, -32601, "no")) == {"jsonrpc": "2.0", "id": None, "error": error}
