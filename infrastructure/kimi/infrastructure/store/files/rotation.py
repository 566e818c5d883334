"""Replacing a context so that a crash at any instant leaves the old or the new one, whole (R-64)."""

from __future__ import annotations

import os

from kimi.infrastructure.store.files.disk import remove_file, sync_directory, write_fresh
from kimi.infrastructure.store.layout import FRESH, next_rotated


def rotate(path: str, lines: bytes) -> None:
    """Replace the file `path` by `lines`; the old one, unless empty, gets the next `context_N.jsonl` beside it.

    The old file gets its second name before the new one takes the first, so the path always names a whole file.
    Raises OSError; `path` is then unchanged.
    """
    fresh = path + FRESH
    write_fresh(fresh, lines)
    try:
        if os.path.exists(path) and os.stat(path).st_size > 0:
            _keep(path)
        os.replace(fresh, path)
    except OSError:
        remove_file(fresh)
        raise
    sync_directory(os.path.dirname(path))


def _keep(path: str) -> None:
    kept = next_rotated(os.path.dirname(path))
    try:
        os.link(path, kept)
    except OSError:  # no hard links on this file system: a copy
        _copy(path, kept)


def _copy(path: str, kept: str) -> None:
    with open(path, "rb") as file:
        content = file.read()
    write_fresh(kept + FRESH, content)
    os.replace(kept + FRESH, kept)
