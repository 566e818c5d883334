"""Measures how much slower the machine is at the moment than a quiet one, for bounds in seconds."""

from __future__ import annotations

import subprocess
import sys
import time

QUIET_START_S = 0.009
"""Seconds of an empty interpreter start on the quiet machine with two cores of `docs/performance.md`."""


def slowdown() -> float:
    """Return how many times longer everything takes now than on a quiet machine: at least 1."""
    return max(1.0, min(_bare_start() for _ in range(5)) / QUIET_START_S)


def _bare_start() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - began
