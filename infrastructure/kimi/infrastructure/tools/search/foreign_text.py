"""Grep in files that are not UTF-8: which ones there are, what they are in, and how their lines are shown.

ripgrep searches bytes, which is right for a pattern in ASCII. For any other pattern the files that are not UTF-8 are
found first, by a search for bytes that UTF-8 does not have, and then searched apart, by encoding (tools spec 2.5, 3.7).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kimi.infrastructure.tools.files.text_encoding import TextEncoding, collect_sample, detect_mark, detect_sample

MAX_FILES = 1000
"""How many files that are not UTF-8 one search looks at."""

_HEAD_BYTES = 256 * 1024
_MAX_COMMAND_CHARS = 16_000
"""The limit of the paths in one command; Windows takes 32,767 characters in all."""

_BREAK = r"(?:[\x00-\x7f\xc0-\xff]|$)"
NO_UTF8_PATTERN = (
    r"(?-u:(?:^|[\x00-\x7f])[\x80-\xbf]|[\xc0\xc1\xf5-\xff]"
    rf"|[\xc2-\xdf]{_BREAK}|[\xe0-\xef][\x80-\xbf]?{_BREAK}|[\xf0-\xf4][\x80-\xbf]{{0,2}}{_BREAK}"
    r"|[\xc2-\xdf][\x80-\xbf]{2}|[\xe0-\xef][\x80-\xbf]{3}|[\xf0-\xf4][\x80-\xbf]{4})"
)
"""An expression of ripgrep for lines that are not UTF-8."""

_RIPGREP_NAMES = {
    **{name: name for name in ("gbk", "gb18030", "big5", "shift_jis")},
    "cp950": "big5",
    "big5hkscs": "big5",
    "cp932": "shift_jis",
    "euc_jp": "euc-jp",
    "euc_kr": "euc-kr",
    "cp949": "euc-kr",
    "koi8_r": "koi8-r",
    "koi8_u": "koi8-u",
    "cp866": "ibm866",
    "iso8859_2": "iso-8859-2",
    "iso8859_15": "iso-8859-15",
    "cp874": "windows-874",
    **{f"cp{number}": f"windows-{number}" for number in range(1250, 1259)},
}


class FileEncodings:
    """The encodings of files that are not UTF-8, by absolute path; each is looked at once. Blocks."""

    def __init__(self) -> None:
        self._known: dict[str, TextEncoding | None] = {}

    def find(self, path: str) -> TextEncoding | None:
        """Return what the file is in; None for UTF-8, for what cannot be told, and for what is no regular file."""
        if path not in self._known:
            self._known[path] = tell_encoding(_read_head(path)) if len(self._known) < MAX_FILES else None
        return self._known[path]

    def decode(self, path: str, line: bytes) -> str:
        """Return a line of the file as text; it may be cut, also within a character."""
        try:
            return line.decode()
        except UnicodeDecodeError:
            encoding = self.find(path)
            return line.decode("utf-8" if encoding is None else encoding.codec, "replace")


def tell_encoding(head: bytes) -> TextEncoding | None:
    """Return the encoding of a file that begins with `head`, if it is neither UTF-8 nor known to ripgrep by a mark."""
    head = head[:_HEAD_BYTES]
    if detect_mark(head[:512]) is not None or b"\0" in head:
        return None
    found = detect_sample(collect_sample(head))
    return None if found is None or found.damaged else found


def group_by_encoding(paths: Iterable[str], absolute: Mapping[str, str], known: FileEncodings) -> dict[str, list[str]]:
    """Return the paths by the name that ripgrep has for their encoding; those without one are left out. Blocks."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        found = known.find(absolute[path])
        if found is not None and (name := _RIPGREP_NAMES.get(found.codec)) is not None:
            groups.setdefault(name, []).append(path)
    return groups


def batch_paths(paths: Sequence[str]) -> Iterator[list[str]]:
    """Yield the paths in lists that fit into a command line."""
    batch: list[str] = []
    size = 0
    for path in paths:
        if batch and size + len(path) > _MAX_COMMAND_CHARS:
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += len(path) + 3
    if batch:
        yield batch


def _read_head(path: str) -> bytes:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _HEAD_BYTES)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
