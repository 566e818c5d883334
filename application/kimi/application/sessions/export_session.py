"""Use-case export-session: write a stored session and its logs to an archive (runtime spec 1.6)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from kimi.application.codec.envelope import encode_json

MAX_LOG_DISTANCE_S = 2 * 24 * 3600
"""The maximum time in seconds between a log and the session, or the present, for the log to be included."""
MAX_LOG_BYTES = 100 * 1024 * 1024
"""The maximum size in bytes of all included logs together."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file to archive: its name in the archive, its path, its size in bytes, its last change in Unix seconds."""

    name: str
    path: str
    size: int
    modified_at: float


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session with all its files. The times of its first and last event are in Unix seconds, if known."""

    id: str
    files: Sequence[StoredFile]
    first_activity: float | None = None
    last_activity: float | None = None


class SessionArchives(Protocol):
    """Finds sessions and writes archives. All methods raise StoreFailed."""

    def last(self) -> str | None:
        """Return the id of the session that was last used in the work directory."""
        ...

    def find(self, session_id: str) -> StoredSession | None:
        """Return the session with this id, in the work directory or else in any other.

        None when there is no such session, or when `session_id` is not a valid id.
        """
        ...

    def logs(self) -> Sequence[StoredFile]:
        """Return the log files of the program."""
        ...

    def write(self, path: str, manifest: bytes, files: Iterable[StoredFile]) -> None:
        """Write the archive atomically, readable by its owner only; a failure leaves an existing file as it was."""
        ...


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The path of the archive, and whether it holds logs."""

    path: str
    with_logs: bool


def export_session(
    archives: SessionArchives, session_id: str, output: str | None, *, program_info: Mapping[str, str], now: float
) -> ExportResult | None:
    """Write `session-<id>.zip` into the current directory, or `output`; return None when there is no such session.

    `program_info` describes the program and the system in the manifest. Raises StoreFailed.
    """
    session = archives.find(session_id)
    if session is None:
        return None
    path = os.path.abspath(output or f"session-{_name_file(session.id)}.zip")
    logs = select_logs(session, archives.logs(), now)
    archives.write(path, encode_json(build_manifest(session, program_info, now)) + b"\n", [*session.files, *logs])
    return ExportResult(path, bool(logs))


def build_manifest(session: StoredSession, program_info: Mapping[str, str], now: float) -> Mapping[str, str | None]:
    """Return the content of `manifest.json`. It holds no text of the user or the model, and no settings."""
    return {
        "session_id": session.id,
        "exported_at": _format_time(now),
        **program_info,
        "first_activity": _format_time(session.first_activity),
        "last_activity": _format_time(session.last_activity),
    }


def select_logs(session: StoredSession, logs: Iterable[StoredFile], now: float) -> list[StoredFile]:
    """Return the logs within `MAX_LOG_DISTANCE_S` of the session or of `now`, newest first.

    Logs that would exceed `MAX_LOG_BYTES` in total are left out.
    """
    first = session.first_activity if session.first_activity is not None else now
    last = session.last_activity if session.last_activity is not None else first
    chosen: list[StoredFile] = []
    room = MAX_LOG_BYTES
    for log in sorted(logs, key=lambda log: log.modified_at, reverse=True):
        near = first - MAX_LOG_DISTANCE_S <= log.modified_at <= last + MAX_LOG_DISTANCE_S
        if (near or abs(log.modified_at - now) <= MAX_LOG_DISTANCE_S) and log.size <= room:
            room -= log.size
            chosen.append(replace(log, name=f"logs/{log.name}"))
    return chosen


def _name_file(session_id: str, *, on_windows: bool = os.name == "nt") -> str:
    """Return the id as a part of a file name; Windows takes some characters in none."""
    return "".join("_" if on_windows and char in ':*?"<>|' else char for char in session_id)


def _format_time(time: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC; None for None and for numbers that are no valid time."""
    if time is None:
        return None
    try:
        return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return None
