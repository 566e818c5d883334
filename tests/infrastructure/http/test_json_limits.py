"""Limits of foreign JSON that hold before it is parsed."""

from __future__ import annotations

import json
import time

import pytest

from kimi.infrastructure.http.json_limits import MAX_DEPTH, MAX_VALUES, find_json_excess
from tests.support.program.pace import slowdown


@pytest.mark.parametrize(
    "text",
    [b'"' + b'\\"' * 500_000, b"[" * 499 + b'"' * 400_000, b"\\" * 1_000_000, b'"\\' * 500_000, b'"' * 1_000_001],
    ids=["escaped quotes", "deep", "backslashes", "escapes", "quotes"],
)
def test_text_of_any_form_is_checked_in_linear_time(text: bytes) -> None:
    begun = time.monotonic()
    find_json_excess(text)
    assert time.monotonic() - begun < slowdown()


def test_signs_within_strings_do_not_count() -> None:
    table = {"text": "1,2,{[" * 500_000, "more": ['a"b\\', "\\\\"] * 1000}
    assert find_json_excess(json.dumps(table).encode()) is None


def test_limits_of_values_and_depth_are_exact() -> None:
    assert find_json_excess(json.dumps([0] * (MAX_VALUES - 1)).encode()) is None
    assert find_json_excess(json.dumps([0] * MAX_VALUES).encode()) == "of more than 200000 values"
    assert find_json_excess(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH) is None
    assert find_json_excess(b"[" * (MAX_DEPTH + 1)) == "nested too deeply"
