"""Decides which files and directories git and ripgrep ignore (tools spec 3.6, 3.7).

Rules are in files of the directories above a path: `.gitignore` counts only inside a repository, up to its root, and so
does the repository's `info/exclude`; `.ignore` and `.rgignore` count everywhere. The nearest file that decides wins,
and a stronger kind of file wins over a weaker one wherever it lies. Patterns are those of git, matched by the library
pathspec, which is imported for the first such file.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IgnoreFileKind: TypeAlias = Literal[".rgignore", ".ignore", ".gitignore", "exclude"]

GIT_KINDS: tuple[IgnoreFileKind, ...] = (".gitignore", "exclude")
SEARCH_KINDS: tuple[IgnoreFileKind, ...] = (".rgignore", ".ignore", ".gitignore", "exclude")
"""The kinds of ignore files, strongest first."""

VCS_DIRECTORIES = (".git", ".svn", ".hg", ".bzr", ".jj", ".sl")
"""The directories in which version control systems keep their own data."""

_MAX_RULE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class IgnoreLevel:
    """The rules of one directory, with those of the directories above it."""

    directory: str
    kinds: tuple[IgnoreFileKind, ...]
    specs: tuple[tuple[IgnoreFileKind, GitIgnoreSpec], ...] = ()
    is_repository: bool = False
    parent: IgnoreLevel | None = None
    in_repository: bool = False

    def enter(self, directory: str, names: Container[str]) -> IgnoreLevel:
        """Return the rules inside `directory`; this level itself if it has no rules of its own.

        `names` are the names of its entries.
        """
        repository = ".git" in names
        specs = tuple(_load_specs(directory, names, self.kinds, repository))
        if not specs and not repository:
            return self
        return IgnoreLevel(directory, self.kinds, specs, repository, self, repository or self.in_repository)

    def ignores(self, path: str, is_directory: bool) -> bool:
        """Return whether `path`, somewhere below, is ignored."""
        for kind in self.kinds:
            decided = self._decide(kind, path, is_directory)
            if decided is not None:
                return decided
        return False

    def _decide(self, kind: IgnoreFileKind, path: str, is_directory: bool) -> bool | None:
        if kind in GIT_KINDS and not self.in_repository:
            return None
        for level in self._walk_up():
            for found, spec in level.specs:
                if found == kind:
                    relative = path[len(level.directory) :].replace(os.sep, "/").lstrip("/")
                    decided = spec.check_file(relative + "/" if is_directory else relative).include
                    if decided is not None:
                        return decided
            if kind in GIT_KINDS and level.is_repository:
                return None
        return None

    def _walk_up(self) -> Iterator[IgnoreLevel]:
        level: IgnoreLevel | None = self
        while level is not None:
            yield level
            level = level.parent


def load_rules_above(directory: str, kinds: tuple[IgnoreFileKind, ...]) -> IgnoreLevel:
    """Return the rules of the directories above `directory`; its own rules are not included."""
    above: list[str] = []
    while (parent := os.path.dirname(directory)) != directory:
        above.append(parent)
        directory = parent
    level = IgnoreLevel("", kinds)
    for parent in reversed(above):
        level = level.enter(parent, _DirectoryNames(parent))
    return level


class _DirectoryNames:
    """The names in a directory, each looked up when it is needed."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def __contains__(self, name: object) -> bool:
        return os.path.lexists(os.path.join(self._directory, str(name)))


def _load_specs(
    directory: str, names: Container[str], kinds: tuple[IgnoreFileKind, ...], is_repository: bool
) -> Iterator[tuple[IgnoreFileKind, GitIgnoreSpec]]:
    for kind in kinds:
        if kind == "exclude":
            path = os.path.join(directory, ".git", "info", "exclude") if is_repository else ""
        else:
            path = os.path.join(directory, kind) if kind in names else ""
        if path and (spec := _load_spec(path)) is not None:
            yield kind, spec


def _load_spec(path: str) -> GitIgnoreSpec | None:
    try:
        with open(path, "rb") as file:
            lines = file.read(_MAX_RULE_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    rules = [line for line in lines if line.strip() and not line.startswith("#")]
    if not rules:
        return None
    return _compile_rules(rules)


def _compile_rules(rules: list[str]) -> GitIgnoreSpec:
    """Compile the rules into one object; rules that are not patterns are left out, as git does."""
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(rules)
    except ValueError:
        return GitIgnoreSpec.from_lines([rule for rule in rules if _is_pattern(rule)])


def _is_pattern(rule: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([rule])
    except ValueError:
        return False
    return True
