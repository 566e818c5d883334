"""How long to wait before another attempt (runtime spec 3.7)."""

from __future__ import annotations

import pytest

from kimi.application.step.backoff import compute_retry_delay
from kimi.domain.errors import APIConnectionError, APIStatusError


@pytest.mark.spec("R-81")
@pytest.mark.parametrize(
    ("attempt", "shortest"), [(1, 0.3), (2, 0.6), (3, 1.2), (5, 4.8), (6, 5.0), (50, 5.0), (5000, 5.0)]
)
def test_waits_grow_up_to_five_seconds(attempt: int, shortest: float) -> None:
    error = APIConnectionError("gone")
    assert compute_retry_delay(attempt, error, lambda: 0.0) == pytest.approx(shortest)
    assert compute_retry_delay(attempt, error, lambda: 1.0) == pytest.approx(min(5.0, shortest + 0.5))


@pytest.mark.spec("R-81")
@pytest.mark.parametrize(
    ("said", "waited"), [(None, 0.3), (0.0, 0.3), (0.1, 0.3), (7.0, 7.0), (60.0, 60.0), (3600.0, 60.0), (1e300, 60.0)]
)
def test_retry_after_is_honoured_up_to_one_minute(said: float | None, waited: float) -> None:
    error = APIStatusError(429, "slow down", retry_after=said)
    assert compute_retry_delay(1, error, lambda: 0.0) == pytest.approx(waited)
