"""Fixtures of the end-to-end suite."""

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.program.processes import marked
from tests.support.program.wire_process import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A throw-away share directory and work dir."""
    return Place(tmp_path)


@pytest.fixture
def word() -> str:
    """A word that no process knows yet."""
    return f"MARK_{uuid.uuid4().hex}"


@pytest.fixture
def marked_place(place: Place, word: str) -> Iterator[Place]:
    """A place whose processes can be found by the word; nothing of them is left at the end of the test."""
    place.environ[word] = "1"
    yield place
    for pid in marked(word):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
