"""Sessions in memory, for embedders that store nothing and for tests: the ports of the store without files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import anyio

from kimi.application.ports import Now
from kimi.domain.content.message import JsonObject, Message
from kimi.domain.errors import SessionBusy, StoreFailed
from kimi.domain.history.session import ContextRecord, SessionState, SessionSummary, check_session_id
from kimi.infrastructure.store.call_repair import answer_open_calls
from kimi.infrastructure.store.event_line import encode_event_line, read_envelopes, read_messages, read_timed_envelopes
from kimi.infrastructure.store.session_listing import find_first_input, format_title

if TYPE_CHECKING:
    from kimi.domain.agents.subagent import SubagentRecord

_LOCK_RETRY_S = 0.02


@dataclass(slots=True)
class _StoredSession:
    records: list[ContextRecord] = field(default_factory=list[ContextRecord])
    rotated: list[list[ContextRecord]] = field(default_factory=list[list[ContextRecord]])
    event_lines: list[bytes] = field(default_factory=list[bytes])
    timestamp: float = 0.0
    state: SessionState = field(default_factory=SessionState)
    updated_at: float = 0.0
    is_open: bool = True
    children: dict[str, _StoredSession] = field(default_factory=dict[str, "_StoredSession"])
    subagent: SubagentRecord | None = None
    prompt: str = ""
    output: list[str] = field(default_factory=list[str])

    @property
    def has_prompt(self) -> bool:
        messages = any(isinstance(record, Message) for record in self.records)
        return messages or find_first_input(self.event_lines) is not None

    @property
    def is_empty(self) -> bool:
        messages = any(isinstance(record, Message) for record in self.records)
        return not (self.event_lines or messages or self.state.custom_title or self.subagent)


class MemorySession:
    """One open session; see the port `SessionFiles`."""

    def __init__(self, session_id: str, stored: _StoredSession, sessions: dict[str, _StoredSession], now: Now) -> None:
        self._id = session_id
        self._stored = stored
        self._sessions = sessions
        self._now = now
        self._is_resumed = bool(stored.event_lines)
        self._is_new = sessions.get(session_id) is not stored
        self._closed = False

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._id

    @property
    def directory(self) -> None:
        """None: there are no files."""
        return None

    @property
    def is_resumed(self) -> bool:
        """Whether the session had at least one recorded event when it was opened."""
        return self._is_resumed

    @property
    def state(self) -> SessionState:
        """The state as it was last saved."""
        return self._stored.state

    def load_context(self) -> list[ContextRecord]:
        """Return all records with every call answered."""
        fixed, changed = answer_open_calls(self._stored.records, lambda: reversed(self._stored.event_lines))
        if changed:
            self._stored.records = list(fixed)
        return fixed

    def append_context(self, records: Sequence[ContextRecord]) -> None:
        """Add records. Raises StoreFailed if the session is closed."""
        self._mark_written().records.extend(records)

    def rotate_context(self, records: Iterable[ContextRecord]) -> None:
        """Replace the context and keep the old one. Raises StoreFailed if the session is closed."""
        stored = self._mark_written()
        fresh = list(records)
        if stored.records:
            stored.rotated.append(stored.records)
        stored.records = fresh

    def append_event(self, envelope: bytes, timestamp: float) -> None:
        """Add one event. Raises StoreFailed if the session is closed."""
        stored = self._mark_written()
        stored.timestamp = max(stored.timestamp, timestamp)
        stored.event_lines.append(encode_event_line(envelope, stored.timestamp).rstrip(b"\n"))

    def events(self) -> Iterator[bytes]:
        """Return the envelopes recorded until now."""
        lines = self._stored.event_lines
        return read_envelopes(self._id, islice(lines, len(lines)))

    def parsed_events(self) -> Iterator[JsonObject]:
        """Return the same, parsed."""
        lines = self._stored.event_lines
        return read_messages(self._id, islice(lines, len(lines)))

    def timed_events(self) -> Iterator[tuple[bytes, float]]:
        """Return the same with their times."""
        lines = self._stored.event_lines
        return read_timed_envelopes(self._id, islice(lines, len(lines)))

    def older_contexts(self) -> Iterator[list[ContextRecord]]:
        """Return the contexts that were replaced, newest first."""
        return (list(records) for records in reversed(self._stored.rotated))

    def save_state(self, state: SessionState) -> None:
        """Store the state. Raises StoreFailed if the session is closed."""
        self._check_open()
        if state.custom_title is not None:
            self._mark_written()
        self._stored.state = state

    async def sync(self) -> None:
        """Do nothing: there is no disk."""

    def close(self) -> None:
        """Release the session; an empty one that was created here is removed. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._stored.is_open = False
        if self._is_new and self._stored.is_empty and self._sessions.get(self._id) is self._stored:
            del self._sessions[self._id]

    def subagent_files(self, agent_id: str) -> MemorySubagent:
        """Return the files of a subagent."""
        children = self._stored.children
        return MemorySubagent(self._id, check_session_id(agent_id), children, self._now)

    def list_subagent_ids(self) -> Sequence[str]:
        """Return the ids of the subagents, sorted."""
        return sorted(self._stored.children)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFailed(f"Session {self._id} is closed; open it again to write to it.")

    def _mark_written(self) -> _StoredSession:
        """Mark the session as changed now, make it known to the store, and return its data.

        Raises StoreFailed if the session is closed or its id is taken.
        """
        self._check_open()
        if self._sessions.setdefault(self._id, self._stored) is not self._stored:
            raise StoreFailed(f"Session {self._id} exists already; resume it or choose another session id.")
        self._stored.updated_at = self._now()
        return self._stored


class MemorySubagent(MemorySession):
    """The files of a subagent of an open session; see the port `SubagentFiles`."""

    def __init__(self, session_id: str, agent_id: str, children: dict[str, _StoredSession], now: Now) -> None:
        stored = children.get(agent_id) or _StoredSession()
        super().__init__(agent_id, stored, children, now)
        self._session_id = session_id

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._session_id

    @property
    def record(self) -> SubagentRecord | None:
        """The record as it was last saved."""
        return self._stored.subagent

    def save_record(self, record: SubagentRecord) -> None:
        """Store the record. Raises StoreFailed if the files are closed."""
        self._mark_written().subagent = record

    def save_prompt(self, text: str) -> None:
        """Store the prompt. Raises StoreFailed if the files are closed."""
        self._mark_written().prompt = text

    def append_output(self, text: str) -> None:
        """Store one more answer. Raises StoreFailed if the files are closed."""
        self._mark_written().output.append(text)


class MemoryStore:
    """Sessions of one work directory that live as long as the store; see the port `SessionStore`.

    `lock_wait_s` is how long `open` and `delete` wait for a session that is open.
    """

    def __init__(self, work_dir: str, *, lock_wait_s: float = 5.0, now: Now = time.time) -> None:
        self._work_dir = work_dir
        self._lock_wait_s = lock_wait_s
        self._now = now
        self._sessions: dict[str, _StoredSession] = {}
        self._last: str | None = None

    async def create(self, session_id: str) -> MemorySession:
        """Create an empty session."""
        return MemorySession(check_session_id(session_id), _StoredSession(), self._sessions, self._now)

    async def open(self, session_id: str) -> MemorySession | None:
        """Open an existing session, or return None. Raises SessionBusy, InvalidSessionId."""
        stored = await self._wait_until_free(check_session_id(session_id))
        if stored is None:
            return None
        stored.is_open = True
        return MemorySession(session_id, stored, self._sessions, self._now)

    def last_session_id(self) -> str | None:
        """Return the session that was marked last, else the one that was written last."""
        if self._last in self._sessions:
            return self._last
        return next((summary.id for summary in self.list_sessions()), None)

    async def mark_last(self, session_id: str) -> None:
        """Remember the session as the last one. Raises InvalidSessionId."""
        self._last = check_session_id(session_id)

    def list_sessions(self) -> Sequence[SessionSummary]:
        """Return the sessions that are not empty, newest first."""
        found = [
            SessionSummary(
                session_id,
                self._work_dir,
                format_title(stored.state.custom_title or find_first_input(stored.event_lines)),
                stored.updated_at,
                stored.state.set_archived is True,
            )
            for session_id, stored in self._sessions.items()
            if stored.has_prompt
        ]
        return sorted(found, key=lambda one: one.updated_at, reverse=True)

    async def delete(self, session_id: str) -> bool:
        """Remove a session; False if there is none. Raises SessionBusy, InvalidSessionId."""
        if await self._wait_until_free(check_session_id(session_id)) is None:
            return False
        del self._sessions[session_id]
        return True

    def recorded_lines(self, session_id: str) -> Sequence[bytes]:
        """Return the lines of the event log of a session, as `wire.jsonl` would hold them. Raises KeyError."""
        return tuple(self._sessions[session_id].event_lines)

    async def _wait_until_free(self, session_id: str) -> _StoredSession | None:
        deadline = anyio.current_time() + self._lock_wait_s
        while (stored := self._sessions.get(session_id)) is not None and stored.is_open:
            if anyio.current_time() >= deadline:
                raise SessionBusy(f"Session {session_id} is already open in this process; close it there first.")
            await anyio.sleep(_LOCK_RETRY_S)
        return stored
