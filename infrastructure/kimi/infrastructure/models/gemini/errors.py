"""The details in Google's error bodies: the delay of a retry, and whether the quota of the day is exceeded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from kimi.infrastructure.models.json_object import JsonDict, as_object


def parse_retry_delay(body: object) -> float | None:
    """Return the seconds of a `RetryInfo`, e.g. `"34.5s"`, or None without one."""
    for detail in _find_details(body):
        delay = str(detail.get("retryDelay", "")).removesuffix("s")
        if delay.replace(".", "", 1).isdecimal():
            return float(delay)
    return None


def is_daily_quota_exceeded(body: object) -> bool:
    """Whether a daily quota is exceeded, so that no wait within a step helps."""
    for detail in _find_details(body):
        violations: Any = detail.get("violations")
        if isinstance(violations, list) and any("PerDay" in _quota_id(one) for one in cast(list[object], violations)):
            return True
    return False


def _quota_id(violation: object) -> str:
    return str((as_object(violation) or {}).get("quotaId", ""))


def _find_details(body: object) -> Iterator[JsonDict]:
    error = as_object((as_object(body) or {}).get("error")) or {}
    details: Any = error.get("details")
    if isinstance(details, list):
        yield from (found for one in cast(list[object], details) if (found := as_object(one)) is not None)
