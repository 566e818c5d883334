"""The open session of a conversation: its files and its stored state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from threading import Lock

from kimi.application.ports import SessionFiles
from kimi.domain.history.session import SessionState


class ConversationSession:
    """The files of a session, which only this conversation has open.

    `state_lock` guards every change of the stored state, which threads read, change and write as well.
    """

    def __init__(self, files: SessionFiles, mark_last: Callable[[str], Awaitable[None]] | None = None) -> None:
        self.files = files
        self.state_lock = Lock()
        self._mark_last = mark_last

    def update_state(self, change: Callable[[SessionState], SessionState]) -> None:
        """Store the result of `change` as the new state. Raises StoreFailed."""
        with self.state_lock:
            self.files.save_state(change(self.files.state))

    async def mark_last(self) -> None:
        """Make this the session that `--continue` opens. Called at each turn, does so at the first one.

        Done at the beginning of the turn, so that `--continue` finds the session after a kill; a turn that is already
        cancelled counts as well. Raises StoreFailed; the next turn then tries again.
        """
        if self._mark_last is None:
            return
        await self._mark_last(self.files.id)
        self._mark_last = None
