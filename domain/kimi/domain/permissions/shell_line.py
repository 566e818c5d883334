"""Splitting a shell line into its simple commands, for permission rules (tools spec 5.6).

A line is read by a list of what is understood: one sign that is not on it, and the line counts as not split.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_BASH: Final = re.compile(
    r"""
    (?P<blank>[ \t]++)
  | (?P<joint>\\\n)
  | (?P<redirection>[0-9]*+(?:&>>?|<<<|<>|[<>]&[ \t]*+-|[<>]&|>>|>\||>(?!\()|<(?![<(])))
  | (?P<plain>[\w./,:=@%+~^*?{}!\]\[-]++ | (?<=[^\s;|&()<>])\#)
  | '(?P<single>[^']*+)'
  | "(?P<double>(?:[^"\\`$] | \\. | \$(?![({\[\\`]))*+)"
  | \\(?P<escaped>.)
  | (?P<variable>\$(?:\w++|[?\#@*!$-])?(?![({\["'\\`]))
  | (?P<operator>[\n;&|])
    """,
    re.VERBOSE | re.DOTALL,
)
"""What bash and the plain POSIX shells read in the same way."""

_POWERSHELL: Final = re.compile(
    r"""
    (?P<blank>[ \t]++)
  | (?P<plain>[\w./\\,:=%+~^*?!\]\[-]++ | (?<=[^\s;|&])\#)
  | '(?P<single>[^'\u2018-\u201f]*+)'
  | "(?P<double>(?:[^"`$\u2018-\u201f] | \$(?![({]))*+)"
  | (?P<variable>\$[\w:?^$]*+(?![({]))
  | (?P<operator>[\n;&|])
    """,
    re.VERBOSE | re.DOTALL,
)
"""A backslash escapes nothing, and curly quotes quote too: a line that holds one outside of a word is not split."""

_OTHER: Final = re.compile(r"(?P<blank>[ \t]++)|(?P<plain>[A-Za-z0-9_./,:=@%+-]++)")
"""A shell whose quoting is not known here: words without any sign of their own."""

_GRAMMARS: Final = {"bash": _BASH, "powershell": _POWERSHELL}

MAX_SPLIT_CHARS: Final = 65_536
"""A longer line is not split: nobody who is asked about it would read it, and the time to judge it stays short."""

_ESCAPED_IN_DOUBLE_QUOTES: Final = re.compile(r'\\(?:\n|([$`"\\]))')
_ASSIGNMENT: Final = re.compile(r"\w+(?:\[[^\]]*\])?\+?=")
_HIDING: Final = re.compile(r"`|\$[({\[]|[<>]\(")
"""Signs that start an expansion. In quotes they are text, but for a command that evaluates its arguments."""

_UNQUOTED: Final = str.maketrans("", "", "'\"\\\n")


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A command of a line: its text as written, and its words without quotes and redirections."""

    text: str
    words: tuple[str, ...]

    @property
    def assignments(self) -> tuple[str, ...]:
        """The words before the command's name that set variables."""
        return self.words[: self._name_position]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command's name and what follows it; empty for a command that only sets variables."""
        return self.words[self._name_position :]

    @property
    def _name_position(self) -> int:
        return next((at for at, word in enumerate(self.words) if not _ASSIGNMENT.match(word)), len(self.words))


@dataclass(frozen=True, slots=True)
class ShellLine:
    """A line that was split for certain.

    `changes_files` says that output goes into a file, or input comes from one. `has_hiding_signs` says that quoted text
    would expand if it were read once more.
    """

    commands: tuple[SimpleCommand, ...]
    changes_files: bool
    has_hiding_signs: bool


@lru_cache(maxsize=4)
def parse_shell_line(line: str, language: str = "bash") -> ShellLine | None:
    """Return the simple commands of `line`; None when the shell may read it differently from us.

    `language` is "bash" for bash and the plain POSIX shells, "powershell", or the name of another shell: a line of such
    a shell is split only if it is one command of plain words. A line of more than `MAX_SPLIT_CHARS` is never split.
    """
    if len(line) > MAX_SPLIT_CHARS:
        return None
    reader = _LineReader(line)
    grammar, at = _GRAMMARS.get(language, _OTHER), 0
    while at < len(line):
        token = grammar.match(line, at)
        if token is None:
            return None
        reader.take(token)
        at = token.end()
    reader.end_command(at)
    unquoted = line.translate(_UNQUOTED)
    has_signs = _HIDING.search(line) is not None or _HIDING.search(unquoted) is not None
    return ShellLine(tuple(reader.commands), reader.changes_files, has_signs)


def split_simple_commands(line: str, language: str = "bash") -> list[str] | None:
    """Return the texts of the simple commands of a line in which nothing is hidden and no file is changed.

    Return None for every other line. The commands stand between `&& || ; | &` and newlines outside of quotes.
    """
    parsed = parse_shell_line(line, language)
    if parsed is None or parsed.changes_files or parsed.has_hiding_signs:
        return None
    return [command.text for command in parsed.commands]


class _LineReader:
    """Collects the tokens of a line into words and commands."""

    def __init__(self, line: str) -> None:
        self.commands: list[SimpleCommand] = []
        self.changes_files = False
        self._line = line
        self._start = 0
        self._words: list[str] = []
        self._pieces: list[str] = []
        self._has_word = False
        self._redirection: str | None = None

    def take(self, token: re.Match[str]) -> None:
        kind = token.lastgroup or ""
        if kind == "plain" or kind == "variable":
            self._add_piece(token[0])
        elif kind == "blank":
            self._end_word()
        elif kind == "operator":
            self.end_command(token.start())
            self._start = token.end()
        elif kind == "redirection":
            self._begin_redirection(token[0])
        elif kind == "double":
            self._add_piece(_ESCAPED_IN_DOUBLE_QUOTES.sub(r"\1", token[kind]))
        elif kind != "joint":
            self._add_piece(token[kind])

    def end_command(self, at: int) -> None:
        self._end_word()
        if self._redirection is not None:  # without a target: the shell refuses the line
            self.changes_files, self._redirection = True, None
        if text := self._line[self._start : at].strip(" \t\n"):
            self.commands.append(SimpleCommand(text, tuple(self._words)))
        self._words = []

    def _add_piece(self, piece: str) -> None:
        self._pieces.append(piece)
        self._has_word = True

    def _begin_redirection(self, text: str) -> None:
        if self._has_word and text[0].isdigit():  # `'a'1>b`: the digit belongs to the word
            self._add_piece(text.rstrip("<>&|"))
        self._end_word()
        if not text.endswith("-"):  # which closes a file and has no target
            self._redirection = text.lstrip("0123456789")

    def _end_word(self) -> None:
        if not self._has_word:
            return
        word = "".join(self._pieces)
        self._pieces.clear()
        self._has_word = False
        if self._redirection is None:
            self._words.append(word)
            return
        is_copy = self._redirection in (">&", "<&") and len(word) == 1 and word in "0123456789"
        is_null = self._redirection in ("<", ">", ">>", "&>", "&>>") and word == "/dev/null"
        self.changes_files |= not (is_copy or is_null)
        self._redirection = None


def join_words(words: Iterable[str]) -> str:
    """Return the words as one text, with a single blank between them."""
    return " ".join(words)
