"""Matches names and paths with globs, without backtracking (tools spec 3.6, 3.7).

Between two stars of a glob stands text of a fixed length. The first place where it fits is the right one, so that each
is searched once, and a match costs at most the length of the glob times that of the name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

NameMatcher: TypeAlias = Callable[[str], object]
"""Returns something true for a name that matches."""

MAX_NAME_CHARS = 255
"""No file name is longer, so a glob that demands more matches nothing."""

MAX_ALTERNATIVES = 256
"""The limit of patterns that braces may expand to."""

MAX_PATTERN_CHARS = 4096
"""A longer pattern is refused; no path is that long."""

_WILDCARD = re.compile(r"[*?\[\\]")
_CLASS_NAMES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": r"\ \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": r"\ -~", "punct": r"!-/:-@\[-`{-~", "space": r"\s", "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}  # fmt: skip


class TooManyAlternatives(ValueError):
    """The braces expand to more patterns than are tried."""


@dataclass(slots=True)
class _Segments:
    """The expressions between the stars of a glob, and the number of characters that they match."""

    texts: list[str]
    length: int = 0

    def add(self, expression: str) -> None:
        self.texts[-1] += expression
        self.length += 1


def compile_name_glob(glob: str, *, ignore_case: bool = False, escapes: bool = False) -> NameMatcher:
    """Return a matcher of whole names: `*`, `?`, `[abc]`, `[!a-c]`; with `escapes` also a backslash before any."""
    return _compile_name_glob(glob, ignore_case, escapes)


@lru_cache(maxsize=4096)
def _compile_name_glob(glob: str, ignore_case: bool, escapes: bool) -> NameMatcher:
    if not ignore_case and not _WILDCARD.search(glob):
        return glob.__eq__
    segments = _split_segments(glob, escapes)
    if segments is None or segments.length > MAX_NAME_CHARS:
        return _match_nothing
    first, *others = segments.texts
    if others:
        *middle, last = others
        # Each group is atomic: what it found is final, so nothing is tried twice.
        first += "".join(f"(?>.*?{text})" for text in middle if text) + f".*{last}"
    return re.compile(first, re.DOTALL | (re.IGNORECASE if ignore_case else 0)).fullmatch


def _match_nothing(name: str) -> None:
    return None


def _split_segments(glob: str, escapes: bool) -> _Segments | None:
    """Return the segments between the stars; None for a class that is none, which matches nothing.

    A bracket that does not close is none to git, which knows escapes, and a plain character otherwise.
    """
    segments, at = _Segments([""]), 0
    while at < len(glob) and segments.length <= MAX_NAME_CHARS:
        char = glob[at]
        at += 1
        if char == "*":
            if segments.texts[-1] or len(segments.texts) == 1:
                segments.texts.append("")
        elif char == "?":
            segments.add(".")
        elif char == "[" and ((found := _translate_class(glob, at, escapes)) is not None or escapes):
            if found is None or not _is_expression(found[0]):
                return None
            at = found[1]
            segments.add(found[0])
        else:
            if char == "\\" and escapes and at < len(glob):
                char, at = glob[at], at + 1
            segments.add(re.escape(char))
    return segments


def _translate_class(glob: str, at: int, escapes: bool) -> tuple[str, int] | None:
    """Return the expression of the class that opens before `at`, and where it ends; None if it does not end."""
    negated = glob.startswith(("!", "^"), at)
    start = at = at + negated
    body = ""
    while at < len(glob) and (glob[at] != "]" or at == start):
        if glob.startswith("[:", at) and (end := glob.find(":]", at)) > 0 and glob[at + 2 : end] in _CLASS_NAMES:
            body += _CLASS_NAMES[glob[at + 2 : end]]
            at = end + 2
            continue
        if glob[at] == "\\" and escapes and at + 1 < len(glob):
            at += 1
            body += re.escape(glob[at])
        else:
            body += glob[at] if glob[at] == "-" else re.escape(glob[at])
        at += 1
    if at >= len(glob):
        return None
    return f"[{'^' if negated else ''}{body}]", at + 1


def _is_expression(expression: str) -> bool:
    """Return whether a class can be compiled: a range from z to a cannot."""
    try:
        re.compile(expression)
    except re.error:
        return False
    return True


def match_components(matchers: Sequence[NameMatcher | None], names: Sequence[str]) -> bool:
    """Return whether a path matches, component by component; None stands for `**`, any number of components."""
    at = name_at = 0
    star = mark = -1
    while name_at < len(names):
        matches = matchers[at] if at < len(matchers) else _match_nothing
        if matches is None:
            star, mark = at, name_at
            at += 1
        elif matches(names[name_at]):
            at, name_at = at + 1, name_at + 1
        elif star >= 0:  # the last `**` takes one name more; those before it need not change
            mark += 1
            at, name_at = star + 1, mark
        else:
            return False
    return all(matches is None for matches in matchers[at:])


def expand_braces(pattern: str) -> list[str]:
    """Expand `a.{b,c}` to `a.b` and `a.c`, nested ones too.

    Braces without a comma stay. Raises TooManyAlternatives, and ValueError for a pattern that is too long.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"the pattern is longer than {MAX_PATTERN_CHARS} characters")
    pending, done = [pattern], list[str]()
    while pending:
        if len(pending) + len(done) > MAX_ALTERNATIVES:
            raise TooManyAlternatives(f"the braces stand for more than {MAX_ALTERNATIVES} patterns")
        current = pending.pop()
        group = _find_brace_group(current)
        if group is None:
            done.append(current)
        else:
            options = [current[left + 1 : right] for left, right in pairwise(group)]
            start, end = group[0], group[-1] + 1
            pending.extend(current[:start] + option + current[end:] for option in reversed(options))
    return list(dict.fromkeys(done))


def _find_brace_group(pattern: str) -> list[int] | None:
    """Return the places of the first group with a comma at its own level: its brace, its commas, its end."""
    open_groups: list[list[int]] = []
    found: list[int] | None = None
    for at, char in enumerate(pattern):
        if char == "{":
            open_groups.append([at])
        elif char == "," and open_groups:
            open_groups[-1].append(at)
        elif char == "}" and open_groups:
            group = [*open_groups.pop(), at]
            if len(group) > 2 and (found is None or group[0] < found[0]):
                found = group
    return found
