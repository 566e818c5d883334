"""Splits streamed Markdown into final pieces, each of which is drawn once and never again.

The work is linear in the text, however it is chunked. The open text stays small: long code blocks, lists and
paragraphs are returned in parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kimi.interfaces.shell.render.blocks import MarkdownBlock, MarkdownCodeBlock

_FENCE = re.compile(r"( {0,3})(`{3,}+|~{3,}+)\s*+([^`\s]*+)[^`]*+$")
"""Possessive throughout: a line of blanks that ends in a backtick would otherwise take quadratic time."""
_LIST = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")

MAX_CODE_LINES = 40
MAX_OPEN_LINES = 120
MAX_OPEN_CHARACTERS = 4000

Piece = MarkdownBlock | MarkdownCodeBlock


class MarkdownStream:
    """Takes text as it arrives and returns the pieces that are complete; it keeps the rest."""

    def __init__(self) -> None:
        self._line: list[str] = []
        self._line_size = 0
        self._lines: list[str] = []
        self._fence: str | None = None
        self._language = ""
        self._gap = False
        self._is_continuation = False

    @property
    def is_empty(self) -> bool:
        """Whether no text is open."""
        return not self._lines and not self._line_size

    def feed(self, text: str) -> list[Piece]:
        """Add text; return the pieces that are complete now."""
        done: list[Piece] = []
        *whole, rest = text.split("\n")
        for line in whole:
            self._line.append(line)
            done += self._process_line("".join(self._line))
            self._line, self._line_size = [], 0
        if rest:
            self._line.append(rest)
            self._line_size += len(rest)
            if self._line_size > MAX_OPEN_CHARACTERS:
                done += self._split_long_line()
        return done

    def end(self) -> list[Piece]:
        """End the text; return the pieces that were still open."""
        done = list(self._process_line("".join(self._line))) if self._line else []
        self._line, self._line_size = [], 0
        done += self._flush_open_lines()
        self._fence = None
        return done

    def peek_open_piece(self, lines: int = 40) -> Piece | None:
        """Return the end of the open text, at most `lines` lines; None when nothing is open."""
        if self.is_empty:
            return None
        shown = [*self._lines[-lines:], "".join(self._line)]
        text = "\n".join(shown).rstrip("\n")
        return (
            MarkdownBlock(text)
            if self._fence is None
            else MarkdownCodeBlock(self._language, text, self._is_continuation)
        )

    def _process_line(self, line: str) -> Iterator[Piece]:
        if self._fence is not None:
            yield from self._process_code_line(line)
        elif (match := _FENCE.match(line)) is not None:
            yield from self._flush_open_lines()
            self._fence, self._language, self._is_continuation = match[2], match[3], False
        elif not line.strip():
            self._gap = bool(self._lines)
            if not self._in_list:
                yield from self._flush_open_lines()
        else:
            yield from self._process_text_line(line)

    def _process_code_line(self, line: str) -> Iterator[Piece]:
        stripped = line.strip()
        fence = self._fence or ""
        if stripped and not stripped.strip(fence[0]) and len(stripped) >= len(fence):
            yield from self._flush_open_lines()
            self._fence = None
            return
        self._lines.append(line)
        if len(self._lines) >= MAX_CODE_LINES:
            yield from self._flush_open_lines()

    def _process_text_line(self, line: str) -> Iterator[Piece]:
        is_item = _LIST.match(line) is not None
        leaves_list = self._in_list and self._gap and not is_item and not line.startswith((" ", "\t"))
        if leaves_list or _HEADING.match(line) or len(self._lines) >= MAX_OPEN_LINES:
            yield from self._flush_open_lines()
        elif self._gap:
            self._lines.append("")
        self._gap = False
        self._lines.append(line)
        if _HEADING.match(line):
            yield from self._flush_open_lines()

    @property
    def _in_list(self) -> bool:
        return bool(self._lines) and _LIST.match(self._lines[0]) is not None

    def _flush_open_lines(self) -> list[Piece]:
        text = "\n".join(self._lines)
        self._lines, self._gap = [], False
        if self._fence is not None:
            goes_on, self._is_continuation = self._is_continuation, True
            return [MarkdownCodeBlock(self._language, text, goes_on)] if text else []
        return [MarkdownBlock(text)] if text.strip() else []

    def _split_long_line(self) -> list[Piece]:
        """Split a long open line at its last blank, so that the open text stays small; return the complete part."""
        text = "".join(self._line)
        head, _, tail = text.rpartition(" ")
        head, tail = (head, tail) if head else (text, "")
        self._line, self._line_size = ([tail] if tail else []), len(tail)
        self._lines.append(head)
        return self._flush_open_lines()
