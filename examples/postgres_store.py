"""Sessions in PostgreSQL, with psycopg (`pip install "psycopg[binary]"`).

    python examples/postgres_store.py "host=/var/run/postgresql dbname=kimi"     # prompts twice in one session
    async with open_agent(".", store=open_postgres_store("dbname=kimi", ".")) as agent: ...

Several machines may share the database: a session that is open is locked by an advisory lock, which the server drops
with the connection. Each event waits for the server: keep it near.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg

from kimi.interfaces.embed.storing import StoreFailed
from sql_sessions import TABLES, SqlStore, prompt_twice


class PostgresDatabase:
    """A connection to PostgreSQL; see `sql_sessions.Database`."""

    def __init__(self, conninfo: str) -> None:
        self._mutex = threading.RLock()
        self._held: set[str] = set()
        with self._faults():
            self._connection = psycopg.connect(conninfo, autocommit=True)
        with self.transaction():
            self.execute("SELECT pg_advisory_xact_lock(4711)")  # tables are made by one program at a time
            for statement in TABLES:
                self.execute(statement.format(number="BIGSERIAL PRIMARY KEY"))

    def execute(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a query."""
        with self._mutex, self._faults():
            found = self._connection.execute(cast("LiteralString", query.replace("?", "%s")), tuple(parameters))
            return found.fetchall() if found.description else []

    @contextmanager
    def transaction(self) -> Generator[None, None, None]:
        """Commit all or nothing."""
        with self._mutex, self._faults(), self._connection.transaction():
            yield

    def try_lock(self, key: str) -> bool:
        """Lock a key."""
        if key in self._held:  # the server would let this connection lock it again
            return False
        if not self.execute("SELECT pg_try_advisory_lock(hashtextextended(?, 0))", (key,))[0][0]:
            return False
        self._held.add(key)
        return True

    def unlock(self, key: str) -> None:
        """Give a lock back."""
        self._held.discard(key)
        self.execute("SELECT pg_advisory_unlock(hashtextextended(?, 0))", (key,))

    def close(self) -> None:
        """Close the connection and give all locks back."""
        self._connection.close()

    @contextmanager
    def _faults(self) -> Generator[None, None, None]:
        try:
            yield
        except psycopg.Error as error:
            raise StoreFailed(f"The database cannot be used: {error}") from error


def open_postgres_store(conninfo: str, work_dir: str | Path) -> SqlStore:
    """Return the store of a work directory's sessions in this database, whose tables are made if they are missing."""
    return SqlStore(PostgresDatabase(conninfo), os.path.abspath(work_dir))


async def main(conninfo: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        await prompt_twice(directory, open_postgres_store(conninfo, directory))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
