"""A session whose state cannot be saved at chosen calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kimi.application.ports import SessionFiles
from kimi.domain.errors import StoreFailed
from kimi.domain.history.session import SessionState


class UnreliableStore:
    """The files of a session. Saving its state fails at the calls for which `failures` yields True."""

    def __init__(self, files: SessionFiles, failures: Iterator[bool]) -> None:
        self._files = files
        self._failures = failures
        self.saved: list[SessionState] = []

    def save_state(self, state: SessionState) -> None:
        """Save the state, or fail if `failures` says so."""
        if next(self._failures, False):
            raise StoreFailed("The disk is full.")
        self._files.save_state(state)
        self.saved.append(state)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)
