"""Several processes: one owner of a session, no lost entries of `kimi.json` (R-65, R-66)."""

import inspect
import json
import time
from pathlib import Path

import pytest

from kimi.domain.content.message import user_message
from kimi.domain.errors import SessionBusy, StoreFailed
from kimi.infrastructure.store import kimi_json
from kimi.infrastructure.store.files.lock import FileLock
from kimi.infrastructure.store.jsonl import JsonlStore
from tests.support.store_children import WORK_DIR, end_child, opened, session_path, start_child, store_at

pytestmark = pytest.mark.anyio

HOLD = """
import anyio
from tests.support.store_children import opened
from pathlib import Path

async def main():
    files = await opened(Path(sys.argv[1]))
    print("ready", flush=True)
    sys.stdin.readline()
    files.close()
    print("closed", flush=True)

anyio.run(main)
"""


async def stored(share: Path) -> None:
    files = await store_at(share).create("one")
    files.append_context([user_message("hi")])
    files.close()


@pytest.mark.spec("R-65")
async def test_session_of_another_process_is_busy_until_that_process_is_killed(
    tmp_path: Path,
) -> None:
    assert inspect.signature(JsonlStore).parameters["lock_wait_s"].default == 5.0
    await stored(tmp_path)
    child = start_child(HOLD, str(tmp_path))
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        before = time.monotonic()
        with pytest.raises(SessionBusy, match=f"one is open in another process .process {child.pid}."):
            await store_at(tmp_path, wait_s=0.3).open("one")
        assert time.monotonic() - before >= 0.3
    finally:
        end_child(child)
    assert (session_path(tmp_path) / "session.lock").exists()
    files = await opened(tmp_path)
    assert files.load_context() == [user_message("hi")]
    files.close()


async def test_waiting_open_gets_a_session_closed_by_another_process(tmp_path: Path) -> None:
    await stored(tmp_path)
    child = start_child(HOLD, str(tmp_path))
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.stdin.write("\n")
        child.stdin.flush()
        files = await store_at(tmp_path, wait_s=20).open("one")
        assert files is not None
        files.close()
        assert child.wait(20) == 0
    finally:
        end_child(child)


async def test_two_creators_of_one_id_do_not_interleave(tmp_path: Path) -> None:
    first, second = await store_at(tmp_path).create("one"), await store_at(tmp_path).create("one")
    first.append_context([user_message("first")])
    with pytest.raises(StoreFailed, match="in use by another process"):
        second.append_context([user_message("second")])
    first.close()
    with pytest.raises(StoreFailed, match="was begun by another process"):
        second.append_context([user_message("second")])
    second.close()
    files = await opened(tmp_path)
    assert files.load_context() == [user_message("first")]
    files.close()


def test_removed_lock_file_does_not_admit_two_owners(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first, second, third = FileLock(path), FileLock(path), FileLock(path)
    assert first.try_acquire()
    assert first.try_acquire()
    assert not second.try_acquire()
    assert second.read_owner() == first.read_owner()
    first.release()
    first.release()
    assert second.try_acquire()
    assert not third.try_acquire()
    second.release()
    assert not (tmp_path / "lock").exists()


MARK = """
from kimi.infrastructure.store.kimi_json import set_last_session_id
print("ready", flush=True)
sys.stdin.readline()
for number in range(30):
    set_last_session_id(sys.argv[1], f"/srv/{sys.argv[2]}/{number}", f"s{number}")
"""


@pytest.mark.spec("R-66")
def test_concurrent_registry_writes_lose_nothing(tmp_path: Path) -> None:
    children = [start_child(MARK, str(tmp_path), name) for name in "abc"]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        assert [child.wait(50) for child in children] == [0, 0, 0]
    finally:
        for child in children:
            end_child(child)
    entries = json.loads((tmp_path / "kimi.json").read_bytes())["work_dirs"]
    assert {entry["path"]: entry["last_session_id"] for entry in entries} == {
        f"/srv/{name}/{number}": f"s{number}" for name in "abc" for number in range(30)
    }


def test_registry_entries_of_other_programs_are_kept(tmp_path: Path) -> None:
    foreign = {"path": WORK_DIR, "kaos": "ssh", "last_session_id": "far", "note": 1}
    ours = {"path": WORK_DIR, "kaos": "local", "last_session_id": None, "note": 2}
    before = {"work_dirs": [foreign, "odd", ours], "thinking": True}
    (tmp_path / "kimi.json").write_text(json.dumps(before))
    kimi_json.set_last_session_id(str(tmp_path), WORK_DIR + "/x/..", "one")
    after = json.loads((tmp_path / "kimi.json").read_bytes())
    assert after == {"work_dirs": [foreign, "odd", ours | {"last_session_id": "one"}], "thinking": True}
    assert kimi_json.read_last_session_id(str(tmp_path), WORK_DIR) == "one"


def test_invalid_registry_is_renamed_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "kimi.json").write_text("{torn")
    assert kimi_json.read_last_session_id(str(tmp_path), WORK_DIR) is None
    kimi_json.set_last_session_id(str(tmp_path), WORK_DIR, "one")
    assert kimi_json.read_last_session_id(str(tmp_path), WORK_DIR) == "one"
    assert (tmp_path / "kimi.json.unreadable").read_text() == "{torn"


@pytest.mark.parametrize("content", ["{}", '{"work_dirs": 5}', '{"work_dirs": [{"path": "/srv/app"}]}'])
def test_incomplete_registry_is_completed(tmp_path: Path, content: str) -> None:
    (tmp_path / "kimi.json").write_text(content)
    kimi_json.set_last_session_id(str(tmp_path), WORK_DIR, "one")
    assert kimi_json.read_last_session_id(str(tmp_path), WORK_DIR) == "one"


async def test_an_empty_session_is_no_longer_the_last_one(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    files = await store.create("one")
    files.append_context([])
    files.rotate_context([])
    await store.mark_last("one")
    files.close()
    assert kimi_json.read_last_session_id(str(tmp_path), WORK_DIR) is None
