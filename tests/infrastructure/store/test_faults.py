"""When the disk says no: one clear sentence, nothing lost, and the next append is whole."""

import errno
import os
from pathlib import Path

import anyio
import pytest

from kimi.domain.content.message import user_message
from kimi.domain.errors import StoreFailed
from kimi.domain.history.session import SessionState
from kimi.infrastructure.store.files.append_file import AppendFile
from kimi.infrastructure.store.files.disk import replace_file, store_error
from tests.support.store_children import end_child, opened, session_path, start_child, store_at

pytestmark = pytest.mark.anyio

LIMITED = """
import anyio, resource
from tests.support.store_children import store_at
from kimi.domain.errors import StoreFailed
from kimi.domain.content.message import user_message
from kimi.domain.history.session import SessionState
from pathlib import Path

def refused(write):
    try:
        write()
    except StoreFailed as error:
        assert "raise the limit for the size of files" in str(error), error
        return
    raise AssertionError("not refused")

async def main():
    files = await store_at(Path(sys.argv[1])).create("one")
    files.append_context([user_message("a" * 1000)])
    files.append_event(b'{"type":"TurnEnd","payload":{}}', 1.0)
    files.save_state(SessionState(custom_title="kept"))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
    big = "x" * 10_000
    refused(lambda: files.append_context([user_message("short"), user_message(big)]))
    refused(lambda: files.rotate_context([user_message(big)]))
    refused(lambda: files.append_event(b'{"type":"TurnBegin","payload":{"user_input":"%s"}}' % big.encode(), 2.0))
    refused(lambda: files.save_state(SessionState(custom_title=big)))
    assert files.state.custom_title == "kept"
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    files.append_context([user_message("b")])
    files.append_event(b'{"type":"TurnEnd","payload":{}}', 3.0)
    files.close()
    print("done", flush=True)

anyio.run(main)
"""


async def test_a_full_disk_refuses_and_changes_nothing(tmp_path: Path) -> None:
    child = start_child(LIMITED, str(tmp_path))
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"
    finally:
        end_child(child)
    files = await opened(tmp_path)
    assert files.load_context() == [user_message("a" * 1000), user_message("b")]
    assert len(list(files.events())) == 2
    assert files.state.custom_title == "kept"
    files.close()
    names = sorted(path.name for path in session_path(tmp_path).iterdir())
    assert names == ["context.jsonl", "state.json", "wire.jsonl"]


async def test_a_file_where_the_directory_must_be_is_named(tmp_path: Path) -> None:
    share = tmp_path / "share"
    share.write_text("in the way")
    files = await store_at(share).create("one")
    with pytest.raises(StoreFailed, match=r"Cannot create .*one: .*; move the file away .*\.$"):
        files.append_context([user_message("x")])
    share.unlink()
    files.append_context([user_message("x")])
    files.close()
    files = await opened(share)
    assert files.load_context() == [user_message("x")]
    files.close()


async def test_a_directory_where_a_file_must_be_is_named(tmp_path: Path) -> None:
    session_path(tmp_path).mkdir(parents=True)
    (session_path(tmp_path) / "wire.jsonl").mkdir()
    with pytest.raises(StoreFailed, match=r"Cannot read .*wire\.jsonl: .*; move the directory away"):
        await store_at(tmp_path).create("one")


async def test_a_session_directory_that_disappears_is_reported(tmp_path: Path) -> None:
    files = await store_at(tmp_path).create("one")
    files.append_context([user_message("x")])
    session_path(tmp_path).rename(tmp_path / "elsewhere")
    with pytest.raises(StoreFailed, match="its directory is gone"):
        files.append_event(b'{"type":"TurnEnd","payload":{}}', 1.0)
    with pytest.raises(StoreFailed, match="its directory is gone"):
        files.save_state(SessionState(custom_title="x"))
    files.close()


async def test_a_registry_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "kimi.json").mkdir()
    with pytest.raises(StoreFailed, match=r"Cannot write .*kimi\.json"):
        await store_at(tmp_path).mark_last("one")


async def test_a_failed_write_of_the_registry_fails_for_all_who_share_it(tmp_path: Path) -> None:
    (tmp_path / "kimi.json").mkdir()
    failed: list[str] = []

    async def mark(session_id: str) -> None:
        with pytest.raises(StoreFailed, match=r"Cannot write .*kimi\.json"):
            await store_at(tmp_path).mark_last(session_id)
        failed.append(session_id)

    names = [f"s{number}" for number in range(20)]
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(mark, name)
    assert sorted(failed) == sorted(names)
    (tmp_path / "kimi.json").rmdir()
    await store_at(tmp_path).mark_last("one")
    assert "one" in (tmp_path / "kimi.json").read_text()


async def test_a_repair_that_cannot_be_stored_does_not_keep_the_session_from_loading(tmp_path: Path) -> None:
    directory = session_path(tmp_path)
    directory.mkdir(parents=True)
    (directory / "context.jsonl").write_bytes(
        b'{"role":"tool","content":"x","tool_call_id":"z"}\n{"role":"user","content":"hi"}\n'
    )
    files = await opened(tmp_path)
    (directory / "context.jsonl.new").mkdir()
    assert files.load_context() == [user_message("hi")]
    files.close()


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free some disk space"),
        (errno.EROFS, "set KIMI_SHARE_DIR"),
        (errno.EACCES, "check its permissions"),
        (errno.EIO, "check the disk"),
    ],
)
def test_every_failure_reason_has_advice(number: int, advice: str) -> None:
    text = str(store_error("write", "/share/context.jsonl", OSError(number, os.strerror(number))))
    assert text.startswith("Cannot write /share/context.jsonl: ")
    assert advice in text
    assert text.endswith(".")
    assert text.count(". ") == 0


async def test_files_and_directories_are_private_to_the_owner(tmp_path: Path) -> None:
    await store_at(tmp_path / "share").mark_last("one")
    assert (tmp_path / "share").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "share/kimi.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("torn", [b"", b"whole\n", b"torn"])
def test_an_append_begins_on_a_new_line(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "lines"
    path.write_bytes(torn)
    file = AppendFile(str(path))
    file.append(b"next\n")
    file.append(b"more\n")
    file.close()
    file.close()
    assert path.read_bytes().splitlines() == [*torn.splitlines(), b"next", b"more"]


def test_failed_replace_leaves_no_extra_file(tmp_path: Path) -> None:
    (tmp_path / "state.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(str(tmp_path / "state.json"), b"{}")
    assert os.listdir(tmp_path) == ["state.json"]
