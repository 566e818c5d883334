"""The sandbox by Landlock and seccomp, where bubblewrap does not start (runtime spec 7.10)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from kimi.domain.permissions.confinement import Confinement, list_access_rules
from kimi.infrastructure.sandbox.probe import PROBE_COMMAND, can_run

_DIRECTORY: Final = os.path.dirname(os.path.abspath(__file__))

_START_PROGRAM: Final = "import sys; sys.path.append(sys.argv[1]); from landlock_start import main; main(sys.argv[2:])"
"""Imported from its directory: compiled once, and without the packages around it."""


def find_landlock() -> int | None:
    """Return the version of Landlock that confines commands here; None if it cannot."""
    import ctypes

    from kimi.infrastructure.sandbox.landlock_start import find_abi

    probe = Confinement("read-only", "/", "/nonexistent")
    return find_abi(ctypes.CDLL(None)) if can_run(wrap_by_landlock(probe, PROBE_COMMAND)) else None


def wrap_by_landlock(confinement: Confinement, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command line that runs `argv` confined."""
    network = "on" if confinement.network else "off"
    rules = (f"{rule.access}={rule.path}" for rule in list_access_rules(confinement))
    return (
        *(sys.executable, "-I", "-S", "-c", _START_PROGRAM, _DIRECTORY),
        *(f"mode={confinement.mode}", f"network={network}", f"temp={confinement.temp_dir}", *rules, "--", *argv),
    )
