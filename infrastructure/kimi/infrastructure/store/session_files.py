"""The files of one open session and of its subagents (runtime spec 4, wire spec 8)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from kimi.application.codec.context_line import decode_record, encode_record
from kimi.domain.content.message import JsonObject, Message
from kimi.domain.errors import StoreFailed
from kimi.domain.history.session import ContextRecord, SessionState, check_session_id
from kimi.infrastructure.store import event_line
from kimi.infrastructure.store.files.append_file import AppendFile
from kimi.infrastructure.store.files.disk import (
    make_private_directory,
    remove_empty_directories,
    replace_file,
    wrap_os_errors,
)
from kimi.infrastructure.store.files.lock import BorrowedLock, FileLock
from kimi.infrastructure.store.layout import (
    CONTEXT_FILE,
    EVENTS_FILE,
    META_FILE,
    OUTPUT_FILE,
    PROMPT_FILE,
    STATE_FILE,
    SUBAGENTS_DIRECTORY,
    list_rotated_paths,
)
from kimi.infrastructure.store.state import decode_state, merge_state, read_json_object

if TYPE_CHECKING:
    from kimi.domain.agents.subagent import SubagentRecord

logger = logging.getLogger(__name__)
T = TypeVar("T")


class JsonlSession:
    """One open session; see the port `SessionFiles`.

    A new session is lazy: its directory, its lock and its files are made with the first record, so that a client that
    only initializes leaves nothing behind (W-31).
    """

    def __init__(
        self, session_id: str, directory: str, lock: FileLock | BorrowedLock, *, on_removed: Callable[[str], None]
    ) -> None:
        self._id = session_id
        self._directory = directory
        self._lock = lock
        self._on_removed = on_removed
        self._is_ready = lock.is_held
        self._closed = False
        self._created_directories: list[str] = []
        self._context = AppendFile(self._path(CONTEXT_FILE))
        self._events = AppendFile(self._path(EVENTS_FILE), event_line.METADATA_LINE)
        self._last_timestamp: float | None = None
        self._was_used = False
        self._state = decode_state(read_json_object(self._path(STATE_FILE)) or {})
        self._stored_title = self._state.custom_title
        self._state_pending = False
        self._is_resumed = next(self.events(), None) is not None
        self._sync_lock = anyio.Lock()
        self._syncs_wanted = self._syncs_done = 0

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._id

    @property
    def directory(self) -> str:
        """The directory of the session; before the first record it may not exist."""
        return self._directory

    @property
    def is_resumed(self) -> bool:
        """Whether the session had at least one recorded event when it was opened."""
        return self._is_resumed

    @property
    def state(self) -> SessionState:
        """The state as it was last read or saved."""
        return self._state

    def load_context(self) -> list[ContextRecord]:
        """Return all usable records with every call answered; repairs are stored, too."""
        records = _read_records(self._path(CONTEXT_FILE))
        if not records:
            return records
        from kimi.infrastructure.store.call_repair import answer_open_calls  # start-up time: resumed sessions only
        from kimi.infrastructure.store.files.lines import read_lines_backward

        with wrap_os_errors("read", self._path(EVENTS_FILE)):
            fixed, changed = answer_open_calls(records, lambda: read_lines_backward(self._path(EVENTS_FILE)))
        if changed:
            self._store_repair(records, fixed)
        return fixed

    def append_context(self, records: Sequence[ContextRecord]) -> None:
        """Add records with one write. Raises StoreFailed; the file is then unchanged."""
        if not records:
            return
        self._ensure_ready()
        self._context.append(_encode_records(records))
        self._mark_used(records)

    def rotate_context(self, records: Iterable[ContextRecord]) -> None:
        """Replace the context atomically; the old one becomes the next `context_N.jsonl`. Raises StoreFailed."""
        from kimi.infrastructure.store.files.rotation import rotate  # start-up time

        kept = list(records)
        lines = _encode_records(kept)
        self._ensure_ready()
        # The open descriptor belongs to the file that is about to be renamed; the next append opens the new one.
        self._context.close()
        with wrap_os_errors("write", self._path(CONTEXT_FILE)):
            rotate(self._path(CONTEXT_FILE), lines)
        self._mark_used(kept)

    def append_event(self, envelope: bytes, timestamp: float) -> None:
        """Add one event; a timestamp before the last one is raised to it. Raises StoreFailed."""
        self._ensure_ready()
        if self._last_timestamp is None:
            self._last_timestamp = self._find_last_timestamp()
        timestamp = max(timestamp, self._last_timestamp)
        self._events.append(event_line.encode_event_line(envelope, timestamp))
        # Only after the write: a failed append must not move the clock of the log.
        self._last_timestamp = timestamp
        self._was_used = True

    def events(self) -> Iterator[bytes]:
        """Return the envelopes recorded until now, read lazily."""
        return self._read_recorded(event_line.read_envelopes)

    def parsed_events(self) -> Iterator[JsonObject]:
        """Return the same, parsed."""
        return self._read_recorded(event_line.read_messages)

    def timed_events(self) -> Iterator[tuple[bytes, float]]:
        """Return the same with their times."""
        return self._read_recorded(event_line.read_timed_envelopes)

    def older_contexts(self) -> Iterator[list[ContextRecord]]:
        """Yield the contexts that were replaced, newest first. Raises StoreFailed."""
        if not os.path.isdir(self._directory):
            return
        with wrap_os_errors("read", self._directory):
            paths = list_rotated_paths(self._directory)
        for path in paths:
            yield _read_records(path)

    def save_state(self, state: SessionState) -> None:
        """Store the state. Raises StoreFailed.

        A session without records gets a directory only for a title; any other state is written with the first record.
        """
        self._check_open()
        if not self._is_ready:
            self._state, self._state_pending = state, True
            if state.custom_title is None:
                return
            self._ensure_ready()
        else:
            self._write_state(state)

    async def sync(self) -> None:
        """Flush what was appended to the disk; a failure is logged.

        Calls that come while one is under way share the next one.
        """
        self._syncs_wanted += 1
        wanted = self._syncs_wanted
        async with self._sync_lock:
            if self._syncs_done >= wanted:
                return
            self._syncs_done = self._syncs_wanted
            # The thread gets descriptors of its own, because `close` may run meanwhile.
            copies = [
                copy for file in (self._context, self._events) if (copy := self._copy_descriptor(file)) is not None
            ]
            if copies:
                with anyio.CancelScope(shield=True):  # the thread closes the copies: it must run
                    for error in await anyio.to_thread.run_sync(_sync_and_close, copies):
                        self._log_unsynced(error)

    def _copy_descriptor(self, file: AppendFile) -> int | None:
        try:
            return file.duplicate_descriptor()
        except OSError as error:
            self._log_unsynced(error)
            return None

    def _log_unsynced(self, error: OSError) -> None:
        logger.warning("session %s could not be brought to the disk: %s", self._id, error)

    def close(self) -> None:
        """Release the session; an empty one that this process created is removed. Idempotent, never raises."""
        if self._closed:
            return
        self._closed = True
        self._context.close()
        self._events.close()
        if self._created_directories and self._lock.is_held and self._is_empty():
            self._remove_files()
        self._lock.release()
        remove_empty_directories(self._created_directories)

    def subagent_files(self, agent_id: str) -> JsonlSubagent:
        """Return the files of a subagent in `subagents/<id>/`."""
        return JsonlSubagent(self._id, check_session_id(agent_id), self._directory)

    def list_subagent_ids(self) -> Sequence[str]:
        """Return the names of the directories below `subagents/`, sorted."""
        try:
            with os.scandir(self._path(SUBAGENTS_DIRECTORY)) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            return ()

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _mark_used(self, records: Sequence[ContextRecord]) -> None:
        self._was_used = self._was_used or any(isinstance(record, Message) for record in records)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFailed(f"Session {self._id} is closed; open it again to write to it.")

    def _ensure_ready(self) -> None:
        """Make sure that the directory exists and is locked by this process.

        Idempotent; a failed try can be repeated.
        """
        self._check_open()
        if self._is_ready:
            return
        with wrap_os_errors("create", self._directory):
            self._make_directory()
            if not self._lock.try_acquire():
                raise StoreFailed(f"Session {self._id} is in use by another process; choose another session id.")
            self._make_context()
            if self._state_pending:
                self._write_state(self._state)
        # Last, so that the next call repeats everything after a failure.
        self._is_ready = True

    def _make_directory(self) -> None:
        for path in (os.path.dirname(self._directory), self._directory):
            if make_private_directory(path):
                self._created_directories.append(path)

    def _make_context(self) -> None:
        path = self._path(CONTEXT_FILE)
        if self._directory not in self._created_directories and os.path.exists(path) and os.stat(path).st_size > 0:
            self._lock.release()
            raise StoreFailed(f"Session {self._id} was begun by another process; resume it or choose another id.")
        with open(path, "ab", opener=_private_opener):
            pass

    def _remove_files(self) -> None:
        from kimi.infrastructure.store.files.removal import remove_session_files  # start-up time

        if remove_session_files(self._directory):
            self._lock.release()
            self._on_removed(self._id)

    def _find_last_timestamp(self) -> float:
        from kimi.infrastructure.store.files.lines import read_lines_backward  # start-up time

        path = self._path(EVENTS_FILE)
        with wrap_os_errors("read", path):
            return event_line.find_last_timestamp(read_lines_backward(path))

    def _read_recorded(self, read: Callable[[str, Iterable[bytes]], Iterator[T]]) -> Iterator[T]:
        """Return what was recorded until now, read through `read`."""
        path = self._path(EVENTS_FILE)
        try:
            size = os.stat(path).st_size
        except OSError:
            return iter(())
        from kimi.infrastructure.store.files.lines import read_lines_until  # start-up time: resumed sessions only

        return _wrap_read_errors(path, read(path, read_lines_until(path, size)))

    def _store_repair(self, records: list[ContextRecord], fixed: list[ContextRecord]) -> None:
        try:
            if fixed[: len(records)] == records:
                self.append_context(fixed[len(records) :])
            else:
                self.rotate_context(fixed)
        except StoreFailed as error:  # the records in memory are right; the next load repairs again
            logger.warning("the repair of session %s could not be stored: %s", self._id, error)

    def _write_state(self, state: SessionState) -> None:
        path = self._path(STATE_FILE)
        encoded, merged = merge_state(state, read_json_object(path), self._stored_title)
        with wrap_os_errors("write", path):
            replace_file(path, encoded)
        self._state, self._stored_title, self._state_pending = merged, merged.custom_title, False

    def _is_empty(self) -> bool:
        stored = read_json_object(self._path(STATE_FILE)) or {}
        return not (self._was_used or self._is_resumed or self._state.custom_title or stored.get("custom_title"))


class JsonlSubagent(JsonlSession):
    """The files of a subagent of an open session; see the port `SubagentFiles`. Its id is that of the session."""

    def __init__(self, session_id: str, agent_id: str, session_directory: str) -> None:
        directory = os.path.join(session_directory, SUBAGENTS_DIRECTORY, agent_id)
        lock = BorrowedLock(is_held=os.path.isdir(directory))
        super().__init__(session_id, directory, lock, on_removed=lambda name: None)
        from kimi.infrastructure.store.subagent_meta import decode_meta  # start-up time

        self._session_directory = session_directory
        self._record = decode_meta(agent_id, read_json_object(self._path(META_FILE)))
        self._output = AppendFile(self._path(OUTPUT_FILE))

    @property
    def directory(self) -> str:
        """The directory of the session: the parent must be able to read the spilled output of its subagent."""
        return self._session_directory

    @property
    def record(self) -> SubagentRecord | None:
        """The record as it was last read or saved."""
        return self._record

    def save_record(self, record: SubagentRecord) -> None:
        """Store the record in `meta.json`. Raises StoreFailed."""
        from kimi.infrastructure.store.subagent_meta import encode_meta

        self._replace(META_FILE, encode_meta(record, read_json_object(self._path(META_FILE))))
        self._record = record

    def save_prompt(self, text: str) -> None:
        """Store the prompt in `prompt.txt`. Raises StoreFailed."""
        self._replace(PROMPT_FILE, text.encode("utf-8", "replace"))

    def append_output(self, text: str) -> None:
        """Add a text to `output`. Raises StoreFailed."""
        self._ensure_ready()
        self._output.append(text.rstrip("\n").encode("utf-8", "replace") + b"\n")

    def close(self) -> None:
        """Close the files. Idempotent, never raises."""
        self._output.close()
        super().close()

    def _replace(self, name: str, data: bytes) -> None:
        self._ensure_ready()
        with wrap_os_errors("write", self._path(name)):
            replace_file(self._path(name), data)


def _wrap_read_errors(path: str, items: Iterator[T]) -> Iterator[T]:
    with wrap_os_errors("read", path):
        yield from items


def _read_records(path: str) -> list[ContextRecord]:
    """Return the usable records of a context file. Raises StoreFailed."""
    records: list[ContextRecord] = []
    with wrap_os_errors("read", path):
        lines = _read_lines(path)
    for number, line in enumerate(lines, 1):
        record = decode_record(line)
        if record is not None:
            records.append(record)
        elif line.strip():
            logger.warning("line %d of %s cannot be read and is left out", number, path)
    return records


def _read_lines(path: str) -> list[bytes]:
    """The lines of a file, oldest first, without line ends; none when there is no file. Raises OSError."""
    try:
        with open(path, "rb") as file:
            return file.read().split(b"\n")
    except FileNotFoundError:
        return []


def _encode_records(records: Iterable[ContextRecord]) -> bytes:
    return b"".join([encode_record(record) + b"\n" for record in records])


def _private_opener(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_and_close(descriptors: Sequence[int]) -> list[OSError]:
    """Flush files to the disk and close the descriptors; return what failed."""
    errors: list[OSError] = []
    for descriptor in descriptors:
        try:
            os.fsync(descriptor)
        except OSError as error:
            errors.append(error)
        finally:
            os.close(descriptor)
    return errors
