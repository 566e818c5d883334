"""The layout that is shared with the reference: names, modes, older generations, foreign files (runtime spec 4)."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from kimi.application.codec.envelope import encode_event
from kimi.domain.content.message import Function, Message, ToolCall, user_message
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.errors import StoreFailed
from kimi.domain.events.event import TurnBegin
from kimi.domain.history.history import History
from kimi.domain.history.session import CheckpointRecord, SessionState, SystemPromptRecord, UsageRecord
from kimi.domain.tools.tool import TodoItem
from kimi.infrastructure.store.event_line import METADATA_LINE, encode_event_line
from kimi.infrastructure.store.jsonl import JsonlStore
from kimi.infrastructure.store.layout import decode_name, encode_name, sessions_directory
from tests.support.store_children import WORK_DIR, opened, session_path, store_at, write_session

pytestmark = pytest.mark.anyio

BEGIN = METADATA_LINE + encode_event_line(encode_event(TurnBegin("hello")), 1.0)


def test_the_directory_is_the_md5_of_the_absolute_work_dir_with_symlinks_kept(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    given = f"{tmp_path}/x/../link/."
    expected = hashlib.md5(f"{tmp_path}/link".encode()).hexdigest()
    assert sessions_directory("/share", given) == f"/share/sessions/{expected}"
    assert sessions_directory("/share", "/srv/app").endswith("/8d9fbf108f79c6229f0b59258b273b63")


async def test_session_without_prompt_writes_no_files(tmp_path: Path) -> None:
    files = await store_at(tmp_path).create("one")
    files.save_state(SessionState(afk=True))
    assert files.load_context() == []
    files.close()
    assert list(tmp_path.iterdir()) == []


async def test_empty_session_is_removed_with_its_directories(tmp_path: Path) -> None:
    files = await store_at(tmp_path).create("one")
    files.append_context([SystemPromptRecord("be brief")])
    assert session_path(tmp_path).is_dir()
    files.close()
    assert not session_path(tmp_path).parent.exists()


async def test_foreign_files_keep_an_empty_session(tmp_path: Path) -> None:
    files = await store_at(tmp_path).create("one")
    files.append_context([SystemPromptRecord("be brief")])
    (session_path(tmp_path) / "uploads").mkdir()
    files.close()
    assert sorted(path.name for path in session_path(tmp_path).iterdir()) == ["context.jsonl", "uploads"]


async def test_preexisting_directory_is_never_removed(tmp_path: Path) -> None:
    session_path(tmp_path).mkdir(parents=True)
    files = await store_at(tmp_path).create("one")
    files.append_context([SystemPromptRecord("be brief")])
    files.close()
    assert session_path(tmp_path).is_dir()


async def test_all_files_are_private_and_only_known_ones_remain(tmp_path: Path) -> None:
    share = tmp_path / "share"
    files = await store_at(share).create("one")
    files.append_context([user_message("hi")])
    files.append_event(encode_event(TurnBegin("hi")), 1.0)
    files.save_state(SessionState(custom_title="hi"))
    files.rotate_context([user_message("hi")])
    files.close()
    await store_at(share).mark_last("one")
    found = {path.relative_to(share).parts[-1]: path.stat().st_mode & 0o777 for path in share.rglob("*")}
    directories = {"sessions", session_path(share).parent.name, "one"}
    assert {name for name, mode in found.items() if mode == 0o700} == directories
    assert {name for name, mode in found.items() if mode == 0o600} == {
        "context.jsonl",
        "context_1.jsonl",
        "wire.jsonl",
        "state.json",
        "kimi.json",
    }
    assert len(found) == 8


async def test_log_starts_with_version_and_lines_have_timestamp_and_message(tmp_path: Path) -> None:
    files = await store_at(tmp_path).create("one")
    files.append_event(encode_event(TurnBegin("hi")), 1763726852.25)
    files.close()
    first, second = (session_path(tmp_path) / "wire.jsonl").read_bytes().splitlines()
    assert first == b'{"type":"metadata","protocol_version":"1.10"}'
    assert json.loads(second) == {
        "timestamp": 1763726852.25,
        "message": {"type": "TurnBegin", "payload": {"user_input": "hi"}},
    }


REFERENCE = """\
{"role": "_system_prompt", "content": "be brief"}
{"role": "_checkpoint", "id": 0}
{"role":"user","content":"list files"}
{"role": "_checkpoint", "id": 1}
{"role": "_usage", "token_count": 812}
{"role":"assistant","content":[{"type":"think","think":"hm","encrypted":null},{"type":"text","text":"ok"}],\
"tool_calls":[{"type":"function","id":"tc1","function":{"name":"Shell","arguments":"{}"}}]}
{"role": "_usage", "token_count": 840}
{"role":"tool","content":"<system>Tool output is empty.</system>","tool_call_id":"tc1"}
"""


async def test_a_context_in_the_shape_of_the_reference_loads_unchanged(tmp_path: Path) -> None:
    write_session(tmp_path, REFERENCE.encode(), BEGIN)
    files = await opened(tmp_path)
    history = History(files.load_context())
    assert files.is_resumed
    assert (history.system_prompt, history.counted_tokens, history.next_checkpoint) == ("be brief", 840, 2)
    assert list(history.messages) == [
        user_message("list files"),
        Message(
            "assistant", (ThinkPart("hm"), TextPart("ok")), (ToolCall(id="tc1", function=Function("Shell", "{}")),)
        ),
        Message("tool", (TextPart("<system>Tool output is empty.</system>"),), tool_call_id="tc1"),
    ]
    files.close()
    assert (session_path(tmp_path) / "context.jsonl").read_text() == REFERENCE


async def test_a_file_of_an_old_generation_without_prompt_or_newline_loads(tmp_path: Path) -> None:
    text = REFERENCE.partition("\n")[2].rstrip("\n")
    write_session(tmp_path, text.encode())
    files = await opened(tmp_path)
    records = files.load_context()
    assert records[0] == CheckpointRecord(0)
    assert UsageRecord(840) in records
    files.close()


async def test_oldest_layout_is_listed_and_moved_on_open(tmp_path: Path) -> None:
    root = session_path(tmp_path).parent
    root.mkdir(parents=True)
    (root / "one.jsonl").write_text(REFERENCE)
    assert [one.id for one in store_at(tmp_path).list_sessions()] == ["one"]
    files = await opened(tmp_path)
    assert len(files.load_context()) == 8
    files.close()
    assert sorted(path.name for path in root.iterdir()) == ["one"]
    assert (root / "one/context.jsonl").read_text() == REFERENCE


async def test_a_session_may_be_called_like_a_file_of_the_oldest_layout(tmp_path: Path) -> None:
    write_session(tmp_path, REFERENCE.encode(), session_id="one.jsonl")
    assert store_at(tmp_path).last_session_id() == "one.jsonl"


async def test_the_oldest_layout_can_be_deleted(tmp_path: Path) -> None:
    root = session_path(tmp_path).parent
    root.mkdir(parents=True)
    (root / "one.jsonl").write_text(REFERENCE)
    assert await store_at(tmp_path).delete("one")
    assert list(root.iterdir()) == []


def write_state(directory: Path, state: Any, name: str = "state.json") -> None:
    (directory / name).write_text(state if isinstance(state, str) else json.dumps(state))


def read_state(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "state.json").read_bytes())


async def test_legacy_metadata_moves_into_the_state(tmp_path: Path) -> None:
    directory = write_session(tmp_path, REFERENCE.encode(), BEGIN)
    write_state(directory, {"plan_mode": True, "archived": False})
    write_state(
        directory, {"title": "Old name", "archived": True, "archived_at": 5.0, "session_id": "one"}, "metadata.json"
    )
    assert [one.title for one in store_at(tmp_path).list_sessions()] == ["Old name"]
    files = await opened(tmp_path)
    assert files.state.custom_title == "Old name"
    assert files.state.plan_mode
    files.close()
    assert not (directory / "metadata.json").exists()
    stored = read_state(directory)
    assert (stored["custom_title"], stored["archived"], stored["archived_at"]) == ("Old name", True, 5.0)


@pytest.mark.parametrize("state", ["{torn", "[]", "7", ""])
async def test_an_unreadable_state_counts_as_absent(
    tmp_path: Path, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_state(write_session(tmp_path, REFERENCE.encode()), state)
    files = await opened(tmp_path)
    assert files.state == SessionState()
    assert "state.json is not a JSON object" in caplog.text
    files.close()


async def test_invalid_state_member_does_not_lose_the_others(tmp_path: Path) -> None:
    state = {
        "approval": {"yolo": "yes", "afk": True, "auto_approve_actions": ["a", 5]},
        "additional_dirs": 5,
        "custom_title": ["x"],
        "todos": [{"title": "a", "status": "lost"}],
        "plan_slug": "fox",
    }
    write_state(write_session(tmp_path, REFERENCE.encode()), state)
    files = await opened(tmp_path)
    assert not files.state.yolo
    assert (files.state.afk, files.state.plan_slug) == (True, "fox")
    assert files.state.auto_approve_actions == frozenset({"a"})
    assert (files.state.additional_dirs, files.state.custom_title, files.state.todos) == ((), None, ())
    files.close()


async def test_missing_directories_are_omitted(tmp_path: Path) -> None:
    state = {"additional_dirs": [str(tmp_path), str(tmp_path / "gone")]}
    write_state(write_session(tmp_path, REFERENCE.encode()), state)
    files = await opened(tmp_path)
    assert files.state.additional_dirs == (str(tmp_path),)
    files.close()


@pytest.mark.spec("R-61")
async def test_saving_keeps_unknown_keys_and_concurrent_changes(tmp_path: Path) -> None:
    directory = write_session(tmp_path, REFERENCE.encode())
    write_state(directory, {"version": 2, "theirs": {"a": 1}, "custom_title": "before", "approval": {"more": 3}})
    files = await opened(tmp_path)
    changed = read_state(directory) | {
        "custom_title": "theirs",
        "title_generated": True,
        "archived": True,
        "archived_at": 9.5,
        "auto_archive_exempt": True,
    }
    write_state(directory, changed)
    files.save_state(SessionState(yolo=True, custom_title="before", todos=(TodoItem("t"),)))
    assert files.state.custom_title == "theirs"
    assert read_state(directory) == {
        **changed,
        "approval": {"more": 3, "yolo": True, "afk": False, "auto_approve_actions": []},
        "additional_dirs": [],
        "plan_mode": False,
        "plan_session_id": None,
        "plan_slug": None,
        "todos": [{"title": "t", "status": "pending"}],
    }
    files.save_state(SessionState(custom_title="ours"))
    assert read_state(directory)["custom_title"] == "ours"
    assert read_state(directory)["archived"] is True
    files.close()


async def test_delete_removes_own_files_and_refuses_foreign_ones(tmp_path: Path) -> None:
    directory = write_session(tmp_path, REFERENCE.encode(), BEGIN)
    (directory / "context_1.jsonl").write_text(REFERENCE)
    (directory / "subagents/x").mkdir(parents=True)
    (directory / "uploads").mkdir()
    with pytest.raises(StoreFailed, match="holds files of other programs"):
        await store_at(tmp_path).delete("one")
    assert (directory / "subagents/x").is_dir()
    (directory / "uploads").rmdir()
    assert await store_at(tmp_path).delete("one")
    assert not directory.exists()


async def test_deleting_never_follows_a_link(tmp_path: Path) -> None:
    directory = write_session(tmp_path / "share", REFERENCE.encode())
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (directory / "subagents").symlink_to(precious)
    with pytest.raises(StoreFailed):
        await store_at(tmp_path / "share").delete("one")
    assert (precious / "file").exists()


async def test_the_listing_looks_only_at_the_head_of_a_log(tmp_path: Path) -> None:
    picture = '"},{"type":"image_url","image_url":{"url":"data:' + "A" * 300_000
    long = '{"timestamp": 1.0, "message": {"type":"TurnBegin","payload":{"user_input":[{"type":"text","text":"see this'
    write_session(tmp_path, b"", METADATA_LINE + (long + picture).encode() + b'"}}]}}}\n', "cut")
    write_session(tmp_path, b'{"role":"user","content":"' + b"x" * 300_000 + b'"}\n', session_id="big")
    write_session(tmp_path, b'{"role":"_system_prompt","content":"x"}\n', session_id="empty")
    (session_path(tmp_path, "noise")).mkdir()
    (session_path(tmp_path).parent / "note.txt").touch()
    found = {one.id: one.title for one in store_at(tmp_path).list_sessions()}
    assert found == {"cut": "see this", "big": "Untitled"}


async def test_sessions_are_sorted_by_the_time_of_their_context(tmp_path: Path) -> None:
    for number, session_id in enumerate(["b", "a", "c"]):
        directory = write_session(tmp_path, REFERENCE.encode(), session_id=session_id)
        os.utime(directory / "context.jsonl", (1000 + number, 1000 + number))
    assert [(one.id, one.updated_at) for one in store_at(tmp_path).list_sessions()] == [
        ("c", 1002),
        ("a", 1001),
        ("b", 1000),
    ]
    assert store_at(tmp_path, WORK_DIR + "/sub").list_sessions() == []


@pytest.mark.spec("R-284")
@pytest.mark.parametrize("session_id", ["user:4711", "C:x", 'a*b?"c"<d>|e', "0b6e-plain"])
def test_windows_gets_names_that_it_takes_and_other_systems_the_id(session_id: str) -> None:
    name = encode_name(session_id, on_windows=True)
    assert not set(name) & set(':*?"<>|')
    assert decode_name(name, on_windows=True) == session_id
    assert encode_name(session_id, on_windows=False) == decode_name(session_id, on_windows=False) == session_id
    assert (name == session_id) is (session_id == "0b6e-plain")


async def test_deleting_a_link_in_place_of_a_session_leaves_its_target_alone(tmp_path: Path) -> None:
    target = write_session(tmp_path / "elsewhere", REFERENCE.encode())
    directory = session_path(tmp_path / "share")
    directory.parent.mkdir(parents=True)
    directory.symlink_to(target)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in (target, *target.iterdir()))
    with pytest.raises(StoreFailed, match="is a link"):
        await store_at(tmp_path / "share").delete("one")
    assert sorted((path.name, path.stat().st_mtime_ns) for path in (target, *target.iterdir())) == before


async def test_adopted_session_is_opened_where_it_is_stored(tmp_path: Path) -> None:
    write_session(tmp_path, REFERENCE.encode())
    store = JsonlStore(str(tmp_path), "/srv/other", adopted={"one": WORK_DIR})
    files = await store.open("one")
    assert files is not None
    assert len(files.load_context()) == 8
    files.close()
    await store.mark_last("one")
    assert store_at(tmp_path).last_session_id() == "one"
    assert store.last_session_id() is None
    new = await store.create("two")
    new.append_context([user_message("hi")])
    assert new.directory is not None
    assert os.path.dirname(new.directory) == sessions_directory(str(tmp_path), "/srv/other")
    new.close()


async def test_flushes_at_the_same_time_all_end_and_keep_no_descriptor(tmp_path: Path) -> None:
    files = await store_at(tmp_path).create("one")
    files.append_context([user_message("hi")])
    files.append_event(encode_event(TurnBegin("hi")), 1.0)
    await files.sync()
    opened_before = len(os.listdir("/dev/fd"))
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(files.sync)
        tasks.start_soon(anyio.sleep, 0)
    assert len(os.listdir("/dev/fd")) == opened_before
    files.close()
    await files.sync()
