"""The contract of a subagent's files, for every adapter of the store (port `SubagentFiles`)."""

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest

from kimi.application.codec.envelope import encode_event
from kimi.application.ports import SessionFiles, SessionStore
from kimi.domain.agents.subagent import SubagentRecord
from kimi.domain.content.message import Message, user_message
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import InvalidSessionId, StoreFailed
from kimi.domain.events.event import StepBegin, TurnBegin
from kimi.domain.history.session import CheckpointRecord, SystemPromptRecord
from kimi.infrastructure.store.jsonl import JsonlStore
from kimi.infrastructure.store.memory import MemoryStore
from tests.support.sql_stores import SqlStore, open_database

pytestmark = pytest.mark.anyio

RECORD = SubagentRecord("a0123abcd", "coder", "running_foreground", "Mend it", "fast", 10.0, 10.0)
CONTEXT = [
    SystemPromptRecord("be thorough"),
    CheckpointRecord(0),
    user_message("look"),
    Message("assistant", (TextPart("seen"),)),
]


def jsonl(directory: Path) -> SessionStore:
    return JsonlStore(str(directory / "share"), "/srv/app", lock_wait_s=0.15)


def memory(directory: Path) -> SessionStore:
    return MemoryStore("/srv/app", lock_wait_s=0.15)


@pytest.fixture(params=[jsonl, memory, "sqlite", "postgres"], ids=["jsonl", "memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[SessionStore, None, None]:
    if isinstance(request.param, str):
        with open_database(request.param, tmp_path) as database:
            yield SqlStore(database, "/srv/app", lock_wait_s=0.15)
    else:
        make: Callable[[Path], SessionStore] = request.param
        yield make(tmp_path)


async def session(store: SessionStore) -> SessionFiles:
    """A session that has begun."""
    files = await store.create("one")
    files.append_context([CheckpointRecord(0), user_message("hi")])
    return files


async def test_unknown_subagent_is_empty_and_is_not_stored(store: SessionStore) -> None:
    files = await session(store)
    child = files.subagent_files("a0123abcd")
    assert (child.id, child.record, child.load_context(), list(child.events())) == ("one", None, [], [])
    child.close()
    assert list(files.list_subagent_ids()) == []
    files.close()


async def test_subagent_files_are_loaded_after_reopening(store: SessionStore) -> None:
    files = await session(store)
    child = files.subagent_files("a0123abcd")
    child.save_record(RECORD)
    child.save_prompt("look")
    child.append_context(CONTEXT)
    child.append_event(encode_event(TurnBegin("look")), 1.0)
    child.append_output("seen")
    child.close()
    files.close()

    again = await store.open("one")
    assert again is not None
    assert list(again.list_subagent_ids()) == ["a0123abcd"]
    child = again.subagent_files("a0123abcd")
    assert child.record == RECORD
    assert child.load_context() == CONTEXT
    child.append_event(encode_event(StepBegin(1)), 2.0)
    assert list(child.events()) == [encode_event(TurnBegin("look")), encode_event(StepBegin(1))]
    child.save_record(replace(RECORD, status="completed", updated_at=20.0))
    child.close()
    assert again.subagent_files("a0123abcd").record == replace(RECORD, status="completed", updated_at=20.0)
    assert again.load_context() == [CheckpointRecord(0), user_message("hi")]
    again.close()


async def test_subagents_do_not_mix(store: SessionStore) -> None:
    files = await session(store)
    first, second = files.subagent_files("a00000001"), files.subagent_files("a00000002")
    for child, name in ((first, "a00000001"), (second, "a00000002")):
        child.save_record(replace(RECORD, agent_id=name))
        child.append_context([user_message(name)])
    assert list(files.list_subagent_ids()) == ["a00000001", "a00000002"]
    assert first.load_context() == [user_message("a00000001")]
    first.close()
    second.append_context([user_message("more")])
    second.close()
    with pytest.raises(StoreFailed):
        second.append_context([user_message("late")])
    files.close()


@pytest.mark.parametrize("name", ["../escape", "", "a/b", ".."])
async def test_a_name_cannot_leave_the_session(store: SessionStore, name: str) -> None:
    files = await session(store)
    with pytest.raises(InvalidSessionId):
        files.subagent_files(name)
    files.close()


async def test_a_session_with_subagents_can_be_deleted(store: SessionStore) -> None:
    files = await session(store)
    child = files.subagent_files("a0123abcd")
    child.save_record(RECORD)
    child.close()
    files.close()
    assert await store.delete("one")
    assert await store.open("one") is None


async def test_subagent_files_have_the_documented_layout(tmp_path: Path) -> None:
    files = await session(jsonl(tmp_path))
    child = files.subagent_files("a0123abcd")
    child.save_record(RECORD)
    child.save_prompt("look")
    child.append_context(CONTEXT)
    child.append_event(encode_event(TurnBegin("look")), 1.0)
    child.append_output("seen\n")
    assert files.directory is not None
    directory = Path(files.directory) / "subagents" / "a0123abcd"
    assert {path.name for path in directory.iterdir()} == {
        "context.jsonl", "wire.jsonl", "meta.json", "prompt.txt", "output",
    }  # fmt: skip
    assert (directory / "prompt.txt").read_text() == "look"
    assert (directory / "output").read_text() == "seen\n"
    child.close()
    files.close()


async def test_unknown_members_of_the_record_are_preserved(tmp_path: Path) -> None:
    files = await session(jsonl(tmp_path))
    child = files.subagent_files("a0123abcd")
    child.save_record(RECORD)
    assert files.directory is not None
    meta = Path(files.directory) / "subagents" / "a0123abcd" / "meta.json"
    meta.write_text(meta.read_text().replace("{", '{"last_task_id":"t1",', 1))
    child.save_record(replace(RECORD, status="failed"))
    assert '"last_task_id":"t1"' in meta.read_text()
    meta.write_text('{"agent_id": 7}')
    assert files.subagent_files("a0123abcd").record is None
    child.close()
    files.close()
