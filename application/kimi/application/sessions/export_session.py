"""Use-case export-session: one stored session as an archive to hand on (runtime spec 1.6)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from kimi.application.codec.envelope import encode_json

MAX_LOG_DISTANCE_S = 2 * 24 * 3600
"""How far from the session, or from now, a log may have been written that goes with it."""
MAX_LOG_BYTES = 100 * 1024 * 1024
"""How much of logs goes with a session."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file to archive: its name in the archive, its path, its size in bytes, when it was written (Unix seconds)."""

    name: str
    path: str
    size: int
    modified_at: float


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session with all its files; the times are those of its first and last event in Unix seconds, if known."""

    id: str
    files: Sequence[StoredFile]
    first_activity: float | None = None
    last_activity: float | None = None


class SessionArchives(Protocol):
    """Where sessions are looked up and archives are written. Methods raise `StoreFailed`."""

    def last(self) -> str | None:
        """The session that was last used in the work dir."""
        ...

    def find(self, session_id: str) -> StoredSession | None:
        """The session of that id, in the work dir or else in any other; None also for what cannot be an id."""
        ...

    def logs(self) -> Sequence[StoredFile]:
        """The log files of the program."""
        ...

    def write(self, path: str, manifest: bytes, files: Iterable[StoredFile]) -> None:
        """Write the archive, private to its owner; at `path` is the whole of it, or what was there before."""
        ...


@dataclass(frozen=True, slots=True)
class ExportResult:
    """Where the archive is, and whether logs are in it."""

    path: str
    with_logs: bool


def export_session(
    archives: SessionArchives, session_id: str, output: str | None, *, program_info: Mapping[str, str], now: float
) -> ExportResult | None:
    """Write `session-<id>.zip` into the current directory, or `output`; None when there is no such session.

    `about` says which program and system wrote it. Raises StoreFailed.
    """
    session = archives.find(session_id)
    if session is None:
        return None
    path = os.path.abspath(output or f"session-{session.id}.zip")
    logs = select_logs(session, archives.logs(), now)
    archives.write(path, encode_json(build_manifest(session, program_info, now)) + b"\n", [*session.files, *logs])
    return ExportResult(path, bool(logs))


def build_manifest(session: StoredSession, program_info: Mapping[str, str], now: float) -> Mapping[str, str | None]:
    """What `manifest.json` says. Nothing that a user or a model wrote is in it, and no setting."""
    return {
        "session_id": session.id,
        "exported_at": _format_time(now),
        **program_info,
        "first_activity": _format_time(session.first_activity),
        "last_activity": _format_time(session.last_activity),
    }


def select_logs(session: StoredSession, logs: Iterable[StoredFile], now: float) -> list[StoredFile]:
    """The logs that were written near the session or near now, the newest first until they are too much together."""
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


def _format_time(time: float | None) -> str | None:
    """A time as ISO 8601 in UTC; None for none and for what is no date."""
    if time is None:
        return None
    try:
        return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return None
