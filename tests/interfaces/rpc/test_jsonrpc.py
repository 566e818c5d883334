"""Framing and message classes."""

from __future__ import annotations

import json

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.interfaces.rpc.jsonrpc import (
    INVALID_REQUEST,
    PARSE_ERROR,
    PIECE_BYTES,
    LineSplitter,
    Outbox,
    RpcCall,
    RpcFault,
    RpcReply,
    encode_error,
    encode_result,
    frame_message,
    parse_json,
    parse_message,
)

INVALID = RpcFault(INVALID_REQUEST, "Invalid request")


def lines(*blocks: bytes, limit: int = 100) -> list[bytes | None]:
    """All lines of a stream."""
    splitter = LineSplitter(limit)
    return [line for block in blocks for line in splitter.feed(block)] + list(splitter.end())


def test_lines_do_not_depend_on_how_the_stream_was_cut() -> None:
    assert lines(b"a\nb", b"c\n", b"\n", b"d") == [b"a", b"bc", b"", b"d"]


def test_byte_order_mark_is_skipped_only_at_the_start() -> None:
    assert lines(b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb\n") == [b"a", b"\xef\xbb\xbfb"]


def test_a_line_over_the_limit_is_dropped_and_the_next_one_served() -> None:
    assert lines(b"x" * 60, b"x" * 60 + b"\nok\n", limit=100) == [None, b"ok"]
    assert lines(b"x" * 101, limit=100) == [None]
    assert lines(b"x" * 100 + b"\n", limit=100) == [b"x" * 100]


def test_a_dropped_line_is_not_kept_in_memory() -> None:
    splitter = LineSplitter(10)
    for _ in range(1000):
        assert list(splitter.feed(b"x" * 100)) == []
    assert not splitter._partial_line  # pyright: ignore[reportPrivateUsage]


@given(st.lists(st.binary(max_size=20)), st.integers(1, 30))
def test_splitting_keeps_all_lines(blocks: list[bytes], limit: int) -> None:
    whole = b"".join(blocks)
    expected = [line if len(line) <= limit else None for line in whole.split(b"\n")]
    if expected[-1] == b"":
        expected.pop()
    if not whole.startswith(b"\xef\xbb\xbf"):
        assert lines(*blocks, limit=limit) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"method":"m","id":"1","params":{"a":1}}', RpcCall("m", {"a": 1}, "1")),
        (b'{"jsonrpc":"2.0","method":"m","id":""}\r', RpcCall("m", None, "")),
        (b'{"method":"m","id":7}', RpcCall("m", None, 7)),
        (b'{"method":"m"}', RpcCall("m", None, None)),
        (b'{"method":"m","id":null}', RpcCall("m", None, None)),
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
    assert isinstance(parse_message(line), (RpcCall, RpcReply, RpcFault, type(None)))


any_text = st.text(st.characters(codec=None, categories=None), max_size=10)


@given(any_text, any_text)
def test_every_line_that_goes_out_is_one_line_of_valid_json(call_id: str, text: str) -> None:
    for line in (encode_result(call_id, {"text": text}), encode_error(call_id, -32000, text)):
        out = frame_message(line)
        assert len(out.decode().splitlines()) == 1
        assert out.endswith(b"\n")
        assert json.loads(out)["jsonrpc"] == "2.0"


@pytest.mark.spec("W-06")
def test_line_separators_are_escaped() -> None:
    out = frame_message(encode_result("1", "a\u2028b\u2029c\u0085d é"))
    assert out == '{"jsonrpc":"2.0","id":"1","result":"a\\u2028b\\u2029c\\u0085d é"}\n'.encode()


def test_responses_hold_either_a_result_or_an_error() -> None:
    assert json.loads(encode_result(3, None)) == {"jsonrpc": "2.0", "id": 3, "result": None}
    error = {"code": -32601, "message": "no", "data": None}
    assert json.loads(encode_error(None, -32601, "no")) == {"jsonrpc": "2.0", "id": None, "error": error}


@pytest.mark.anyio
async def test_outbox_keeps_order_batches_writes_and_limits_producers() -> None:
    written: list[bytes] = []
    gate = anyio.Event()

    async def write(data: bytes) -> None:
        await gate.wait()
        written.append(data)

    outbox = Outbox(write, 4, lambda: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.run)
        for line in (b"a\n", b"b\n", b"c\n"):
            outbox.put(line)
        with anyio.move_on_after(0.05) as waiting:
            await outbox.wait_for_capacity()
        assert waiting.cancelled_caught
        outbox.put(b"d\n")
        gate.set()
        await outbox.wait_for_capacity()
        await outbox.flush()
        tasks.cancel_scope.cancel()
    assert b"".join(written) == b"a\nb\nc\nd\n"


@pytest.mark.anyio
async def test_outbox_never_joins_more_than_a_piece() -> None:
    line = b"x" * (PIECE_BYTES // 3) + b"\n"
    sizes: list[int] = []

    async def write(data: bytes) -> None:
        sizes.append(len(data))

    outbox = Outbox(write, PIECE_BYTES, lambda: None)
    for _ in range(5):
        outbox.put(line)
    outbox.put(line * 4)
    outbox.put(line)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.run)
        await outbox.flush()
        tasks.cancel_scope.cancel()
    assert sizes == [len(line) * count for count in (2, 2, 1, 4, 1)]  # a line is never split


@pytest.mark.anyio
async def test_broken_outbox_reports_once_and_releases_all_waiters() -> None:
    broken: list[str] = []

    async def write(data: bytes) -> None:
        raise BrokenPipeError

    outbox = Outbox(write, 4, lambda: broken.append("broken"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.run)
        outbox.put(b"more than the mark\n")
        await outbox.wait_for_capacity()
        await outbox.flush()
    outbox.put(b"nowhere\n")
    assert broken == ["broken"]
    assert outbox.is_broken
