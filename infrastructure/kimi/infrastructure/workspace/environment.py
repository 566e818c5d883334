"""The environment that commands inherit (tools spec 3.1)."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from kimi.application.ports import Shell

_DEFAULT_VARIABLES = {"GIT_TERMINAL_PROMPT": "0", "PAGER": "cat", "GIT_PAGER": "cat"}
"""With these, no program waits for a user at a keyboard."""


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
