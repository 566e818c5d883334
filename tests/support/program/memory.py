"""Measures the memory that this process takes at its peak, through `/proc`."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_STATUS = Path("/proc/self/status")
_RESET_PEAK = "5"


@dataclass
class PeakGrowth:
    """How far the peak was above the memory at the beginning."""

    mebibytes: float = 0.0


@contextmanager
def peak_growth() -> Generator[PeakGrowth]:
    """Measure what the block takes at its peak; the result is there when it has ended."""
    _return_free_memory()
    Path("/proc/self/clear_refs").write_text(_RESET_PEAK, "ascii")
    before, growth = _read_kibibytes("VmRSS"), PeakGrowth()
    yield growth
    growth.mebibytes = (_read_kibibytes("VmHWM") - before) / 1024


def _return_free_memory() -> None:
    """Give memory back that was freed: what is taken anew must show."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc only
    if trim is not None:
        trim(0)


def _read_kibibytes(field: str) -> int:
    line = next(line for line in _STATUS.read_text("ascii", "replace").splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1])
