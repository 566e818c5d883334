"""Splitting a shell line into its simple commands, for permission rules (tools spec 5.6)."""

from __future__ import annotations

_HIDING = ("`", "$(", "<(", ">(", "<<", "${")


def simple_commands(line: str) -> list[str] | None:
    """The simple commands of `line`, split at `&& || ; | &` and newlines outside quotes.

    None when the line holds what could hide a command from a rule: command or process substitution, a heredoc,
    a parameter expansion with braces, or quoting that does not close.
    """
    if any(sign in line for sign in _HIDING):
        return None
    commands: list[str] = []
    current, quote, escaped = "", "", False
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
            current += char
    if quote or escaped:
        return None
    commands.append(current)
    return [stripped for command in commands if (stripped := command.strip())]
