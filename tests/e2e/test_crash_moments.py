"""Killed at any moment of a turn, a session goes on: nothing that was seen is lost, no call is left open.

Sixty moments by default, a thousand with `KIMI_LONG_TESTS=1`. The moments are the same in every run as far as a
seed can say: after how many lines of output, and how much later, the process is killed.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.broken_turns import chains

LONG = os.environ.get("KIMI_LONG_TESTS") == "1"
MOMENTS = 1000 if LONG else 60
WORKERS = 4


@pytest.mark.timeout(1800 if LONG else 300)
@pytest.mark.spec("R-63", "W-133")
def test_session_killed_at_any_moment_resumes_with_all_sent_events(tmp_path: Path) -> None:
    with chains(tmp_path, WORKERS) as workers, ThreadPoolExecutor(WORKERS) as pool:
        runs = [pool.submit(chain.go, list(range(number, MOMENTS, WORKERS))) for number, chain in enumerate(workers)]
        for run in runs:
            run.result()
