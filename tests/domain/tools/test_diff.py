"""Diff blocks: hunks, line numbers, summaries, bounded work."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.tools.diff import MAX_LINES, MAX_SHOWN_LINES, build_diff_blocks, build_summary_block, count_lines
from kimi.domain.tools.tool import DiffBlock


def numbered(count: int) -> list[str]:
    return [f"line {number}" for number in range(1, count + 1)]


def text_of(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def changed(lines: list[str], *places: int) -> list[str]:
    return [f"{line} new" if index + 1 in places else line for index, line in enumerate(lines)]


@pytest.mark.spec("T-17")
def test_diff_has_hunks_or_nothing() -> None:
    lines = numbered(200)
    first, second = build_diff_blocks("f", text_of(lines), text_of(changed(lines, 20, 120)))
    assert (first.old_start, first.new_start) == (17, 17)
    assert (second.old_start, second.new_start) == (117, 117)
    assert first.old_text == "\n".join(lines[16:23])
    assert "line 20 new" in first.new_text
    assert build_diff_blocks("f", "same\n", "same\n") == ()


@pytest.mark.spec("R-234")
@pytest.mark.parametrize("count", [MAX_LINES + 1, 300_000])
def test_a_change_of_a_long_text_is_shown_with_its_context(count: int) -> None:
    lines = numbered(count)
    changed_lines = changed(lines, 20, count // 2, count - 20)
    blocks = build_diff_blocks("f", text_of(lines), text_of([*changed_lines, "added"]))
    assert [block.new_start for block in blocks] == [17, count // 2 - 3, count - 23, count - 2]
    assert blocks[1].old_text == "\n".join(lines[count // 2 - 4 : count // 2 + 3])
    assert blocks[1].new_text == "\n".join(changed_lines[count // 2 - 4 : count // 2 + 3])
    assert blocks[-1].new_text.endswith("\nadded")
    assert not any(block.is_summary for block in blocks)


@pytest.mark.spec("R-234")
@pytest.mark.parametrize(("old", "new"), [(0, 30_000), (30_000, 0), (15_000, 25_000), (25_000, 25_000)])
def test_lines_that_are_not_shown_are_counted(old: int, new: int) -> None:
    blocks = build_diff_blocks("f", text_of(numbered(old)), text_of([f"other {n}" for n in range(new)]))
    *shown, summary = blocks
    assert summary.is_summary
    shown_old, shown_new = (sum(map(count_lines, texts)) for texts in zip(*map(_both_texts, shown), strict=True))
    assert shown_old + shown_new == MAX_SHOWN_LINES
    assert summary.old_text == f"({old - shown_old} more lines, not shown)"
    assert summary.new_text.startswith(f"({new - shown_new} more lines, not shown")


def _both_texts(block: DiffBlock) -> tuple[str, str]:
    return block.old_text, block.new_text


def test_long_texts_that_differ_everywhere_are_compared_in_bounded_time() -> None:
    lines = numbered(200_000)
    every_third = [line if n % 3 else f"{line} new" for n, line in enumerate(lines)]
    began = time.process_time()
    assert build_diff_blocks("f", text_of(lines), text_of(every_third))[-1].is_summary
    assert build_diff_blocks("f", text_of(lines), text_of(lines[::-1]))[-1].is_summary
    assert time.process_time() - began < 10  # it takes 0.5


def test_an_insertion_shifts_the_numbers_of_the_new_side() -> None:
    lines = numbered(60)
    grown = [*lines[:10], "added", *lines[10:49], "changed", *lines[50:]]
    first, second = build_diff_blocks("f", text_of(lines), text_of(grown))
    assert (first.old_start, first.new_start) == (8, 8)
    assert (second.old_start, second.new_start) == (47, 48)


def test_a_new_file_starts_at_line_one() -> None:
    (block,) = build_diff_blocks("f", "", "a\nb\n")
    assert block == DiffBlock(path="f", old_text="", new_text="a\nb")


def test_changed_final_line_break_is_visible() -> None:
    (block,) = build_diff_blocks("f", "a\nb\n", "a\nb")
    assert (block.old_text, block.new_text) == ("a\nb\n", "a\nb")


def test_line_endings_show_only_when_nothing_else_differs() -> None:
    (block,) = build_diff_blocks("f", "a\r\nb\r\n", "a\r\nc\r\n")
    assert (block.old_text, block.new_text) == ("a\nb", "a\nc")
    (block,) = build_diff_blocks("f", "a\r\n", "a\n")
    assert block.old_text != block.new_text


def test_summary_contains_no_content() -> None:
    assert build_summary_block("f", 3, 3).new_text == "(3 lines, modified)"
    assert count_lines("a\nb") == count_lines("a\nb\n") == 2
    assert count_lines("") == 0


lines_of_text = st.lists(st.sampled_from(["a", "b", "c", "d", "long line"]), max_size=40)


@given(lines_of_text, lines_of_text)
def test_hunks_turn_the_old_text_into_the_new_one(before: list[str], after: list[str]) -> None:
    result = list(before)
    for block in reversed(build_diff_blocks("f", text_of(before), text_of(after))):
        start = block.old_start - 1
        removed = block.old_text.split("\n") if block.old_text else []
        assert result[start : start + len(removed)] == removed
        result[start : start + len(removed)] = block.new_text.split("\n") if block.new_text else []
    assert result == after


@given(lines_of_text, lines_of_text)
def test_hunk_shows_at_most_three_context_lines(before: list[str], after: list[str]) -> None:
    for block in build_diff_blocks("f", text_of(before), text_of(after)):
        old, new = block.old_text.split("\n"), block.new_text.split("\n")
        assert old != new
        assert not (len(old) > 4 and len(new) > 4 and old[:4] == new[:4])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["x"] * 9_000, ["x", "y"] * 4_500),
        ([f"{i}" for i in range(10_000)], [f"{i}" if i % 2 else "z" for i in range(10_000)]),
        (["a", "b"] * 5_000, ["b", "b", "a"] * 3_000),
        ([f"{i}" for i in range(10_000)], [f"{i}" for i in reversed(range(10_000))]),
    ],
)
def test_hard_cases_take_bounded_time(before: list[str], after: list[str]) -> None:
    started = time.process_time()
    assert build_diff_blocks("f", text_of(before), text_of(after))
    assert time.process_time() - started < 10
