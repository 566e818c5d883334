"""Decides which files and directories git and ripgrep ignore (tools spec 3.6, 3.7).

Rules are in files of the directories above a path: `.gitignore` counts only inside a repository, up to its root, and so
does the repository's `info/exclude`; `.ignore` and `.rgignore` count everywhere. The nearest file that decides wins,
and a stronger kind of file wins over a weaker one wherever it lies. Patterns are those of git. The files may be
hostile: they have limits, and nothing in a pattern backtracks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kimi.infrastructure.tools.search.name_globs import (
    MAX_PATTERN_CHARS,
    NameMatcher,
    compile_name_glob,
    match_components,
)

IgnoreFileKind: TypeAlias = Literal[".rgignore", ".ignore", ".gitignore", "exclude"]

GIT_KINDS: tuple[IgnoreFileKind, ...] = (".gitignore", "exclude")
SEARCH_KINDS: tuple[IgnoreFileKind, ...] = (".rgignore", ".ignore", ".gitignore", "exclude")
"""The kinds of ignore files, strongest first."""

VCS_DIRECTORIES = (".git", ".svn", ".hg", ".bzr", ".jj", ".sl")
"""The directories in which version control systems keep their own data."""

MAX_RULES = 5_000
"""The rules with wildcards that count for one path; more are left out."""

_MAX_RULE_BYTES = 1024 * 1024
_WILDCARDS = frozenset("*?[\\")


@dataclass(slots=True)
class PathRule:
    """One line: what it matches, and whether that is ignored or, with `!`, not ignored."""

    number: int
    components: tuple[str, ...]
    negated: bool
    directories_only: bool
    anchored: bool
    ignore_case: bool = False
    _matchers: tuple[NameMatcher | None, ...] | None = None

    def matches(self, path: str, name: str, is_directory: bool) -> bool:
        """Return whether the rule is about `path`, which ends with `name`."""
        if self.directories_only and not is_directory:
            return False
        if self._matchers is None:
            time.sleep(0)  # compiling thousands of rules would keep the event loop from going on
            self._matchers = tuple(
                None if part == "**" else compile_name_glob(part, ignore_case=self.ignore_case, escapes=True)
                for part in self.components
            )
        if self.anchored:
            return match_components(self._matchers, path.split("/"))
        matcher = self._matchers[0]
        return matcher is not None and bool(matcher(name))


class PathRules:
    """The rules of one file, in their order: the last one that is about a path decides."""

    def __init__(self, lines: Iterable[str], *, limit: int = MAX_RULES, ignore_case: bool = False) -> None:
        self._names: dict[str, list[PathRule]] = {}
        self._others: list[PathRule] = []
        for number, line in enumerate(lines):
            rule = _parse_rule(number, line)
            if rule is None:
                continue
            rule.ignore_case = ignore_case
            if not rule.anchored and not ignore_case and _WILDCARDS.isdisjoint(rule.components[0]):
                self._names.setdefault(rule.components[0], []).append(rule)
            elif len(self._others) < limit:
                self._others.append(rule)

    @property
    def count(self) -> int:
        """The number of rules that have to be tried one after the other."""
        return len(self._others)

    def __bool__(self) -> bool:
        return bool(self._names or self._others)

    def decide(self, path: str, is_directory: bool) -> bool | None:
        """Return whether the path, relative and with `/`, is ignored; None if no rule is about it."""
        name = path[path.rfind("/") + 1 :]
        best = next(
            (rule for rule in reversed(self._names.get(name, ())) if rule.matches(path, name, is_directory)), None
        )
        for rule in reversed(self._others):
            if best is not None and rule.number < best.number:
                break
            if rule.matches(path, name, is_directory):
                best = rule
                break
        return None if best is None else not best.negated


def _parse_rule(number: int, line: str) -> PathRule | None:
    """Return the rule of a line; None if there is none in it, or one that no path can match."""
    if line.startswith("#") or len(line) > MAX_PATTERN_CHARS:
        return None
    line = _strip_trailing_blanks(line)
    negated = line.startswith("!")
    line = line.removeprefix("!")
    directories_only = line.endswith("/")
    text = line.rstrip("/")
    anchored = "/" in text
    parts = [part for part in text.split("/") if part]
    if not parts:
        return None
    components: list[str] = []
    for part in parts:
        if part != "**" or components[-1:] != ["**"]:
            components.append(part)
    if anchored and components[-1] == "**":
        components.append("*")  # what lies in a directory, but not the directory itself
    if components[0] == "**" and len(components) == 2 and components[1] != "**":
        components, anchored = components[1:], False
    elif components == ["**"]:
        components = ["*"]
    return PathRule(number, tuple(components), negated, directories_only, anchored)


def _strip_trailing_blanks(line: str) -> str:
    """Remove blanks at the end of a line but for one after a backslash."""
    plain = line.rstrip(" \t")
    escaped = (len(plain) - len(plain.rstrip("\\"))) % 2 == 1
    return plain + " " if escaped and len(plain) < len(line) else plain


@dataclass(frozen=True, slots=True)
class IgnoreLevel:
    """The rules of one directory, with those of the directories above it."""

    directory: str
    kinds: tuple[IgnoreFileKind, ...]
    rules: tuple[tuple[IgnoreFileKind, PathRules], ...] = ()
    is_repository: bool = False
    parent: IgnoreLevel | None = None
    in_repository: bool = False
    rule_count: int = 0

    def enter(self, directory: str, names: Container[str]) -> IgnoreLevel:
        """Return the rules inside `directory`; this level itself if it has no rules of its own.

        `names` are the names of its entries.
        """
        repository = ".git" in names
        rules = tuple(_load_rules(directory, names, self.kinds, repository, MAX_RULES - self.rule_count))
        if not rules and not repository:
            return self
        count = self.rule_count + sum(found.count for _, found in rules)
        return IgnoreLevel(directory, self.kinds, rules, repository, self, repository or self.in_repository, count)

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
            for found, rules in level.rules:
                if found == kind:
                    relative = path[len(level.directory) :].replace(os.sep, "/").lstrip("/")
                    decided = rules.decide(relative, is_directory)
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


def _load_rules(
    directory: str, names: Container[str], kinds: tuple[IgnoreFileKind, ...], is_repository: bool, limit: int
) -> Iterator[tuple[IgnoreFileKind, PathRules]]:
    for kind in kinds:
        if kind == "exclude":
            path = os.path.join(directory, ".git", "info", "exclude") if is_repository else ""
        else:
            path = os.path.join(directory, kind) if kind in names else ""
        if path and (rules := _read_rules(path, limit)):
            limit -= rules.count
            yield kind, rules


def _read_rules(path: str, limit: int) -> PathRules | None:
    if not os.path.isfile(path):
        return None  # a pipe would hold the reader for ever
    try:
        with open(path, "rb") as file:
            lines = file.read(_MAX_RULE_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return PathRules(lines, limit=limit)
