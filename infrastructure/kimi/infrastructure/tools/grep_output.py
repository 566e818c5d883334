"""Reading what ripgrep prints, block by block: only the window is kept, the rest is counted (tools spec 3.7).

A record is a path, a NUL, and text up to the line feed (`--files-with-matches`: only path and NUL), so names may
hold anything that a name can. Paths of secret files are left out and remembered for the remark about them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from kimi.domain.path_rules import Zones, is_sensitive, within
from kimi.infrastructure.tools.output import Output, OutputBuilder
from kimi.infrastructure.tools.paths import Target

BUFFER_BYTES = 20 * 1024 * 1024
"""How much of a list of files is kept."""

NAMED_SECRETS = 5
"""How many secret files the remark names."""

_RECORD = re.compile(
    rb"(?P<gap>--\n)"
    rb"|(?P<note>(?P<noted>[^\0\n]+): "
    rb"(?:binary file matches|WARNING: stopped searching binary file after match)[^\n]*\n)"
    rb"|(?P<path>[^\0]+)\0(?P<text>[^\n]*)\n"
)
_PATHS = re.compile(rb"^(?:([^\0\n]+)\0[^\n]*|--|[^\0\n]*)\n", re.MULTILINE)
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
        self.names: dict[str, None] = {}
        """Secret files that had matches, as shown, in order."""

    def is_secret(self, path: str) -> bool:
        """Must nothing of this file be shown? It is remembered then."""
        secret = is_sensitive(self.absolute(path), self._zones) or is_sensitive(self.real(path), self._zones)
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
        return path.removeprefix(self._searched).lstrip("/\\")


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


class PathList:
    """Collects a list of records, up to the buffer limit: paths, or paths with their counts."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._size = 0
        self.over = False
        """Was something dropped?"""

    def feed(self, block: bytes) -> None:
        """The next block; what lies beyond the limit is dropped."""
        self.over = self.over or self._size + len(block) > BUFFER_BYTES
        if not self.over:
            self._blocks.append(block)
            self._size += len(block)

    @property
    def any(self) -> bool:
        """See `Collector`."""
        return self._size > 0

    def paths(self) -> list[str]:
        """Of `--files-with-matches`; a name that is cut off at the end is left out."""
        return [os.fsdecode(path) for path in b"".join(self._blocks).split(b"\0")[:-1]]

    def counts(self) -> Iterator[tuple[str, int]]:
        """Of `--count-matches`."""
        for record in _RECORD.finditer(b"".join(self._blocks)):
            if record["path"] is not None and record["text"].isdigit():
                yield os.fsdecode(record["path"]), int(record["text"])


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
        """Count the lines beyond the window; where the last whole one ends."""
        end = data.rfind(b"\n") + 1
        if end <= at:
            return at
        for path, lines in Counter(_PATHS.findall(data, at, end)).items():
            if not path or self._shown(path) is not None:
                self._total += lines
        return end

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


def printable(name: str) -> str:
    """File names need not be text; what is not becomes U+FFFD."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _plain(text: bytes) -> str:
    return text.removesuffix(b"\r").decode("utf-8", "replace")
