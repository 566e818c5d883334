"""Streamed Markdown comes out in final pieces, whole and in order, in linear time."""

import time

from hypothesis import given
from hypothesis import strategies as st

from kimi.interfaces.shell.render.blocks import MarkdownBlock, MarkdownCodeBlock
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
def test_chunking_does_not_change_the_blocks(text: str, sizes: list[int]) -> None:
    assert pieces(text, sizes) == pieces(text, [10_000])


@given(st.lists(LINES, max_size=40).map("\n".join))
def test_all_words_are_kept(text: str) -> None:
    shown = "\n".join(piece.text for piece in pieces(text, [7]))
    for word in ("text", "item", "inner", "one", "head", "> q"):
        assert shown.count(word) == text.count(word)


def test_blocks_are_emitted_as_soon_as_complete() -> None:
    stream = MarkdownStream()
    assert stream.feed("# Title\nSome ") == [MarkdownBlock("# Title")]
    assert stream.peek_open_piece() == MarkdownBlock("Some ")
    assert stream.feed("words.\n\n- a\n- b\n") == [MarkdownBlock("Some words.")]
    assert stream.feed("\n- c\n\nafter\n```python\nx = 1\n") == [
        MarkdownBlock("- a\n- b\n\n- c"),
        MarkdownBlock("after"),
    ]
    assert stream.peek_open_piece() == MarkdownCodeBlock("python", "x = 1")
    assert stream.feed("```\n") == [MarkdownCodeBlock("python", "x = 1")]
    assert stream.is_empty


def test_open_block_stays_small() -> None:
    stream = MarkdownStream()
    code = stream.feed("```\n" + "line\n" * 500)
    assert all(isinstance(piece, MarkdownCodeBlock) for piece in code)
    assert [piece.text.count("\n") + 1 for piece in code] == [MAX_CODE_LINES] * (500 // MAX_CODE_LINES)
    assert [piece.is_continuation for piece in code if isinstance(piece, MarkdownCodeBlock)] == [False] + [True] * (
        len(code) - 1
    )
    stream = MarkdownStream()
    for _ in range(5000):
        stream.feed("word ")
    open_text = stream.peek_open_piece()
    assert open_text is not None
    assert len(open_text.text) <= MAX_OPEN_CHARACTERS + 10


def test_many_chunks_take_linear_time() -> None:
    def seconds(count: int) -> float:
        stream = MarkdownStream()
        began = time.process_time()
        for number in range(count):
            stream.feed("word " if number % 200 else "\n\n")
        return time.process_time() - began

    seconds(2000)
    assert seconds(80_000) < 20 * seconds(20_000) + 0.5
