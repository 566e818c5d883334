"""Walking a tree for a glob pattern: lazily, in order, each entry once, with a time limit (tools spec 3.6).

A pattern is a row of components; the walk carries the set of places in the pattern that a directory has reached, so
that `**` needs no second visit and no list of candidates. Blocking: to be run in a worker thread.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kimi.domain.permissions.path_rules import glob_regex, within
from kimi.infrastructure.tools.search.ignore_files import GIT_KINDS, VCS_DIRECTORIES, IgnoreLevel, rules_above

Place: TypeAlias = tuple[int, int]
"""Which alternative of the pattern, and how many of its components are matched."""

States: TypeAlias = frozenset[Place]

Visit: TypeAlias = "Iterator[Visit]"
"""The rest of a directory: gives a visit to each directory below, when its turn comes."""

MAX_ALTERNATIVES = 256
"""How many patterns braces may stand for."""

_WILD = re.compile(r"[*?\[]")
_LOOK_AT_CLOCK = 512


@dataclass(frozen=True, slots=True)
class NameTest:
    """One component to compare a name with, and where a match leads."""

    matches: Callable[[str], object]
    literal: bool
    leads_to: States
    accepts: bool


@dataclass(frozen=True, slots=True)
class Step:
    """All that can be done with the entries of a directory: `stay` are the `**` places, which any entry keeps."""

    tests: tuple[NameTest, ...]
    stay: States
    stay_accepts: bool


@dataclass(slots=True)
class Found:
    """The first matches in order, relative with `/`; how many there are; did the time run out?"""

    paths: list[str] = field(default_factory=list[str])
    count: int = 0
    stopped: bool = False


class TooManyAlternatives(ValueError):
    """The braces stand for more patterns than are tried."""


class Pattern:
    """A glob pattern, braces expanded. A trailing slash means directories only."""

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        alternatives = expand_braces(pattern)
        self.directories_only = pattern.endswith("/")
        self.components = [_components(alternative) for alternative in alternatives]
        self._flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
        self._steps: dict[States, Step] = {}

    @property
    def start(self) -> States:
        """The states of the directory that is searched."""
        return frozenset(place for index in range(len(self.components)) for place in self._reached(index, 0))

    def step(self, states: States) -> Step:
        """What the entries of a directory in these states are compared with; remembered."""
        if states not in self._steps:
            self._steps[states] = self._step(states)
        return self._steps[states]

    def accepts(self, states: States) -> bool:
        """Is a whole alternative matched?"""
        return any(at == len(self.components[index]) for index, at in states)

    def _step(self, states: States) -> Step:
        tests: list[NameTest] = []
        stay: set[Place] = set()
        for index, at in sorted(states):
            components = self.components[index]
            if at == len(components):
                continue
            if components[at] == "**":
                stay.update(self._reached(index, at))
                continue
            leads_to = frozenset(self._reached(index, at + 1))
            tests.append(self._test(components[at], leads_to, at + 1 == len(components)))
        kept = frozenset(stay)
        # A name may only be passed by `**` where components follow; `a/**` itself does not mean `a`.
        return Step(tuple(tests), kept, self.accepts(kept))

    def _test(self, component: str, leads_to: States, last: bool) -> NameTest:
        if _WILD.search(component) or self._flags & re.IGNORECASE:
            return NameTest(re.compile(glob_regex(component), self._flags).fullmatch, False, leads_to, last)
        return NameTest(component.__eq__, True, leads_to, last)

    def _reached(self, index: int, at: int) -> Iterator[Place]:
        """The place, and those that follow it without a name: `**` may stand for no directory at all."""
        components = self.components[index]
        yield index, at
        while at < len(components) and components[at] == "**":
            at += 1
            yield index, at


class Walk:
    """One search below `directory`. `roots` are the real directories that links may lead into."""

    def __init__(
        self,
        directory: str,
        pattern: Pattern,
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
        self._deadline = 0.0
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Make `run` return soon. To be called from any thread."""
        self._cancelled.set()

    def run(self) -> Found:
        """Search. Directories that cannot be read are passed over."""
        self._deadline = time.monotonic() + self._budget_s
        found = Found()
        level = rules_above(self._directory, GIT_KINDS)
        stack = [self._visit(self._directory, "", self._pattern.start, level, found)]
        while stack and not found.stopped:
            below = next(stack[-1], None)
            if below is None:
                stack.pop()
            else:
                stack.append(below)
        return found

    def _visit(self, directory: str, prefix: str, states: States, level: IgnoreLevel, found: Found) -> Visit:
        """Note the matches in a directory, in order, and give the visits to the directories below as they come."""
        entries = _entries(directory)
        step = self._pattern.step(states)
        if step.stay:
            level = level.entered(directory, {entry.name for entry in entries})
        for number, entry in enumerate(entries):
            if number % _LOOK_AT_CLOCK == 0 and self._time_is_up(found):
                return
            if _is_directory(entry):
                below, accepted = self._directory_states(entry, step, level)
                if accepted and self._include_dirs:
                    self._note(found, prefix + entry.name)
                if below:
                    yield self._visit(entry.path, f"{prefix}{entry.name}/", below, level, found)
            elif not self._pattern.directories_only and _accepts_file(entry.name, step):
                self._note(found, prefix + entry.name)

    def _time_is_up(self, found: Found) -> bool:
        found.stopped = found.stopped or self._cancelled.is_set() or time.monotonic() > self._deadline
        return found.stopped

    def _note(self, found: Found, path: str) -> None:
        found.count += 1
        if found.count <= self._limit:
            found.paths.append(path)

    def _directory_states(self, entry: os.DirEntry[str], step: Step, level: IgnoreLevel) -> tuple[States, bool]:
        """What a directory has reached, and whether it is a match itself.

        Under `**`, directories of version control and ignored ones count only when they are named as such.
        """
        hidden = bool(step.stay) and (entry.name in VCS_DIRECTORIES or level.ignores(entry.path, True))
        tests = [test for test in step.tests if (test.literal or not hidden) and test.matches(entry.name)]
        reached = frozenset[Place]().union(*(test.leads_to for test in tests))
        accepted = any(test.accepts for test in tests)
        if entry.is_symlink():
            return (reached if self._may_follow(entry.path, reached) else frozenset()), accepted or step.stay_accepts
        if hidden:
            return reached, accepted
        return reached | step.stay, accepted or step.stay_accepts

    def _may_follow(self, path: str, reached: States) -> bool:
        """A link is followed when the pattern spells out what lies behind it, and that is in the workspace."""
        ahead = [self._pattern.components[index][at:] for index, at in reached]
        if not any(ahead) or any("**" in components for components in ahead):
            return False
        return within(os.path.realpath(path), self._roots, windows=self._windows)


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=_name)
    except OSError:
        return []


def expand_braces(pattern: str) -> list[str]:
    """`a.{b,c}` as `a.b` and `a.c`, nested ones too; braces without a comma stay. Raises TooManyAlternatives."""
    waiting, done = [pattern], list[str]()
    while waiting:
        if len(waiting) + len(done) > MAX_ALTERNATIVES:
            raise TooManyAlternatives(f"the braces stand for more than {MAX_ALTERNATIVES} patterns")
        current = waiting.pop()
        group = _brace_group(current)
        if group is None:
            done.append(current)
        else:
            start, end, options = group
            waiting.extend(current[:start] + option + current[end:] for option in reversed(options))
    return list(dict.fromkeys(done))


def _brace_group(pattern: str) -> tuple[int, int, list[str]] | None:
    """The first group with a comma at its own level: where it starts, where it ends, its options."""
    for start in (index for index, char in enumerate(pattern) if char == "{"):
        options, depth, last = list[str](), 0, start + 1
        for index in range(start, len(pattern)):
            char = pattern[index]
            depth += (char == "{") - (char == "}")
            if (depth == 1 and char == ",") or depth == 0:
                options.append(pattern[last:index])
                last = index + 1
            if depth == 0:
                if len(options) > 1:
                    return start, index + 1, options
                break
    return None


def _components(pattern: str) -> tuple[str, ...]:
    parts: list[str] = []
    for part in pattern.split("/"):
        if part not in ("", ".") and not (part == "**" and parts[-1:] == ["**"]):
            parts.append(part)
    return tuple(parts)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _accepts_file(name: str, step: Step) -> bool:
    return step.stay_accepts or any(test.accepts and test.matches(name) for test in step.tests)


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name
