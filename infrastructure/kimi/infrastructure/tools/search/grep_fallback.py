"""A search program for machines without ripgrep, which takes the arguments that Grep passes to ripgrep.

It prints what ripgrep would print, for patterns with the same meaning in Python's `re`. It is slower, knows only the
file types of one table, and reads files whole, up to a limit. It is a separate program so that an expression that takes
for ever can be killed, as ripgrep is (tools spec 3.7).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from kimi.infrastructure.tools.search.glob_walk import expand_braces
from kimi.infrastructure.tools.search.ignore_rules import SEARCH_KINDS, IgnoreLevel, load_rules_above
from kimi.infrastructure.tools.search.ripgrep_types import GLOBS_BY_FILE_TYPE

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

MAX_FILE_BYTES = 64 * 1024 * 1024
"""A larger file is reported as one that could not be searched."""


class InvalidSearch(Exception):
    """The search cannot be made; the text is for the user."""


@dataclass(frozen=True, slots=True)
class LineRange:
    """The lines that a match touches, half open, counted from 0."""

    first: int
    end: int


class FileFilter:
    """Decides which files of a walk are searched: by `--glob` and `--type`, then by the ignore files."""

    def __init__(self, globs: Sequence[str], file_type: str | None, base_dir: str) -> None:
        self._base_dir = base_dir
        self._globs = [(glob.startswith("!"), _compile_glob(glob.removeprefix("!"))) for glob in globs]
        self._has_positive_globs = any(not negated for negated, _ in self._globs)
        if file_type is not None and file_type not in GLOBS_BY_FILE_TYPE:
            raise InvalidSearch(f"unrecognized file type: {file_type}")
        self._types = [_compile_glob(glob) for glob in GLOBS_BY_FILE_TYPE[file_type]] if file_type is not None else []

    def includes(self, path: str, is_directory: bool, level: IgnoreLevel | None) -> bool:
        """Return whether the file is searched, or the directory entered."""
        wanted = self._match_globs(path, is_directory)
        if wanted is False:
            return False
        if self._types and not is_directory and not any(_is_glob_match(spec, path, False) for spec in self._types):
            return False
        return wanted is True or level is None or not level.ignores(path, is_directory)

    def _match_globs(self, path: str, is_directory: bool) -> bool | None:
        relative = os.path.relpath(path, self._base_dir)
        for negated, spec in reversed(self._globs):
            if _is_glob_match(spec, relative, is_directory):
                return not negated
        return False if self._has_positive_globs and not is_directory else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Search and return the exit status: 0 with a match, 1 without, 2 if the search failed wholly or in part."""
    options = _parse_options(sys.argv[1:] if arguments is None else arguments)
    try:
        search = FileSearch(options)
        file_filter = FileFilter(options.glob, options.type, os.getcwd())
    except InvalidSearch as error:
        print(f"rg: {error}", file=sys.stderr)
        return 2
    failed = False
    for shown, path in _walk_files(options.path, file_filter, ignore=not options.no_ignore):
        try:
            search.search_file(shown, path, is_explicit=shown == options.path)
        except OSError as error:
            failed = True
            print(f"rg: {shown}: {error.strerror or error}", file=sys.stderr)
    sys.stdout.buffer.flush()
    if failed:
        return 2
    return 0 if search.has_matches else 1


class FileSearch:
    """Searches one file after the other and prints the matches."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._out: BinaryIO = sys.stdout.buffer
        self._multiline: bool = options.multiline
        self._regex = _compile_pattern(options.pattern, options.ignore_case, options.multiline)
        self._mode = "files" if options.files_with_matches else "counts" if options.count_matches else "content"
        self._before: int = _first_set(options.before_context, options.context)
        self._after: int = _first_set(options.after_context, options.context)
        self._show_line_numbers: bool = options.line_number
        self._max_columns: int = options.max_columns
        self._has_printed = False
        self.has_matches = False

    def search_file(self, display_path: str, path: str, *, is_explicit: bool) -> None:
        """Search one file. A binary file is searched only if it was named itself; its lines are not shown."""
        with open(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise OSError(0, f"larger than {MAX_FILE_BYTES} bytes")
        text = _decode_text(content)
        binary = "\0" in text
        if binary and not is_explicit:
            return
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        matches = list(self._find_matches(text, lines))
        if matches:
            self.has_matches = True
            self._print_matches(os.fsencode(display_path), lines, matches, text.index("\0") if binary else None)

    def _find_matches(self, text: str, lines: list[str]) -> Iterator[LineRange]:
        if self._multiline:
            yield from self._find_multiline_matches(text)
            return
        for number, line in enumerate(lines):
            for _ in self._regex.finditer(line.removesuffix("\r")):
                yield LineRange(number, number + 1)

    def _find_multiline_matches(self, text: str) -> Iterator[LineRange]:
        number = at = 0
        for match in self._regex.finditer(text):
            start, end = match.span()
            if start == end == len(text) and (not text or text.endswith("\n")):
                return
            number += text.count("\n", at, start)
            at = start
            yield LineRange(number, number + 1 + text.count("\n", start, max(end - 1, start)))

    def _print_matches(self, name: bytes, lines: list[str], matches: list[LineRange], binary_at: int | None) -> None:
        if self._mode == "files":
            self._out.write(name + b"\0")
        elif self._mode == "counts":
            self._out.write(b"%s\0%d\n" % (name, len(matches)))
        elif binary_at is not None:
            self._out.write(b'%s: binary file matches (found "\\0" byte around offset %d)\n' % (name, binary_at))
        else:
            self._print_lines(name, lines, matches)

    def _print_lines(self, name: bytes, lines: list[str], matches: list[LineRange]) -> None:
        hits = {number for match in matches for number in range(match.first, match.end)}
        shown = sorted(
            number
            for number in {near for hit in hits for near in range(hit - self._before, hit + self._after + 1)}
            if 0 <= number < len(lines)
        )
        last: int | None = None
        for number in shown:
            if (self._before or self._after) and (self._has_printed if last is None else number > last + 1):
                self._out.write(b"--\n")
            self._out.write(name + b"\0" + self._format_line(number, lines[number], number in hits))
            last, self._has_printed = number, True

    def _format_line(self, number: int, line: str, is_match: bool) -> bytes:
        text = line.encode("utf-8", "surrogateescape")
        if len(text) > self._max_columns:
            text = text[: self._max_columns] + b" [... omitted end of long line]"
        prefix = b"%d%s" % (number + 1, b":" if is_match else b"-") if self._show_line_numbers else b""
        return prefix + text + b"\n"


def _walk_files(root: str, file_filter: FileFilter, *, ignore: bool) -> Iterator[tuple[str, str]]:
    """Yield the files below the searched path: as shown, and absolute. Links are not followed."""
    absolute = os.path.realpath(root)
    if not os.path.isdir(absolute):
        yield root, absolute
        return
    level = load_rules_above(absolute, SEARCH_KINDS) if ignore else None
    pending: list[tuple[str, str, IgnoreLevel | None]] = [(root, absolute, level)]
    while pending:
        shown, directory, level = pending.pop()
        entries = _list_entries(directory)
        inside = level.enter(directory, {entry.name for entry in entries}) if level is not None else None
        below: list[tuple[str, str, IgnoreLevel | None]] = []
        for entry in entries:
            is_directory = entry.is_dir(follow_symlinks=False)
            if not (is_directory or entry.is_file(follow_symlinks=False)):
                continue
            if not file_filter.includes(entry.path, is_directory, inside):
                continue
            name = os.path.join(shown, entry.name)
            if is_directory:
                below.append((name, entry.path, inside))
            else:
                yield name, entry.path
        pending.extend(reversed(below))


def _list_entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        print(f"rg: {directory}: {error.strerror or error}", file=sys.stderr)
        return []


def _decode_text(content: bytes) -> str:
    """Decode UTF-8 and keep invalid bytes for the output; UTF-16 if the text begins with its mark."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    return content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


_POSIX_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "0-9a-zA-Z",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "punct": r"!-/:-@\[-`{-~",
    "word": r"\w",
    "xdigit": "0-9A-Fa-f",
}


def _compile_pattern(pattern: str, ignore_case: bool, multiline: bool) -> re.Pattern[str]:
    """Compile the expression after translating the syntax of ripgrep that differs from Python's."""
    translated = re.sub(r"\[:(\w+):\]", lambda match: _POSIX_CLASSES.get(match[1], match[0]), pattern)
    translated = re.sub(r"(?<!\\)\(\?<(?=[A-Za-z_])", "(?P<", translated).replace(r"\z", r"\Z")
    flags = (re.IGNORECASE if ignore_case else 0) | ((re.MULTILINE | re.DOTALL) if multiline else 0)
    try:
        return re.compile(translated, flags)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidSearch(f"regex parse error: {error}") from error


def _compile_glob(glob: str) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(expand_braces(glob))
    except ValueError as error:
        raise InvalidSearch(f"error parsing glob '{glob}': {error}") from error


def _is_glob_match(spec: GitIgnoreSpec, path: str, is_directory: bool) -> bool:
    path = path.replace(os.sep, "/")
    while path.startswith("../"):
        path = path[3:]
    return bool(spec.check_file(path.lstrip("/") + ("/" if is_directory else "")).include)


def _first_set(*values: int | None) -> int:
    return next((value for value in values if value is not None), 0)


def _parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags that `build_search_arguments` uses. The last three arguments are `--`, pattern and path."""
    parser = argparse.ArgumentParser(prog="rg", allow_abbrev=False, add_help=False)
    flags = "--no-config --null --with-filename --no-heading --max-columns-preview --hidden --no-ignore --ignore-case"
    for flag in f"{flags} --multiline --multiline-dotall --line-number --files-with-matches --count-matches".split():
        parser.add_argument(flag, action="store_true")
    for flag in ("--before-context", "--after-context", "--context", "--max-columns", "-j"):
        parser.add_argument(flag, type=int)
    parser.add_argument("--glob", action="append", default=[])
    parser.add_argument("--type")
    options = parser.parse_args(arguments[:-3])
    options.pattern, options.path = arguments[-2:]
    return options


if __name__ == "__main__":
    sys.exit(main())
