"""A short overview of a directory: a tree of two levels (tools spec 3.6)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from operator import itemgetter

MAX_ROOT_ENTRIES = 30
MAX_CHILD_ENTRIES = 10


def list_two_levels(directory: str) -> str:
    """Return the entries of `directory` and of its directories, directories first, long lists cut. Blocking."""
    return "\n".join(_format_tree(directory, MAX_ROOT_ENTRIES, deeper=True))


def _format_tree(directory: str, limit: int, *, deeper: bool) -> list[str]:
    entries, left_out = _list_entries(directory, limit)
    lines: list[str] = []
    for number, (name, is_directory) in enumerate(entries, 1):
        last = number == len(entries) and not left_out
        lines.append(f"{'└── ' if last else '├── '}{name}{'/' if is_directory else ''}")
        if is_directory and deeper:
            indent = "    " if last else "│   "
            lines += [
                indent + line for line in _format_tree(os.path.join(directory, name), MAX_CHILD_ENTRIES, deeper=False)
            ]
    return [*lines, f"└── ... and {left_out} more"] if left_out else lines


def _list_entries(directory: str, limit: int) -> tuple[Sequence[tuple[str, bool]], int]:
    """Return the first entries as (name, is a directory), and how many are left out. Links are never directories."""
    try:
        with os.scandir(directory) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    except OSError:
        return [], 0
    entries.sort(key=itemgetter(0))
    entries.sort(key=itemgetter(1), reverse=True)
    return entries[:limit], max(len(entries) - limit, 0)
