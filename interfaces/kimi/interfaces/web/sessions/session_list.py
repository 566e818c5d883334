"""The list of sessions as clients read it: the stored ones, the new ones, and what each of them is doing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import anyio.to_thread

from kimi.application.control.session_title import session_title
from kimi.application.ports import SessionCatalog
from kimi.application.sessions.find_sessions import find_sessions
from kimi.domain.history.session import SessionSummary
from kimi.interfaces.web.sessions.hosted_sessions import HostedSessions

MAX_AGE_S: Final = 2.0
"""How old an answer about stored sessions may be, in seconds: several pages ask every few seconds."""

MAX_PROBED: Final = 50
"""Of how many sessions it is told whether another process has them open; it takes a look at files of each."""

_Stored: TypeAlias = "tuple[list[SessionSummary], frozenset[str]]"


class SessionList:
    """Lists the sessions that may be opened here."""

    def __init__(self, sessions: HostedSessions, catalog: SessionCatalog) -> None:
        self._sessions = sessions
        self._catalog = catalog
        self._stored: dict[str, tuple[float, _Stored]] = {}

    def forget(self) -> None:
        """Look at the store again: something was changed."""
        self._stored.clear()

    async def find(self, query: str, *, archived: bool) -> list[dict[str, object]]:
        """Return the sessions that hold all words of `query`, newest first."""
        stored, elsewhere = await self._read_stored(query)
        found = {one.id: one for one in stored}
        states: dict[str, str] = {}
        for hosted in self._sessions.list_live():
            conversation = hosted.conversation
            states[conversation.id] = hosted.state
            title = session_title(conversation)
            if conversation.id in found:
                found[conversation.id] = replace(found[conversation.id], title=title or found[conversation.id].title)
            elif not query.strip():
                found[conversation.id] = SessionSummary(
                    conversation.id, hosted.work_dir, title or "", conversation.resources.now()
                )
        chosen = [one for one in found.values() if one.is_archived == archived]
        return [
            {
                "id": one.id,
                "title": one.title,
                "work_dir": one.work_dir,
                "updated_at": one.updated_at,
                "archived": one.is_archived,
                "state": states.get(one.id) or ("elsewhere" if one.id in elsewhere else "closed"),
            }
            for one in sorted(chosen, key=lambda one: (-one.updated_at, one.id))
        ]

    async def _read_stored(self, query: str) -> _Stored:
        now = time.monotonic()
        known = self._stored.get(query)
        if known is not None and now - known[0] < MAX_AGE_S:
            return known[1]
        found = await anyio.to_thread.run_sync(self._search, query.split())
        self._stored = {text: one for text, one in self._stored.items() if now - one[0] < MAX_AGE_S}
        self._stored[query] = (time.monotonic(), found)
        return found

    def _search(self, words: Sequence[str]) -> _Stored:
        found = [
            one
            for one in find_sessions(self._catalog, words)
            if self._sessions.directories.allows_session_of(one.work_dir)
        ]
        return found, frozenset(one.id for one in found[:MAX_PROBED] if self._catalog.inspect(one).is_open)
