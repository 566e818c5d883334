"""The files of one open session, and of its subagents (runtime spec 4, wire spec 8)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from kimi.application.codec.context_line import decode_record, encode_record
from kimi.domain.content.message import Message
from kimi.domain.errors import StoreFailed
from kimi.domain.history.session import ContextRecord, SessionState, checked_session_id
from kimi.infrastructure.store import event_line
from kimi.infrastructure.store.files import removal, rotation
from kimi.infrastructure.store.files.append_file import AppendFile
from kimi.infrastructure.store.files.disk import failing_as, make_private_directory, replace_file
from kimi.infrastructure.store.files.lines import all_lines, lines_backward, lines_until
from kimi.infrastructure.store.files.lock import BorrowedLock, FileLock
from kimi.infrastructure.store.layout import (
    CONTEXT,
    EVENTS,
    META,
    OUTPUT,
    PROMPT,
    STATE,
    SUBAGENTS,
    rotated,
)
from kimi.infrastructure.store.repair import answered
from kimi.infrastructure.store.state import decode_state, merged_state, read_raw

if TYPE_CHECKING:
    from kimi.domain.agents.subagent import SubagentRecord

logger = logging.getLogger(__name__)
T = TypeVar("T")


class JsonlSession:
    """One open session; see the port `SessionFiles`.

    A new session is `lazy`: its directory, its lock and its files are made with the first record, so that a
    client that only shakes hands leaves nothing behind (W-31).
    """

    def __init__(
        self, session_id: str, directory: str, lock: FileLock | BorrowedLock, *, emptied: Callable[[str], None]
    ) -> None:
        self._id = session_id
        self._directory = directory
        self._lock = lock
        self._emptied = emptied
        self._ready = lock.held
        self._closed = False
        self._made: list[str] = []
        self._context = AppendFile(self._path(CONTEXT))
        self._events = AppendFile(self._path(EVENTS), event_line.HEADER)
        self._last_timestamp: float | None = None
        self._used = False
        self._state = decode_state(read_raw(self._path(STATE)) or {})
        self._stored_title = self._state.custom_title
        self._state_waits = False
        self._resumed = next(self.events(), None) is not None

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._id

    @property
    def directory(self) -> str:
        """The directory of the session; before the first record it may not exist."""
        return self._directory

    @property
    def resumed(self) -> bool:
        """Did the session have at least one recorded event when it was opened?"""
        return self._resumed

    @property
    def state(self) -> SessionState:
        """The state as it was last read or saved."""
        return self._state

    def load_context(self) -> list[ContextRecord]:
        """All usable records with every call answered; what had to be added or put right is stored too."""
        records = _records(self._path(CONTEXT))
        with failing_as("read", self._path(EVENTS)):
            fixed, changed = answered(records, lambda: lines_backward(self._path(EVENTS)))
        if changed:
            self._store_repair(records, fixed)
        return fixed

    def append_context(self, records: Sequence[ContextRecord]) -> None:
        """Add records with one write. Raises StoreFailed; the file is then as it was."""
        if not records:
            return
        self._prepare()
        self._context.append(_context_lines(records))
        self._note_use(records)

    def rotate_context(self, records: Iterable[ContextRecord]) -> None:
        """Replace the context atomically; the old one becomes the next `context_N.jsonl`. Raises StoreFailed."""
        kept = list(records)
        lines = _context_lines(kept)
        self._prepare()
        self._context.close()
        with failing_as("write", self._path(CONTEXT)):
            rotation.rotate(self._path(CONTEXT), lines)
        self._note_use(kept)

    def append_event(self, envelope: bytes, timestamp: float) -> None:
        """Add one event; a timestamp before the last one is raised to it. Raises StoreFailed."""
        self._prepare()
        if self._last_timestamp is None:
            with failing_as("read", self._path(EVENTS)):
                self._last_timestamp = event_line.last_timestamp(lines_backward(self._path(EVENTS)))
        timestamp = max(timestamp, self._last_timestamp)
        self._events.append(event_line.encode_event_line(envelope, timestamp))
        self._last_timestamp = timestamp
        self._used = True

    def events(self) -> Iterator[bytes]:
        """The envelopes recorded until now, read as they are asked for."""
        return self._recorded(event_line.envelopes)

    def timed_events(self) -> Iterator[tuple[bytes, float]]:
        """The same with their times."""
        return self._recorded(event_line.timed_envelopes)

    def older_contexts(self) -> Iterator[list[ContextRecord]]:
        """The contexts that were replaced, newest first. Raises StoreFailed."""
        if not os.path.isdir(self._directory):
            return
        with failing_as("read", self._directory):
            paths = rotated(self._directory)
        for path in paths:
            yield _records(path)

    def save_state(self, state: SessionState) -> None:
        """Store the state; of a session without records only a title is worth a directory. Raises StoreFailed."""
        self._check_open()
        if not self._ready:
            self._state, self._state_waits = state, True
            if state.custom_title is None:
                return
            self._prepare()
        else:
            self._write_state(state)

    async def sync(self) -> None:
        """Bring what was appended to the disk; a failure is logged."""
        for file in (self._context, self._events):
            try:
                fd = file.duplicate()
                if fd is not None:
                    with anyio.CancelScope(shield=True):  # else the descriptor could be left open
                        await anyio.to_thread.run_sync(_sync_and_close, fd)
            except OSError as error:
                logger.warning("session %s could not be brought to the disk: %s", self._id, error)

    def close(self) -> None:
        """Release the session; remove it when it is empty and this process made it. Idempotent, never raises."""
        if self._closed:
            return
        self._closed = True
        self._context.close()
        self._events.close()
        if self._made and self._lock.held and self._is_empty() and removal.remove_files(self._directory):
            self._lock.release()
            self._emptied(self._id)
        self._lock.release()
        removal.remove_directories(self._made)

    def child(self, agent_id: str) -> JsonlSubagent:
        """The files of a subagent in `subagents/<id>/`."""
        return JsonlSubagent(self._id, checked_session_id(agent_id), self._directory)

    def children(self) -> Sequence[str]:
        """The names of the directories below `subagents/`, sorted."""
        try:
            with os.scandir(self._path(SUBAGENTS)) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            return ()

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _note_use(self, records: Sequence[ContextRecord]) -> None:
        self._used = self._used or any(isinstance(record, Message) for record in records)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFailed(f"Session {self._id} is closed; open it again to write to it.")

    def _prepare(self) -> None:
        """Make sure that the directory is there and is ours. Idempotent; a failed try can be repeated."""
        self._check_open()
        if self._ready:
            return
        with failing_as("create", self._directory):
            self._make_directory()
            if not self._lock.try_acquire():
                raise StoreFailed(f"Session {self._id} is in use by another process; choose another session id.")
            self._make_context()
            if self._state_waits:
                self._write_state(self._state)
        self._ready = True

    def _make_directory(self) -> None:
        for path in (os.path.dirname(self._directory), self._directory):
            if make_private_directory(path):
                self._made.append(path)

    def _make_context(self) -> None:
        path = self._path(CONTEXT)
        if self._directory not in self._made and os.path.exists(path) and os.stat(path).st_size > 0:
            self._lock.release()
            raise StoreFailed(f"Session {self._id} was begun by another process; resume it or choose another id.")
        with open(path, "ab", opener=_private_opener):
            pass

    def _recorded(self, read: Callable[[str, Iterable[bytes]], Iterator[T]]) -> Iterator[T]:
        """What is recorded until now, through `read`."""
        path = self._path(EVENTS)
        try:
            size = os.stat(path).st_size
        except OSError:
            return iter(())
        return _reading(path, read(path, lines_until(path, size)))

    def _store_repair(self, records: list[ContextRecord], fixed: list[ContextRecord]) -> None:
        try:
            if fixed[: len(records)] == records:
                self.append_context(fixed[len(records) :])
            else:
                self.rotate_context(fixed)
        except StoreFailed as error:  # what is in memory is right all the same; the next load repairs again
            logger.warning("the repair of session %s could not be stored: %s", self._id, error)

    def _write_state(self, state: SessionState) -> None:
        path = self._path(STATE)
        encoded, merged = merged_state(state, read_raw(path), self._stored_title)
        with failing_as("write", path):
            replace_file(path, encoded)
        self._state, self._stored_title, self._state_waits = merged, merged.custom_title, False

    def _is_empty(self) -> bool:
        stored = read_raw(self._path(STATE)) or {}
        return not (self._used or self._resumed or self._state.custom_title or stored.get("custom_title"))


class JsonlSubagent(JsonlSession):
    """The files of a subagent of an open session; see the port `SubagentFiles`. Its id is that of the session."""

    def __init__(self, session_id: str, agent_id: str, session_directory: str) -> None:
        directory = os.path.join(session_directory, SUBAGENTS, agent_id)
        lock = BorrowedLock(held=os.path.isdir(directory))
        super().__init__(session_id, directory, lock, emptied=lambda name: None)
        from kimi.infrastructure.store.subagent_meta import decode_meta  # start-up time

        self._session_directory = session_directory
        self._record = decode_meta(agent_id, read_raw(self._path(META)))
        self._output = AppendFile(self._path(OUTPUT))

    @property
    def directory(self) -> str:
        """The directory of the session: what a subagent spills goes where its parent may read it too."""
        return self._session_directory

    @property
    def record(self) -> SubagentRecord | None:
        """As it was last read or saved."""
        return self._record

    def save_record(self, record: SubagentRecord) -> None:
        """Store the record in `meta.json`. Raises StoreFailed."""
        from kimi.infrastructure.store.subagent_meta import encode_meta

        self._replace(META, encode_meta(record, read_raw(self._path(META))))
        self._record = record

    def save_prompt(self, text: str) -> None:
        """Store the prompt in `prompt.txt`. Raises StoreFailed."""
        self._replace(PROMPT, text.encode("utf-8", "replace"))

    def append_output(self, text: str) -> None:
        """Add to `output`. Raises StoreFailed."""
        self._prepare()
        self._output.append(text.rstrip("\n").encode("utf-8", "replace") + b"\n")

    def close(self) -> None:
        """Close the files. Idempotent, never raises."""
        self._output.close()
        super().close()

    def _replace(self, name: str, data: bytes) -> None:
        self._prepare()
        with failing_as("write", self._path(name)):
            replace_file(self._path(name), data)


def _reading(path: str, items: Iterator[T]) -> Iterator[T]:
    with failing_as("read", path):
        yield from items


def _records(path: str) -> list[ContextRecord]:
    """The usable records of a context file. Raises StoreFailed."""
    records: list[ContextRecord] = []
    with failing_as("read", path):
        lines = all_lines(path)
    for number, line in enumerate(lines, 1):
        record = decode_record(line)
        if record is not None:
            records.append(record)
        elif line.strip():
            logger.warning("line %d of %s cannot be read and is left out", number, path)
    return records


def _context_lines(records: Iterable[ContextRecord]) -> bytes:
    return b"".join([encode_record(record) + b"\n" for record in records])


def _private_opener(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_and_close(fd: int) -> None:
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
