"""Memory that was used and is used no longer, back to the operating system."""

from __future__ import annotations

import gc
import sys


def trim_memory() -> None:
    """Find what only its own circles hold, and give free pages back. Takes milliseconds: for rare moments."""
    gc.collect()
    if sys.platform == "linux":
        import ctypes  # start-up time

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc keeps up to 64 MB for itself otherwise
        if trim is not None:
            trim(0)
