"""How long to wait before another attempt (runtime spec 3.7)."""

from __future__ import annotations

import pytest

from kimi.application.step.backoff import retry_wait
from kimi.domain.errors import APIConnectionError, APIStatusError


@pytest.mark.spec("R-81")
@pytest.mark.parametrize(
    ("attempt", "shortest"), [(1, 0.3), (2, 0.6), (3, 1.2), (5, 4.8), (6, 5.0), (50, 5.0), (5000, 5.0)]
)
def test_waits_grow_up_to_five_seconds(attempt: int, shortest: float) -> None:
    error = APIConnectionError("gone")
    assert retry_wait(attempt, error, lambda: 0.0) == pytest.approx(shortest)
    assert retry_wait(attempt, error, lambda: 1.0) == pytest.approx(min(5.0, shortest + 0.5))


@pytest.mark.spec("R-81")
@pytest.mark.parametrize(
    ("said", "waited"), [(None, 0.3), (0.0, 0.3), (0.1, 0.3), (7.0, 7.0), (60.0, 60.0), (3600.0, 60.0), (1e300, 60.0)]
)
def test_what_the_provider_asks_for_is_waited_for_up_to_a_minute(said: float | None, waited: float) -> None:
    error = APIStatusError(429, "slow down", retry_after=said)
    assert retry_wait(1, error, lambda: 0.0) == pytest.approx(waited)
