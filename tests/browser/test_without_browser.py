"""Where Chromium is not installed, the tests of the page are left out and say so; where it is required, they fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CHOSEN = ["tests/browser/test_conversation.py", "-k", "shows_text"]


def run(tmp_path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KIMI_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *CHOSEN]
    found = {**kept, "PATH": str(tmp_path), **environ}
    return subprocess.run(command, cwd=ROOT, env=found, capture_output=True, text=True, timeout=50, check=False)


def test_tests_of_the_page_are_left_out_without_chromium(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0
    assert "1 skipped" in done.stdout
    assert "left out, 1 tests: Chromium is not installed" in done.stdout


def test_tests_of_the_page_fail_where_chromium_is_required(tmp_path: Path) -> None:
    done = run(tmp_path, KIMI_REQUIRE_BROWSER="1")
    assert done.returncode == 1
    assert "Chromium is not installed" in done.stdout
