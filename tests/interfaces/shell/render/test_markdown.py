"""Streamed Markdown comes out in final pieces, whole and in order, in linear time."""

import time

from hypothesis import given
from hypothesis import strategies as st

from kimi.interfaces.shell.render.blocks import CodeSaid, Said
from kimi.interfaces.shell.render.markdown import MAX_CODE_LINES, MAX_OPEN_CHARACTERS, MarkdownStream, Piece

LINES = st.sampled_from(["text", "- item", "  - inner", "1. one", "", "```py", "```", "~~~~", "# head", "| a |", "> q"])


def pieces(text: str, sizes: list[int]) -> list[Piece]:
    """What comes of a text in pieces of these sizes, again and again."""
    stream, found, at = MarkdownStream(), list[Piece](), 0
    for number in range(len(text) + 1):
        size = sizes[number % len(sizes)]
        found += stream.feed(text[at : at + size])
        at += size
        if at >= len(text):
            break
    return [*found, *stream.end()]


@given(st.lists(LINES, max_size=30).map("\n".join), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_it_does_not_matter_how_the_text_was_cut(text: str, sizes: list[int]) -> None:
    assert pieces(text, sizes) == pieces(text, [10_000])


@given(st.lists(LINES, max_size=40).map("\n".join))
def test_nothing_is_lost(text: str) -> None:
    shown = "\n".join(piece.text for piece in pieces(text, [7]))
    for word in ("text", "item", "inner", "one", "head", "> q"):
        assert shown.count(word) == text.count(word)


def test_blocks_are_given_out_as_soon_as_they_are_complete() -> None:
    stream = MarkdownStream()
    assert stream.feed("# Title\nSome ") == [Said("# Title")]
    assert stream.open_text() == Said("Some ")
    assert stream.feed("words.\n\n- a\n- b\n") == [Said("Some words.")]
    assert stream.feed("\n- c\n\nafter\n```python\nx = 1\n") == [Said("- a\n- b\n\n- c"), Said("after")]
    assert stream.open_text() == CodeSaid("python", "x = 1")
    assert stream.feed("```\n") == [CodeSaid("python", "x = 1")]
    assert stream.empty


def test_what_is_open_stays_small() -> None:
    stream = MarkdownStream()
    code = stream.feed("```\n" + "line\n" * 500)
    assert all(isinstance(piece, CodeSaid) for piece in code)
    assert [piece.text.count("\n") + 1 for piece in code] == [MAX_CODE_LINES] * (500 // MAX_CODE_LINES)
    assert [piece.goes_on for piece in code if isinstance(piece, CodeSaid)] == [False] + [True] * (len(code) - 1)
    stream = MarkdownStream()
    for _ in range(5000):
        stream.feed("word ")
    open_text = stream.open_text()
    assert open_text is not None
    assert len(open_text.text) <= MAX_OPEN_CHARACTERS + 10


def test_many_chunks_cost_as_much_each() -> None:
    def seconds(count: int) -> float:
        stream = MarkdownStream()
        began = time.process_time()
        for number in range(count):
            stream.feed("word " if number % 200 else "\n\n")
        return time.process_time() - began

    seconds(2000)
    assert seconds(80_000) < 20 * seconds(20_000) + 0.5
