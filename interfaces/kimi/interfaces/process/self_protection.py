"""Hide secrets from other programs that look at this process: in its title and in the environment that it began with.

The system shows both to every program of the same user, whatever the environment of that program is. They lie in the
memory of the process, which may overwrite them; `os.environ` keeps its values. Where the system does not
allow it, nothing happens.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

_SECRET_OPTIONS: Final = (b"--config", b"--mcp-config", b"--env", b"-e", b"--header", b"-H")
"""Options whose value may hold keys: configurations, and what `mcp add` stores for a server."""

_SHORT_OPTIONS: Final = (b"-e", b"-H")
"""Those whose value may follow without a blank."""

_SHORTEST_SECRET: Final = 8
"""Shorter values are in many texts by chance."""

_ARGUMENTS: Final = 48
_ENVIRONMENT: Final = 50
"""The number of the field of `/proc/self/stat` with the beginning of a block; its end is the next one."""


def hide_option_values() -> None:
    """Blank the values of the options that may hold keys, before anything else is done with them."""
    _rewrite_block(_ARGUMENTS, _blank_option_values)


def hide_secrets_of_process(names: Collection[str], secrets: Collection[str]) -> None:
    """Blank the variables `names`, and `secrets` wherever they are in the title or in the environment."""
    values = sorted((os.fsencode(value) for value in secrets if len(value) >= _SHORTEST_SECRET), key=len, reverse=True)
    hidden = {os.fsencode(name) for name in names}

    def blank(entry: bytes) -> bytes:
        name, sign, value = entry.partition(b"=")
        if sign and name in hidden:
            return name + sign + _blank(value)
        for secret in values:
            entry = entry.replace(secret, _blank(secret))
        return entry

    def blank_all(entries: list[bytes]) -> list[bytes]:
        return [blank(entry) for entry in entries]

    _rewrite_block(_ENVIRONMENT, blank_all)
    _rewrite_block(_ARGUMENTS, blank_all)
    for name in names:
        if name in os.environ:
            # What the C library hands on to programs that the user starts pointed into the block.
            os.environ[name] = os.environ[name]


def _blank(text: bytes) -> bytes:
    return b"*" * len(text)


def _blank_option_values(arguments: list[bytes]) -> list[bytes]:
    blanked: list[bytes] = []
    for position, argument in enumerate(arguments):
        option, sign, value = argument.partition(b"=")
        if position and arguments[position - 1] in _SECRET_OPTIONS:
            blanked.append(_blank(argument))
        elif sign and option in _SECRET_OPTIONS:
            blanked.append(option + sign + _blank(value))
        elif argument[:2] in _SHORT_OPTIONS:
            blanked.append(argument[:2] + _blank(argument[2:]))
        else:
            blanked.append(argument)
    return blanked


def _rewrite_block(field: int, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change the strings of a block of memory; each keeps its length."""
    if sys.platform != "linux":
        return
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", "rb") as file:
            # The second field is the name in parentheses, which may itself contain spaces and parentheses.
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[field - 3]), int(fields[field - 2])
        descriptor = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
        try:
            block = os.pread(descriptor, end - start, start)
            changed = b"\0".join(change(block.split(b"\0")))
            if changed != block and len(changed) == len(block):
                os.pwrite(descriptor, changed, start)
        finally:
            os.close(descriptor)
