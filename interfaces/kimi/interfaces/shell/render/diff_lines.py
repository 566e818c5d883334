"""A hunk of a diff as numbered lines."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Literal, NamedTuple, TypeAlias

from kimi.domain.tools.tool import DiffBlock
from kimi.interfaces.shell.render.sanitize import neutralize

Sign: TypeAlias = Literal[" ", "-", "+"]
MAX_COMPARED = 1500
"""Texts with more lines together are not compared: all old lines are shown before all new ones."""


class DiffLine(NamedTuple):
    """One line: its number in the new text (in the old one if it was removed), its sign, its neutralized text."""

    number: int
    sign: Sign
    text: str

    @property
    def plain(self) -> str:
        """The line without colour."""
        return f"{self.number:>4} {self.sign} {self.text}"


def build_diff_lines(block: DiffBlock) -> list[DiffLine]:
    """Return the lines of a hunk; for a summary, its two sentences."""
    if block.is_summary:
        return [DiffLine(1, "-", neutralize(block.old_text)), DiffLine(1, "+", neutralize(block.new_text))]
    old, new = _split_lines(block.old_text), _split_lines(block.new_text)
    return list(_compare_lines(old, new, block.old_start, block.new_start))


def _split_lines(text: str) -> list[str]:
    return neutralize(text).expandtabs(4).removesuffix("\n").split("\n") if text else []


def _compare_lines(old: list[str], new: list[str], old_start: int, new_start: int) -> Iterator[DiffLine]:
    if len(old) + len(new) > MAX_COMPARED:
        codes = [("replace", 0, len(old), 0, len(new))]
    else:
        codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for tag, i1, i2, j1, j2 in codes:
        if tag == "equal":
            yield from (DiffLine(new_start + j, " ", new[j]) for j in range(j1, j2))
            continue
        yield from (DiffLine(old_start + i, "-", old[i]) for i in range(i1, i2))
        yield from (DiffLine(new_start + j, "+", new[j]) for j in range(j1, j2))
