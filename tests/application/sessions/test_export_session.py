"""What goes into an archive beside the files of the session."""

from __future__ import annotations

from kimi.application.sessions.export_session import (
    MAX_LOG_BYTES,
    StoredFile,
    StoredSession,
    build_manifest,
    select_logs,
)

DAY = 86_400.0


def log(name: str, modified_at: float, size: int = 1) -> StoredFile:
    return StoredFile(name, f"/logs/{name}", size, modified_at)


def chosen(session: StoredSession, *logs: StoredFile, now: float) -> list[str]:
    return [one.name for one in select_logs(session, logs, now)]


def test_logs_within_two_days_of_the_session_or_of_now_are_taken() -> None:
    session = StoredSession("s", (), 100 * DAY, 110 * DAY)
    logs = [log(str(day), day * DAY) for day in (97, 98, 105, 112, 113, 197, 198, 200)]
    assert chosen(session, *logs, now=200 * DAY) == ["logs/200", "logs/198", "logs/112", "logs/105", "logs/98"]


def test_a_session_without_events_is_near_now_only() -> None:
    logs = [log("old", 10 * DAY), log("new", 99 * DAY)]
    assert chosen(StoredSession("s", ()), *logs, now=100 * DAY) == ["logs/new"]


def test_newest_logs_are_included_up_to_the_size_limit() -> None:
    logs = [log("a", 4.0, MAX_LOG_BYTES - 10), log("b", 3.0, 11), log("c", 2.0, 10), log("d", 1.0, 1)]
    assert chosen(StoredSession("s", ()), *logs, now=5.0) == ["logs/a", "logs/c"]


def test_out_of_range_timestamp_is_omitted_from_manifest() -> None:
    manifest = build_manifest(StoredSession("s", (), 1e300, None), {"os": "x"}, 0.0)
    assert manifest == {
        "session_id": "s",
        "exported_at": "1970-01-01T00:00:00+00:00",
        "os": "x",
        "first_activity": None,
        "last_activity": None,
    }
