"""The opened session of a conversation: its files, and the state that is stored with it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import anyio
import anyio.to_thread

from kimi.application.ports import SessionFiles
from kimi.domain.history.session import SessionState


class ConversationSession:
    """The files of a session, which this conversation alone has open.

    `state_lock` guards every change of the stored state: it is read, changed and written in one piece, also by threads.
    """

    def __init__(self, files: SessionFiles, mark_last: Callable[[str], None] | None = None) -> None:
        self.files = files
        self.state_lock = Lock()
        self._mark_last = mark_last

    def update_state(self, change: Callable[[SessionState], SessionState]) -> None:
        """Change the stored state. Raises StoreFailed."""
        with self.state_lock:
            self.files.save_state(change(self.files.state))

    async def mark_last(self) -> None:
        """Make this the session that `--continue` means: once, at its first turn, so that a kill finds it.

        Also when that turn is cancelled already: it has begun. Raises StoreFailed; the next turn then tries again.
        """
        if self._mark_last is None:
            return
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._mark_last, self.files.id)
        self._mark_last = None
