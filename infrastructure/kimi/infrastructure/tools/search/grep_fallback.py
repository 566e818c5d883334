"""A search program for machines without ripgrep, which takes the arguments that Grep passes to ripgrep.

It prints what ripgrep would print, for expressions with the same meaning in RE2, whose word boundaries know ASCII only.
It is slower, knows only the file types of one table, and reads files whole, up to a limit. It is a separate program so
that a long search can be killed, as ripgrep is (tools spec 3.7).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from kimi.infrastructure.linear_regex import LinearRegex, UnknownExpression, compile_linear, find_spans
from kimi.infrastructure.tools.search.ignore_rules import SEARCH_KINDS, IgnoreLevel, PathRules, load_rules_above
from kimi.infrastructure.tools.search.name_globs import expand_braces
from kimi.infrastructure.tools.search.ripgrep_types import GLOBS_BY_FILE_TYPE

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
    """Decides which files of a walk are searched: by globs, then by ignore files, then by types, as ripgrep does."""

    def __init__(self, options: argparse.Namespace, base_dir: str) -> None:
        self._base_dir = base_dir
        globs: list[tuple[str, bool]] = options.globs
        self._globs = [
            (glob.startswith("!"), _compile_glob(glob.removeprefix("!"), ignore_case=ignore_case))
            for glob, ignore_case in globs
        ]
        self._has_positive_globs = any(not negated for negated, _ in self._globs)
        known: dict[str, list[str]] = {name: list(found) for name, found in GLOBS_BY_FILE_TYPE.items()}
        for added in options.type_add:
            name, _, glob = added.partition(":")
            known.setdefault(name, []).append(glob)
        self._types: list[tuple[bool, list[PathRules]]] = []
        for wanted, name in options.types:
            if name not in known:
                raise InvalidSearch(f"unrecognized file type: {name}")
            self._types.append((wanted, [_compile_glob(glob) for glob in known[name]]))
        self._has_wanted_types = any(wanted for wanted, _ in self._types)

    def includes(self, path: str, is_directory: bool, level: IgnoreLevel | None) -> bool:
        """Return whether the file is searched, or the directory entered."""
        decided = self._match_globs(path, is_directory)
        if decided is not None:
            return decided
        if level is not None and level.ignores(path, is_directory):
            return False
        return is_directory or self._matches_types(path)

    def _match_globs(self, path: str, is_directory: bool) -> bool | None:
        relative = os.path.relpath(path, self._base_dir)
        for negated, rules in reversed(self._globs):
            if _is_glob_match(rules, relative, is_directory):
                return not negated
        return False if self._has_positive_globs and not is_directory else None

    def _matches_types(self, path: str) -> bool:
        name = os.path.basename(path)
        for wanted, globs in reversed(self._types):
            if any(rules.decide(name, False) for rules in globs):
                return wanted
        return not self._has_wanted_types


def main(arguments: Sequence[str] | None = None) -> int:
    """Search and return the exit status: 0 with a match, 1 without, 2 if the search failed wholly or in part."""
    options = _parse_options(sys.argv[1:] if arguments is None else arguments)
    try:
        search = FileSearch(options)
        file_filter = FileFilter(options, os.getcwd())
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
        self._regex = _compile_pattern(options.pattern, options.ignore_case, "ms" if self._multiline else "")
        # Where lines stand for themselves, a search in the whole text tells whether any of them can match.
        depends_on_lines = self._multiline or any(part in options.pattern for part in ("(?", "\\A", "\\z"))
        self._probe = None if depends_on_lines else _compile_pattern(options.pattern, options.ignore_case, "m")
        self._mode = "files" if options.files_with_matches else "counts" if options.count_matches else "content"
        self._before: int = _first_set(options.before_context, options.context)
        self._after: int = _first_set(options.after_context, options.context)
        self._show_line_numbers: bool = options.line_number
        self._max_columns: int = options.max_columns
        self._searches_foreign_text = not options.pattern.isascii()
        self._has_printed = False
        self.has_matches = False

    def search_file(self, display_path: str, path: str, *, is_explicit: bool) -> None:
        """Search one file. A binary file is searched only if it was named itself; its lines are not shown."""
        with open(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise OSError(0, f"larger than {MAX_FILE_BYTES} bytes")
        text = _convert_text(content, foreign=self._searches_foreign_text)
        binary = b"\0" in text
        if binary and not is_explicit:
            return
        if self._probe is not None and self._probe.search(text) is None:
            return
        lines = text.split(b"\n")
        if not lines[-1]:
            lines.pop()
        matches = list(self._find_matches(text, lines))
        if matches:
            self.has_matches = True
            self._print_matches(os.fsencode(display_path), lines, matches, text.index(b"\0") if binary else None)

    def _find_matches(self, text: bytes, lines: list[bytes]) -> Iterator[LineRange]:
        if self._multiline:
            yield from self._find_multiline_matches(text)
            return
        for number, line in enumerate(lines):
            for _ in find_spans(self._regex, line):
                yield LineRange(number, number + 1)

    def _find_multiline_matches(self, text: bytes) -> Iterator[LineRange]:
        number = at = 0
        for start, end in find_spans(self._regex, text):
            if start == end == len(text) and (not text or text.endswith(b"\n")):
                return
            number += text.count(b"\n", at, start)
            at = start
            yield LineRange(number, number + 1 + text.count(b"\n", start, max(end - 1, start)))

    def _print_matches(self, name: bytes, lines: list[bytes], matches: list[LineRange], binary_at: int | None) -> None:
        if self._mode == "files":
            self._out.write(name + b"\0")
        elif self._mode == "counts":
            self._out.write(b"%s\0%d\n" % (name, len(matches)))
        elif binary_at is not None:
            self._out.write(b'%s: binary file matches (found "\\0" byte around offset %d)\n' % (name, binary_at))
        else:
            self._print_lines(name, lines, matches)

    def _print_lines(self, name: bytes, lines: list[bytes], matches: list[LineRange]) -> None:
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

    def _format_line(self, number: int, text: bytes, is_match: bool) -> bytes:
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


def _convert_text(content: bytes, *, foreign: bool) -> bytes:
    """Return UTF-8 without its mark; UTF-16 is converted if the text begins with its mark.

    With `foreign`, other text that is not UTF-8 is converted too: no pattern in ASCII needs that.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace").encode("utf-8", "replace")
    if foreign:
        try:
            content.decode()
        except UnicodeDecodeError:
            from kimi.infrastructure.tools.search.foreign_text import tell_encoding  # only for such a file

            encoding = tell_encoding(content)
            content = content if encoding is None else content.decode(encoding.codec, "replace").encode()
    return content.removeprefix(b"\xef\xbb\xbf")


_UNICODE_CLASSES = {"w": r"\p{L}\p{M}\p{N}_", "d": r"\p{Nd}", "s": r"\s\p{Z}\x{85}"}


def _compile_pattern(pattern: str, ignore_case: bool, flags: str) -> LinearRegex:
    """Compile the expression after translating the classes that mean more to ripgrep than to the engine."""
    try:
        prefix = f"(?{flags})" if flags else ""
        return compile_linear(prefix + _translate_classes(pattern), ignore_case=ignore_case)
    except UnknownExpression as error:
        raise InvalidSearch(
            f"regex parse error: {error}. Look-around and references to groups are not supported."
        ) from error


def _translate_classes(pattern: str) -> str:
    """Let `\\w`, `\\d` and `\\s` know all letters, digits and blanks; their opposites do outside of brackets only."""
    pieces: list[str] = []
    at, in_class = 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            pieces.append(_translate_escape(pattern[at : at + 2], in_class))
            at += 2
            continue
        if in_class and (named := _POSIX_CLASS.match(pattern, at)) is not None:
            char = named[0]
        elif char == "[" and not in_class:
            in_class = True
            opening = _CLASS_OPENING.match(pattern, at)
            char = opening[0] if opening is not None else char
        elif char == "]":
            in_class = False
        pieces.append(char)
        at += len(char)
    return "".join(pieces)


_POSIX_CLASS = re.compile(r"\[:\^?[a-z]{1,10}:\]")
_CLASS_OPENING = re.compile(r"\[\^?\]?")


def _translate_escape(escape: str, in_class: bool) -> str:
    known = _UNICODE_CLASSES.get(escape[1:])
    if known is not None:
        return known if in_class else f"[{known}]"
    opposite = _UNICODE_CLASSES.get(escape[1:].lower())
    return f"[^{opposite}]" if opposite is not None and not in_class else escape


def _compile_glob(glob: str, *, ignore_case: bool = False) -> PathRules:
    try:
        return PathRules(expand_braces(glob), ignore_case=ignore_case)
    except ValueError as error:
        raise InvalidSearch(f"error parsing glob '{glob}': {error}") from error


def _is_glob_match(rules: PathRules, path: str, is_directory: bool) -> bool:
    path = path.replace(os.sep, "/")
    while path.startswith("../"):
        path = path[3:]
    return bool(rules.decide(path.lstrip("/"), is_directory))


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
    for flag, ignore_case in (("--glob", False), ("--iglob", True)):
        parser.add_argument(flag, dest="globs", action="append", default=[], type=partial(_pair, ignore_case))
    for flag, wanted in (("--type", True), ("--type-not", False)):
        parser.add_argument(flag, dest="types", action="append", default=[], type=partial(_pair_type, wanted))
    parser.add_argument("--type-add", action="append", default=[])
    options = parser.parse_args(arguments[:-3])
    options.pattern, options.path = arguments[-2:]
    return options


def _pair(ignore_case: bool, glob: str) -> tuple[str, bool]:
    return glob, ignore_case


def _pair_type(wanted: bool, name: str) -> tuple[bool, str]:
    return wanted, name


if __name__ == "__main__":
    sys.exit(main())
