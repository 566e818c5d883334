"""The delay before a failed model call is retried (runtime spec 3.7)."""

from __future__ import annotations

from kimi.application.ports import Random
from kimi.domain.errors import APIStatusError, ChatProviderError

MAX_RETRY_AFTER_S = 60.0
MAX_BACK_OFF_S = 5.0
_MAX_DOUBLINGS = 10
"""Further doublings would not change the delay, and would overflow a float."""


def compute_retry_delay(attempt: int, error: ChatProviderError, random: Random) -> float:
    """Return the seconds to wait after attempt number `attempt`, counted from 1. Retry-After is honoured (R-81)."""
    wait = min(MAX_BACK_OFF_S, 0.3 * 2 ** min(attempt - 1, _MAX_DOUBLINGS) + random() * 0.5)
    if isinstance(error, APIStatusError) and error.retry_after is not None:
        return max(wait, min(error.retry_after, MAX_RETRY_AFTER_S))
    return wait
