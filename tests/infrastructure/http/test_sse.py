"""Server-sent events: whatever the cut, the same payloads."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.infrastructure.http.sse import DONE, SseParser

TEXTS = st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=("Cs",)), min_size=1)


def parse(stream: bytes, cuts: list[int]) -> list[bytes]:
    parser = SseParser()
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    blocks = [stream[start:end] for start, end in pairwise(edges)]
    events = [event for block in blocks for event in parser.feed(block)]
    return events + parser.flush()


@given(st.lists(TEXTS), st.lists(st.integers(min_value=0)), st.sampled_from([b"\n", b"\r\n"]))
def test_chunking_does_not_change_the_payloads(texts: list[str], cuts: list[int], line_end: bytes) -> None:
    payloads = [text.encode() for text in texts]
    stream = b"".join(b"data: " + payload + line_end * 2 for payload in payloads)
    assert parse(stream, cuts) == payloads


@pytest.mark.parametrize(
    ("stream", "payloads"),
    [
        (b": a comment\n\ndata: x\n\n", [b"x"]),
        (b"\xef\xbb\xbfdata: x\n\ndata: y\n\n", [b"x", b"y"]),
        (b"event: chunk\nid: 7\nretry: 3\ndata: x\n\n", [b"x"]),
        (b"data:x\n\ndata:  y\n\n", [b"x", b" y"]),
        (b"data: one\ndata: two\n\n", [b"one\ntwo"]),
        (b"data: one\r\ndata: two\r\n\r\n", [b"one\ntwo"]),
        (b"data: [DONE]\n\n", [DONE]),
        (b"data: no blank line at the end", [b"no blank line at the end"]),
        (b"\n\n\ndata: x\n\n\n\n", [b"x"]),
        (b"data\n\n", [b""]),
        (b"dataset: x\n\n", []),
        (b"", []),
    ],
)
def test_stream_forms_are_parsed(stream: bytes, payloads: list[bytes]) -> None:
    assert parse(stream, []) == payloads
    assert parse(stream, list(range(len(stream)))) == payloads


def test_a_long_line_in_small_blocks_takes_linear_time() -> None:
    parser = SseParser()
    started = time.perf_counter()
    parser.feed(b"data: ")
    for _ in range(200_000):
        parser.feed(b"twenty characters ok")
    assert len(parser.feed(b"\n\n")[0]) == 4_000_000
    assert time.perf_counter() - started < 20
