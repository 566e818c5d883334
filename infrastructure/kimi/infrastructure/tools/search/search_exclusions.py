"""Keeps ripgrep away from files with secrets: whether a pattern matches in one would tell what is in it.

A name is excluded by a file type of our own, because types concern files only: a glob would exclude the directory
`.env` as well. A glob of the model, however, takes precedence over types, so what it shares with the names is excluded
by globs after it. Patterns with directories, and the program's own files, are always globs (tools spec 2.3, 3.7).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from kimi.domain.permissions.file_patterns import (
    NOT_SENSITIVE_PATTERNS,
    SENSITIVE_PATTERNS,
    SENSITIVE_SYSTEM_PATTERNS,
)
from kimi.domain.permissions.path_rules import (
    PathScopes,
    is_within,
)
from kimi.infrastructure.tools.files.path_policy import ResolvedPath
from kimi.infrastructure.tools.search.name_globs import compile_name_glob, expand_braces

SECRET_TYPE, OPEN_TYPE, ANY_TYPE = "kimisecret", "kimiopen", "kimiany"


def build_exclusions(
    target: ResolvedPath, glob: str | None, file_type: str | None, work_dir: str, scopes: PathScopes
) -> list[str]:
    """Return the arguments that exclude files with secrets; they come after `glob` and `file_type`, the model's own."""
    secret = (*SENSITIVE_PATTERNS, *SENSITIVE_SYSTEM_PATTERNS, *scopes.sensitive)
    names = [pattern for pattern in secret if "/" not in pattern and pattern]
    exempt = [pattern for pattern in (*NOT_SENSITIVE_PATTERNS, *scopes.not_sensitive) if pattern and "/" not in pattern]
    if glob is None or glob.startswith("!"):
        arguments = _exclude_by_type(names, exempt, file_type)
    else:
        arguments = _exclude_by_glob(names, exempt, glob)
    for pattern in secret:
        if pattern.strip("/") and "/" in pattern:
            arguments += _exclude_run(pattern, target, work_dir, windows=scopes.windows)
    for own in scopes.protected:
        arguments += _exclude_own_file(own, target, work_dir, windows=scopes.windows)
    return arguments


def _exclude_by_type(names: Sequence[str], exempt: Sequence[str], file_type: str | None) -> list[str]:
    """Exclude names. Of several types that match, the last argument counts, so that exempt names come back."""
    arguments = [f"--type-add={SECRET_TYPE}:{_ignore_case(name)}" for name in names]
    if file_type is not None:
        return [*arguments, f"--type-not={SECRET_TYPE}"]
    arguments += [f"--type-add={ANY_TYPE}:*", *(f"--type-add={OPEN_TYPE}:{_ignore_case(name)}" for name in exempt)]
    return [*arguments, f"--type={ANY_TYPE}", f"--type-not={SECRET_TYPE}", f"--type={OPEN_TYPE}"]


def _exclude_by_glob(names: Sequence[str], exempt: Sequence[str], glob: str) -> list[str]:
    """Exclude the names that `glob` may match as well; names that are exempt and spelled out in full come back."""
    wanted = _list_last_components(glob)
    arguments = [
        f"--iglob=!{name}" for name in names if wanted is None or any(may_share_name(one, name) for _, one in wanted)
    ]
    if not arguments:
        return []
    for directory, last in wanted or ():
        matches = compile_name_glob(last, ignore_case=True, escapes=True)
        arguments += [f"--iglob={directory}{name}" for name in exempt if not set("*?[") & set(name) and matches(name)]
    return arguments


def _list_last_components(glob: str) -> list[tuple[str, str]] | None:
    """Return directory and last component of each alternative; None if they cannot be told for certain."""
    if "[" in glob and "{" in glob:
        return None
    try:
        alternatives = expand_braces(glob)
    except ValueError:
        return None
    parts = (one.rpartition("/") for one in alternatives)
    return [(directory + slash, last) for directory, slash, last in parts]


def may_share_name(one: str, other: str) -> bool:
    """Return whether a name may match both globs; for certain if it does not."""
    left, right = list(_tokenize(one)), list(_tokenize(other))
    pending, seen = [(0, 0)], set[tuple[int, int]]()
    while pending:
        place = at, beside = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        if at == len(left) and beside == len(right):
            return True
        pending += _list_next_places(left, right, at, beside)
    return False


def _list_next_places(left: list[str], right: list[str], at: int, beside: int) -> Iterator[tuple[int, int]]:
    """Yield where the comparison may go on: past a star, or past one character that both globs allow."""
    first, second = left[at] if at < len(left) else None, right[beside] if beside < len(right) else None
    if first == "*":
        yield at + 1, beside
    if second == "*":
        yield at, beside + 1
    if first is not None and second is not None and (first == second or {first, second} & {"*", "?"}):
        yield at + (first != "*"), beside + (second != "*")


def _tokenize(glob: str) -> Iterator[str]:
    """Yield `*`, `?` for any single character, and single characters without case."""
    at = 0
    while at < len(glob):
        char = glob[at]
        at += 1
        if char == "[" and (end := glob.find("]", at + 1 + glob.startswith(("!", "^"), at))) > 0:
            char, at = "?", end + 1
        elif char == "\\" and at < len(glob):
            char, at = glob[at], at + 1
        yield char.casefold()


def _exclude_run(pattern: str, target: ResolvedPath, work_dir: str, *, windows: bool) -> list[str]:
    """Exclude a run of directories and names, also where the searched directory is the first of them."""
    parts = pattern.strip("/").split("/")
    arguments = [f"--iglob=!**/{'/'.join(parts)}"]
    for root in {target.named_path.absolute, target.real_path}:
        above = [part for part in root.replace(os.sep, "/").split("/") if part]
        for number in range(1, min(len(parts), len(above) + 1)):
            if pattern.startswith("/") and number != len(above):
                continue
            pairs = zip(parts[:number], above[-number:], strict=True)
            if all(compile_name_glob(part, ignore_case=True)(name) for part, name in pairs):
                arguments += _exclude_below(target, "/".join(parts[number:]), work_dir, windows=windows)
    return arguments


def _exclude_own_file(own: str, target: ResolvedPath, work_dir: str, *, windows: bool) -> list[str]:
    for root in (target.named_path.absolute, target.real_path):
        if is_within(own.casefold(), [root.casefold()], windows=windows):
            rest = own[len(root) :].replace(os.sep, "/").strip("/")
            return _exclude_below(target, _escape(rest), work_dir, windows=windows)
    return []


def _exclude_below(target: ResolvedPath, rest: str, work_dir: str, *, windows: bool) -> list[str]:
    """Exclude `rest` below the searched directory, which ripgrep names relative to the work directory or in full."""
    root = target.named_path.absolute
    full = _escape(root.replace(os.sep, "/").strip("/"))
    arguments = [f"--iglob=!**/{full}/{rest}" if full else f"--iglob=!/{rest}"]
    if is_within(root, [work_dir], windows=windows):
        relative = _escape(os.path.relpath(root, work_dir).replace(os.sep, "/"))
        arguments.append(f"--iglob=!/{rest}" if relative == "." else f"--iglob=!/{relative}/{rest}")
    return arguments


def _escape(path: str) -> str:
    """Return a glob of this path. Bytes that are no text become `?`, since arguments must be text."""
    return "".join(
        "?" if "\ud800" <= char <= "\udfff" else f"[{char}]" if char in "*?[]{}\\" else char for char in path
    )


def _ignore_case(glob: str) -> str:
    """Return the glob with both cases of each letter outside of classes."""
    pieces: list[str] = []
    at = 0
    while at < len(glob):
        char = glob[at]
        at += 1
        if char == "[" and (end := glob.find("]", at + 1)) > 0:
            char, at = glob[at - 1 : end + 1], end + 1
        elif char.isalpha() and char.isascii():
            char = f"[{char.lower()}{char.upper()}]"
        elif char in "{}":
            char = f"[{char}]"
        pieces.append(char)
    return "".join(pieces)
