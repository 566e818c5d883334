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
    Call,
    Fault,
    LineSplitter,
    Outbox,
    Reply,
    error_line,
    one_line,
    parse_json,
    parse_message,
    result_line,
)

INVALID = Fault(INVALID_REQUEST, "Invalid request")


def lines(*blocks: bytes, limit: int = 100) -> list[bytes | None]:
    """All lines of a stream."""
    splitter = LineSplitter(limit)
    return [line for block in blocks for line in splitter.feed(block)] + list(splitter.end())


def test_lines_do_not_depend_on_how_the_stream_was_cut() -> None:
    assert lines(b"a\nb", b"c\n", b"\n", b"d") == [b"a", b"bc", b"", b"d"]


def test_a_bom_at_the_start_is_skipped_and_only_there() -> None:
    assert lines(b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb\n") == [b"a", b"\xef\xbb\xbfb"]


def test_a_line_over_the_limit_is_dropped_and_the_next_one_served() -> None:
    assert lines(b"x" * 60, b"x" * 60 + b"\nok\n", limit=100) == [None, b"ok"]
    assert lines(b"x" * 101, limit=100) == [None]
    assert lines(b"x" * 100 + b"\n", limit=100) == [b"x" * 100]


def test_a_dropped_line_is_not_kept_in_memory() -> None:
    splitter = LineSplitter(10)
    for _ in range(1000):
        assert list(splitter.feed(b"x" * 100)) == []
    assert not splitter._begun  # pyright: ignore[reportPrivateUsage]


@given(st.lists(st.binary(max_size=20)), st.integers(1, 30))
def test_splitting_loses_and_invents_nothing(blocks: list[bytes], limit: int) -> None:
    whole = b"".join(blocks)
    expected = [line if len(line) <= limit else None for line in whole.split(b"\n")]
    if expected[-1] == b"":
        expected.pop()
    if not whole.startswith(b"\xef\xbb\xbf"):
        assert lines(*blocks, limit=limit) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"method":"m","id":"1","params":{"a":1}}', Call("m", {"a": 1}, "1")),
        (b'{"jsonrpc":"2.0","method":"m","id":""}\r', Call("m", None, "")),
        (b'{"method":"m","id":7}', Call("m", None, 7)),
        (b'{"method":"m"}', Call("m", None, None)),
        (b'{"method":"m","id":null}', Call("m", None, None)),
        (b'{"id":"1","result":null}', Reply("1", None, True, None)),
        (b'{"id":"1","error":"text"}', Reply("1", None, False, "text")),
        (b'{"id":"1"}', Reply("1", None, False, None)),
        (b"   ", None),
        (b"{", Fault(PARSE_ERROR, "Invalid JSON format")),
        (b'{"method":"m","params":NaN}', Fault(PARSE_ERROR, "Invalid JSON format")),
        (b"[" * 10_000, Fault(PARSE_ERROR, "Invalid JSON format")),
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
def test_message_classes(line: bytes, expected: object) -> None:
    assert parse_message(line) == expected


def test_bad_utf8_and_lone_surrogates_are_replaced() -> None:
    assert parse_json(b'"a\xffb"') == "a\ufffdb"
    assert parse_json(b'{"a":"\\ud800x"}') == {"a": "\ufffdx"}
    assert parse_json(b'"\\ud83d\\ude00"') == "\U0001f600"


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_a_fault_or_blank(line: bytes) -> None:
    assert isinstance(parse_message(line), (Call, Reply, Fault, type(None)))


any_text = st.text(st.characters(codec=None, categories=None), max_size=10)


@given(any_text, any_text)
def test_every_line_that_goes_out_is_one_line_of_valid_json(call_id: str, text: str) -> None:
    for line in (result_line(call_id, {"text": text}), error_line(call_id, -32000, text)):
        out = one_line(line)
        assert len(out.decode().splitlines()) == 1
        assert out.endswith(b"\n")
        assert json.loads(out)["jsonrpc"] == "2.0"


@pytest.mark.spec("W-06")
def test_line_separators_leave_escaped() -> None:
    out = one_line(result_line("1", "a\u2028b\u2029c\u0085d é"))
    assert out == '{"jsonrpc":"2.0","id":"1","result":"a\\u2028b\\u2029c\\u0085d é"}\n'.encode()


def test_responses_hold_either_a_result_or_an_error() -> None:
    assert json.loads(result_line(3, None)) == {"jsonrpc": "2.0", "id": 3, "result": None}
    error = {"code": -32601, "message": "no", "data": None}
    assert json.loads(error_line(None, -32601, "no")) == {"jsonrpc": "2.0", "id": None, "error": error}


@pytest.mark.anyio
async def test_the_outbox_keeps_order_gathers_what_waits_and_makes_producers_wait() -> None:
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
            await outbox.room()
        assert waiting.cancelled_caught
        outbox.put(b"d\n")
        gate.set()
        await outbox.room()
        await outbox.flush()
        tasks.cancel_scope.cancel()
    assert b"".join(written) == b"a\nb\nc\nd\n"


@pytest.mark.anyio
async def test_a_broken_outbox_says_so_once_and_lets_everybody_go() -> None:
    broken: list[str] = []

    async def write(data: bytes) -> None:
        raise BrokenPipeError

    outbox = Outbox(write, 4, lambda: broken.append("broken"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.run)
        outbox.put(b"more than the mark\n")
        await outbox.room()
        await outbox.flush()
    outbox.put(b"nowhere\n")
    assert broken == ["broken"]
    assert outbox.broken
