"""The window of lines that a tool shows of a text, which comes in pieces (tools spec 3.2)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimi.infrastructure.tools.files.text_encoding import TextEncoding

MAX_LINES = 1000
MAX_LINE_CHARS = 2000
MAX_BYTES = 100 * 1024
CUT_MARKER = "..."

_MAX_KEPT_LINE_BYTES = 4 * MAX_LINE_CHARS + 8
"""Enough bytes of a line to show its first characters, whatever they are."""


class LineBreakNormalizer:
    """Turns every line break of a stream of blocks into a line feed; `size` counts the bytes that came in."""

    def __init__(self) -> None:
        self.size = 0
        self._holds_return = False

    @property
    def offset(self) -> int:
        """The offset in the file of the text that was not returned yet."""
        return self.size - self._holds_return

    def normalize(self, block: bytes) -> bytes:
        """Return the block with its breaks normalised; a return at its end waits for the next block."""
        self.size += len(block)
        if self._holds_return:
            block = b"\r" + block
        self._holds_return = block.endswith(b"\r")
        if b"\r" not in block:
            return block
        block = block[:-1] if self._holds_return else block
        return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def flush(self) -> bytes:
        """Return what was still waiting at the end of the file."""
        return b"\n" if self._holds_return else b""


@dataclass(slots=True)
class LineWindow:
    """Up to `n_lines` lines from `first_line` on, of text that comes in pieces; later lines are counted.

    `line_number` is the number of the line that the next byte belongs to. Past the limit of bytes the window ends or,
    with `keep_newest`, loses its oldest lines.
    """

    first_line: int
    n_lines: int
    line_number: int = 1
    keep_newest: bool = False
    line_started: bool = False
    has_uncounted_lines: bool = False
    is_over_bytes: bool = False
    has_foreign_bytes: bool = False
    """Whether a line has bytes that are not UTF-8."""
    encoding: TextEncoding | None = None
    """What the file is in; None for UTF-8."""
    lines: deque[tuple[int, str]] = field(default_factory=deque[tuple[int, str]])
    cut_lines: list[int] = field(default_factory=list[int])
    _partial_line: bytearray = field(default_factory=bytearray)
    _line_count: int = 0
    _byte_count: int = 0

    @property
    def is_full(self) -> bool:
        """Whether further lines are only counted."""
        return self._line_count >= min(self.n_lines, MAX_LINES) or (self.is_over_bytes and not self.keep_newest)

    @property
    def total_lines(self) -> int:
        """The number of lines seen so far, an unfinished one included."""
        return self.line_number - 1 + self.line_started

    def feed(self, text: bytes) -> None:
        """Add the next piece, whose line breaks are line feeds."""
        at = self._take_plain_lines(text, self._skip_lines(text))
        while at < len(text) and not self.is_full:
            at = self._take_line(text, at)
        if at < len(text):
            self.line_number += text.count(b"\n", at)
            self.line_started = not text.endswith(b"\n")

    def close(self) -> None:
        """Add the last line if it has no break; called at the end of the file."""
        if self.line_started and not self.is_full and self.line_number >= self.first_line:
            self._add_line("")

    def _skip_lines(self, text: bytes) -> int:
        """Skip the lines before the window; return the index where the window goes on."""
        if self.line_number >= self.first_line:
            return 0
        breaks = text.count(b"\n")
        wanted = self.first_line - self.line_number
        if breaks < wanted:
            self.line_number += breaks
            self.line_started = not text.endswith(b"\n") if text else self.line_started
            return len(text)
        self.line_number = self.first_line
        self.line_started = False
        return _find_after_break(text, wanted)

    def _take_plain_lines(self, text: bytes, at: int) -> int:
        """Take the whole lines of an ordinary text at once; return the index after them.

        Takes none where a line may be too long, unfinished or no UTF-8, or where the limit of bytes is near.
        """
        end, room = text.rfind(b"\n") + 1, min(self.n_lines, MAX_LINES) - self._line_count
        if end <= at or room <= 0 or self.keep_newest or self._partial_line or self._byte_count + end - at >= MAX_BYTES:
            return at
        try:
            lines = text[at:end].decode().split("\n")[:-1]
        except UnicodeDecodeError:
            return at
        if max(map(len, lines)) >= MAX_LINE_CHARS:
            return at
        if len(lines) > room:
            end, lines = at + _find_after_break(text[at:end], room), lines[:room]
        self.lines.extend((number, line + "\n") for number, line in enumerate(lines, self.line_number))
        self.line_number += len(lines)
        self.line_started = False
        self._line_count += len(lines)
        self._byte_count += end - at
        return end

    def _take_line(self, text: bytes, at: int) -> int:
        end = text.find(b"\n", at)
        stop = len(text) if end < 0 else end
        capacity = _MAX_KEPT_LINE_BYTES - len(self._partial_line)
        self._partial_line += text[at : min(stop, at + capacity)]
        self.line_started = True
        if end < 0:
            return stop
        self._add_line("\n")
        self.line_number += 1
        self.line_started = False
        return stop + 1

    def _add_line(self, line_break: str) -> None:
        line = self._partial_line.decode("utf-8", "replace") + line_break
        if "\ufffd" in line and len(self._partial_line) < _MAX_KEPT_LINE_BYTES:
            self.has_foreign_bytes = self.has_foreign_bytes or b"\xef\xbf\xbd" not in self._partial_line
        self._partial_line.clear()
        if len(line) > MAX_LINE_CHARS:
            line = line[: MAX_LINE_CHARS - len(CUT_MARKER) - len(line_break)] + CUT_MARKER + line_break
            self.cut_lines.append(self.line_number)
        self.lines.append((self.line_number, line))
        self._line_count += 1
        self._byte_count += len(line.encode())
        self._enforce_byte_limit()

    def _enforce_byte_limit(self) -> None:
        if not self.keep_newest:
            self.is_over_bytes = self._byte_count >= MAX_BYTES
            return
        while self._byte_count > MAX_BYTES:
            number, line = self.lines.popleft()
            self._byte_count -= len(line.encode())
            self.is_over_bytes = True
            if self.cut_lines and self.cut_lines[0] == number:
                del self.cut_lines[0]


def _find_after_break(text: bytes, count: int) -> int:
    """Return the index after the `count`th line feed of `text`, which has that many."""
    at = 0
    while (found := text.count(b"\n", at, at + 4096)) < count:
        count -= found
        at += 4096
    for _ in range(count):
        at = text.index(b"\n", at) + 1
    return at
