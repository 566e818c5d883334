"""Measures how much slower the machine is at the moment than a quiet one, for bounds in seconds."""

from __future__ import annotations

import subprocess
import sys
import time

QUIET_START_S = 0.009
"""Seconds of an empty interpreter start on the quiet machine with two cores of `docs/performance.md`."""


WORK_S = 0.1
"""Seconds of processor time, about those of a start of the program, for which others may have to be waited for."""


def slowdown() -> float:
    """Return how many times longer everything takes now than on a quiet machine: at least 1."""
    return max(1.0, min(_bare_start() for _ in range(5)) / QUIET_START_S, _waiting())


def _waiting() -> float:
    """Return how many times longer than its processor time some work takes.

    A bare start is over before the system gives the processor to somebody else, so it does not show how busy it is.
    """
    began, worked = time.perf_counter(), time.thread_time()
    while (taken := time.thread_time() - worked) < WORK_S:
        sum(range(1000))
    return (time.perf_counter() - began) / taken


def _bare_start() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - began
