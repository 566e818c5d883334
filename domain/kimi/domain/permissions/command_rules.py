"""Whether a rule's pattern matches a command line (tools spec 5.6)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from typing import Final

from kimi.domain.permissions.command_names import builds_expression, may_run_more, name_program, runs_arguments
from kimi.domain.permissions.command_search import find_command
from kimi.domain.permissions.shell_line import SimpleCommand, join_words, parse_shell_line


def mentions_command(pattern: str, line: str, language: str) -> bool:
    """Return whether a `deny` or `ask` rule with this pattern applies to the line.

    It applies when the pattern matches the line as a whole or one of its commands, and where the line cannot be split
    for certain, or runs what its arguments say, any text in it that may be a command.
    """
    if language == "powershell":  # which does not tell upper case from lower case
        pattern, line = pattern.casefold(), line.casefold()
    if fnmatchcase(line, pattern):
        return True
    matches = re.compile(translate(pattern)).match
    if any(matches(spelling) is not None for spelling in _list_spellings(line, language)):
        return True
    parsed = parse_shell_line(line, language)
    return (parsed is None or may_run_more(parsed)) and find_command(pattern, line)


def covers_commands(pattern: str, line: str, language: str) -> bool:
    """Return whether an `allow` rule with this pattern covers every command that the line runs.

    No line is covered that hides a command, changes a file by a redirection or cannot be split for certain.
    """
    parsed = parse_shell_line(line, language)
    if parsed is None or parsed.changes_files or parsed.has_hiding_signs or not parsed.commands:
        return False
    return all(fnmatchcase(command.text, pattern) and not builds_expression(command) for command in parsed.commands)


_LOOKING: Final = {
    "ls": re.compile(r"-[1aAdFhlpQrRstX]+|--(?:all|almost-all|recursive|human-readable|classify)"),
    "pwd": re.compile(r"-[LP]"),
    "date": re.compile(r"-u|--utc|\+[\w%:.,/-]+"),
    "uname": re.compile(r"-[asnrvmpio]+"),
    **dict.fromkeys(("whoami", "id", "hostname", "nproc", "arch", "true", "false"), None),
}
"""Programs that show names and facts only, with the options that change nothing about that."""

_INSIDE: Final = re.compile(r"[\w@+,=][\w@+,=.-]*|\.[\w@+,=-][\w@+,=.-]*|\.")
"""A part of a path that does not lead out of the work directory by itself."""


def only_looks(line: str, language: str) -> bool:
    """Return whether every command of the line only shows names or facts, and none of it is computed.

    What shows the content of files is not among them: the file tools do that by rules of their own.
    """
    parsed = parse_shell_line(line, language) if language == "bash" else None
    if parsed is None or parsed.changes_files or parsed.has_hiding_signs or not parsed.commands:
        return False
    return all(_only_looks(command) for command in parsed.commands)


def _only_looks(command: SimpleCommand) -> bool:
    if command.assignments or not command.words or command.words[0] not in _LOOKING:
        return False
    name, *arguments = command.words
    if tuple(command.text.split()) != command.words:  # quotes, redirections, escapes
        return False
    options = _LOOKING[name]
    return all(
        bool(options and options.fullmatch(word))
        or (name == "ls" and all(_INSIDE.fullmatch(part) for part in word.rstrip("/").split("/")))
        for word in arguments
    )


def command_prefix(line: str, language: str) -> str:
    """Return what approval of the line for the session covers in the scope `prefix`: two words, or the line itself.

    Two words name what is done only if the first is a program that runs nothing else and the second is a plain word.
    """
    parsed = parse_shell_line(line, language)
    if parsed is None or len(parsed.commands) != 1 or parsed.changes_files or parsed.has_hiding_signs:
        return line
    command = parsed.commands[0]
    if not _is_plain(command) or runs_arguments(command):
        return line
    return join_words(command.words[:2])


def _is_plain(command: SimpleCommand) -> bool:
    """Return whether the line begins with the two words as they are read: unquoted, no option and no assignment."""
    plain = re.compile(r"[\w./@:+][\w./@:+-]*")
    words = command.words[:2]
    return (
        bool(words)
        and not command.assignments
        and all(plain.fullmatch(word) for word in words)
        and tuple(command.text.split()[:2]) == words
    )


@lru_cache(maxsize=4)
def _list_spellings(line: str, language: str) -> tuple[str, ...]:
    """Return each command of a line that was split: as written, without quotes, and by the bare name of its program."""
    parsed = parse_shell_line(line, language)
    if parsed is None:
        return ()
    return tuple({spelling for command in parsed.commands for spelling in _spell(command)})


def _spell(command: SimpleCommand) -> Iterator[str]:
    yield command.text
    yield join_words(command.words)
    if command.arguments:
        yield join_words(command.arguments)
        yield join_words((name_program(command.arguments[0]), *command.arguments[1:]))
        yield join_words((command.arguments[0].rpartition("/")[2], *command.arguments[1:]))
