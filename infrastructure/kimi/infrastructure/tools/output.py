"""Output limits: the part of a long text that reaches the model (tools spec 1.6).

`OutputBuilder` keeps the beginning; `HeadTailBuffer` keeps beginning and end, with the full text in a file. Both take
any amount of text in pieces and use a fixed amount of memory.
"""

from __future__ import annotations

import codecs
import os
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from kimi.domain.tools.tool import DisplayBlock, ToolReturnValue, tool_error, tool_ok

MAX_CHARS = 50_000
MAX_LINE_CHARS = 2_000
HEAD_CHARS = 30_000
TAIL_CHARS = 20_000
MAX_SPILL_BYTES = 10 * 1024 * 1024
"""The largest file for the full output, the closing remark not counted."""

TRUNCATION_MARKER = "[...truncated]"
TRUNCATED_SENTENCE = "Output is truncated to fit in the message."
_SPILL_LIMIT_NOTE = "\n[...the rest is not kept: the output is longer than 10 MiB]\n"


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The text for the model; `truncated` is set if anything is missing from it."""

    text: str
    truncated: bool = False

    def ok(
        self, message: str = "", *, brief: str | None = None, display: tuple[DisplayBlock, ...] = ()
    ) -> ToolReturnValue:
        """Return a success with this output. The message ends in a full stop."""
        if message and not message.endswith("."):
            message += "."
        return tool_ok(self.text, self._append_truncation_note(message), brief=brief, display=display)

    def error(self, message: str, brief: str) -> ToolReturnValue:
        """Return a failure with this output."""
        return tool_error(self._append_truncation_note(message), brief, output=self.text)

    def _append_truncation_note(self, message: str) -> str:
        if not self.truncated:
            return message
        return f"{message} {TRUNCATED_SENTENCE}" if message else TRUNCATED_SENTENCE


class OutputBuilder:
    """Keeps the beginning of a text: at most `max_chars`, each line at most `max_line_chars`, line breaks counted.

    With None as `max_line_chars`, a line may be as long as the whole text.
    """

    def __init__(self, max_chars: int = MAX_CHARS, max_line_chars: int | None = MAX_LINE_CHARS) -> None:
        self._max_chars = max_chars
        self._max_line = max_chars if max_line_chars is None else max_line_chars
        self._lines: list[str] = []
        self._size = 0
        self._open_line = ""
        self._has_cut_line = False
        self._is_full = False

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached, so that further text is dropped."""
        return self._is_full

    def write(self, text: str) -> None:
        """Add text; a line may come in several pieces."""
        for piece in text.splitlines(keepends=True):
            if self._is_full:
                return
            self._extend_line(piece)

    def build(self) -> ToolOutput:
        """Return what has been kept. The builder takes no more text."""
        self._close_line()
        return ToolOutput("".join(self._lines), self._is_full or self._has_cut_line)

    def _extend_line(self, piece: str) -> None:
        """Extend the open line. A line that is too long keeps one more character than allowed, which marks it."""
        line_break = _trailing_line_break(piece)
        body = piece.removesuffix(line_break)
        capacity = self._max_line + 1 - len(self._open_line)
        self._open_line += body[: max(capacity, 0)] + line_break
        if line_break:
            self._close_line()

    def _close_line(self) -> None:
        line, self._open_line = self._open_line, ""
        if not line:
            return
        cut = truncate_line(line, self._max_line)
        self._has_cut_line = self._has_cut_line or cut != line
        if self._size + len(cut) <= self._max_chars:
            self._append(cut)
        else:
            self._append_truncated(cut)

    def _append(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line)

    def _append_truncated(self, line: str) -> None:
        """Shorten `line`, or the last one that still fits, so that the marker is within the limit."""
        self._is_full = True
        while self._lines and self._max_chars - self._size < len(TRUNCATION_MARKER) + len(_trailing_line_break(line)):
            line = self._lines.pop()
            self._size -= len(line)
        self._append(_truncate_with_marker(line, min(self._max_chars - self._size, self._max_line)))


class HeadTailBuffer:
    """Keeps the beginning and the end of a stream of bytes: at most `HEAD_CHARS` + `TAIL_CHARS` and a line between.

    The stream is decoded as UTF-8, with U+FFFD in place of invalid bytes. As soon as something must be dropped, the
    full text goes to the file that `new_spill_path` names (mode 0600, at most `MAX_SPILL_BYTES`), if it names one and
    the file can be made.
    """

    def __init__(self, new_spill_path: Callable[[], str | None]) -> None:
        self._new_spill_path = new_spill_path
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._size = 0
        self._spill_file: SpillFile | None = None

    def write(self, block: bytes) -> None:
        """Add a block of the stream; a character may be spread over two blocks."""
        self._add_text(self._decoder.decode(block))

    def build(self) -> ToolOutput:
        """Return what has been kept, with long lines cut. The buffer takes no more text."""
        self._add_text(self._decoder.decode(b"", True))
        if self._spill_file is not None:
            self._spill_file.close()
        dropped = self._size - HEAD_CHARS - TAIL_CHARS
        head, tail = "".join(self._head), "".join(self._tail)
        if dropped <= 0:
            text = truncate_lines(head + tail)
            return ToolOutput(text, text != head + tail)
        head = _ensure_line_break(truncate_lines(head))
        return ToolOutput(head + self._format_gap(dropped) + truncate_lines(tail[-TAIL_CHARS:]), truncated=True)

    def close(self) -> None:
        """Close the file, if there is one; for a stream whose end is not needed any more. Idempotent."""
        if self._spill_file is not None:
            self._spill_file.close()

    def _format_gap(self, dropped: int) -> str:
        spill_note = f"; full output: {self._spill_file.path}" if self._spill_file is not None else ""
        return f"[...truncated {dropped} chars{spill_note}]\n"

    def _add_text(self, text: str) -> None:
        if not text:
            return
        before, self._size = self._size, self._size + len(text)
        if before <= HEAD_CHARS + TAIL_CHARS < self._size:
            self._open_spill_file()
        if self._spill_file is not None:
            self._spill_file.write(text)
        capacity = HEAD_CHARS - before
        if capacity > 0:
            self._head.append(text[:capacity])
            text = text[capacity:]
        self._keep_tail(text)

    def _open_spill_file(self) -> None:
        """Start the file with all text so far, none of which has been dropped yet."""
        path = self._new_spill_path()
        self._spill_file = SpillFile.create(path) if path is not None else None
        if self._spill_file is not None:
            self._spill_file.write("".join([*self._head, *self._tail]))

    def _keep_tail(self, text: str) -> None:
        text = text[-TAIL_CHARS:]
        if not text:
            return
        self._tail.append(text)
        self._tail_size += len(text)
        while self._tail_size - len(self._tail[0]) >= TAIL_CHARS:
            self._tail_size -= len(self._tail.popleft())


class SpillFile:
    """A file of the session for output that is too long, readable only by its owner."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        self._bytes_left = MAX_SPILL_BYTES

    @classmethod
    def create(cls, path: str) -> SpillFile | None:
        """Create a new file with its directories; None if it exists already or the system refuses."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            return cls(path, os.open(path, flags, 0o600))
        except OSError:
            return None

    def write(self, text: str) -> None:
        """Add text up to the limit; a full disk ends the file early."""
        if self._descriptor is None:
            return
        data = text.encode("utf-8", "replace")
        try:
            self._write_all(self._descriptor, data[: self._bytes_left])
            if len(data) > self._bytes_left:
                self._write_all(self._descriptor, _SPILL_LIMIT_NOTE.encode())
        except OSError:
            self.close()
            return
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            self.close()

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @staticmethod
    def _write_all(descriptor: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def write_spill_file(path: str, text: str) -> str | None:
    """Write `text` to a new file, at most `MAX_SPILL_BYTES` of it; return `path`, or None if not made. Blocks."""
    file = SpillFile.create(path)
    if file is None:
        return None
    with closing(file):
        file.write(text)
    return path


def truncate_lines(text: str) -> str:
    """Cut every line of `text` to `MAX_LINE_CHARS` characters, marker and line break counted."""
    return "".join([truncate_line(line, MAX_LINE_CHARS) for line in text.splitlines(keepends=True)])


def truncate_line(line: str, limit: int) -> str:
    """Cut one line with its line break to `limit` characters if it is longer (T-19)."""
    return line if len(line) <= limit else _truncate_with_marker(line, limit)


def _truncate_with_marker(line: str, limit: int) -> str:
    """Return the beginning of `line`, the marker once and its line break, together at most `limit` characters."""
    line_break = _trailing_line_break(line)
    capacity = max(limit - len(TRUNCATION_MARKER) - len(line_break), 0)
    return line.removesuffix(line_break).removesuffix(TRUNCATION_MARKER)[:capacity] + TRUNCATION_MARKER + line_break


def _trailing_line_break(line: str) -> str:
    """Return the line break at the end of the line: one or two characters, or nothing."""
    return line[len(line.splitlines()[0]) :] if line else ""


def _ensure_line_break(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
