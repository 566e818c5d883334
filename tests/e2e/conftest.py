"""Fixtures of the end-to-end suite."""

from pathlib import Path

import pytest

from tests.e2e.process import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A throw-away share directory and work dir."""
    return Place(tmp_path)
