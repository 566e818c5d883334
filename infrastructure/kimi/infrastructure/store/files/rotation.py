"""Replaces a context so that a crash at any instant leaves the old or the new one, whole (R-64)."""

from __future__ import annotations

import os

from kimi.infrastructure.store.files.disk import remove_file, sync_directory, write_new_file
from kimi.infrastructure.store.layout import NEW_SUFFIX, next_rotated_path


def rotate(path: str, lines: bytes) -> None:
    """Replace the file `path` by `lines`; the old one, unless empty, gets the next `context_N.jsonl` beside it.

    The old file gets its second name before the new one takes the first, so the path always names a whole file. Raises
    OSError; `path` is then unchanged.
    """
    fresh = path + NEW_SUFFIX
    write_new_file(fresh, lines)
    try:
        if os.path.exists(path) and os.stat(path).st_size > 0:
            _keep_old_file(path)
        os.replace(fresh, path)
    except OSError:
        remove_file(fresh)
        raise
    sync_directory(os.path.dirname(path))


def _keep_old_file(path: str) -> None:
    kept = next_rotated_path(os.path.dirname(path))
    try:
        os.link(path, kept)
    except OSError:  # no hard links on this file system: copy
        _copy_file(path, kept)


def _copy_file(path: str, kept: str) -> None:
    with open(path, "rb") as file:
        content = file.read()
    write_new_file(kept + NEW_SUFFIX, content)
    os.replace(kept + NEW_SUFFIX, kept)
