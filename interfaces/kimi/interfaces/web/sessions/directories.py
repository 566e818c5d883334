"""The directories that may be opened: roots with what is below them, and those that have sessions (wire spec 13.6)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence, Set
from functools import cache
from typing import Final

from kimi.domain.permissions.path_rules import is_within

MAX_LISTED: Final = 1000
"""How many directories a listing names at most."""


class ForbiddenDirectory(Exception):
    """The directory is none that may be opened; the message is a sentence for the user."""


class AllowedDirectories:
    """Says which directories sessions may work in.

    With `list_known`, which returns the directories of all stored sessions, those may be opened too, but nothing below
    them. Every path is resolved through its links first. All methods block.
    """

    def __init__(self, roots: Sequence[str], list_known: Callable[[], Iterable[str]] | None = None) -> None:
        self.roots = tuple(dict.fromkeys(os.path.realpath(root) for root in roots))
        self._list_known = list_known

    def resolve(self, path: str) -> str:
        """Return the real path of a directory that may be opened. Raises ForbiddenDirectory."""
        found = None if "\0" in path or not os.path.isabs(path) else os.path.realpath(path)
        if found is None or not self._is_allowed(found, self._list_known_paths):
            raise ForbiddenDirectory(
                "This directory may not be opened here; start 'kimi web' in it, or with --directory and its path."
            )
        if not os.path.isdir(found):
            raise ForbiddenDirectory("There is no such directory.")
        return found

    def allows_session_of(self, work_dir: str) -> bool:
        """Whether the sessions of this work directory may be opened and listed."""
        return self._list_known is not None or self._is_below_root(os.path.realpath(work_dir))

    def list_below(self, path: str) -> tuple[str, str | None, list[str]]:
        """Return the real path, its parent if that may be opened, and the names of its directories.

        Hidden ones are left out, and links that lead to where nothing may be opened. Raises ForbiddenDirectory.
        """
        found = self.resolve(path)
        list_known = cache(self._list_known_paths)
        try:
            with os.scandir(found) as entries:
                shown = (entry for entry in entries if not entry.name.startswith("."))
                names = sorted(entry.name for entry in shown if self._is_offered(entry, list_known))
        except OSError:
            raise ForbiddenDirectory("This directory cannot be read.") from None
        parent = os.path.dirname(found)
        return found, parent if parent != found and self._is_allowed(parent, list_known) else None, names[:MAX_LISTED]

    def _is_offered(self, entry: os.DirEntry[str], list_known: Callable[[], Set[str]]) -> bool:
        try:
            is_inside = not entry.is_symlink() or self._is_allowed(os.path.realpath(entry.path), list_known)
            return is_inside and entry.is_dir()
        except OSError:
            return False

    def _is_allowed(self, path: str, list_known: Callable[[], Set[str]]) -> bool:
        return self._is_below_root(path) or path in list_known()

    def _list_known_paths(self) -> Set[str]:
        return frozenset() if self._list_known is None else {os.path.realpath(one) for one in self._list_known()}

    def _is_below_root(self, path: str) -> bool:
        return is_within(path, list(self.roots))
