"""Walks a tree for a glob pattern: lazily, in order, each entry once, with a time limit (tools spec 3.6).

A pattern is a sequence of components; the walk carries the set of pattern positions that a directory has reached, so
that `**` needs neither a second visit nor a list of candidates. Blocking: run it in a worker thread.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeAlias

from kimi.domain.permissions.path_rules import is_within
from kimi.infrastructure.tools.search.ignore_rules import GIT_KINDS, VCS_DIRECTORIES, IgnoreLevel, load_rules_above
from kimi.infrastructure.tools.search.name_globs import NameMatcher, compile_name_glob, expand_braces

PatternPosition: TypeAlias = tuple[int, int]
"""The index of the alternative, and how many of its components are matched."""

PatternStates: TypeAlias = frozenset[PatternPosition]

DirectoryVisit: TypeAlias = "Iterator[DirectoryVisit]"
"""The rest of a directory: yields a visit to each directory below, in order."""

_WILDCARDS = frozenset("*?[")
_PAUSE_INTERVAL_S = 0.002
_NAMES_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class NameTest:
    """One component to compare a name with, and the positions that a match reaches."""

    matches: NameMatcher
    literal: bool
    leads_to: PatternStates
    accepts: bool


@dataclass(frozen=True, slots=True)
class PatternStep:
    """The comparisons for the entries of a directory; any entry keeps the `**` positions in `recursive_states`."""

    tests: tuple[NameTest, ...]
    recursive_states: PatternStates
    recursive_accepts: bool
    matches_file: NameMatcher | None
    """Whether a file is a match by its name; None if any is."""


@dataclass(slots=True)
class GlobMatches:
    """The first matches in order, relative with `/`; the number of all matches; whether the time ran out."""

    paths: list[str] = field(default_factory=list[str])
    count: int = 0
    stopped: bool = False


class GlobPattern:
    """A glob pattern, braces expanded. A trailing slash means directories only."""

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        alternatives = expand_braces(pattern)
        self.directories_only = pattern.endswith("/")
        self.components = [_split_components(alternative) for alternative in alternatives]
        self._ignore_case = ignore_case
        self._steps: dict[PatternStates, PatternStep] = {}

    @property
    def start_states(self) -> PatternStates:
        """The states of the directory that is searched."""
        return frozenset(
            place for index in range(len(self.components)) for place in self._follow_double_stars(index, 0)
        )

    def find_step(self, states: PatternStates) -> PatternStep:
        """Return the comparisons for the entries of a directory in these states. The result is cached."""
        if states not in self._steps:
            self._steps[states] = self._build_step(states)
        return self._steps[states]

    def accepts(self, states: PatternStates) -> bool:
        """Return whether a whole alternative is matched."""
        return any(at == len(self.components[index]) for index, at in states)

    def _build_step(self, states: PatternStates) -> PatternStep:
        tests: list[NameTest] = []
        stay: set[PatternPosition] = set()
        for index, at in sorted(states):
            components = self.components[index]
            if at == len(components):
                continue
            if components[at] == "**":
                stay.update(self._follow_double_stars(index, at))
                continue
            leads_to = frozenset(self._follow_double_stars(index, at + 1))
            tests.append(self._build_name_test(components[at], leads_to, at + 1 == len(components)))
        kept = frozenset(stay)
        # `**` accepts a name only if components follow; `a/**` itself does not match `a`.
        accepts_all = self.accepts(kept)
        matchers = [test.matches for test in tests if test.accepts]
        return PatternStep(tuple(tests), kept, accepts_all, None if accepts_all else _match_any(matchers))

    def _build_name_test(self, component: str, leads_to: PatternStates, last: bool) -> NameTest:
        is_literal = not self._ignore_case and _WILDCARDS.isdisjoint(component)
        return NameTest(compile_name_glob(component, ignore_case=self._ignore_case), is_literal, leads_to, last)

    def _follow_double_stars(self, index: int, at: int) -> Iterator[PatternPosition]:
        """Yield the position, and those reachable without a name: `**` may match no directory at all."""
        components = self.components[index]
        yield index, at
        while at < len(components) and components[at] == "**":
            at += 1
            yield index, at


class GlobWalk:
    """One search below `directory`. Links may lead only into `roots`, which are real directories."""

    def __init__(
        self,
        directory: str,
        pattern: GlobPattern,
        *,
        roots: Sequence[str],
        include_dirs: bool,
        limit: int,
        budget_s: float,
        windows: bool,
    ) -> None:
        self._directory = directory
        self._pattern = pattern
        self._roots = roots
        self._include_dirs = include_dirs
        self._limit = limit
        self._budget_s = budget_s
        self._windows = windows
        self._deadline = self._next_pause = 0.0
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Make `run` return soon. May be called from any thread."""
        self._cancelled.set()

    def run(self) -> GlobMatches:
        """Search and return the matches. Directories that cannot be read are skipped."""
        self._deadline = time.monotonic() + self._budget_s
        found = GlobMatches()
        level = load_rules_above(self._directory, GIT_KINDS)
        stack = [self._visit_directory(self._directory, "", self._pattern.start_states, level, found)]
        while stack and not found.stopped:
            below = next(stack[-1], None)
            if below is None:
                stack.pop()
            else:
                stack.append(below)
        return found

    def _visit_directory(
        self, directory: str, prefix: str, states: PatternStates, level: IgnoreLevel, found: GlobMatches
    ) -> DirectoryVisit:
        """Add the matches in a directory, in order, and yield the visits to the directories below."""
        directories, files = _list_entries(directory)
        step = self._pattern.find_step(states)
        if step.recursive_states:
            level = level.enter(directory, [*files, *(entry.name for entry in directories)])
        files = self._select_files(files, step, found)
        at = 0
        for entry in directories:
            before, at = at, bisect_left(files, entry.name, at)
            self._add_matches(found, prefix, files[before:at])
            if self._is_time_up(found):
                return
            below, accepted = self._match_directory(entry, step, level)
            if accepted and self._include_dirs:
                self._add_matches(found, prefix, (entry.name,))
            if below:
                yield self._visit_directory(entry.path, f"{prefix}{entry.name}/", below, level, found)
        self._add_matches(found, prefix, files[at:])

    def _select_files(self, names: Sequence[str], step: PatternStep, found: GlobMatches) -> list[str]:
        """Return the names that match, in order; those until the time was up."""
        if self._pattern.directories_only:
            return []
        matches, selected = step.matches_file, list[str]()
        # A few at a time: a glob may take long for a name, and a directory may have millions.
        for at in range(0, len(names), _NAMES_AT_ONCE):
            if self._is_time_up(found):
                break
            some = names[at : at + _NAMES_AT_ONCE]
            selected += filter(matches, some) if matches else some
        selected.sort()
        return selected

    def _is_time_up(self, found: GlobMatches) -> bool:
        now = time.monotonic()
        if now > self._next_pause:
            time.sleep(0)  # lets the event loop go on at once
            self._next_pause = now + _PAUSE_INTERVAL_S
        found.stopped = found.stopped or self._cancelled.is_set() or now > self._deadline
        return found.stopped

    def _add_matches(self, found: GlobMatches, prefix: str, names: Sequence[str]) -> None:
        found.count += len(names)
        if room := self._limit - len(found.paths):
            found.paths += [prefix + name for name in names[:room]]

    def _match_directory(
        self, entry: os.DirEntry[str], step: PatternStep, level: IgnoreLevel
    ) -> tuple[PatternStates, bool]:
        """Return the states that a directory reaches, and whether it is a match itself.

        Under `**`, directories of version control and ignored ones count only if the pattern names them.
        """
        hidden = bool(step.recursive_states) and (entry.name in VCS_DIRECTORIES or level.ignores(entry.path, True))
        tests = [test for test in step.tests if (test.literal or not hidden) and test.matches(entry.name)]
        reached = frozenset[PatternPosition]().union(*(test.leads_to for test in tests))
        accepted = any(test.accepts for test in tests)
        if entry.is_symlink():
            return (
                reached if self._may_follow(entry.path, reached) else frozenset()
            ), accepted or step.recursive_accepts
        if hidden:
            return reached, accepted
        return reached | step.recursive_states, accepted or step.recursive_accepts

    def _may_follow(self, path: str, reached: PatternStates) -> bool:
        """Return whether a link is followed: the pattern names what lies behind it, and that is in the workspace."""
        ahead = [self._pattern.components[index][at:] for index, at in reached]
        if not any(ahead) or any("**" in components for components in ahead):
            return False
        return is_within(os.path.realpath(path), self._roots, windows=self._windows)


def _list_entries(directory: str) -> tuple[list[os.DirEntry[str]], list[str]]:
    """Return the directories in order, and the names of all else."""
    directories: list[os.DirEntry[str]] = []
    others: list[os.DirEntry[str]] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    is_directory = entry.is_dir()
                except OSError:
                    is_directory = False
                (directories if is_directory else others).append(entry)
    except OSError:
        pass
    directories.sort(key=attrgetter("name"))
    return directories, [entry.name for entry in others]


def _split_components(pattern: str) -> tuple[str, ...]:
    parts: list[str] = []
    for part in pattern.split("/"):
        if part not in ("", ".") and not (part == "**" and parts[-1:] == ["**"]):
            parts.append(part)
    return tuple(parts)


def _match_any(matchers: Sequence[NameMatcher]) -> NameMatcher:
    if len(matchers) == 1:
        return matchers[0]
    return lambda name: any(matches(name) for matches in matchers)
