"""The files that `@` completes to: one directory, or the whole work directory without ignored files."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

MAX_FILES: Final = 1000
MIN_SEARCH_CHARACTERS: Final = 3
"""The whole tree is searched from so many typed characters on."""
CACHE_TTL_S: Final = 5.0
MAX_SUBMODULE_DEPTH: Final = 3
MAX_SUBMODULES: Final = 50
GIT_S: Final = 5
"""Seconds that git has to list the files."""
FileWalker = Callable[[str], Sequence[str]]
"""Returns the relative paths of the files below a directory that no ignore rule excludes."""

StartGit = Callable[[str], "subprocess.Popen[bytes] | None"]
"""Starts git to print the files of a directory, in a session of its own; None if there is none to ask."""


class ListedFiles:
    """The paths of a whole tree, perhaps hundreds of thousands: searched as one text, not one by one."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._text = "\0" + "\0".join(paths) + "\0"
        self._lowered = _lower(self._text)

    def __bool__(self) -> bool:
        return bool(self._paths)

    def list_children(self, prefix: str) -> set[str]:
        """Return what lies in the directory that `prefix` names, with the prefix; directories end with a slash."""
        at = len(prefix)
        below = [path for path in self._paths if path.startswith(prefix)] if prefix else self._paths
        return {path[: path.find("/", at) + 1] or path for path in below}

    def find(self, typed: str) -> Iterator[str]:
        """Yield the paths that hold the typed characters in this order, whatever their case and what lies between."""
        letters = map(re.escape, _lower(typed.replace("\0", "")))
        # Each part takes what comes before the next letter, for good, so that nothing is tried twice.
        pattern = re.compile("\0" + "".join(f"[^\0{letter}]*+{letter}" for letter in letters))
        last = ""
        for found in pattern.finditer(self._lowered):
            path = self._text[found.start() + 1 : self._text.index("\0", found.end())]
            if path != last:  # git lists a file in conflict once for each side
                yield path
            last = path


class WorkDirFiles:
    """The files of a work directory, cached for a few seconds. Calls block; a thread of the completion makes them.

    `walk` lists the files when there is no git.
    """

    def __init__(self, work_dir: str, walk: FileWalker, start_git: StartGit) -> None:
        self._work_dir = work_dir
        self._walk = walk
        self._start_git = start_git
        self._files = ListedFiles(())
        self._refreshed_at = -CACHE_TTL_S
        self._git_process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def find_matching(self, typed: str) -> Sequence[str]:
        """Return candidates for the text after `@`: paths relative to the work directory, directories with a slash."""
        directory, _, name = typed.rpartition("/")
        if len(name) < MIN_SEARCH_CHARACTERS and (directory or len(typed) < MIN_SEARCH_CHARACTERS):
            return self._list_directory(directory)
        found = islice(self._list_all_files().find(typed), MAX_FILES)
        return [*self._list_directory(directory), *found][:MAX_FILES] if directory else list(found)

    def close(self) -> None:
        """Stop a running search. The interpreter waits for its thread, so a long search would delay the exit."""
        self._closed = True
        if self._git_process is not None:
            self._git_process.kill()

    def _list_directory(self, directory: str) -> Sequence[str]:
        path = os.path.normpath(os.path.join(self._work_dir, directory or "."))
        prefix = f"{directory}/" if directory else ""
        try:
            with os.scandir(path) as entries:
                found = [f"{prefix}{one.name}{'/' if one.is_dir() else ''}" for one in entries if one.name != ".git"]
        except OSError:
            return ()
        if known := self._list_all_files():
            children = known.list_children(prefix)
            found = [name for name in found if name in children]  # all else is ignored
        return sorted(found)[:MAX_FILES]

    def _list_all_files(self) -> ListedFiles:
        if time.monotonic() - self._refreshed_at > CACHE_TTL_S:
            listed = self._list_git_files()
            if listed is None:
                listed = () if self._closed else self._walk(self._work_dir)
            self._files = ListedFiles(listed)
            self._refreshed_at = time.monotonic()
        return self._files

    def _list_git_files(self) -> list[str] | None:
        """Return the files that git tracks or would add, those of submodules included; None outside of a repository."""
        files = self._run_git(self._work_dir)
        if files is None or not _has_submodules(self._work_dir):
            return files
        found: list[str] = []
        waiting = [(name, 1) for name in reversed(dict.fromkeys(files))]
        left = MAX_SUBMODULES
        while waiting:
            name, depth = waiting.pop()
            path = os.path.join(self._work_dir, name)
            # Asked in its own directory: git would enter a submodule without looking whose it is.
            may_enter = left > 0 and depth <= MAX_SUBMODULE_DEPTH and not self._closed and _is_repository(path)
            inside = self._run_git(path) if may_enter else None
            left -= may_enter
            if inside is None:
                found.append(name)
            else:
                waiting += [(f"{name.rstrip('/')}/{one}", depth + 1) for one in reversed(inside)]
        return found

    def _run_git(self, directory: str) -> list[str] | None:
        """Return what git lists in a directory, relative to it; None outside of a repository."""
        self._git_process = self._start_git(directory)
        if self._git_process is None:
            return None
        with self._git_process as git:
            if self._closed:
                git.kill()
            try:
                listed, _ = git.communicate(timeout=GIT_S)
            except subprocess.TimeoutExpired:
                git.kill()
                return None
        if git.returncode != 0:
            return None
        return listed.decode("utf-8", "replace").removesuffix("\0").split("\0") if listed else []


def _is_repository(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path) and os.path.lexists(os.path.join(path, ".git"))


def _has_submodules(directory: str) -> bool:
    """Return whether the directory or one above it names submodules."""
    while not os.path.lexists(os.path.join(directory, ".gitmodules")):
        if directory == (directory := os.path.dirname(directory)):
            return False
    return True


def _lower(text: str) -> str:
    """Return the text in lower case, each character in its place."""
    lowered = text.lower()
    return (
        lowered
        if len(lowered) == len(text)
        else "".join(char if len(char.lower()) > 1 else char.lower() for char in text)
    )
