"""The files that `@` completes to: what is there at the top, or everything that no ignore file leaves out."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Final

MAX_FILES: Final = 1000
DEEP_FROM: Final = 3
"""From how many typed characters on the whole tree is searched."""
FRESH_S: Final = 5.0
_SAFE: Final = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false")
"""A repository may name programs in its configuration; what is typed must not run them."""
_GIT: Final = (*_SAFE, "ls-files", "--cached", "--others", "--exclude-standard", "-z")

Walk = Callable[[str], Sequence[str]]
"""Relative paths of the files below a directory that ignore rules leave."""


class WorkFiles:
    """The files of a work dir, looked up again after a few seconds. Blocks: called from a thread of the completion.

    `walk` finds them where there is no git.
    """

    def __init__(self, work_dir: str, walk: Walk) -> None:
        self._work_dir = work_dir
        self._walk = walk
        self._found: Sequence[str] = ()
        self._looked_at = -FRESH_S

    def matching(self, typed: str) -> Sequence[str]:
        """Candidates for what was typed after `@`: names relative to the work dir, directories with a slash."""
        directory, _, name = typed.rpartition("/")
        if len(name) < DEEP_FROM and (directory or len(typed) < DEEP_FROM):
            return self._entries(directory)
        lowered = typed.lower()
        found = [path for path in self._all() if _may_match(path.lower(), lowered)]
        return [*self._entries(directory), *found][:MAX_FILES] if directory else found[:MAX_FILES]

    def _entries(self, directory: str) -> Sequence[str]:
        place = os.path.normpath(os.path.join(self._work_dir, directory or "."))
        prefix = f"{directory}/" if directory else ""
        try:
            with os.scandir(place) as entries:
                found = [f"{prefix}{one.name}{'/' if one.is_dir() else ''}" for one in entries if one.name != ".git"]
        except OSError:
            return ()
        kept = self._not_ignored(found)
        return sorted(kept)[:MAX_FILES]

    def _not_ignored(self, names: list[str]) -> list[str]:
        known = self._all()
        if not known:
            return names
        files = set(known)
        parents = {path[: at + 1] for path in known for at, char in enumerate(path) if char == "/"}
        return [name for name in names if name in files or name in parents]

    def _all(self) -> Sequence[str]:
        if time.monotonic() - self._looked_at > FRESH_S:
            listed = _git_files(self._work_dir)
            self._found = listed if listed is not None else self._walk(self._work_dir)
            self._looked_at = time.monotonic()
        return self._found


def _may_match(path: str, typed: str) -> bool:
    letters = iter(path)
    return typed in path or all(letter in letters for letter in typed)


def _git_files(directory: str) -> list[str] | None:
    """What git knows or would add; None outside of a repository."""
    try:
        done = subprocess.run(_GIT, cwd=directory, capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    names = done.stdout.decode("utf-8", "replace").split("\0")
    return list(dict.fromkeys(name for name in names if name))
