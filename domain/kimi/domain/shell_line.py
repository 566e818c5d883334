"""Splitting a shell line into its simple commands, for permission rules (tools spec 5.6)."""

from __future__ import annotations

_HIDING = ("`", "$(", "<(", ">(", "<<", "${", "$'")


def simple_commands(line: str) -> list[str] | None:
    """The simple commands of `line`, split at `&& || ; | &` and newlines outside quotes.

    None when the line holds what could hide a command from a rule: command or process substitution, a heredoc,
    a parameter expansion with braces, a string with escapes of its own (`$'…'`), a subshell or a function, a comment
    (quotes in it quote nothing), or quoting that does not close.
    """
    if any(sign in line for sign in _HIDING):
        return None
    commands, plain = _pieces(line)
    return commands if plain else None


def visible_commands(line: str) -> list[str]:
    """The same for any line, as far as its commands can be seen."""
    return _pieces(line)[0]


def _pieces(line: str) -> tuple[list[str], bool]:
    """What stands between the operators outside quotes; is that certain to be what the shell sees?"""
    commands: list[str] = []
    current, quote, escaped, plain = "", "", False, True
    for char in line:
        if escaped:
            current, escaped = current + char, False
        elif char == "\\" and quote != "'":
            current, escaped = current + char, True
        elif quote:
            current, quote = current + char, "" if char == quote else quote
        elif char in "'\"":
            current, quote = current + char, char
        elif char in ";|&\n":
            commands.append(current)
            current = ""
        else:
            plain = plain and not (char == "(" or (char == "#" and _ends_word(current)))
            current += char
    commands.append(current)
    return [stripped for command in commands if (stripped := command.strip())], plain and not (quote or escaped)


def _ends_word(text: str) -> bool:
    return not text or text[-1].isspace() or text[-1] in "()<>"
