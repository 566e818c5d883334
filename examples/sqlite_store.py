"""Sessions in one SQLite file, with Python's own module.

    python examples/sqlite_store.py            # prompts twice in one session, with a scripted model
    async with open_agent(".", store=open_sqlite_store("sessions.db", ".")) as agent: ...

A session that is open is locked by a small file beside the database, which SQLite itself locks: the lock ends with the
program, however that ends.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from kimi.interfaces.embed.storing import StoreFailed
from sql_sessions import TABLES, SqlStore, prompt_twice


class SqliteDatabase:
    """A SQLite file; see `sql_sessions.Database`."""

    def __init__(self, path: str | Path) -> None:
        self._path = os.path.abspath(path)
        self._mutex = threading.RLock()
        self._locks: dict[str, sqlite3.Connection] = {}
        with self._faults():
            self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")  # also a power failure keeps what was committed
        for statement in TABLES:
            self.execute(statement.format(number="INTEGER PRIMARY KEY AUTOINCREMENT"))

    def execute(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a query."""
        with self._mutex, self._faults():
            return self._connection.execute(query, tuple(parameters)).fetchall()

    @contextmanager
    def transaction(self) -> Generator[None, None, None]:
        """Commit all or nothing."""
        with self._mutex:
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.execute("COMMIT")
            finally:
                if self._connection.in_transaction:  # something failed, perhaps the COMMIT
                    self.execute("ROLLBACK")

    def try_lock(self, key: str) -> bool:
        """Lock a key."""
        if key in self._locks:
            return False
        with self._faults():
            os.makedirs(f"{self._path}.locks", exist_ok=True)
            path = f"{self._path}.locks/{sha256(key.encode()).hexdigest()}"
            connection = sqlite3.connect(path, timeout=0, check_same_thread=False)
            try:
                connection.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                connection.close()
                return False
        self._locks[key] = connection
        return True

    def unlock(self, key: str) -> None:
        """Give a lock back."""
        self._locks.pop(key).close()

    def close(self) -> None:
        """Close the file and give all locks back."""
        for key in list(self._locks):
            self.unlock(key)
        self._connection.close()

    @contextmanager
    def _faults(self) -> Generator[None, None, None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreFailed(f"The database {self._path} cannot be used: {error}") from error


def open_sqlite_store(path: str | Path, work_dir: str | Path) -> SqlStore:
    """Return the store of a work directory's sessions in this file, which is made if it is missing."""
    return SqlStore(SqliteDatabase(path), os.path.abspath(work_dir))


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        await prompt_twice(directory, open_sqlite_store(Path(directory, "sessions.db"), directory))


if __name__ == "__main__":
    asyncio.run(main())
