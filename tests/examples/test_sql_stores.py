"""The session stores of `examples/` beyond the contract: other processes, threads, and a conversation over them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from kimi.domain.content.message import Function, Message, ToolCall, user_message
from kimi.domain.errors import SessionBusy, StoreFailed
from kimi.interfaces.embed import open_agent, scripted_model
from postgres_store import PostgresDatabase
from sqlite_store import SqliteDatabase
from tests.support.postgres_server import open_schema
from tests.support.providers.scripted_calls import call
from tests.support.sql_stores import Database, SqlStore

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
HOLDER = """
import asyncio, sys
from {module} import {name}
from sql_sessions import SqlStore
from kimi.domain.content.message import Function, Message, ToolCall, user_message
from kimi.domain.content.parts import TextPart

async def main():
    files = await SqlStore({name}(sys.argv[1]), "/w").create("s")
    files.append_context([user_message("hi")])
    print("open", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


class Place:
    """One database that several programs open."""

    def __init__(self, make: Any, address: str) -> None:
        self.make = make
        self.address = address
        self.opened: list[Any] = []

    def store(self, work_dir: str = "/w") -> SqlStore:
        """Return a store over a connection of its own, as another program has it."""
        database: Database = self.make(self.address)
        self.opened.append(database)
        return SqlStore(database, work_dir, lock_wait_s=0.1)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Place, None, None]:
    if request.param == "sqlite":
        place = Place(SqliteDatabase, str(tmp_path / "sessions.db"))
    else:
        place = Place(PostgresDatabase, open_schema())
    yield place
    for database in place.opened:
        database.close()


def start_holder(place: Place) -> subprocess.Popen[str]:
    """Start a process that opens a session and keeps it open."""
    code = HOLDER.format(module=place.make.__module__, name=place.make.__name__)
    layers = [ROOT / name for name in ("domain", "application", "infrastructure", "interfaces", "examples")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, layers))}
    return subprocess.Popen([sys.executable, "-c", code, place.address], env=environ, stdout=subprocess.PIPE, text=True)


@pytest.mark.spec("R-429")
async def test_session_of_another_process_is_busy_until_that_process_was_killed(place: Place) -> None:
    holder = start_holder(place)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        store = place.store()
        with pytest.raises(SessionBusy):
            await store.open("s")
        intruder = await store.create("s")
        with pytest.raises(StoreFailed, match="exists already"):
            intruder.append_context([user_message("mine")])
    finally:
        holder.kill()
        holder.communicate()
    files = await SqlStore(store.database, "/w", lock_wait_s=10).open("s")
    assert files is not None
    assert files.load_context() == [user_message("hi")]
    files.close()


async def test_work_directories_share_a_database_and_no_sessions(place: Place) -> None:
    one, other = place.store("/one"), place.store("/other")
    for store, text in ((one, "a"), (other, "b")):
        files = await store.create("s")
        files.append_context([user_message(text)])
        await store.mark_last("s")
        files.close()
    assert await one.delete("s")
    assert (one.last_session_id(), other.last_session_id()) == (None, "s")


async def test_transaction_that_fails_leaves_nothing(place: Place) -> None:
    database = place.store().database

    def fail() -> None:
        with database.transaction():
            database.execute("INSERT INTO kimi_last (work_dir, id) VALUES (?, ?)", ("/w", "s"))
            database.execute("INSERT INTO no_such_table VALUES (1)")

    with pytest.raises(StoreFailed):
        fail()
    assert database.execute("SELECT * FROM kimi_last") == []


async def test_conversation_goes_on_over_the_store_with_its_approvals(place: Place, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    asked: list[str] = []

    def approve(request: Any) -> str:
        asked.append(request.action)
        return "approve_for_session"

    options: Any = {"share_dir": tmp_path / "share", "approve": approve}
    scripts = (call("c1", "WriteFile", path="a", content="x"), "text: done")
    store = place.store(str(tmp_path / "work"))
    async with open_agent(tmp_path / "work", scripted_model(*scripts), store=store, **options) as agent:
        assert await agent.ask("write a\0b") == "done"
    scripts = (call("c2", "WriteFile", path="b", content="x"), "text: again")
    other = place.store(str(tmp_path / "work"))
    async with open_agent(
        tmp_path / "work", scripted_model(*scripts), store=other, continue_last=True, **options
    ) as agent:
        assert await agent.ask("write b") == "again"
        assert [message.role for message in agent.history].count("user") == 2
    assert len(asked) == 1
    assert len(other.list_sessions()) == 1


async def test_listing_leaves_the_open_session_of_another_program_as_it_is(place: Place) -> None:
    files = await place.store().create("s")
    calls = (ToolCall("c1", Function("Shell", "{}")),)
    files.append_context([user_message("hi"), Message("assistant", (), tool_calls=calls)])
    other = place.store()
    assert [summary.id for summary in other.list_sessions()] == ["s"]
    assert other.database.execute("SELECT COUNT(*) FROM kimi_context") == [(2,)]
    files.close()


async def test_store_may_be_closed_by_another_thread_than_that_which_opened_the_session(place: Place) -> None:
    store = place.store()
    files = await store.create("s")
    files.append_context([user_message("hi")])
    await anyio.to_thread.run_sync(files.close)
    again = await place.store().open("s")
    assert again is not None
    again.close()


async def test_full_disk_is_an_error_and_what_follows_is_stored(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "sessions.db")
    files = await SqlStore(database, "/w").create("s")
    files.append_context([user_message("hi")])
    [[pages]] = database.execute("PRAGMA page_count")
    database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFailed, match="full"):
        files.append_context([user_message("x" * 100_000)])
    database.execute("PRAGMA max_page_count = 100000")
    files.append_context([user_message("again")])
    assert files.load_context() == [user_message("hi"), user_message("again")]
    database.close()


async def test_commit_that_fails_is_an_error_and_what_follows_is_stored(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "sessions.db")
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("CREATE TABLE one (id INTEGER PRIMARY KEY)")
    database.execute("CREATE TABLE two (id INTEGER REFERENCES one DEFERRABLE INITIALLY DEFERRED)")

    def insert(table: str) -> None:
        with database.transaction():
            database.execute(f"INSERT INTO {table} VALUES (1)")

    with pytest.raises(StoreFailed, match="FOREIGN KEY"):
        insert("two")
    insert("one")
    assert database.execute("SELECT * FROM two") == []
    database.close()


async def test_what_is_committed_survives_a_power_failure(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "sessions.db")
    assert database.execute("PRAGMA synchronous") == [(2,)], "FULL: each commit is flushed, so `sync` has nothing to do"
    database.close()
