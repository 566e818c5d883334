"""What every `Workspace` does (application/ports). Further adapters join `ADAPTERS`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kimi.application.ports import FileChanged, Process, ToolCallContext, Workspace
from kimi.application.settings.settings import ShellSettings
from kimi.infrastructure.workspace.local import LocalWorkspace
from kimi.infrastructure.workspace.processes import start_in_group
from kimi.interfaces.acp.client_capabilities import ClientCapabilities
from kimi.interfaces.acp.workspace.client_workspace import ClientWorkspace
from tests.support.acp.editor import Editor

pytestmark = pytest.mark.anyio

MakeWorkspace = Callable[[Path], Workspace]


def local(work_dir: Path) -> Workspace:
    return LocalWorkspace(str(work_dir), ShellSettings(), frozenset(), os.environ)


def local_in_groups(work_dir: Path) -> Workspace:
    return LocalWorkspace(str(work_dir), ShellSettings(), frozenset(), os.environ, start_in_group)


def over_an_editor(work_dir: Path) -> Workspace:
    async def show(context: ToolCallContext, terminal_id: str) -> None:
        """There is no call."""

    async def join_events() -> None:
        """There are no events."""

    abilities = ClientCapabilities(fs_read=True, fs_write=True, terminal=True)
    return ClientWorkspace(local(work_dir), "s", abilities, lambda: [str(work_dir.parent)], Editor(), show, join_events)


ADAPTERS: list[MakeWorkspace] = [local, local_in_groups, over_an_editor]


@pytest.fixture(params=ADAPTERS, ids=lambda make: str(make.__name__))
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    make: MakeWorkspace = request.param
    work_dir = tmp_path.resolve() / "work"
    work_dir.mkdir()
    return make(work_dir)


def inside(workspace: Workspace, name: str) -> Path:
    return Path(workspace.work_dir) / name


async def content(workspace: Workspace, path: Path, offset: int = 0) -> bytes:
    async with workspace.read(str(path), offset) as blocks:
        return b"".join([block async for block in blocks])


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


async def joined(blocks: AsyncIterator[bytes]) -> bytes:
    return b"".join([block async for block in blocks])


# --- files ----------------------------------------------------------------------------------------------------


async def test_stat_distinguishes_kinds_and_follows_links(workspace: Workspace) -> None:
    inside(workspace, "a.txt").write_bytes(b"12345")
    inside(workspace, "dir").mkdir()
    inside(workspace, "link").symlink_to("a.txt")
    os.mkfifo(inside(workspace, "pipe"))
    found = {name: await workspace.stat(str(inside(workspace, name))) for name in ("a.txt", "dir", "link", "pipe")}
    assert {name: entry and entry.kind for name, entry in found.items()} == {
        "a.txt": "file",
        "dir": "directory",
        "link": "file",
        "pipe": "other",
    }
    file = found["a.txt"]
    assert file is not None
    assert (file.size, file.real_path) == (5, str(inside(workspace, "a.txt")))
    assert found["link"] == file


async def test_stat_of_missing_path_is_none(workspace: Workspace) -> None:
    inside(workspace, "a.txt").write_bytes(b"")
    inside(workspace, "dangling").symlink_to("nowhere")
    for name in ("missing", "a.txt/below", "dangling"):
        assert await workspace.stat(str(inside(workspace, name))) is None


async def test_the_real_path_of_a_missing_file_goes_through_links(workspace: Workspace) -> None:
    inside(workspace, "dir").mkdir()
    inside(workspace, "link").symlink_to("dir")
    real = await workspace.real_path(str(inside(workspace, "link/new/file.txt")))
    assert real == str(inside(workspace, "dir/new/file.txt"))


async def test_identity_changes_with_the_content(workspace: Workspace) -> None:
    path = inside(workspace, "a.txt")
    path.write_bytes(b"one")
    first = await workspace.stat(str(path))
    again = await workspace.stat(str(path))
    path.write_bytes(b"three")
    changed = await workspace.stat(str(path))
    assert first is not None
    assert again is not None
    assert changed is not None
    assert first.identity == again.identity != changed.identity


@given(size=st.sampled_from([0, 1, 5, 1 << 20, (1 << 20) + 1, 5 << 19, 3 << 20]), offset=st.integers(0, 4 << 20))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_read_gives_the_bytes_from_the_offset_in_blocks(workspace: Workspace, size: int, offset: int) -> None:
    path = inside(workspace, "data")
    data = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    path.write_bytes(data)
    async with workspace.read(str(path), offset) as blocks:
        got = [block async for block in blocks]
    assert b"".join(got) == data[offset:]
    assert all(0 < len(block) <= 1 << 20 for block in got)


async def test_reading_missing_file_or_directory_raises_os_error(workspace: Workspace) -> None:
    inside(workspace, "dir").mkdir()
    with pytest.raises(FileNotFoundError):
        await content(workspace, inside(workspace, "missing"))
    with pytest.raises(IsADirectoryError):
        await content(workspace, inside(workspace, "dir"))


async def test_reading_a_pipe_without_writer_raises_at_once(workspace: Workspace) -> None:
    os.mkfifo(inside(workspace, "pipe"))
    with pytest.raises(OSError, match="Not a regular file"):
        await content(workspace, inside(workspace, "pipe"))


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
async def test_small_file_is_read_together_with_its_stat(workspace: Workspace, size: int) -> None:
    path, link = inside(workspace, "data"), inside(workspace, "link")
    data = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    path.write_bytes(data)
    link.symlink_to("data")
    expected = (await workspace.stat(str(path)), data if size < 1 << 20 else None)
    assert await workspace.read_small(str(path)) == expected
    assert await workspace.read_small(str(link)) == expected


async def test_other_than_regular_files_are_only_stated(workspace: Workspace) -> None:
    inside(workspace, "dir").mkdir()
    inside(workspace, "dangling").symlink_to("nowhere")
    os.mkfifo(inside(workspace, "pipe"))
    for name in ("dir", "pipe"):
        path = str(inside(workspace, name))
        assert await workspace.read_small(path) == (await workspace.stat(path), None)
    for name in ("missing", "dir/below", "dangling"):
        assert await workspace.read_small(str(inside(workspace, name))) is None
    # Had the pipe been opened, a writer would have found a reader.
    with pytest.raises(OSError, match="No such device"):
        os.open(inside(workspace, "pipe"), os.O_WRONLY | os.O_NONBLOCK)


@pytest.mark.parametrize("may_read", [True, False])
async def test_a_file_is_read_ahead_only_where_its_real_path_may_be(workspace: Workspace, may_read: bool) -> None:
    path, link = inside(workspace, "data"), inside(workspace, "link")
    path.write_bytes(b"\xff\xfe text that no editor has open")
    link.symlink_to("data")
    asked: list[str] = []

    def decide(real_path: str) -> bool:
        asked.append(real_path)
        return may_read

    found = await workspace.read_small(str(link), decide)
    assert found is not None
    assert found[0] == await workspace.stat(str(path))
    if isinstance(workspace, ClientWorkspace):  # it asks the editor for this file, but not ahead
        assert found[1] is None
    else:
        assert asked == [str(path)]
        assert found[1] == (path.read_bytes() if may_read else None)


async def test_small_read_of_a_link_loop_raises_os_error(workspace: Workspace) -> None:
    inside(workspace, "circle").symlink_to("circle")
    with pytest.raises(OSError, match="symbolic links"):
        await workspace.read_small(str(inside(workspace, "circle")))


async def test_a_new_file_is_written_with_its_directories(workspace: Workspace) -> None:
    path = inside(workspace, "a/b/c.txt")
    written = await workspace.write(str(path), b"\xff\r\nbytes", None)
    assert path.read_bytes() == b"\xff\r\nbytes"
    assert written == await workspace.stat(str(path))
    assert [entry.name for entry in path.parent.iterdir()] == ["c.txt"]


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o664])
async def test_replacing_keeps_the_mode_bits(workspace: Workspace, mode: int) -> None:
    path = inside(workspace, "a.sh")
    path.write_bytes(b"old")
    path.chmod(mode)
    old = await workspace.stat(str(path))
    new = await workspace.write(str(path), b"new", old)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o7777 == new.mode == mode
    assert (await workspace.write(str(path), b"newer", new)).size == 5


async def test_a_file_that_has_changed_since_is_left_alone(workspace: Workspace) -> None:
    path = inside(workspace, "a.txt")
    path.write_bytes(b"old")
    seen = await workspace.stat(str(path))
    path.write_bytes(b"somebody else's")
    with pytest.raises(FileChanged):
        await workspace.write(str(path), b"mine", seen)
    assert path.read_bytes() == b"somebody else's"


async def test_file_created_or_removed_since_stat_is_not_written(workspace: Workspace) -> None:
    path = inside(workspace, "a.txt")
    path.write_bytes(b"here")
    seen = await workspace.stat(str(path))
    with pytest.raises(FileChanged):
        await workspace.write(str(path), b"mine", None)
    assert path.read_bytes() == b"here"
    path.unlink()
    with pytest.raises(FileChanged):
        await workspace.write(str(path), b"mine", seen)
    assert not path.exists()


async def test_link_replacing_the_file_is_not_followed(workspace: Workspace) -> None:
    path, victim = inside(workspace, "a.txt"), inside(workspace, "victim")
    path.write_bytes(b"old")
    victim.write_bytes(b"precious")
    seen = await workspace.stat(str(path))
    path.unlink()
    path.symlink_to(victim)
    for expected in (seen, None):
        with pytest.raises(FileChanged):
            await workspace.write(str(path), b"mine", expected)
    assert victim.read_bytes() == b"precious"
    assert path.is_symlink()


async def test_link_replacing_a_directory_is_not_followed(workspace: Workspace) -> None:
    inside(workspace, "dir").mkdir()
    inside(workspace, "elsewhere").mkdir()
    inside(workspace, "dir").rmdir()
    inside(workspace, "dir").symlink_to("elsewhere")
    with pytest.raises(FileChanged):
        await workspace.write(str(inside(workspace, "dir/new.txt")), b"mine", None)
    assert list(inside(workspace, "elsewhere").iterdir()) == []


async def test_directory_cannot_be_written(workspace: Workspace) -> None:
    path = inside(workspace, "dir")
    path.mkdir()
    for expected in (await workspace.stat(str(path)), None):
        with pytest.raises(IsADirectoryError):
            await workspace.write(str(path), b"mine", expected)


async def test_failed_write_leaves_no_extra_files(workspace: Workspace) -> None:
    path = inside(workspace, "a.txt")
    path.write_bytes(b"old")
    with pytest.raises(FileChanged):
        await workspace.write(str(path), b"mine", None)
    assert [entry.name for entry in inside(workspace, "").iterdir()] == ["a.txt"]


# --- processes ------------------------------------------------------------------------------------------------


async def test_a_program_runs_in_the_work_dir_with_empty_input(workspace: Workspace) -> None:
    program = python("import os, sys; print(os.getcwd(), repr(sys.stdin.read())); sys.exit(3)")
    async with workspace.run(program) as process:
        text = await joined(process.output())
        assert await process.wait() == 3
        assert await process.wait() == 3
    assert text.decode() == f"{workspace.work_dir} ''\n"


async def test_both_streams_arrive_in_order(workspace: Workspace) -> None:
    program = python("import os; [os.write(1 + i % 2, b'%d ' % i) for i in range(50)]")
    async with workspace.run(program) as process:
        assert await joined(process.output()) == b"".join(b"%d " % i for i in range(50))


async def test_stderr_can_be_excluded(workspace: Workspace) -> None:
    program = python("import os; os.write(2, b'err'); os.write(1, b'out')")
    async with workspace.run(program, merge_stderr=False) as process:
        assert await joined(process.output()) == b"out"


async def test_variables_extend_the_inherited_environment(workspace: Workspace) -> None:
    program = python("import os; print(os.environ['EXTRA'], 'PATH' in os.environ)")
    async with workspace.run(program, env={"EXTRA": "one"}) as process:
        assert await joined(process.output()) == b"one True\n"


async def test_output_blocks_are_bounded_and_complete(workspace: Workspace) -> None:
    program = python("import os\nfor i in range(64): os.write(1, bytes([i]) * 100_000)")
    async with workspace.run(program) as process:
        blocks = [block async for block in process.output()]
    assert b"".join(blocks) == b"".join(bytes([i]) * 100_000 for i in range(64))
    assert max(map(len, blocks)) <= 256 * 1024


async def test_slow_reader_gets_output_buffered_at_exit(workspace: Workspace) -> None:
    async with workspace.run(python("import os; os.write(1, b'x' * 30_000)")) as process:
        await process.wait()
        await anyio.sleep(0.7)
        assert len(await joined(process.output())) == 30_000


async def test_missing_program_raises(workspace: Workspace) -> None:
    with pytest.raises(FileNotFoundError):
        async with workspace.run(["/no/such/program"]):
            pass


async def test_exit_by_signal_is_a_negative_status(workspace: Workspace) -> None:
    async with workspace.run(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")) as process:
        assert await joined(process.output()) == b""
        assert await process.wait() == -9


async def first_number(process: Process) -> int:
    """The process id that a program prints as its first line."""
    async for block in process.output():
        return int(block.split()[0])
    raise AssertionError("no output")


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in ("Z", "X")


SLEEPER = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


async def test_kill_ends_a_program_and_can_be_repeated(workspace: Workspace) -> None:
    async with workspace.run(python(SLEEPER)) as process:
        pid = await first_number(process)
        await process.kill()
        await process.kill()
        assert await process.wait() == -15
        assert not is_alive(pid)


async def test_leaving_the_context_kills_running_program(workspace: Workspace) -> None:
    async with workspace.run(python(SLEEPER)) as process:
        pid = await first_number(process)
        assert is_alive(pid)
    assert not is_alive(pid)


async def test_cancel_kills_running_program(workspace: Workspace) -> None:
    pid = 0
    with anyio.CancelScope() as scope:
        async with workspace.run(python(SLEEPER)) as process:
            pid = await first_number(process)
            scope.cancel()
            await process.wait()
    assert pid
    assert not is_alive(pid)
