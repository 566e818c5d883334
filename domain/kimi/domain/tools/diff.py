"""Display blocks for a change of a text (tools spec 1.5).

The work is bounded: equal lines at both ends are skipped first, long texts are split at lines that occur once on either
side, and only short ranges between these are compared line by line. It can still take a good part of a second on 10 000
lines, so callers run it off the event loop (T-18). Longer texts are walked through once. What is shown is bounded too;
a summary says what is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import TypeAlias

from kimi.domain.tools.tool import DiffBlock

CONTEXT_LINES = 3
"""The number of unchanged lines shown around a change."""

MAX_LINES = 10_000
"""A longer text is not compared as closely."""

MAX_SHOWN_LINES = 2 * MAX_LINES
"""No more lines of a change are shown, old and new together."""


@dataclass(frozen=True, slots=True)
class ChangedText:
    """The whole text of a file before a change (None: there was no file) and after it, exactly as it is on the disk."""

    path: str
    old: str | None
    new: str


LineChange: TypeAlias = tuple[int, int, int, int]
"""Lines [0:1] of the old text become lines [2:3] of the new one; half open, counted from 0."""

_MAX_PAIRS = 1_000_000
_MAX_WORK = 5_000_000
_SEARCH_LINES = 500
"""How far a walk through long texts looks ahead for the place where they agree again."""
_MAX_WALKED_CHANGES = 2_000


def build_diff_blocks(path: str, old: str, new: str) -> tuple[DiffBlock, ...]:
    """Build one block per hunk, none for equal texts. Line ends are compared only when nothing else differs."""
    if old == new:
        return ()
    old, new = _normalise_line_ends(old, new)
    before, after = _split_lines(old), _split_lines(new)
    return tuple(_build_blocks(path, before, after, _group_hunks(_find_changes(before, after))))


def build_summary_block(path: str, old_lines: int, new_lines: int, reason: str = "") -> DiffBlock:
    """Build a block that shows the number of lines but none of their content; `reason` says why."""
    note = f"({new_lines} lines, modified)" if old_lines == new_lines else f"({new_lines} lines)"
    old = f"({old_lines} lines, not shown: {reason})" if reason else f"({old_lines} lines)"
    return DiffBlock(path=path, old_text=old, new_text=note, is_summary=True)


def build_new_text_blocks(path: str, texts: Sequence[str], new_start: int = 1) -> tuple[DiffBlock, ...]:
    """Build blocks that show new text alone, where the text that it replaces cannot or must not be shown."""
    blocks: list[DiffBlock] = []
    room = MAX_SHOWN_LINES
    for text in texts:
        lines = _split_lines(text)
        if lines and room:
            new = "".join(lines[:room]).removesuffix("\n")
            blocks.append(DiffBlock(path=path, old_text="", new_text=new, new_start=new_start))
        room = max(room - len(lines), 0)
    left_out = sum(map(count_lines, texts)) - MAX_SHOWN_LINES
    return (*blocks, _build_omission_block(path, 0, left_out)) if left_out > 0 else tuple(blocks)


def count_lines(text: str) -> int:
    """Count the lines as the summary does: a last line without a line break counts too."""
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def _normalise_line_ends(old: str, new: str) -> tuple[str, str]:
    if "\r" not in old and "\r" not in new:
        return old, new
    plain_old, plain_new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    return (old, new) if plain_old == plain_new else (plain_old, plain_new)


def _split_lines(text: str) -> list[str]:
    """Return the lines with their breaks; only a line feed ends a line, so that numbers agree with ReadFile."""
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _build_omission_block(path: str, old_lines: int, new_lines: int) -> DiffBlock:
    return DiffBlock(
        path=path,
        old_text=f"({old_lines} more lines, not shown)",
        new_text=f"({new_lines} more lines, not shown; the arguments of the call hold them)",
        is_summary=True,
    )


def _build_blocks(
    path: str, before: Sequence[str], after: Sequence[str], hunks: Iterable[LineChange]
) -> Iterator[DiffBlock]:
    """Yield the blocks of the hunks; past the limit, a summary of what is left out."""
    room, left_out_old, left_out_new = MAX_SHOWN_LINES, 0, 0
    for i1, i2, j1, j2 in hunks:
        i2, j2 = min(i2, len(before)), min(j2, len(after))
        size = i2 - i1 + j2 - j1
        if size <= room:
            yield _build_hunk_block(path, before, after, (i1, i2, j1, j2))
        else:
            # Each side gets half of the room, and what the other one does not need.
            half = room // 2
            i_end = i1 + min(i2 - i1, max(half, room - (j2 - j1)))
            j_end = j1 + min(j2 - j1, room - (i_end - i1))
            if room:
                yield _build_hunk_block(path, before, after, (i1, i_end, j1, j_end))
            left_out_old, left_out_new = left_out_old + i2 - i_end, left_out_new + j2 - j_end
        room = max(room - size, 0)
    if left_out_old or left_out_new:
        yield _build_omission_block(path, left_out_old, left_out_new)


def _build_hunk_block(path: str, before: Sequence[str], after: Sequence[str], hunk: LineChange) -> DiffBlock:
    i1, i2, j1, j2 = hunk
    old, new = "".join(before[i1:i2]), "".join(after[j1:j2])
    if (short := old.removesuffix("\n")) != new.removesuffix("\n"):
        old, new = short, new.removesuffix("\n")
    return DiffBlock(path=path, old_text=old, new_text=new, old_start=i1 + 1, new_start=j1 + 1)


def _group_hunks(changes: Sequence[LineChange]) -> Iterator[LineChange]:
    """Yield the changes with their context; changes whose contexts touch become one hunk."""
    group: list[LineChange] = []
    for change in changes:
        if group and change[0] - group[-1][1] > 2 * CONTEXT_LINES:
            yield _with_context(group)
            group = []
        group.append(change)
    if group:
        yield _with_context(group)


def _with_context(group: Sequence[LineChange]) -> LineChange:
    """Return the range from the first to the last change of the group; slicing cuts what lies past the end."""
    lead = min(CONTEXT_LINES, group[0][0])
    return (
        group[0][0] - lead,
        group[-1][1] + CONTEXT_LINES,
        group[0][2] - lead,
        group[-1][3] + CONTEXT_LINES,
    )


def _find_changes(before: Sequence[str], after: Sequence[str]) -> list[LineChange]:
    """Return the changed ranges in order, with neighbours joined."""
    start, tail = _count_common_ends(before, after)
    end, new_end = len(before) - tail, len(after) - tail
    found: list[LineChange] = []
    is_long = max(len(before), len(after)) > MAX_LINES
    compare = _walk_changes if is_long else _diff_range
    for change in compare(before[start:end], after[start:new_end]):
        i1, i2, j1, j2 = (number + start for number in change)
        if found and found[-1][1] == i1 and found[-1][3] == j1:
            found[-1] = (found[-1][0], i2, found[-1][2], j2)
        else:
            found.append((i1, i2, j1, j2))
    return found


def _count_common_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    shorter = min(len(before), len(after))
    start = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    rest = shorter - start
    tail = next((i for i in range(rest) if before[-1 - i] != after[-1 - i]), rest)
    return start, tail


def _diff_range(before: Sequence[str], after: Sequence[str]) -> Iterator[LineChange]:
    if not before and not after:
        return
    if _is_cheap_to_compare(before, after):
        yield from _diff_line_by_line(before, after)
    else:
        yield from _diff_at_anchors(before, after)


def _walk_changes(before: Sequence[str], after: Sequence[str]) -> Iterator[LineChange]:
    """Yield the changes of long texts in one pass; where they do not agree again soon, the rest is one change.

    So it is after very many changes.
    """
    i = j = changes = 0
    while i < len(before) and j < len(after) and changes < _MAX_WALKED_CHANGES:
        if before[i] == after[j]:
            i, j = i + 1, j + 1
            continue
        found = _find_agreement(before[i : i + _SEARCH_LINES], after[j : j + _SEARCH_LINES])
        if found is None:
            break
        yield i, i + found[0], j, j + found[1]
        i, j, changes = i + found[0], j + found[1], changes + 1
    if i < len(before) or j < len(after):
        yield i, len(before), j, len(after)


def _find_agreement(before: Sequence[str], after: Sequence[str]) -> tuple[int, int] | None:
    """Return the nearest place where two lines in a row are equal; None if there is none."""
    places: dict[tuple[str, str], int] = {}
    for j, pair in enumerate(pairwise(after)):
        places.setdefault(pair, j)
    found = ((i, places[pair]) for i, pair in enumerate(pairwise(before)) if pair in places)
    return min(found, key=sum, default=None)


def _is_cheap_to_compare(before: Sequence[str], after: Sequence[str]) -> bool:
    """Return whether comparing line by line is quick. The matcher is cubic in lines that occur often."""
    if len(before) * len(after) > _MAX_PAIRS:
        return False
    often = Counter(after)
    pairs = sum(often[line] for line in before)
    return pairs * min(len(before), len(after)) <= _MAX_WORK


def _diff_line_by_line(before: Sequence[str], after: Sequence[str]) -> Iterator[LineChange]:
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            yield i1, i2, j1, j2


def _diff_at_anchors(before: Sequence[str], after: Sequence[str]) -> Iterator[LineChange]:
    """Split at lines that occur once on either side; a range without such a line is one change as a whole."""
    anchors = _find_anchors(before, after)
    if not anchors:
        yield 0, len(before), 0, len(after)
        return
    i0 = j0 = 0
    for i, j in [*anchors, (len(before), len(after))]:
        for i1, i2, j1, j2 in _diff_between_anchors(before[i0:i], after[j0:j]):
            yield i0 + i1, i0 + i2, j0 + j1, j0 + j2
        i0, j0 = i + 1, j + 1


def _diff_between_anchors(before: Sequence[str], after: Sequence[str]) -> Iterator[LineChange]:
    """Compare the lines between two anchors if that is quick, else report one change without the equal ends."""
    start, tail = _count_common_ends(before, after)
    middle, new_middle = before[start : len(before) - tail], after[start : len(after) - tail]
    if not middle and not new_middle:
        return
    if _is_cheap_to_compare(middle, new_middle):
        changes = _diff_line_by_line(middle, new_middle)
    else:
        changes = iter([(0, len(middle), 0, len(new_middle))])
    for change in changes:
        i1, i2, j1, j2 = (number + start for number in change)
        yield i1, i2, j1, j2


def _find_anchors(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of the lines that are unique on both sides: the longest run that rises on both."""
    once_before, once_after = _index_unique_lines(before), _index_unique_lines(after)
    pairs = [(i, once_after[line]) for line, i in once_before.items() if line in once_after]
    return _longest_increasing_pairs(pairs)


def _index_unique_lines(lines: Sequence[str]) -> dict[str, int]:
    """Map each line that occurs exactly once to its index, in order."""
    often = Counter(lines)
    return {line: index for index, line in enumerate(lines) if often[line] == 1}


def _longest_increasing_pairs(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence whose second members rise; the first members rise already."""
    tops: list[int] = []
    top_at: list[int] = []
    before: list[int] = []
    for index, (_, j) in enumerate(pairs):
        pile = bisect_left(tops, j)
        before.append(top_at[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [j]
        top_at[pile : pile + 1] = [index]
    found: list[tuple[int, int]] = []
    at = top_at[-1] if top_at else -1
    while at >= 0:
        found.append(pairs[at])
        at = before[at]
    return found[::-1]
