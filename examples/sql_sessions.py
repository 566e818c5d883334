"""Sessions in a SQL database: the store that sqlite_store.py and postgres_store.py share.

It keeps the contract of the port `SessionStore`: the suites `tests/contracts/test_session_store.py` and
`test_subagent_files.py` run over both. What is appended is committed when the call returns, a context is replaced in
one transaction, and a session that is open is locked, until its program ends at the latest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import anyio
from pydantic import TypeAdapter

from kimi.interfaces.embed import open_agent, scripted_model
from kimi.interfaces.embed.storing import (
    ContextRecord,
    Message,
    SessionBusy,
    SessionState,
    SessionSummary,
    StoreFailed,
    SubagentRecord,
    check_session_id,
    decode_record,
    encode_record,
    find_session_title,
    repair_context,
)

TABLES = (
    """CREATE TABLE IF NOT EXISTS kimi_sessions (
        work_dir TEXT, id TEXT, agent TEXT, state TEXT, record TEXT, prompt TEXT, output TEXT, generation INTEGER,
        last_time DOUBLE PRECISION, updated_at DOUBLE PRECISION, PRIMARY KEY (work_dir, id, agent))""",
    """CREATE TABLE IF NOT EXISTS kimi_context (
        number {number}, work_dir TEXT, id TEXT, agent TEXT, generation INTEGER, line TEXT)""",
    """CREATE TABLE IF NOT EXISTS kimi_events (
        number {number}, work_dir TEXT, id TEXT, agent TEXT, time DOUBLE PRECISION, envelope TEXT)""",
    "CREATE TABLE IF NOT EXISTS kimi_last (work_dir TEXT PRIMARY KEY, id TEXT)",
    "CREATE INDEX IF NOT EXISTS kimi_context_of ON kimi_context (work_dir, id, agent, generation, number)",
    "CREATE INDEX IF NOT EXISTS kimi_events_of ON kimi_events (work_dir, id, agent, number)",
)
MINE = "work_dir = ? AND id = ? AND agent = ?"
PAGE = 500
RETRY_S = 0.02

_STATE = TypeAdapter(SessionState)
_RECORD = TypeAdapter(SubagentRecord)


class Database(Protocol):
    """A database with locks. Any thread may use it; every method raises StoreFailed where the database fails."""

    def execute(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a query with `?` for each parameter, and return its rows. Committed at once, if in no transaction."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Commit all or nothing of what is executed inside."""
        ...

    def try_lock(self, key: str) -> bool:
        """Lock a key against everybody else; False if it is locked. The lock ends with the program."""
        ...

    def unlock(self, key: str) -> None:
        """Give a lock back."""
        ...


class SqlSession:
    """One open session, or one of its subagents; see the ports `SessionFiles` and `SubagentFiles`."""

    directory = None

    def __init__(self, database: Database, key: tuple[str, str, str], *, is_new: bool) -> None:
        self._database = database
        self._key = key
        self._is_stored = not is_new
        self._is_new = is_new
        self._has_content = False
        self._closed = False
        self._state = SessionState()
        self._record: SubagentRecord | None = None
        self._generation, self._last_time = 0, 0.0
        if not is_new:
            self._load()
        self.is_resumed = not is_new and bool(self._select("SELECT 1 FROM kimi_events", "LIMIT 1"))

    def _load(self) -> None:
        found = self._select("SELECT state, record, generation, last_time FROM kimi_sessions")
        if not found:  # a subagent that nothing was stored of
            self._is_stored, self._is_new = False, True
            return
        state, record, self._generation, self._last_time = found[0]
        self._state = _STATE.validate_json(state)
        self._record = _RECORD.validate_json(record) if record else None

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._key[1]

    @property
    def state(self) -> SessionState:
        """The state as it was last saved."""
        return self._state

    # --- context --------------------------------------------------------------------------------------------------

    def load_context(self) -> list[ContextRecord]:
        """Return all records with every call answered."""
        records, changed = repair_context(self.read_context(), self._newest_events)
        if changed:
            with self._database.transaction():
                self._delete("kimi_context", " AND generation = ?", self._generation)
                self._insert_context(records, self._generation)
        return records

    def read_context(self) -> list[ContextRecord]:
        """Return all records as they are: the session may be open elsewhere, with a call that is running."""
        return self._read_context(self._generation)

    def append_context(self, records: Sequence[ContextRecord]) -> None:
        """Add records in one transaction."""
        with self._write():
            self._update("generation = ?", self._generation)
            self._insert_context(records, self._generation)
        self._note(records)

    def rotate_context(self, records: Iterable[ContextRecord]) -> None:
        """Replace the context and keep the old one, in one transaction."""
        fresh = list(records)
        with self._write():
            self._update("generation = ?", self._generation + 1)
            self._insert_context(fresh, self._generation + 1)
        self._generation += 1
        self._note(fresh)

    def older_contexts(self) -> Iterator[list[ContextRecord]]:
        """Return the contexts that were replaced, newest first."""
        query = "SELECT DISTINCT generation FROM kimi_context"
        for (generation,) in self._select(query, "AND generation < ? ORDER BY generation DESC", self._generation):
            yield self._read_context(generation)

    def _read_context(self, generation: int) -> list[ContextRecord]:
        rows = self._select("SELECT line FROM kimi_context", "AND generation = ? ORDER BY number", generation)
        return [record for (line,) in rows if (record := decode_record(line.encode())) is not None]

    def _insert_context(self, records: Iterable[ContextRecord], generation: int) -> None:
        query = "INSERT INTO kimi_context (work_dir, id, agent, generation, line) VALUES (?, ?, ?, ?, ?)"
        for record in records:
            self._database.execute(query, (*self._key, generation, encode_record(record).decode()))

    def _note(self, records: Iterable[ContextRecord]) -> None:
        self._has_content = self._has_content or any(isinstance(record, Message) for record in records)

    # --- events ---------------------------------------------------------------------------------------------------

    def append_event(self, envelope: bytes, timestamp: float) -> None:
        """Add one event; times never decrease."""
        at = max(self._last_time, timestamp)
        query = "INSERT INTO kimi_events (work_dir, id, agent, time, envelope) VALUES (?, ?, ?, ?, ?)"
        with self._write():
            self._update("last_time = ?", at)
            self._database.execute(query, (*self._key, at, envelope.decode()))
        self._last_time, self._has_content = at, True

    def events(self) -> Iterator[bytes]:
        """Return the envelopes recorded until now, read in pages."""
        return (envelope for envelope, _ in self.timed_events())

    def parsed_events(self) -> Iterator[dict[str, Any]]:
        """Return the same, parsed."""
        return map(json.loads, self.events())

    def timed_events(self) -> Iterator[tuple[bytes, float]]:
        """Return the same with their times."""
        newest = self._select("SELECT MAX(number) FROM kimi_events")[0][0] or 0
        return self._read_events(newest)

    def _read_events(self, newest: int) -> Iterator[tuple[bytes, float]]:
        query, after = "SELECT number, envelope, time FROM kimi_events", 0
        more = f"AND number > ? AND number <= ? ORDER BY number LIMIT {PAGE}"
        while rows := self._select(query, more, after, newest):
            yield from ((envelope.encode(), at) for _, envelope, at in rows)
            after = rows[-1][0]

    def _newest_events(self) -> Iterator[bytes]:
        rows = self._select("SELECT envelope FROM kimi_events", f"ORDER BY number DESC LIMIT {PAGE}")
        return (envelope.encode() for (envelope,) in rows)

    # --- state ----------------------------------------------------------------------------------------------------

    def save_state(self, state: SessionState) -> None:
        """Store the state; without a title, that of a session without records only with its first record."""
        self._check_open()
        if self._is_stored or state.custom_title is not None:
            with self._write():
                self._update("state = ?", _STATE.dump_json(state).decode())
            self._has_content = self._has_content or state.custom_title is not None
        self._state = state

    async def sync(self) -> None:
        """Do nothing: what was committed is the database's business."""

    def close(self) -> None:
        """Release the session; an empty one that was created here is removed. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._key[2]:  # a subagent: the session has the lock
            return
        if self._is_stored:
            if self._is_new and not self._has_content and not self.list_subagent_ids():
                delete_session(self._database, *self._key[:2])
            self._database.unlock("\n".join(self._key[:2]))

    # --- subagents ------------------------------------------------------------------------------------------------

    def subagent_files(self, agent_id: str) -> SqlSession:
        """Return the files of a subagent."""
        return SqlSession(self._database, (*self._key[:2], check_session_id(agent_id)), is_new=False)

    def list_subagent_ids(self) -> Sequence[str]:
        """Return the ids of the subagents, sorted."""
        query = "SELECT agent FROM kimi_sessions WHERE work_dir = ? AND id = ? AND agent <> '' ORDER BY agent"
        return [agent for (agent,) in self._database.execute(query, self._key[:2])]

    @property
    def record(self) -> SubagentRecord | None:
        """The record of a subagent as it was last saved."""
        return self._record

    def save_record(self, record: SubagentRecord) -> None:
        """Store the record of a subagent."""
        with self._write():
            self._update("record = ?", _RECORD.dump_json(record).decode())
        self._record = record

    def save_prompt(self, text: str) -> None:
        """Store the latest prompt of a subagent."""
        with self._write():
            self._update("prompt = ?", _storable(text))

    def append_output(self, text: str) -> None:
        """Add to what a subagent has answered."""
        with self._write():
            self._update("output = output || ?", _storable(text))

    # --- the database ---------------------------------------------------------------------------------------------

    def _write(self) -> AbstractContextManager[None]:
        """Return a transaction in which the session exists. Raises StoreFailed: it is closed, or its id is taken."""
        self._check_open()
        if not self._is_stored:
            self._begin()
        return self._database.transaction()

    def _begin(self) -> None:
        taken = StoreFailed(f"Session {self.id} exists already; resume it or choose another session id.")
        lock = "\n".join(self._key[:2])
        if not self._key[2] and not self._database.try_lock(lock):
            raise taken
        columns = "work_dir, id, agent, state, record, prompt, output, generation, last_time, updated_at"
        query = f"INSERT INTO kimi_sessions ({columns}) VALUES (?, ?, ?, ?, '', '', '', 0, 0, ?)"
        try:
            self._database.execute(query, (*self._key, _STATE.dump_json(self._state).decode(), time.time()))
        except StoreFailed as error:
            if not self._key[2]:
                self._database.unlock(lock)
            raise taken from error
        self._is_stored = True

    def _update(self, assignment: str, value: object) -> None:
        query = f"UPDATE kimi_sessions SET updated_at = ?, {assignment} WHERE {MINE}"
        self._database.execute(query, (time.time(), value, *self._key))

    def _select(self, query: str, more: str = "", *parameters: object) -> list[tuple[Any, ...]]:
        return self._database.execute(f"{query} WHERE {MINE} {more}", (*self._key, *parameters))

    def _delete(self, table: str, more: str, *parameters: object) -> None:
        self._database.execute(f"DELETE FROM {table} WHERE {MINE}{more}", (*self._key, *parameters))

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFailed(f"Session {self.id} is closed; open it again to write to it.")


class SqlStore:
    """The sessions of one work directory; see the port `SessionStore`.

    `lock_wait_s` is how long `open` and `delete` wait for a session that is open.
    """

    def __init__(self, database: Database, work_dir: str, *, lock_wait_s: float = 5.0) -> None:
        self.database = database
        self._work_dir = work_dir
        self._lock_wait_s = lock_wait_s

    async def create(self, session_id: str) -> SqlSession:
        """Create an empty session; nothing is stored before its first record."""
        return SqlSession(self.database, (self._work_dir, check_session_id(session_id), ""), is_new=True)

    async def open(self, session_id: str) -> SqlSession | None:
        """Open an existing session, or return None. Raises SessionBusy, InvalidSessionId, StoreFailed."""
        if not await self._lock(check_session_id(session_id)):
            return None
        return SqlSession(self.database, (self._work_dir, session_id, ""), is_new=False)

    def last_session_id(self) -> str | None:
        """Return the session that was marked last, else the one that was written last."""
        marked = self.database.execute("SELECT id FROM kimi_last WHERE work_dir = ?", (self._work_dir,))
        if marked and self._exists(marked[0][0]):
            return marked[0][0]
        return next((summary.id for summary in self.list_sessions()), None)

    async def mark_last(self, session_id: str) -> None:
        """Remember the session as the last one. Raises InvalidSessionId, StoreFailed."""
        query = (
            "INSERT INTO kimi_last (work_dir, id) VALUES (?, ?) ON CONFLICT (work_dir) DO UPDATE SET id = excluded.id"
        )
        self.database.execute(query, (self._work_dir, check_session_id(session_id)))

    def list_sessions(self) -> Sequence[SessionSummary]:
        """Return the sessions in which something was asked, newest first."""
        query = "SELECT id, updated_at FROM kimi_sessions WHERE work_dir = ? AND agent = '' ORDER BY updated_at DESC"
        found = (self._summarize(session_id, at) for session_id, at in self.database.execute(query, (self._work_dir,)))
        return [summary for summary in found if summary is not None]

    def _summarize(self, session_id: str, updated_at: float) -> SessionSummary | None:
        files = SqlSession(self.database, (self._work_dir, session_id, ""), is_new=False)
        title = find_session_title(files.state, files.events())
        if title is None and not any(isinstance(record, Message) for record in files.read_context()):
            return None
        title = title or files.state.custom_title or "Untitled"
        return SessionSummary(session_id, self._work_dir, title, updated_at, files.state.set_archived is True)

    async def delete(self, session_id: str) -> bool:
        """Remove a session; False if there is none. Raises SessionBusy, InvalidSessionId, StoreFailed."""
        if not await self._lock(check_session_id(session_id)):
            return False
        try:
            delete_session(self.database, self._work_dir, session_id)
        finally:
            self.database.unlock(f"{self._work_dir}\n{session_id}")
        return True

    async def _lock(self, session_id: str) -> bool:
        """Lock an existing session; False if there is none."""
        deadline = anyio.current_time() + self._lock_wait_s
        while self._exists(session_id):
            if self.database.try_lock(key := f"{self._work_dir}\n{session_id}"):
                if self._exists(session_id):
                    return True
                self.database.unlock(key)
            elif anyio.current_time() >= deadline:
                raise SessionBusy(
                    f"Session {session_id} is already open in this process or another one; close it there first."
                )
            else:
                await anyio.sleep(RETRY_S)
        return False

    def _exists(self, session_id: str) -> bool:
        query = f"SELECT 1 FROM kimi_sessions WHERE {MINE}"
        return bool(self.database.execute(query, (self._work_dir, session_id, "")))


def delete_session(database: Database, work_dir: str, session_id: str) -> None:
    """Remove a session with its subagents."""
    with database.transaction():
        for table in ("kimi_context", "kimi_events", "kimi_sessions"):
            database.execute(f"DELETE FROM {table} WHERE work_dir = ? AND id = ?", (work_dir, session_id))


async def prompt_twice(work_dir: str, store: SqlStore) -> None:
    """Show a store at work: prompt with a scripted model, close, and go on with the session."""
    async with open_agent(work_dir, scripted_model("text: Hello."), store=store) as agent:
        print(await agent.ask("Hi!"))
    async with open_agent(work_dir, scripted_model("text: Hello again."), store=store, continue_last=True) as agent:
        print(await agent.ask("Still there?"), len(agent.history), "messages in", agent.session_id)
    print([summary.title for summary in store.list_sessions()])


def _storable(text: str) -> str:
    """Return text without what databases refuse: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
