"""A turn on a disk that fails at one place: the client is told, nothing that it saw is lost, the session goes on.

Every ninth change of a file by default, every one with `KIMI_LONG_TESTS=1`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.broken_turns import chains
from tests.support.program.disk_faults import KINDS

LONG = os.environ.get("KIMI_LONG_TESTS") == "1"
STRIDE = 1 if LONG else 9
ONCE, EVER = 1, 1_000_000

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the warm process that fails on demand is Linux only")


@pytest.mark.timeout(3600 if LONG else 300)
@pytest.mark.spec("R-263")
@pytest.mark.parametrize("count", [ONCE, EVER], ids=["once", "from then on"])
@pytest.mark.parametrize("kind", KINDS)
def test_session_goes_on_after_a_disk_fault_at_any_write(tmp_path: Path, kind: str, count: int) -> None:
    tried = 0
    with chains(tmp_path, 1) as (chain,):
        while chain.failed(tried, f"{kind}:{tried * STRIDE}:{count}"):
            tried += 1
    assert tried >= {"fsync": 1, "rename": 1}.get(kind, 4)
