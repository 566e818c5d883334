"""Reading what ripgrep prints, block by block: only the window is kept, the rest is counted (tools spec 3.7).

A record is a path, a NUL, and text up to the line feed (`--files-with-matches`: only path and NUL), so names may
hold anything that a name can. Paths of secret files are left out and remembered for the remark about them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import Protocol

from kimi.domain.permissions.path_rules import Zones, is_sensitive, within
from kimi.infrastructure.tools.files.path_policy import Target, printable
from kimi.infrastructure.tools.output import Output, OutputBuilder

BUFFER_BYTES = 20 * 1024 * 1024
"""How much of a list of files is kept."""

NAMED_SECRETS = 5
"""How many secret files the remark names."""

_GAP = rb"(?P<gap>--\n)"
_NOTE = (
    rb"(?P<note>(?P<noted>[^\0\n]+): "
    rb"(?:binary file matches|WARNING: stopped searching binary file after match)[^\n]*\n)"
)
_RECORD = re.compile(_GAP + b"|" + _NOTE + rb"|(?P<path>[^\0]+)\0(?P<text>[^\n]*)\n")
_APART = re.compile(_GAP + b"|" + _NOTE)
_SEPARATORS = ("/", os.sep)
_FIRST_STEP = 1024
_NUMBERED = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)


class SecretFilter:
    """Tells which of the paths that ripgrep prints are secret, by the path as printed and by the real one."""

    def __init__(self, target: Target, searched: str, work_dir: str, zones: Zones) -> None:
        self._target = target
        self._searched = searched
        self._work_dir = work_dir
        roots = (target.named.absolute, target.real)
        near = tuple(own for own in zones.protected if any(_related(own, root, zones.windows) for root in roots))
        self._zones = replace(zones, protected=near)
        self._one_root = target.named.absolute == target.real
        self.names: dict[str, None] = {}
        """Secret files that had matches, as shown, in order."""

    def is_secret(self, path: str) -> bool:
        """Must nothing of this file be shown? It is remembered then."""
        secret = is_sensitive(self.absolute(path), self._zones)
        if not secret and not self._one_root:
            secret = is_sensitive(self.real(path), self._zones)
        if secret:
            self.names[self.shown(path)] = None
        return secret

    def absolute(self, path: str) -> str:
        """The path as named, made absolute."""
        return _below(self._target.named.absolute, self._rest(path))

    def real(self, path: str) -> str:
        """The real path: below the place that is searched no link is followed."""
        return _below(self._target.real, self._rest(path))

    def shown(self, path: str) -> str:
        """The path for the model: without the work dir, and text whatever the bytes are."""
        prefix = self._work_dir.rstrip("/\\") + os.sep
        return printable(path.removeprefix(prefix))

    def _rest(self, path: str) -> str:
        """The path below the place that is searched; ripgrep prints that place first, as it was given."""
        rest = path.removeprefix(self._searched)
        whole = not rest or self._searched.endswith(_SEPARATORS) or rest.startswith(_SEPARATORS)
        return rest.lstrip("".join(_SEPARATORS)) if whole else path


def _below(root: str, rest: str) -> str:
    return os.path.join(root, rest) if rest else root


def _related(own: str, root: str, windows: bool) -> bool:
    own, root = own.casefold(), root.casefold()
    return within(own, [root], windows=windows) or within(root, [own], windows=windows)


@dataclass(frozen=True, slots=True)
class Page:
    """The window of a result: `lines` of `total` are in `output`, `skipped` ones lie before it."""

    output: Output
    lines: int
    total: int


class Collector(Protocol):
    """Takes the blocks of one run."""

    def feed(self, block: bytes) -> None:
        """The next block."""
        ...

    @property
    def any(self) -> bool:
        """Has anything come at all, secret files included?"""
        ...


class FileList:
    """Collects the paths of `--files-with-matches`, up to the buffer limit, with the time of their last change.

    `feed` looks at files, so it is to be called in a worker thread; that way it keeps step with ripgrep.
    """

    def __init__(self, secrets: SecretFilter) -> None:
        self._secrets = secrets
        self._rest = b""
        self._size = 0
        self._found: list[tuple[int, str]] = []
        self.over = False
        """Was something dropped?"""

    def feed(self, block: bytes) -> None:
        """The next block; what lies beyond the limit is dropped."""
        self._size += len(block)
        self.over = self.over or self._size > BUFFER_BYTES
        if self.over:
            return
        *paths, self._rest = (self._rest + block).split(b"\0")
        for name in paths:
            path = os.fsdecode(name)
            if not self._secrets.is_secret(path):
                self._found.append((-_changed_at(self._secrets.absolute(path)), path))

    @property
    def any(self) -> bool:
        """See `Collector`."""
        return self._size > 0

    def lines(self) -> list[str]:
        """The files that may be shown, newest first, then by name."""
        return [self._secrets.shown(path) for _, path in sorted(self._found)]


class CountList:
    """Collects the records of `--count-matches`, up to the buffer limit."""

    def __init__(self, secrets: SecretFilter) -> None:
        self._secrets = secrets
        self._rest = b""
        self._size = 0
        self._found: list[tuple[str, int]] = []
        self.over = False
        """Was something dropped?"""

    def feed(self, block: bytes) -> None:
        """The next block; what lies beyond the limit is dropped."""
        self._size += len(block)
        self.over = self.over or self._size > BUFFER_BYTES
        if self.over:
            return
        data, at = self._rest + block, 0
        while record := _RECORD.match(data, at):
            at = record.end()
            self._take(record)
        self._rest = data[at:]

    def _take(self, record: re.Match[bytes]) -> None:
        if record["path"] is not None and record["text"].isdigit():
            path = os.fsdecode(record["path"])
            if not self._secrets.is_secret(path):
                self._found.append((path, int(record["text"])))

    @property
    def any(self) -> bool:
        """See `Collector`."""
        return self._size > 0

    @property
    def files(self) -> int:
        """How many files have matches."""
        return len(self._found)

    @property
    def matches(self) -> int:
        """How many matches there are in all of them."""
        return sum(count for _, count in self._found)

    def lines(self) -> list[str]:
        """Path and count of each file, by path."""
        return [f"{self._secrets.shown(path)}:{count}" for path, count in sorted(self._found)]


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


class ContentWindow:
    """The lines of a search from `offset` on, at most `limit` (None: all that fit); the others are counted."""

    def __init__(self, secrets: SecretFilter, *, offset: int, limit: int | None, numbered: bool, show: bool) -> None:
        self._secrets = secrets
        self._offset = offset
        self._limit = limit
        self._numbered = numbered
        self._show = show
        self._builder = OutputBuilder()
        self._rest = b""
        self._total = 0
        self._lines = 0
        self._last: tuple[bytes, str | None] = (b"", None)
        self._gap = False

    def feed(self, block: bytes) -> None:
        """The next block."""
        data = self._rest + block
        at = 0
        while not self._full and (record := _RECORD.match(data, at)):
            at = record.end()
            self._take(record)
        if self._full:
            at = self._count(data, at)
        self._rest = data[at:]

    @property
    def any(self) -> bool:
        """See `Collector`."""
        return self._total > 0 or bool(self._secrets.names)

    def page(self) -> Page:
        """The window. An unfinished line is dropped."""
        return Page(self._builder.build(), self._lines, self._total)

    @property
    def _full(self) -> bool:
        return self._limit is not None and self._lines >= self._limit

    def _count(self, data: bytes, at: int) -> int:
        """Count the lines beyond the window; where the last whole record ends."""
        end = data.rfind(b"\n") + 1
        while at < end:
            stop = self._count_run(data, at, end)
            if stop == at:
                break
            at = stop
        return at

    def _count_run(self, data: bytes, at: int, end: int) -> int:
        """Count the lines of one file, which ripgrep prints in one piece; where they end, `at` if none is whole."""
        apart = _APART.match(data, at)
        if apart is not None:
            self._total += 1
            return apart.end()
        nul = data.find(b"\0", at, end)
        if nul < 0:
            return at
        stop = _end_of_run(data, data[at : nul + 1], at, end)
        if self._shown(data[at:nul]) is not None:
            breaks_each = 1 + data.count(b"\n", at, nul)
            self._total += data.count(b"\n", at, stop) // breaks_each
        return stop

    def _take(self, record: re.Match[bytes]) -> None:
        """A gap between groups is shown only where a line follows that is shown."""
        if record["gap"]:
            self._gap = self._total > 0
            return
        path = record["path"] or record["noted"]
        shown = self._shown(path)
        if shown is None:
            return
        if self._gap:
            self._add("--")
            self._gap = False
        if record["note"]:
            self._add(shown + record["note"][len(path) :].decode("utf-8", "replace").rstrip("\n"))
        else:
            self._add(self._line(shown, record["text"]))

    def _shown(self, path: bytes) -> str | None:
        """The path for the model; None for a secret file. Most lines have the path of the line before."""
        if self._last[0] != path:
            name = os.fsdecode(path)
            self._last = (path, None if self._secrets.is_secret(name) else self._secrets.shown(name))
        return self._last[1]

    def _line(self, shown: str, text: bytes) -> str:
        numbered = _NUMBERED.match(text) if self._numbered else None
        if numbered is None:
            return f"{shown}:{_plain(text)}"
        separator = numbered[2].decode()
        number = f"{numbered[1].decode()}{separator}" if self._show else ""
        return f"{shown}{separator}{number}{_plain(numbered[3])}"

    def _add(self, line: str) -> None:
        self._total += 1
        if self._total > self._offset and not self._full:
            self._lines += 1
            self._builder.write(line + "\n")


def _end_of_run(data: bytes, path: bytes, at: int, end: int) -> int:
    """Where the lines that begin with `path` end; the first begins at `at`. Looks ahead in growing steps.

    After a line longer than a step the run seems to end; the next one then goes on with the same path.
    """
    start = b"\n" + path
    step = _FIRST_STEP
    while (last := data.rfind(start, at, min(at + step, end))) >= 0:
        at, step = last + 1, step * 2
    return data.index(b"\n", at + len(path)) + 1


def page_of(lines: list[str], offset: int, limit: int | None) -> Page:
    """The window of lines that are all known."""
    window = lines[offset:] if limit is None else lines[offset : offset + limit]
    builder = OutputBuilder()
    for line in window:
        if builder.full:
            break
        builder.write(line + "\n")
    return Page(builder.build(), len(window), len(lines))


def secrets_remark(names: list[str]) -> str:
    """What is said of the secret files that had matches."""
    listed = ", ".join(names[:NAMED_SECRETS])
    if len(names) > NAMED_SECRETS:
        listed += f", ... ({len(names)} files total)"
    return (
        f"Skipped {len(names)} sensitive file(s) ({listed}) to protect secrets. "
        "These files may contain credentials or private keys."
    )


def _plain(text: bytes) -> str:
    return text.removesuffix(b"\r").decode("utf-8", "replace")
