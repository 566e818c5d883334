"""The input history of a work directory: `<share>/user-history/<md5 of its path>.jsonl` (runtime spec 8)."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable

from prompt_toolkit.history import History

logger = logging.getLogger(__name__)

MAX_LOADED_BYTES = 2 * 1024 * 1024


def history_path(share_dir: str, work_dir: str) -> str:
    """Return the path of the history file of a work directory."""
    name = hashlib.md5(work_dir.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    return os.path.join(share_dir, "user-history", f"{name}.jsonl")


class FileHistory(History):
    """One JSON object `{"content": ...}` per line; the same entry twice in a row is kept once.

    Errors of reading and writing are only logged: they must not stop a prompt.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._last: str | None = None

    def load_history_strings(self) -> Iterable[str]:
        """Return all entries, newest first."""
        entries = self._load_entries()
        self._last = entries[-1] if entries else None
        return reversed(entries)

    def append_string(self, string: str) -> None:
        """Add an entry, unless it equals the last one."""
        if string != self._last and string.strip():
            self._last = string
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Append the entry to the file, which only its owner can read."""
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            line = json.dumps({"content": string}).encode() + b"\n"
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            logger.warning("the history could not be written: %s", error)

    def _load_entries(self) -> list[str]:
        try:
            with open(self._path, "rb") as file:
                file.seek(max(0, os.path.getsize(self._path) - MAX_LOADED_BYTES))
                lines = file.read().split(b"\n")
        except OSError:
            return []
        return [entry for line in lines if (entry := _parse_entry(line)) is not None]


def _parse_entry(line: bytes) -> str | None:
    try:
        content = json.loads(line)["content"]
    except (ValueError, KeyError, TypeError):
        return None
    return content if isinstance(content, str) else None
