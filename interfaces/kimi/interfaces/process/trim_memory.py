"""Return unused memory to the operating system."""

from __future__ import annotations

import gc
import sys


def trim_memory() -> None:
    """Collect reference cycles, then return free pages to the system. Takes milliseconds, so call it rarely."""
    gc.collect()
    if sys.platform == "linux":
        import ctypes  # start-up time

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc keeps up to 64 MB for itself otherwise
        if trim is not None:
            trim(0)
