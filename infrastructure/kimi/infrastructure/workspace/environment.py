"""What commands get to see of this program: its environment without keys, and not its memory (tools spec 3.1)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress

from kimi.application.ports import Shell

_DEFAULT_VARIABLES = {"GIT_TERMINAL_PROMPT": "0", "PAGER": "cat", "GIT_PAGER": "cat"}
"""With these, no program waits for a user at a keyboard."""


class _Ownership:
    """Whether this process is the program's own, which only its entry knows. State of the process."""

    is_claimed = False
    is_memory_closed = False


def claim_process() -> None:
    """Say that this process is the program's own, not that of a program that embeds the agent."""
    _Ownership.is_claimed = True


def close_memory_to_programs() -> None:
    """Close the memory of this process, if it is the program's own, to those that it starts; call it before the first.

    They run as the same user, who may otherwise read the memory of each of his processes, keys and all.
    """
    if _Ownership.is_claimed and not _Ownership.is_memory_closed and sys.platform == "linux":
        from kimi.infrastructure.launcher.containment import close_memory  # start-up time

        with suppress(OSError):
            close_memory()
        _Ownership.is_memory_closed = True


def build_command_environment(
    environ: Mapping[str, str], secret_variables: frozenset[str], shell: Shell
) -> dict[str, str]:
    """Return `environ` without the variables that hold keys, with `SHELL`, and with prompts and pagers switched off."""
    hidden = {_fold_name(name) for name in secret_variables}
    inherited = {name: value for name, value in environ.items() if _fold_name(name) not in hidden}
    return {**_DEFAULT_VARIABLES, **inherited, "SHELL": shell.path}


def _fold_name(name: str) -> str:
    """Return the name as the system compares it: on Windows, names of variables ignore case."""
    return name.upper() if sys.platform == "win32" else name
