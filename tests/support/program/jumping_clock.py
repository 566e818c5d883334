"""A clock that jumps: a warm process in whose environment `KIMI_TEST_CLOCK_JUMP` stands gets such a clock.

The value is a number of seconds. The clock of the system jumps by it, forth and back, at every third look; the
monotonic clock is as always, as it is for a user whose clock is set.
"""

from __future__ import annotations

import itertools
import time
from typing import Final

VARIABLE: Final = "KIMI_TEST_CLOCK_JUMP"


def install(jump_s: float) -> None:
    """Replace `time.time` in this process."""
    looks = itertools.count()
    real = time.time

    def jumping() -> float:
        return real() + (jump_s if next(looks) // 3 % 2 else 0)

    time.time = jumping
