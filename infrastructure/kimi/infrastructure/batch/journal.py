"""The journal of a batch beside its results: what was started and how it ended, flushed before anything depends on it.

The journal decides: a result is in it first, and a line of the results that a kill tore or left out is completed from
it when the batch is opened again (runtime spec 10.4).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

import anyio.to_thread

from kimi.application.batch.ports import TaskProgress
from kimi.application.batch.records import USAGES, WORKTREES, shape_result
from kimi.application.codec.envelope import encode_json
from kimi.domain.batch import BatchRefused, BatchResult, BatchTask, BatchWorktree, add_usage
from kimi.domain.errors import StoreFailed
from kimi.domain.turn import UsageTotal
from kimi.infrastructure.store.files.disk import (
    BINARY_FLAG,
    FILE_MODE,
    make_private_directory,
    store_error,
    sync_directory,
    wrap_os_errors,
    write_all,
)
from kimi.infrastructure.store.files.lock import HOLD_LOCK_WAIT_S, FileLock
from kimi.infrastructure.workspace.process_table import read_start_mark

JOURNAL_SUFFIX: Final = ".journal"
VERSION: Final = 1
_RETRY_S: Final = 0.02


class JournalFile:
    """A `BatchJournal` in a file. Only `open_journal` makes one."""

    def __init__(self, results_path: str, lock_fd: int | None) -> None:
        self.lock_fd = lock_fd
        """The descriptor of the lock: a process that inherits it keeps the batch locked until it ends."""
        self._results_path = results_path
        self._path = results_path + JOURNAL_SUFFIX
        self._tasks: dict[str, TaskProgress] = {}
        self._results: dict[str, bytes] = {}
        self._writing = threading.Lock()
        self._failure: StoreFailed | None = None
        """Why nothing more is written: only the last line of a file may be torn."""
        self._fd = _open_for_appending(self._path)
        self._results_fd = -1

    @property
    def tasks(self) -> Mapping[str, TaskProgress]:
        """See `BatchJournal`."""
        return self._tasks

    async def record_worktree(self, task: BatchTask, worktree: BatchWorktree) -> None:
        """See `BatchJournal`."""
        await self._record({"type": "worktree", "id": task.id, "worktree": WORKTREES.dump_python(worktree)})

    async def record_start(self, task: BatchTask) -> None:
        """See `BatchJournal`."""
        await self._record({"type": "started", "id": task.id, "digest": task.digest})

    async def record_end(self, task_id: str, reason: str, usage: UsageTotal) -> None:
        """See `BatchJournal`."""
        shape = USAGES.dump_python(usage) if usage.tokens.total else None
        await self._record({"type": "ended", "id": task_id, "reason": reason, "usage": shape})

    async def record_result(self, task: BatchTask, result: BatchResult) -> None:
        """See `BatchJournal`."""
        usage = USAGES.dump_python(result.usage)
        shape = {"type": "finished", "id": task.id, "digest": task.digest, "usage": usage}
        await self._record(shape | {"result": shape_result(result)})

    def close(self) -> None:
        """Flush the results and close both files."""
        for fd in (self._fd, self._results_fd):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.fsync(fd)
                os.close(fd)

    def load(self) -> None:
        """Read both files, and mend what a kill has left in them. Raises BatchRefused, StoreFailed."""
        self._read_records()
        if not self._tasks:
            self._append({"type": "batch", "version": VERSION, "at": time.time()})
            sync_directory(os.path.dirname(self._path))
        self._results_fd = _open_for_appending(self._results_path)
        self._mend_results()

    async def _record(self, record: dict[str, Any]) -> None:
        await anyio.to_thread.run_sync(self._write, record | {"at": time.time()})

    def _write(self, record: dict[str, Any]) -> None:
        with self._writing:
            if self._failure is not None:
                raise self._failure
            try:
                self._append(record)
                self._apply(record)
                if record["type"] == "finished":
                    with wrap_os_errors("write", self._results_path):
                        write_all(self._results_fd, self._results[record["id"]])
            except StoreFailed as error:
                self._failure = error
                raise

    def _append(self, record: dict[str, Any]) -> None:
        with wrap_os_errors("write", self._path):
            write_all(self._fd, encode_json(record) + b"\n")
            os.fsync(self._fd)

    def _read_records(self) -> None:
        """Apply the records; a torn line at the end is cut off, because nothing has depended on it yet."""
        content = _read_file(self._path)
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with wrap_os_errors("write", self._path):
                os.ftruncate(self._fd, whole)
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                self._apply(json.loads(line))
            except (ValueError, KeyError, TypeError, RecursionError):
                text = f"{self._path}, line {number}: this is no record of a batch; choose another --output."
                raise BatchRefused(text) from None

    def _apply(self, record: Mapping[str, Any]) -> None:
        """Take a record into account. Raises ValueError, KeyError or TypeError: it is none."""
        match record:
            case {"type": "batch"}:
                if record.get("version") != VERSION:
                    raise BatchRefused(f"{self._path} was written by another version of this program; use that one.")
            case {"type": "worktree", "id": str(task_id)}:
                progress = self._tasks.setdefault(task_id, TaskProgress())
                progress.worktree = WORKTREES.validate_python(record["worktree"])
            case {"type": "started", "id": str(task_id)}:
                progress = self._tasks.setdefault(task_id, TaskProgress())
                progress.digest = record["digest"]
                progress.starts += 1
            case {"type": "ended", "id": str(task_id), "reason": reason}:
                progress = self._tasks.setdefault(task_id, TaskProgress())
                progress.losses += reason == "lost"
                progress.failures += reason == "failed"
                if record.get("usage"):
                    progress.usage = add_usage(progress.usage, USAGES.validate_python(record["usage"]))
            case {"type": "finished", "id": str(task_id)}:
                progress = self._tasks.setdefault(task_id, TaskProgress())
                progress.digest = record["digest"]
                progress.usage = USAGES.validate_python(record["usage"])
                progress.status = record["result"]["status"]
                self._results[task_id] = encode_json(record["result"]) + b"\n"
            case _:
                raise ValueError("unknown type")

    def _mend_results(self) -> None:
        """Complete the last line of the results, and append those that are missing; nothing is ever cut off."""
        content = _read_file(self._results_path)
        whole = content.rfind(b"\n") + 1
        written = {self._check_result(line, number) for number, line in enumerate(content[:whole].splitlines(), 1)}
        missing = {task_id: line for task_id, line in self._results.items() if task_id not in written}
        if torn := content[whole:]:
            found = [task_id for task_id, line in missing.items() if line.startswith(torn)]
            if not found:
                raise BatchRefused(
                    f"The end of {self._results_path} is no result of this batch; choose another --output."
                )
            missing = {found[0]: missing.pop(found[0])[len(torn) :], **missing}
        with wrap_os_errors("write", self._results_path):
            write_all(self._results_fd, b"".join(missing.values()))

    def _check_result(self, line: bytes, number: int) -> str:
        result = _parse_object(line) or {}
        task_id = result.get("id")
        if not isinstance(task_id, str) or task_id not in self._results:
            raise BatchRefused(
                f"{self._results_path}, line {number}: {self._path} does not know this result; choose another --output."
            )
        return task_id


@contextmanager
def open_journal(results_path: str) -> Generator[JournalFile, None, None]:
    """Open the journal beside a results file, and hold its lock.

    Raises BatchRefused: another process has it open, or the files are not those of one batch. Raises StoreFailed.
    """
    if os.path.lexists(results_path) and not os.path.isfile(results_path):
        raise BatchRefused(f"{results_path} is no plain file; choose another --output.")
    with wrap_os_errors("create", results_path):
        make_private_directory(os.path.dirname(results_path))
    lock = FileLock(f"{results_path}{JOURNAL_SUFFIX}.lock")
    _acquire(lock, results_path)
    try:
        journal = JournalFile(results_path, lock.descriptor)
        try:
            journal.load()
            yield journal
        finally:
            journal.close()
    finally:
        lock.release()


def _acquire(lock: FileLock, results_path: str) -> None:
    """Wait for the workers of a coordinator that was killed, which end by themselves; refuse a living one."""
    deadline = time.monotonic() + HOLD_LOCK_WAIT_S
    with wrap_os_errors("write", results_path):
        while not lock.try_acquire():
            owner = lock.read_owner()
            if read_start_mark(owner or 0):
                text = f"Another `kimi batch` (process {owner}) writes {results_path}"
                raise BatchRefused(f"{text}; wait for its end, or choose another --output.")
            if time.monotonic() > deadline:
                text = f"Workers of a `kimi batch` (process {owner}) still run for {results_path}"
                raise BatchRefused(f"{text}; end them, or choose another --output.")
            time.sleep(_RETRY_S)


def _open_for_appending(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | BINARY_FLAG, FILE_MODE)
    except OSError as error:
        raise store_error("write", path, error) from error


def _read_file(path: str) -> bytes:
    with wrap_os_errors("read", path), open(path, "rb") as file:
        return file.read()


def _parse_object(line: bytes) -> dict[str, Any] | None:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
