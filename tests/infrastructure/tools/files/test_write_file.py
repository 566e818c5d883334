"""WriteFile: new, overwrite, append, parents, what the user is asked, nothing lost when the file changed."""

import os
import sys
import time
from pathlib import Path

import anyio
import pytest

from kimi.application.settings.settings import FileSettings
from kimi.domain.tools.tool import DiffBlock
from tests.support.file_tools import CONTEXT, Files, brief, call, effect

pytestmark = pytest.mark.anyio


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.spec("T-68")
async def test_write_modes_return_documented_messages(files: Files) -> None:
    path = files.work_dir / "a.txt"
    result = await call(files.write, path="a.txt", content="grün\n")
    assert (result.output, result.message) == ("", "File successfully overwritten. Current size: 6 bytes.")
    assert result.display == (DiffBlock(path=str(path), old_text="", new_text="grün"),)
    result = await call(files.write, path="a.txt", content="b")
    assert result.message == "File successfully overwritten. Current size: 1 bytes."
    result = await call(files.write, path="a.txt", content="c\r\n", mode="append")
    assert result.message == "File successfully appended to. Current size: 4 bytes."
    assert path.read_bytes() == b"bc\r\n"
    result = await call(files.write, path="new.txt", content="n", mode="append")
    assert result.message == "File successfully appended to. Current size: 1 bytes."

    result = await call(files.write, path="sub/deep/b.txt", content="b")
    assert not result.is_error
    assert (files.work_dir / "sub/deep/b.txt").read_text() == "b"
    outside = files.root / "else" / "b.txt"
    result = await call(files.write, path=str(outside), content="b")
    assert result.message == f"`{outside}` parent directory does not exist."
    assert brief(result) == "Parent directory not found"
    assert not outside.parent.exists()
    result = await call(files.write, path="a.txt/b", content="b")
    assert result.message == "`a.txt/b` parent directory does not exist."

    result = await call(files.write, path="sub", content="b")
    assert (result.message, brief(result)) == ("`sub` is not a file.", "Invalid path")


async def test_approval_shows_the_action_and_the_diff(files: Files) -> None:
    files.put("a.txt", "old\n")
    asked = await effect(files.write, path="a.txt", content="new\n")
    path = str(files.work_dir / "a.txt")
    assert asked is not None
    assert (asked.action, asked.description) == ("edit file", f"Write file `{path}`")
    assert (asked.kind, asked.subject) == ("path", path)
    assert asked.display == (DiffBlock(path=path, old_text="old", new_text="new"),)
    asked = await effect(files.write, path="x/y/a.txt", content="new\n")
    assert asked is not None
    assert asked.description == (f"Write file `{files.work_dir}/x/y/a.txt` (creating directory `{files.work_dir}/x/y`)")
    asked = await effect(files.write, path=str(files.root / "b.txt"), content="")
    assert asked is not None
    assert asked.action == "edit file outside of working directory"
    assert not (files.root / "b.txt").exists()


@pytest.mark.parametrize("mode", ["overwrite", "append"])
@pytest.mark.spec("T-70")
async def test_a_file_that_changed_after_the_diff_is_left_alone(files: Files, mode: str) -> None:
    path = files.put("a.txt", "one\n")
    arguments = {"path": "a.txt", "content": "mine\n", "mode": mode}
    async with files.write.prepare(arguments, CONTEXT) as prepared:
        path.write_text("theirs\n")
        result = await prepared.run()
    assert result.message == "File changed on disk since it was read; read it again before editing."
    assert brief(result) == "Stale file"
    assert path.read_text() == "theirs\n"
    async with files.edit.prepare({"path": "a.txt", "edit": {"old": "theirs", "new": "x"}}, CONTEXT) as prepared:
        path.write_text("others and theirs\n")
        result = await prepared.run()
    assert brief(result) == "Stale file"
    assert path.read_text() == "others and theirs\n"
    async with files.write.prepare({**arguments, "path": "new.txt"}, CONTEXT) as prepared:
        files.put("new.txt", "theirs")
        assert brief(await prepared.run()) == "Stale file"
    assert sorted(entry.name for entry in files.work_dir.iterdir()) == ["a.txt", "new.txt"]


DIES_BEFORE_RENAME = """
import os, sys
from kimi.infrastructure.workspace.files import stat_file, write_file
sys.addaudithook(lambda event, _: os._exit(7) if event == "os.rename" else None)
write_file(sys.argv[1], b"new", stat_file(sys.argv[1]))
"""


@pytest.mark.spec("T-69")
async def test_a_crash_in_the_middle_leaves_the_old_content(files: Files) -> None:
    path = files.put("a.sh", "old")
    path.chmod(0o750)
    child = await anyio.run_process([sys.executable, "-c", DIES_BEFORE_RENAME, str(path)], check=False)
    assert child.returncode == 7
    assert path.read_text() == "old"
    assert not (await call(files.write, path="a.sh", content="new")).is_error
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o750)


async def test_a_link_in_the_workspace_is_written_through(files: Files) -> None:
    files.put("real.txt", "old\n")
    os.symlink("real.txt", files.work_dir / "link.txt")
    asked = await effect(files.write, path="link.txt", content="new\n")
    assert asked is not None
    assert asked.action == "edit file"
    assert asked.description == f"Write file `link.txt` (-> `{files.work_dir}/real.txt`)"
    await call(files.write, path="link.txt", content="new\n")
    assert (files.work_dir / "link.txt").is_symlink()
    assert (files.work_dir / "real.txt").read_text() == "new\n"


async def test_large_files_are_summarised_without_being_read_whole(files: Files) -> None:
    files.put("big.txt", b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 100_000)
    asked = await effect(files.write, path="big.txt", content="small\n")
    assert asked is not None
    path, reason = str(files.work_dir / "big.txt"), "the file is too large to be compared"
    assert asked.display == (
        DiffBlock(path=path, old_text=f"(100001 lines, not shown: {reason})", new_text="(1 lines)", is_summary=True),
        DiffBlock(path=path, old_text="", new_text="small"),
    )
    asked = await effect(files.write, path="big.txt", content="a\nb\n", mode="append")
    assert asked is not None
    assert asked.display == (
        DiffBlock(
            path=path, old_text=f"(100001 lines, not shown: {reason})", new_text="(100003 lines)", is_summary=True
        ),
        DiffBlock(path=path, old_text="", new_text="a\nb", new_start=100_002),
    )


async def test_system_errors_are_reported(files: Files) -> None:
    result = await call(files.write, path="x" * 300, content="a")
    assert result.message.startswith("Failed to write to " + "x" * 300 + ". Error: ")
    assert brief(result) == "Failed to write file"
    result = await call(files.write, path="a.txt", content="\ud800")
    assert brief(result) == "Failed to write file"
    assert not (files.work_dir / "a.txt").exists()


async def test_plan_mode_allows_the_plan_file_only(files: Files) -> None:
    plan = files.home / "plans" / "one.md"
    files.plan_file = str(plan)
    assert await effect(files.write, path=str(plan), content="# Plan\n") is None
    missing = await call(files.edit, path=str(plan), edit={"old": "a", "new": "b"})
    assert missing.message == (
        "The current plan file does not exist yet. Use WriteFile to create it before calling StrReplaceFile."
    )
    assert not (await call(files.write, path=str(plan), content="# Plan\n")).is_error
    assert plan.read_text() == "# Plan\n"
    for result in (
        await call(files.write, path="a.txt", content="x"),
        await call(files.edit, path="a.txt", edit={"old": "a", "new": "b"}),
    ):
        assert result.message == f"Plan mode is active. You may only edit the current plan file: `{plan}`."
        assert brief(result) == "Plan mode restriction"


@pytest.mark.spec("T-18")
async def test_a_long_diff_leaves_the_loop_free(files: Files) -> None:
    files.put("a.txt", "".join(f"{number}\n" for number in range(9_999)))
    changed = "".join(f"{number}{'x' * (number % 2)}\n" for number in range(9_999))
    gaps: list[float] = []
    shown: list[int] = []
    done = anyio.Event()

    async def watch() -> None:
        while not done.is_set():
            before = time.process_time()  # what other processes do to the machine is no fault of the loop
            await anyio.sleep(0.001)
            gaps.append(time.process_time() - before)

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await anyio.sleep(0.01)
        asked = await effect(files.write, path="a.txt", content=changed)
        shown.append(len(asked.display) if asked else 0)
        done.set()
    assert shown > [0]
    assert max(gaps) < 0.02  # a diff in the loop takes 0.04


async def test_cancelled_call_releases_its_lock(files: Files) -> None:
    arguments = {"path": "a.txt", "content": "x"}
    async with anyio.create_task_group() as group:

        async def waiting() -> None:
            async with files.write.prepare(arguments, CONTEXT):
                await anyio.sleep_forever()

        group.start_soon(waiting)
        await anyio.sleep(0.05)
        group.cancel_scope.cancel()
    with anyio.fail_after(5):
        assert not (await call(files.write, path="a.txt", content="x")).is_error


async def test_read_only_settings_do_not_matter_for_writing(tmp_path: Path) -> None:
    files = Files(tmp_path, FileSettings(read_outside="deny"))
    assert not (await call(files.write, path=str(tmp_path / "x"), content="x")).is_error
