"""Lists the files of a directory, to complete a path that the user types."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

from kimi.infrastructure.tools.search.ignore_rules import SEARCH_KINDS, VCS_DIRECTORIES, IgnoreLevel, load_rules_above

MAX_FILES = 1000
MAX_DIRECTORIES = 5000


def walk_files(directory: str) -> list[str]:
    """Return paths relative to `directory`, top level first, without ignored files; at most 1000.

    What cannot be read is left out as well; symlinks to directories are not followed.
    """
    return list(islice(_walk_files(directory), MAX_FILES))


def _walk_files(root: str) -> Iterator[str]:
    level = load_rules_above(root, SEARCH_KINDS)
    waiting: list[tuple[str, IgnoreLevel]] = [(root, level)]
    for directory, above in islice(_iterate_queue(waiting), MAX_DIRECTORIES):
        try:
            with os.scandir(directory) as found:
                entries = sorted(found, key=lambda one: one.name)
        except OSError:
            continue
        rules = above.enter(directory, {one.name for one in entries})
        for one in entries:
            is_directory = one.is_dir(follow_symlinks=False)
            if one.name in VCS_DIRECTORIES or rules.ignores(one.path, is_directory):
                continue
            if is_directory:
                waiting.append((one.path, rules))
            else:
                yield os.path.relpath(one.path, root).replace(os.sep, "/")


def _iterate_queue(queue: list[tuple[str, IgnoreLevel]]) -> Iterator[tuple[str, IgnoreLevel]]:
    """Yield the items of a list that grows meanwhile."""
    at = 0
    while at < len(queue):
        yield queue[at]
        at += 1
