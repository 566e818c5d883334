"""The ports of what is stored: sessions, their subagents, and the list of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from kimi.domain.history.session import ContextRecord, SessionState, SessionSummary

if TYPE_CHECKING:
    from kimi.domain.agents.subagent import SubagentRecord


class SessionFiles(Protocol):
    """One open session. Only its holder writes; `close` gives it free again. Methods raise `StoreFailed`.

    Appending is synchronous on purpose: one write to an open file costs less than a thread hop, and what was
    announced to a client must be in the hands of the operating system.
    """

    @property
    def id(self) -> str:
        """The id of the session, which a subagent shares."""
        ...

    @property
    def directory(self) -> str | None:
        """Where spilled output may go; None for a store without files."""
        ...

    @property
    def is_resumed(self) -> bool:
        """Did the session have at least one recorded event when it was opened?"""
        ...

    @property
    def state(self) -> SessionState:
        """The state as it was last read or saved here."""
        ...

    def load_context(self) -> list[ContextRecord]:
        """All records, unreadable lines left out, every tool call answered (runtime spec 4.7). Idempotent."""
        ...

    def append_context(self, records: Sequence[ContextRecord]) -> None:
        """Add records with one write. When it returns the operating system has them."""
        ...

    def rotate_context(self, records: Iterable[ContextRecord]) -> None:
        """Replace the context by `records`; the old one is kept beside it. Atomic at every instant (R-64)."""
        ...

    def append_event(self, envelope: bytes, timestamp: float) -> None:
        """Add one event, given as the JSON of `{"type", "payload"}`. Timestamps never decrease in the file."""
        ...

    def events(self) -> Iterator[bytes]:
        """The envelopes of the events recorded until now, in order, read lazily; unreadable lines left out."""
        ...

    def timed_events(self) -> Iterator[tuple[bytes, float]]:
        """The same, each with the time of its record in Unix seconds; 0 where the record tells none."""
        ...

    def older_contexts(self) -> Iterator[list[ContextRecord]]:
        """The contexts that `rotate_context` replaced, newest first, as they were then; read as they are asked for."""
        ...

    def save_state(self, state: SessionState) -> None:
        """Store the state atomically; what other programs changed of title and archive fields survives."""
        ...

    async def sync(self) -> None:
        """Bring what was appended to the disk itself. Errors are logged, not raised."""
        ...

    def close(self) -> None:
        """Release the session; an empty one that this process created is removed. Idempotent."""
        ...

    def subagent_files(self, agent_id: str) -> SubagentFiles:
        """The files of a subagent, old or new; they belong to this session and its lock.

        Nothing is made before the first record. Raises InvalidSessionId for what cannot be a name.
        """
        ...

    def list_subagent_ids(self) -> Sequence[str]:
        """The ids of the subagents that have files."""
        ...


class SubagentFiles(SessionFiles, Protocol):
    """What is stored of one subagent: a context and an event log like a session's, and who it is."""

    @property
    def record(self) -> SubagentRecord | None:
        """As it was last read or saved; None for a subagent that is not known."""
        ...

    def save_record(self, record: SubagentRecord) -> None:
        """Store the record atomically."""
        ...

    def save_prompt(self, text: str) -> None:
        """Keep what the subagent was asked last."""
        ...

    def append_output(self, text: str) -> None:
        """Add to the text that the subagent has answered."""
        ...


class SessionStore(Protocol):
    """The sessions of one work dir. Ids are checked first (`InvalidSessionId`)."""

    async def create(self, session_id: str) -> SessionFiles:
        """A new, empty session. Nothing need be on disk before the first record."""
        ...

    async def open(self, session_id: str) -> SessionFiles | None:
        """An existing session, or None. `SessionBusy` when another process still holds it after 5 s."""
        ...

    def last_session_id(self) -> str | None:
        """The session that `--continue` means, or None."""
        ...

    def mark_last(self, session_id: str) -> None:
        """Remember the session as the last of the work dir."""
        ...

    def list_sessions(self) -> Sequence[SessionSummary]:
        """The non-empty sessions, newest first."""
        ...

    async def delete(self, session_id: str) -> bool:
        """Remove a session that this program created; False when there is none."""
        ...


class SessionCatalog(Protocol):
    """The stored sessions of all work dirs that share a store. Looking changes nothing. Methods block: use a thread."""

    def list_sessions(self, work_dir: str | None = None) -> Sequence[SessionSummary]:
        """The non-empty sessions of one work dir, or of all that are known, in no order."""
        ...

    def find_work_dirs(self, session_id: str) -> Sequence[str | None]:
        """The work dirs that have a session of this id, None for one whose path is not known.

        Raises InvalidSessionId.
        """
        ...

    def has_session(self, work_dir: str, session_id: str) -> bool:
        """Does this work dir have a session of this id? Raises InvalidSessionId."""
        ...
