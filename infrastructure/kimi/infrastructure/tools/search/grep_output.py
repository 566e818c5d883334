"""Reads the output of ripgrep block by block: only the page is kept, the rest is counted (tools spec 3.7).

A record is a path, a NUL, and text up to the line feed (`--files-with-matches`: only path and NUL), so file names may
contain any character. Files with secrets are not searched; what is printed of one all the same is left out in silence.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from kimi.domain.permissions.path_rules import PathScopes, is_sensitive, is_within
from kimi.infrastructure.tools.files.path_policy import ResolvedPath, make_printable
from kimi.infrastructure.tools.output import OutputBuilder, ToolOutput

if TYPE_CHECKING:
    from kimi.infrastructure.tools.search.foreign_text import FileEncodings

MAX_BUFFER_BYTES = 20 * 1024 * 1024
"""The limit of what is kept of a list of files."""

_GAP = rb"(?P<gap>--\n)"
_NOTE = (
    rb"(?P<note>(?P<noted>[^\0\n]+): "
    rb"(?:binary file matches|WARNING: stopped searching binary file after match)[^\n]*\n)"
)
_RECORD = re.compile(_GAP + b"|" + _NOTE + rb"|(?P<path>[^\0]+)\0(?P<text>[^\n]*)\n")
_GAP_OR_NOTE = re.compile(_GAP + b"|" + _NOTE)
_SEPARATORS = ("/", os.sep)
_FIRST_LOOKAHEAD_BYTES = 1024
_NUMBERED_LINE = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)


class SecretFilter:
    """Decides which paths that ripgrep prints are secret, by the printed path and by the real one."""

    def __init__(self, target: ResolvedPath, searched_path: str, work_dir: str, scopes: PathScopes) -> None:
        self._target = target
        self._searched_path = searched_path
        self._work_dir = work_dir
        roots = (target.named_path.absolute, target.real_path)
        near = tuple(
            own for own in scopes.protected if any(_is_above_or_below(own, root, scopes.windows) for root in roots)
        )
        self._scopes = replace(scopes, protected=near)
        self._one_root = target.named_path.absolute == target.real_path
        self.left_out: frozenset[str] = frozenset()
        """Paths, as ripgrep prints them, that another run of the same search shows."""

    def is_secret(self, path: str) -> bool:
        """Return whether nothing of this file may be shown, or not now."""
        return (
            path in self.left_out
            or is_sensitive(self.absolute_path(path), self._scopes)
            or (not self._one_root and is_sensitive(self.real_path(path), self._scopes))
        )

    def absolute_path(self, path: str) -> str:
        """Return the path as named, made absolute."""
        return _join_relative(self._target.named_path.absolute, self._relative_path(path))

    def real_path(self, path: str) -> str:
        """Return the real path: no link is followed below the searched path."""
        return _join_relative(self._target.real_path, self._relative_path(path))

    def display_path(self, path: str) -> str:
        """Return the path for the model: relative to the work directory, as valid text."""
        prefix = self._work_dir.rstrip("/\\") + os.sep
        return make_printable(path.removeprefix(prefix))

    def _relative_path(self, path: str) -> str:
        """Return the path below the searched path; ripgrep prints that one first, as it was given."""
        rest = path.removeprefix(self._searched_path)
        whole = not rest or self._searched_path.endswith(_SEPARATORS) or rest.startswith(_SEPARATORS)
        return rest.lstrip("".join(_SEPARATORS)) if whole else path


def _join_relative(root: str, rest: str) -> str:
    return os.path.join(root, rest) if rest else root


def _is_above_or_below(protected: str, root: str, windows: bool) -> bool:
    protected, root = protected.casefold(), root.casefold()
    return is_within(protected, [root], windows=windows) or is_within(root, [protected], windows=windows)


@dataclass(frozen=True, slots=True)
class ResultPage:
    """The page of a result: `lines` of `total` are in `output`."""

    output: ToolOutput
    lines: int
    total: int


class OutputCollector(Protocol):
    """Collects the output of one run, block by block."""

    def feed(self, block: bytes) -> None:
        """Add the next block."""
        ...

    @property
    def has_output(self) -> bool:
        """Whether anything was printed that may be shown."""
        ...


class FileListCollector:
    """Collects the paths of `--files-with-matches`, up to the buffer limit, with the time of their last change.

    `feed` looks at files, so call it in a worker thread; done block by block, it keeps step with ripgrep.
    """

    def __init__(self, secrets: SecretFilter) -> None:
        self._secrets = secrets
        self._buffer = b""
        self._size = 0
        self._files: list[tuple[int, str]] = []
        self.truncated = False
        """Whether something was dropped."""

    def feed(self, block: bytes) -> None:
        """Add the next block; what lies beyond the limit is dropped."""
        self._size += len(block)
        self.truncated = self.truncated or self._size > MAX_BUFFER_BYTES
        if self.truncated:
            return
        *paths, self._buffer = (self._buffer + block).split(b"\0")
        for name in paths:
            path = os.fsdecode(name)
            if not self._secrets.is_secret(path):
                self._files.append((-_modification_time(self._secrets.absolute_path(path)), path))

    @property
    def has_output(self) -> bool:
        """See `OutputCollector`."""
        return bool(self._files)

    @property
    def paths(self) -> list[str]:
        """The files that may be shown, as ripgrep prints them, in their order."""
        return sorted(path for _, path in self._files)

    def lines(self) -> list[str]:
        """Return the files that may be shown, newest first, then by name."""
        return [self._secrets.display_path(path) for _, path in sorted(self._files)]


class CountCollector:
    """Collects the records of `--count-matches`, up to the buffer limit."""

    def __init__(self, secrets: SecretFilter) -> None:
        self._secrets = secrets
        self._buffer = b""
        self._size = 0
        self._counts: list[tuple[str, int]] = []
        self.truncated = False
        """Whether something was dropped."""

    def feed(self, block: bytes) -> None:
        """Add the next block; what lies beyond the limit is dropped."""
        self._size += len(block)
        self.truncated = self.truncated or self._size > MAX_BUFFER_BYTES
        if self.truncated:
            return
        data, at = self._buffer + block, 0
        while record := _RECORD.match(data, at):
            at = record.end()
            self._add_record(record)
        self._buffer = data[at:]

    def _add_record(self, record: re.Match[bytes]) -> None:
        if record["path"] is not None and record["text"].isdigit():
            path = os.fsdecode(record["path"])
            if not self._secrets.is_secret(path):
                self._counts.append((path, int(record["text"])))

    @property
    def has_output(self) -> bool:
        """See `OutputCollector`."""
        return bool(self._counts)

    @property
    def file_count(self) -> int:
        """The number of files with matches."""
        return len(self._counts)

    @property
    def match_count(self) -> int:
        """The number of matches in all of them."""
        return sum(count for _, count in self._counts)

    def lines(self) -> list[str]:
        """Return path and count of each file, by path."""
        return [f"{self._secrets.display_path(path)}:{count}" for path, count in sorted(self._counts)]


def _modification_time(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


class ContentCollector:
    """Collects the lines of a search from `offset` on, at most `limit` (None: all that fit); others are counted."""

    def __init__(
        self, secrets: SecretFilter, *, offset: int, limit: int | None, has_line_numbers: bool, show_line_numbers: bool
    ) -> None:
        self._secrets = secrets
        self._offset = offset
        self._limit = limit
        self._has_line_numbers = has_line_numbers
        self._show_line_numbers = show_line_numbers
        self._builder = OutputBuilder()
        self._buffer = b""
        self._total = 0
        self._lines = 0
        self._last_path: tuple[bytes, frozenset[str], str | None] = (b"", frozenset(), None)
        self._encodings: FileEncodings | None = None
        self._has_pending_gap = False

    def feed(self, block: bytes) -> None:
        """Add the next block."""
        data = self._buffer + block
        at = 0
        while not self._is_full and (record := _RECORD.match(data, at)):
            at = record.end()
            self._add_record(record)
        if self._is_full:
            at = self._count_rest(data, at)
        self._buffer = data[at:]

    @property
    def has_output(self) -> bool:
        """See `OutputCollector`."""
        return self._total > 0

    def build_page(self) -> ResultPage:
        """Return the page. An unfinished line is dropped."""
        return ResultPage(self._builder.build(), self._lines, self._total)

    @property
    def _is_full(self) -> bool:
        return self._limit is not None and self._lines >= self._limit

    def _count_rest(self, data: bytes, at: int) -> int:
        """Count the lines beyond the page; return the index where the last whole record ends."""
        end = data.rfind(b"\n") + 1
        while at < end:
            stop = self._count_file_lines(data, at, end)
            if stop == at:
                break
            at = stop
        return at

    def _count_file_lines(self, data: bytes, at: int, end: int) -> int:
        """Count the lines of one file, which ripgrep prints together.

        Returns the index where they end, `at` if none is whole.
        """
        apart = _GAP_OR_NOTE.match(data, at)
        if apart is not None:
            self._total += 1
            return apart.end()
        nul = data.find(b"\0", at, end)
        if nul < 0:
            return at
        stop = _find_run_end(data, data[at : nul + 1], at, end)
        if self._display_path(data[at:nul]) is not None:
            breaks_each = 1 + data.count(b"\n", at, nul)
            self._total += data.count(b"\n", at, stop) // breaks_each
        return stop

    def _add_record(self, record: re.Match[bytes]) -> None:
        """Add a record. A gap between groups is shown only if a shown line follows."""
        if record["gap"]:
            self._has_pending_gap = self._total > 0
            return
        path = record["path"] or record["noted"]
        shown = self._display_path(path)
        if shown is None:
            return
        if self._has_pending_gap:
            self._add_line("--")
            self._has_pending_gap = False
        if record["note"]:
            self._add_line(shown + record["note"][len(path) :].decode("utf-8", "replace").rstrip("\n"))
        else:
            self._add_line(self._format_line(shown, record["text"], path))

    def _display_path(self, path: bytes) -> str | None:
        """Return the path for the model; None for a secret file.

        The last path is cached, because most lines have the path of the line before.
        """
        if self._last_path[:2] != (path, self._secrets.left_out):
            name = os.fsdecode(path)
            shown = None if self._secrets.is_secret(name) else self._secrets.display_path(name)
            self._last_path = (path, self._secrets.left_out, shown)
        return self._last_path[2]

    def _format_line(self, display_path: str, text: bytes, path: bytes) -> str:
        numbered = _NUMBERED_LINE.match(text) if self._has_line_numbers else None
        if numbered is None:
            return f"{display_path}:{self._decode_line(text, path)}"
        separator = numbered[2].decode()
        number = f"{numbered[1].decode()}{separator}" if self._show_line_numbers else ""
        return f"{display_path}{separator}{number}{self._decode_line(numbered[3], path)}"

    def _decode_line(self, text: bytes, path: bytes) -> str:
        line = text.removesuffix(b"\r")
        try:
            return line.decode()
        except UnicodeDecodeError:
            from kimi.infrastructure.tools.search.foreign_text import FileEncodings  # only for such a line

        self._encodings = self._encodings or FileEncodings()
        return self._encodings.decode(self._secrets.real_path(os.fsdecode(path)), line)

    def _add_line(self, line: str) -> None:
        self._total += 1
        if self._total > self._offset and not self._is_full:
            self._lines += 1
            self._builder.write(line + "\n")


def _find_run_end(data: bytes, path: bytes, at: int, end: int) -> int:
    """Return the end of the lines that begin with `path`; the first begins at `at`.

    The search looks ahead in growing steps. A line longer than a step seems to end the run; the next run then continues
    with the same path.
    """
    start = b"\n" + path
    step = _FIRST_LOOKAHEAD_BYTES
    while (last := data.rfind(start, at, min(at + step, end))) >= 0:
        at, step = last + 1, step * 2
    return data.index(b"\n", at + len(path)) + 1


def paginate_lines(lines: list[str], offset: int, limit: int | None) -> ResultPage:
    """Return the page of lines that are all known."""
    window = lines[offset:] if limit is None else lines[offset : offset + limit]
    builder = OutputBuilder()
    for line in window:
        if builder.is_full:
            break
        builder.write(line + "\n")
    return ResultPage(builder.build(), len(window), len(lines))
