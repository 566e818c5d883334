"""Streamed Markdown in pieces that are final: each can be drawn once and never again.

Work is linear in the text however it was cut, and what is still open stays small: long code blocks, lists and
paragraphs are given out in parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kimi.interfaces.shell.render.blocks import CodeSaid, Said

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})\s*([^`\s]*)[^`]*$")
_LIST = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")

MAX_CODE_LINES = 40
MAX_OPEN_LINES = 120
MAX_OPEN_CHARACTERS = 4000

Piece = Said | CodeSaid


class MarkdownStream:
    """Takes text as it comes and gives the pieces that are complete; `open_text` is what is not yet."""

    def __init__(self) -> None:
        self._line: list[str] = []
        self._line_size = 0
        self._lines: list[str] = []
        self._fence: str | None = None
        self._language = ""
        self._gap = False
        self._goes_on = False

    @property
    def empty(self) -> bool:
        """Is nothing open?"""
        return not self._lines and not self._line_size

    def feed(self, text: str) -> list[Piece]:
        """The next text; gives what is complete now."""
        done: list[Piece] = []
        *whole, rest = text.split("\n")
        for line in whole:
            self._line.append(line)
            done += self._take("".join(self._line))
            self._line, self._line_size = [], 0
        if rest:
            self._line.append(rest)
            self._line_size += len(rest)
            if self._line_size > MAX_OPEN_CHARACTERS:
                done += self._split_long_line()
        return done

    def end(self) -> list[Piece]:
        """The text is over: what was still open."""
        done = list(self._take("".join(self._line))) if self._line else []
        self._line, self._line_size = [], 0
        done += self._release()
        self._fence = None
        return done

    def open_text(self, lines: int = 40) -> Piece | None:
        """The end of what is open, at most `lines` lines; None when nothing is."""
        if self.empty:
            return None
        shown = [*self._lines[-lines:], "".join(self._line)]
        text = "\n".join(shown).rstrip("\n")
        return Said(text) if self._fence is None else CodeSaid(self._language, text, self._goes_on)

    def _take(self, line: str) -> Iterator[Piece]:
        if self._fence is not None:
            yield from self._take_code(line)
        elif (match := _FENCE.match(line)) is not None:
            yield from self._release()
            self._fence, self._language, self._goes_on = match[2], match[3], False
        elif not line.strip():
            self._gap = bool(self._lines)
            if not self._in_list:
                yield from self._release()
        else:
            yield from self._take_text(line)

    def _take_code(self, line: str) -> Iterator[Piece]:
        stripped = line.strip()
        fence = self._fence or ""
        if stripped and not stripped.strip(fence[0]) and len(stripped) >= len(fence):
            yield from self._release()
            self._fence = None
            return
        self._lines.append(line)
        if len(self._lines) >= MAX_CODE_LINES:
            yield from self._release()

    def _take_text(self, line: str) -> Iterator[Piece]:
        is_item = _LIST.match(line) is not None
        leaves_list = self._in_list and self._gap and not is_item and not line.startswith((" ", "\t"))
        if leaves_list or _HEADING.match(line) or len(self._lines) >= MAX_OPEN_LINES:
            yield from self._release()
        elif self._gap:
            self._lines.append("")
        self._gap = False
        self._lines.append(line)
        if _HEADING.match(line):
            yield from self._release()

    @property
    def _in_list(self) -> bool:
        return bool(self._lines) and _LIST.match(self._lines[0]) is not None

    def _release(self) -> list[Piece]:
        text = "\n".join(self._lines)
        self._lines, self._gap = [], False
        if self._fence is not None:
            goes_on, self._goes_on = self._goes_on, True
            return [CodeSaid(self._language, text, goes_on)] if text else []
        return [Said(text)] if text.strip() else []

    def _split_long_line(self) -> list[Piece]:
        """A line without end is given out up to its last blank, so that what is open stays small."""
        text = "".join(self._line)
        head, _, tail = text.rpartition(" ")
        head, tail = (head, tail) if head else (text, "")
        self._line, self._line_size = ([tail] if tail else []), len(tail)
        self._lines.append(head)
        return self._release()
