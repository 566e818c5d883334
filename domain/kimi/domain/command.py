"""Slash commands as text (runtime spec 7.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_COMMAND = re.compile(r"/([A-Za-z0-9_-]+(?::[A-Za-z0-9_-]+)*)(?=\s|$)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the user typed: its name without the slash, and the rest of the text, stripped."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """A command as clients list it."""

    name: str
    description: str
    aliases: tuple[str, ...] = ()


def parse_command(text: str) -> Command | None:
    """Return the command in `text`, or None for ordinary text such as the path `/usr/bin`, `/ x` or `//x`."""
    match = _COMMAND.fullmatch(text.strip())
    return Command(match[1], match[2].strip()) if match else None
