"""Copies what somebody else packed: regular files and directories only, with bounds on number and size."""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from kimi.application.admin.plugins import PluginRefused

MAX_FILES = 2_000
MAX_BYTES = 64 * 1024 * 1024
MAX_LEVELS = 16
MAX_PATH_CHARS = 512
MAX_DIRECTORY_BYTES = 2 * 1024 * 1024
"""The table of contents of an archive, which is read as a whole."""

_LEFT_OUT = frozenset({".git", "__pycache__"})
_BLOCK_BYTES = 1024 * 1024
_END_RECORD = b"PK\x05\x06"
_END_RECORD_BYTES = 22
_LARGE_LOCATOR = b"PK\x06\x07"
_LARGE_LOCATOR_BYTES = 20
_MAX_COMMENT_BYTES = 65_535


class _CopyLimits:
    """What may still be copied of one plugin."""

    def __init__(self) -> None:
        self._files = self._bytes = 0

    def add_file(self) -> None:
        """Raises PluginRefused: there are too many."""
        self._files += 1
        if self._files > MAX_FILES:
            raise PluginRefused(f"It holds more than {MAX_FILES} files and directories.")

    def add_bytes(self, count: int) -> None:
        """Raises PluginRefused: there are too many."""
        self._bytes += count
        if self._bytes > MAX_BYTES:
            raise PluginRefused(f"It holds more than {MAX_BYTES // 1024 // 1024} MiB.")


def copy_directory(source: str, target: str) -> None:
    """Copy the files below `source` to the new directory `target`, without version control and caches.

    Raises PluginRefused for a link, for what is no regular file, and beyond the limits; OSError.
    """
    limits = _CopyLimits()
    os.mkdir(target, 0o700)
    for relative, entry in _walk(source, ""):
        limits.add_file()
        found = entry.stat(follow_symlinks=False)
        copied = os.path.join(target, relative)
        if stat.S_ISDIR(found.st_mode):
            os.mkdir(copied, 0o700)
        elif stat.S_ISREG(found.st_mode):
            # What was replaced by a link since it was looked at is not followed, and a FIFO not waited for.
            flags = (
                os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
            )
            with os.fdopen(os.open(entry.path, flags), "rb") as file:
                _write(copied, file, executable=bool(found.st_mode & 0o111), limits=limits)
        else:
            raise PluginRefused(f"It holds '{relative}', which is a link or no regular file.")


def unpack_archive(source: str, target: str) -> None:
    """Unpack a zip archive into the new directory `target`.

    Raises PluginRefused for a broken one, a path that leads elsewhere, a link, and beyond the limits; OSError.
    """
    if os.path.getsize(source) > MAX_BYTES:
        raise PluginRefused(f"{source} has more than {MAX_BYTES // 1024 // 1024} MiB.")
    os.mkdir(target, 0o700)
    limits = _CopyLimits()
    try:
        with open(source, "rb") as file:
            _check_table(file)
            with zipfile.ZipFile(file) as archive:
                for entry, relative in _list_entries(archive):
                    _unpack_entry(archive, entry, os.path.join(target, *relative), limits)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise PluginRefused(f"{source} is no zip archive that can be read: {error}.") from None


def _walk(directory: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield what is below a directory with its relative path, each directory before its content."""
    if prefix.count(os.sep) >= MAX_LEVELS:
        raise PluginRefused(f"It has more than {MAX_LEVELS} levels of directories.")
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name in _LEFT_OUT:
                continue
            relative = os.path.join(prefix, entry.name)
            yield relative, entry
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, relative)


def _check_table(file: IO[bytes]) -> None:
    """Refuse a table of contents that would take too much memory. Raises PluginRefused.

    The library reads it as a whole, at the size that the record at the end of the file says.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _MAX_COMMENT_BYTES - _END_RECORD_BYTES - _LARGE_LOCATOR_BYTES))
    tail = file.read()
    file.seek(0)
    ends = (len(tail) - _END_RECORD_BYTES, tail.rfind(_END_RECORD))
    for start in ends:
        record = tail[max(start, 0) : max(start, 0) + _END_RECORD_BYTES]
        if not record.startswith(_END_RECORD):
            continue
        is_large = tail[: max(start, 0)][-_LARGE_LOCATOR_BYTES:].startswith(_LARGE_LOCATOR)
        if is_large or int.from_bytes(record[12:16], "little") > MAX_DIRECTORY_BYTES:
            raise PluginRefused(f"It holds more than {MAX_FILES} files and directories.")


def _list_entries(archive: zipfile.ZipFile) -> Iterator[tuple[zipfile.ZipInfo, list[str]]]:
    """Yield the entries with the components of their paths. Raises PluginRefused."""
    seen: set[str] = set()
    for entry in archive.infolist():
        parts = _split_name(entry.filename)
        if not _LEFT_OUT.isdisjoint(parts):
            continue
        folded = "/".join(parts).casefold()
        if folded in seen and not entry.is_dir():
            raise PluginRefused(f"It holds '{entry.filename}' twice.")
        seen.add(folded)
        mode = entry.external_attr >> 16
        if entry.flag_bits & 1:
            raise PluginRefused("It is encrypted; unpack it yourself, and install the directory.")
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise PluginRefused(f"It holds '{entry.filename}', which is a link or no regular file.")
        yield entry, parts


def _split_name(name: str) -> list[str]:
    """Return the components of a path in an archive, safe on every system. Raises PluginRefused."""
    parts = name.removesuffix("/").split("/")
    is_plain = all(part not in ("", ".", "..") and part == part.rstrip(" .") for part in parts)
    if not is_plain or "\\" in name or ":" in name or not name.isprintable() or len(name) > MAX_PATH_CHARS:
        raise PluginRefused(f"It holds the path {name[:MAX_PATH_CHARS]!r}, which is not used.")
    if len(parts) > MAX_LEVELS:
        raise PluginRefused(f"It has more than {MAX_LEVELS} levels of directories.")
    return parts


def _unpack_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: str, limits: _CopyLimits) -> None:
    limits.add_file()
    if entry.is_dir():
        os.makedirs(target, mode=0o700, exist_ok=True)
        return
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    with archive.open(entry) as file:
        _write(target, file, executable=bool(entry.external_attr >> 16 & 0o111), limits=limits)


def _write(path: str, file: IO[bytes], *, executable: bool, limits: _CopyLimits) -> None:
    """Write a new file of at most what the limits allows, whatever its size was said to be."""
    mode = 0o700 if executable else 0o600
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, mode), "wb") as copied:
        while block := file.read(_BLOCK_BYTES):
            limits.add_bytes(len(block))
            copied.write(block)
