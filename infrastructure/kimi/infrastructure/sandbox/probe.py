"""Try out a way to confine commands (runtime spec 7.10)."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Final

PROBE_S: Final = 5.0
"""The timeout in seconds for the start of an empty command."""

PROBE_COMMAND: Final = ("/bin/sh", "-c", "exit 7")
"""A command whose status none of the programs that confine it has for its own failures."""


def can_run(argv: Sequence[str]) -> bool:
    """Return whether this command line runs the `PROBE_COMMAND` that it confines."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            timeout=PROBE_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 7
