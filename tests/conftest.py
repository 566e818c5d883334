"""Fixtures that every test may use."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The program runs on asyncio only: its transports use the event loop's own readers."""
    return "asyncio"
