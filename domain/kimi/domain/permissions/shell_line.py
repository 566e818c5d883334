"""Splitting a shell line into its simple commands, for permission rules (tools spec 5.6)."""

from __future__ import annotations

import re

_HIDING_SIGNS = ("`", "$(", "<(", ">(", "<<", "${", "$'")
_LINE_CONTINUATION = "\\\n"
"""A backslash at the end of a line: bash removes both before it parses anything else."""

_POWERSHELL_HIDING = re.compile(r"""\\["';|&\n(#]|@["']|[\u2018-\u201f]""")
"""In PowerShell a backslash escapes nothing, strings span lines between `@"` and `"@`, and curly quotes quote too."""

_DEV_NULL_REDIRECT = re.compile(r">>?\s*/dev/null(?![^\s;|&])")
"""The only redirection that changes no file."""

_COMMAND_PREFIX_WORDS = re.compile(r"(?:[{!]|(?:if|then|elif|else|while|until|do|time)(?!\S)|\w+\+?=\S*|\s)+")
"""Words that may stand before the name of a command."""


def split_simple_commands(line: str, language: str = "bash") -> list[str] | None:
    """Return the simple commands of `line`, split at `&& || ; | &` and newlines outside quotes.

    Return None when the line holds syntax that could hide a command from a rule: command or process substitution, a
    heredoc, a parameter expansion with braces, a string with its own escapes (`$'…'`), a subshell or a function, a
    comment (quotes in it quote nothing), redirection into a file, or an unclosed quote; in PowerShell also syntax that
    PowerShell reads differently from bash.
    """
    joined = line.replace(_LINE_CONTINUATION, "")
    if any(sign in line or sign in joined for sign in _HIDING_SIGNS):
        return None
    if language == "powershell" and _POWERSHELL_HIDING.search(line):
        return None
    commands, plain = _split_at_operators(line)
    return commands if plain else None


def find_visible_commands(line: str) -> list[str]:
    """Return the simple commands that are visible in any line, also one that hides others.

    Each command is returned twice: as it is written, and without quotes and the words that precede its name (`then`,
    `{`, `NAME=value`).
    """
    commands = _split_at_operators(line)[0]
    return [*commands, *(_strip_prefix_words(command) for command in commands)]


def _strip_prefix_words(command: str) -> str:
    unquoted = " ".join(re.sub(r"""\\\n|['"\\]""", "", command).split())
    before = _COMMAND_PREFIX_WORDS.match(unquoted)
    return unquoted[before.end() if before else 0 :]


def _split_at_operators(line: str) -> tuple[list[str], bool]:
    """Return the commands between the operators outside quotes, and whether the shell is certain to see the same."""
    commands: list[str] = []
    start, quote, escaped, plain = 0, "", False, True
    for at, char in enumerate(line):
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote != "'" and (char == "`" or (char == "(" and at > start and line[at - 1] == "$")):
            commands.append(line[start:at])
            start, plain = at + 1, False
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in ";|&\n()":
            commands.append(line[start:at])
            start, plain = at + 1, plain and char != "("
        else:
            plain = plain and not (char == "#" and _is_word_end(line[max(start, at - 1) : at]))
            plain = plain and not (char == ">" and not _DEV_NULL_REDIRECT.match(line, at))
    commands.append(line[start:])
    return [stripped for command in commands if (stripped := command.strip())], plain and not (quote or escaped)


def _is_word_end(text: str) -> bool:
    return not text or text[-1].isspace() or text[-1] in "<>"
