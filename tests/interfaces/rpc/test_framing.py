"""Bytes to lines and back."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.interfaces.rpc.framing import LineReader, LineSplitter, frame_message
from kimi.interfaces.rpc.messages import encode_result


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


@pytest.mark.spec("W-06")
def test_line_separators_are_escaped() -> None:
    out = frame_message(encode_result("1", "a\u2028b\u2029c\u0085d é"))
    assert out == '{"jsonrpc":"2.0","id":"1","result":"a\\u2028b\\u2029c\\u0085d é"}\n'.encode()


@pytest.mark.anyio
async def test_a_cancelled_read_of_lines_loses_nothing() -> None:
    send, receive = anyio.create_memory_object_stream[bytes](10)
    reader = LineReader(receive.receive, 100)
    with send, receive:
        send.send_nowait(b"a\nb\nha")
        assert await anext(reader) == b"a"
        assert await anext(reader) == b"b"
        with anyio.move_on_after(0.01):
            await anext(reader)
        send.send_nowait(b"lf\nlast")
        send.send_nowait(b"")
        assert [line async for line in reader] == [b"half", b"last"]
        assert [line async for line in reader] == []
