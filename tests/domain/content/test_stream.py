"""Merging streamed parts."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.content.message import Function, ToolCall, ToolCallPart
from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart, ThinkPart
from kimi.domain.content.stream import MergedPart, PartMerger, StreamPart

IMAGE = ImagePart(MediaUrl("u"))


def merged(*parts: StreamPart) -> list[MergedPart]:
    """All parts, put together."""
    merger = PartMerger()
    done = [whole for part in parts for whole in merger.push(part)]
    return done + merger.flush()


def test_consecutive_parts_of_one_kind_are_merged() -> None:
    parts = (TextPart("a"), TextPart("b"), ThinkPart("c"), ThinkPart("d"), IMAGE, TextPart("e"))
    assert merged(*parts) == [TextPart("ab"), ThinkPart("cd"), IMAGE, TextPart("e")]


def test_a_signature_closes_a_thought() -> None:
    parts = (ThinkPart("a"), ThinkPart("b", "sig"), ThinkPart("c"))
    assert merged(*parts) == [ThinkPart("ab", "sig"), ThinkPart("c")]


def test_argument_pieces_join_the_latest_call_and_orphans_are_dropped() -> None:
    call = ToolCall("c", Function("F", None))
    parts = (ToolCallPart("lost"), call, ToolCallPart('{"a"'), ToolCallPart(None), ToolCallPart(":1}"), TextPart("t"))
    assert merged(*parts) == [ToolCall("c", Function("F", '{"a":1}')), TextPart("t")]


def test_call_without_arguments_keeps_null_arguments() -> None:
    call = ToolCall("c", Function("F", None))
    assert merged(call, call) == [call, call]


def a_call(arguments: str | None) -> ToolCall:
    """A call with these arguments so far."""
    return ToolCall("c", Function("F", arguments))


streams = st.lists(
    st.one_of(
        st.builds(TextPart, st.text(max_size=3)),
        st.builds(ThinkPart, st.text(max_size=3), st.none() | st.just("sig")),
        st.builds(a_call, st.none() | st.text(max_size=3)),
        st.builds(ToolCallPart, st.none() | st.text(max_size=3)),
        st.just(IMAGE),
    ),
    max_size=12,
)


@given(streams)
def test_merging_is_idempotent(parts: list[StreamPart]) -> None:
    whole = merged(*parts)
    assert merged(*whole) == whole


@given(st.lists(st.text(max_size=4), min_size=1), st.integers(0, 20))
def test_merged_text_does_not_depend_on_chunking(pieces: list[str], at: int) -> None:
    text = "".join(pieces)
    cut = [TextPart(text[:at]), TextPart(text[at:])]
    assert merged(*(TextPart(piece) for piece in pieces)) == merged(*cut)


def test_two_mergers_of_one_stream_share_the_text_of_long_pieces() -> None:
    tracemalloc.start()
    try:
        mergers = PartMerger(), PartMerger()
        for number in range(4096):
            piece = TextPart(f"{number:2000}")
            for merger in mergers:
                merger.push(piece)
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held < 1.25 * 4096 * 2000
