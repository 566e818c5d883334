"""The databases of the session stores in `examples/`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from postgres_store import PostgresDatabase
from sql_sessions import Database, SqlStore
from sqlite_store import SqliteDatabase
from tests.support.postgres_server import open_schema

__all__ = ["Database", "SqlStore", "open_database", "read_event_times"]


@contextmanager
def open_database(kind: str, directory: Path) -> Generator[Database, None, None]:
    """Open an empty database, `sqlite` or `postgres`. Skips the test where the machine has no such server."""
    database = SqliteDatabase(directory / "sessions.db") if kind == "sqlite" else PostgresDatabase(open_schema())
    try:
        yield database
    finally:
        database.close()


def read_event_times(database: Database, session_id: str) -> list[float]:
    """Return the times of a session's events, as they are stored."""
    query = "SELECT time FROM kimi_events WHERE id = ? ORDER BY number"
    return [at for (at,) in database.execute(query, (session_id,))]
