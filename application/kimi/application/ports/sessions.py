"""The ports of the session store: sessions, their subagents, and the list of all sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from kimi.domain.content.message import JsonObject
from kimi.domain.history.session import ContextRecord, SessionState, SessionSummary, StoredSessionInfo

if TYPE_CHECKING:
    from kimi.domain.agents.subagent import SubagentRecord


class SessionFiles(Protocol):
    """One open session. Only its holder writes; `close` releases it. Methods raise `StoreFailed`.

    Appending is synchronous on purpose: one write to an open file costs less than a thread hop, and the operating
    system must have what was announced to a client. After `close`, writing raises `StoreFailed`.
    """

    @property
    def id(self) -> str:
        """The id of the session, which a subagent shares."""
        ...

    @property
    def directory(self) -> str | None:
        """The directory for spilled output; None for a store without files."""
        ...

    @property
    def is_resumed(self) -> bool:
        """Whether the session had at least one recorded event when it was opened."""
        ...

    @property
    def state(self) -> SessionState:
        """The state as it was last read or saved by this object."""
        ...

    def load_context(self) -> list[ContextRecord]:
        """Return all records, with unreadable lines left out and every tool call answered (runtime spec 4.7).

        Idempotent.
        """
        ...

    def append_context(self, records: Sequence[ContextRecord]) -> None:
        """Add records with one write.

        When it returns, the operating system has them. After an error the context is unchanged.
        """
        ...

    def rotate_context(self, records: Iterable[ContextRecord]) -> None:
        """Replace the context by `records`; the old one is kept beside it.

        Atomic at every instant (R-64): after an error or a crash, the context is the old or the new one, whole.
        """
        ...

    def append_event(self, envelope: bytes, timestamp: float) -> None:
        """Add one event, given as the JSON of `{"type", "payload"}`.

        Order: timestamps never decrease in the file; an earlier one is raised to the last. When it returns, the
        operating system has the event.
        """
        ...

    def events(self) -> Iterator[bytes]:
        """Return the envelopes of the events recorded until now, in order, read lazily, unreadable lines left out."""
        ...

    def parsed_events(self) -> Iterator[JsonObject]:
        """Return the same, parsed."""
        ...

    def timed_events(self) -> Iterator[tuple[bytes, float]]:
        """Return the same, each with the time of its record in Unix seconds; 0 if the record has none."""
        ...

    def older_contexts(self) -> Iterator[list[ContextRecord]]:
        """Return the contexts that `rotate_context` replaced, newest first, read lazily."""
        ...

    def save_state(self, state: SessionState) -> None:
        """Store the state atomically.

        Changes of title and archive fields by other programs survive. The state of a session without records may be
        stored only with its first record.
        """
        ...

    async def sync(self) -> None:
        """Flush what was appended to the disk.

        Errors are logged, not raised. Cancellation does not interrupt a flush that has begun.
        """
        ...

    def close(self) -> None:
        """Release the session; an empty one that this process created is removed. Idempotent."""
        ...

    def subagent_files(self, agent_id: str) -> SubagentFiles:
        """Return the files of a subagent, old or new; they belong to this session and its lock.

        Nothing is created before the first record. Raises InvalidSessionId for an id that cannot be a name.
        """
        ...

    def list_subagent_ids(self) -> Sequence[str]:
        """Return the ids of the subagents that have files."""
        ...


class SubagentFiles(SessionFiles, Protocol):
    """The files of one subagent: a context and an event log like a session's, and its record."""

    @property
    def record(self) -> SubagentRecord | None:
        """The record as it was last read or saved; None for an unknown subagent."""
        ...

    def save_record(self, record: SubagentRecord) -> None:
        """Store the record atomically."""
        ...

    def save_prompt(self, text: str) -> None:
        """Store the latest prompt of the subagent."""
        ...

    def append_output(self, text: str) -> None:
        """Add to the text that the subagent has answered."""
        ...


class SessionStore(Protocol):
    """The sessions of one work directory. Ids are checked first; a bad one raises `InvalidSessionId`."""

    async def create(self, session_id: str) -> SessionFiles:
        """Create an empty session.

        Nothing need be stored before the first record; only then does an existing session of this id raise
        `StoreFailed`.
        """
        ...

    async def open(self, session_id: str) -> SessionFiles | None:
        """Open an existing session, or return None.

        Raises `SessionBusy` if the session is still open elsewhere after 5 s. Cancelling the wait leaves no lock.
        """
        ...

    def last_session_id(self) -> str | None:
        """Return the session that `--continue` means, or None."""
        ...

    async def mark_last(self, session_id: str) -> None:
        """Remember the session as the last one of the work directory. Idempotent.

        Of several that are marked at the same moment the newest one is remembered. A cancellation does not stop it.
        """
        ...

    def list_sessions(self) -> Sequence[SessionSummary]:
        """Return the non-empty sessions, newest first."""
        ...

    async def delete(self, session_id: str) -> bool:
        """Remove a session; False if there is none.

        Raises `SessionBusy` as `open` does, and `StoreFailed` if it holds files of other programs.
        """
        ...


class SessionCatalog(Protocol):
    """The stored sessions of all work directories that share a store.

    All methods only read. They block, so call them in a thread.
    """

    def list_sessions(self, work_dir: str | None = None) -> Sequence[SessionSummary]:
        """Return the non-empty sessions of one work directory, or of all known ones, in no order."""
        ...

    def find_work_dirs(self, session_id: str) -> Sequence[str | None]:
        """Return the work directories that have a session with this id; None for one whose path is unknown.

        Raises InvalidSessionId.
        """
        ...

    def has_session(self, work_dir: str, session_id: str) -> bool:
        """Return whether this work directory has a session with this id. Raises InvalidSessionId."""
        ...

    def read_prompts(self, session: SessionSummary) -> Iterator[str]:
        """Return the texts that the user has sent in a session, oldest first, read lazily; unreadable ones left out."""
        ...

    def read_events(self, session: SessionSummary) -> Iterator[tuple[float, JsonObject]]:
        """Return the events in the log of a session, oldest first, read lazily; unreadable ones left out.

        Each comes with its time in Unix seconds, 0 if unknown, and as it is on the wire: `type` and `payload`.
        """
        ...

    def inspect(self, session: SessionSummary) -> StoredSessionInfo:
        """Return what the files of a session tell about it."""
        ...
