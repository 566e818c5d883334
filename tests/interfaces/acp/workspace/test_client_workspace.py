"""The workspace over an editor: buffers that are not saved, stale ones, refusals, terminals."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from kimi.application.ports import FileChanged, ToolCallContext
from kimi.application.settings.settings import ShellSettings
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import ShellBlock
from kimi.infrastructure.tools.shell.shell import ShellTool
from kimi.infrastructure.workspace.local import LocalWorkspace
from kimi.interfaces.acp.client_capabilities import ClientCapabilities
from kimi.interfaces.acp.workspace.client_workspace import ClientWorkspace
from tests.support.acp.editor import Editor
from tests.support.program.processes import is_alive
from tests.support.tool_calls import call, effect_of

pytestmark = pytest.mark.anyio

ALL = ClientCapabilities(fs_read=True, fs_write=True, terminal=True)
Make = Callable[..., ClientWorkspace]


@pytest.fixture
def editor() -> Editor:
    return Editor()


@pytest.fixture
def shown() -> list[str]:
    """The terminals that were shown in a call."""
    return []


@pytest.fixture
def make(tmp_path: Path, editor: Editor, shown: list[str]) -> Make:
    """Makes the workspace of `work` below the directory of the test; keywords are abilities."""
    work = tmp_path.resolve() / "work"
    work.mkdir()

    async def show(context: ToolCallContext, terminal_id: str) -> None:
        shown.append(f"{context.call_id}:{terminal_id}")

    async def join_events() -> None:
        """There are no events."""

    def make(abilities: ClientCapabilities = ALL) -> ClientWorkspace:
        local = LocalWorkspace(str(work), ShellSettings(), frozenset(), os.environ)
        return ClientWorkspace(local, "s1", abilities, lambda: [str(work)], editor, show, join_events)

    return make


def file(workspace: ClientWorkspace, name: str, content: bytes) -> str:
    path = Path(workspace.work_dir) / name
    path.write_bytes(content)
    return str(path)


async def text_of(workspace: ClientWorkspace, path: str) -> bytes:
    found = await workspace.read_small(path)
    assert found is not None
    assert found[1] is not None
    async with workspace.read(path) as blocks:
        assert b"".join([block async for block in blocks]) == found[1]
    return found[1]


async def change(workspace: ClientWorkspace, path: str, content: bytes) -> None:
    """Read, then write, as the file tools do."""
    found = await workspace.read_small(path)
    await workspace.write(path, content, found[0] if found else None)


async def test_unsaved_buffers_are_read_and_written_through_the_editor(make: Make, editor: Editor) -> None:
    workspace = make()
    path = file(workspace, "a.txt", b"on disk")
    editor.buffers[path] = "in the editor"
    assert await text_of(workspace, path) == b"in the editor"
    await change(workspace, path, b"changed")
    assert editor.buffers[path] == "changed"
    assert editor.calls[-1] == ("fs/write_text_file", {"sessionId": "s1", "path": path, "content": "changed"})
    new = str(Path(workspace.work_dir) / "deep" / "new.txt")
    await workspace.write(new, b"fresh", None)
    assert Path(new).read_bytes() == b"fresh"
    assert editor.buffers[new] == "fresh"


async def test_write_to_an_editor_that_does_not_save_succeeds(make: Make, editor: Editor) -> None:
    editor.autosave = False
    workspace = make()
    path = str(Path(workspace.work_dir) / "new.txt")
    stat = await workspace.write(path, b"only a buffer", None)
    assert (stat.kind, stat.size) == ("file", 13)
    assert not Path(path).exists()


async def test_a_refused_read_falls_back_and_a_refused_write_is_an_error(make: Make, editor: Editor) -> None:
    workspace = make()
    path = file(workspace, "a.txt", b"on disk")
    editor.refuses = {"fs/read_text_file", "fs/write_text_file"}
    assert await text_of(workspace, path) == b"on disk"
    with pytest.raises(OSError, match="fs/write_text_file is not possible"):
        await change(workspace, path, b"changed")
    assert Path(path).read_bytes() == b"on disk"


@pytest.mark.spec("A-101")
async def test_a_buffer_that_missed_a_change_on_disk_is_not_used(make: Make, editor: Editor) -> None:
    workspace = make()
    path = file(workspace, "a.txt", b"first")
    editor.buffers[path] = "first"
    assert await text_of(workspace, path) == b"first"
    async with workspace.run(["sh", "-c", f"printf second > {path}"]) as process:
        await process.wait()
    assert await text_of(workspace, path) == b"second"
    editor.buffers[path] = "typed since"
    assert await text_of(workspace, path) == b"typed since"


async def test_user_edits_during_approval_are_not_overwritten(make: Make, editor: Editor) -> None:
    workspace = make()
    path = file(workspace, "a.txt", b"one")
    found = await workspace.read_small(path)
    assert found is not None
    editor.buffers[path] = "one and more"
    with pytest.raises(FileChanged):
        await workspace.write(path, b"two", found[0])
    assert editor.buffers[path] == "one and more"
    file(workspace, "a.txt", b"changed on disk")
    with pytest.raises(FileChanged):
        await workspace.write(path, b"two", found[0])


@pytest.mark.parametrize(
    ("disk", "buffer", "seen", "written", "sent"),
    [
        (b"a\r\nb\r\n", "a\nb\n", b"a\r\nb\r\n", b"a\r\nc\r\n", "a\nc\n"),
        (b"a\r\nb\r\n", "a\r\nb\r\n", b"a\r\nb\r\n", b"a\r\nc\r\n", "a\r\nc\r\n"),
        (b"\xef\xbb\xbfa\n", "a\n", b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb\n", "b\n"),
        ("ä\n".encode(), "ö\n", "ö\n".encode(), "ü\n".encode(), "ü\n"),
    ],
)
async def test_line_endings_and_byte_order_mark_survive_the_editor(
    make: Make, editor: Editor, disk: bytes, buffer: str, seen: bytes, written: bytes, sent: str
) -> None:
    workspace = make()
    path = file(workspace, "a.txt", disk)
    editor.buffers[path] = buffer
    assert await text_of(workspace, path) == seen
    await change(workspace, path, written)
    assert editor.buffers[path] == sent


@pytest.mark.spec("A-99")
async def test_only_offered_client_methods_are_called(make: Make, editor: Editor) -> None:
    workspace = make(ClientCapabilities())
    path = file(workspace, "a.txt", b"on disk")
    editor.buffers[path] = "in the editor"
    assert await text_of(workspace, path) == b"on disk"
    await change(workspace, path, b"changed")
    shell = ShellTool(workspace, ShellSettings(), lambda name: None)
    assert (await call(shell, {"command": "echo here"})).output == "here\n"
    assert editor.calls == []


@pytest.mark.spec("A-102")
async def test_files_and_links_outside_the_roots_stay_local(make: Make, editor: Editor, tmp_path: Path) -> None:
    workspace = make()
    outside = tmp_path / "work-not" / "secret.txt"
    outside.parent.mkdir()
    outside.write_text("outside")
    link = Path(workspace.work_dir) / "link.txt"
    link.symlink_to(outside)
    for path in (str(outside), str(link), f"{workspace.work_dir}/../work-not/secret.txt"):
        assert await text_of(workspace, path) == b"outside"
    await change(workspace, str(outside), b"changed")
    assert editor.calls == []


async def test_binary_and_large_files_stay_local(make: Make, editor: Editor) -> None:
    workspace = make()
    large = file(workspace, "large.txt", b"x" * (1 << 20))
    binary = file(workspace, "a.bin", b"\x00\x01")
    latin = file(workspace, "latin.txt", "ä".encode("latin-1"))
    assert (await workspace.read_small(large) or (0, b""))[1] is None
    async with workspace.read(large) as blocks:
        assert sum([len(block) async for block in blocks]) == 1 << 20
    for path in (binary, latin):
        await text_of(workspace, path)
    await change(workspace, binary, b"\x00\x02")
    assert editor.calls == []


async def test_silent_editor_times_out(make: Make, editor: Editor) -> None:
    workspace = make()
    workspace.timeout_s = 0.05
    editor.silent = {"fs/read_text_file"}
    assert await text_of(workspace, file(workspace, "a.txt", b"on disk")) == b"on disk"


# --- while the client does not read ---------------------------------------------------------------------------


@pytest.fixture
def stuck(make: Make) -> ClientWorkspace:
    """A workspace whose client reads none of its updates."""
    workspace = make()
    workspace.join_events = anyio.sleep_forever
    workspace.timeout_s = 0.05
    return workspace


async def test_file_requests_give_up_on_client_that_reads_nothing(stuck: ClientWorkspace, editor: Editor) -> None:
    path = file(stuck, "a.txt", b"on disk")
    editor.buffers[path] = "in the editor"
    assert await text_of(stuck, path) == b"on disk"
    with pytest.raises(OSError, match="did not answer"):
        await change(stuck, path, b"changed")
    assert Path(path).read_bytes() == b"on disk"
    assert editor.calls == []


async def test_command_runs_locally_when_client_reads_nothing(stuck: ClientWorkspace, editor: Editor) -> None:
    ran = await call(shell_in(stuck), {"command": "echo here"})
    assert ran.output == "here\n"
    assert editor.calls == []


async def test_cancel_ends_the_wait_for_client_that_reads_nothing(stuck: ClientWorkspace, editor: Editor) -> None:
    stuck.timeout_s = 60
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, shell_in(stuck), {"command": "true"})
            tasks.start_soon(text_of, stuck, file(stuck, "a.txt", b"on disk"))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert editor.calls == []


async def test_local_files_and_commands_never_wait_for_the_client(stuck: ClientWorkspace) -> None:
    stuck.timeout_s = 60
    binary = file(stuck, "a.bin", b"\x00\x01")
    with anyio.fail_after(5):
        await change(stuck, binary, b"\x00\x02")
        async with stuck.run(["true"]) as process:
            assert await process.wait() == 0
    assert Path(binary).read_bytes() == b"\x00\x02"


# --- terminals ------------------------------------------------------------------------------------------------


def shell_in(workspace: ClientWorkspace) -> ShellTool:
    return ShellTool(workspace, ShellSettings(), lambda name: None)


@pytest.mark.spec("A-103", "T-61")
async def test_commands_run_in_terminals_that_are_always_released(make: Make, editor: Editor, shown: list[str]) -> None:
    workspace = make()
    asked = await effect_of(shell_in(workspace), {"command": "ls"})
    assert asked is not None
    assert asked == await effect_of(shell_in(make(ClientCapabilities())), {"command": "ls"})  # as without the editor's
    assert (asked.action, asked.display) == ("run command", (ShellBlock("bash", "ls"),))
    ran = await call(shell_in(workspace), {"command": "pwd; echo two words >&2"})
    assert (ran.is_error, ran.output) == (False, f"{workspace.work_dir}\ntwo words\n")
    created = editor.calls[0][1]
    assert created["command"] == workspace.shell.path
    assert created["args"] == [*workspace.shell.arguments, "pwd; echo two words >&2"]
    assert created["cwd"] == workspace.work_dir
    assert created["env"] == []
    assert created["outputByteLimit"] > 50_000
    assert editor.methods() == [
        "terminal/create", "terminal/wait_for_exit", "terminal/output", "terminal/release",
    ]  # fmt: skip
    assert shown == ["call:t1"]
    failed = await call(shell_in(workspace), {"command": "echo no; exit 3"})
    assert (failed.is_error, failed.message) == (True, "Command failed with exit code: 3.")
    killed = await call(shell_in(workspace), {"command": "kill -9 $$"})
    assert killed.message == "Command failed with exit code: -9."
    slow = await call(shell_in(workspace), {"command": "echo $$; sleep 60", "timeout": 1})
    assert slow.message == "Command killed by timeout (1s)"
    assert editor.methods()[-5:] == [
        "terminal/create", "terminal/wait_for_exit", "terminal/kill", "terminal/output", "terminal/release",
    ]  # fmt: skip
    assert not is_alive(int(str(slow.output).split()[0]))
    assert editor.terminals == {}


@pytest.mark.spec("A-104")
async def test_command_runs_locally_without_a_terminal(make: Make, editor: Editor, shown: list[str]) -> None:
    editor.refuses = {"terminal/create"}
    ran = await call(shell_in(make()), {"command": "echo here"})
    assert ran.output == "here\n"
    assert shown == []
    assert editor.methods() == ["terminal/create"]


@pytest.mark.spec("T-61")
async def test_a_cancelled_command_is_killed_and_its_terminal_released(make: Make, editor: Editor) -> None:
    workspace = make()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, shell_in(workspace), {"command": "sleep 60"})
        while "terminal/wait_for_exit" not in editor.methods():
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert editor.methods()[-2:] == ["terminal/kill", "terminal/release"]
    assert editor.terminals == {}


async def test_a_cancelled_command_does_not_wait_for_a_client_that_never_answers(make: Make, editor: Editor) -> None:
    editor.silent = {"terminal/wait_for_exit", "terminal/kill", "terminal/release"}
    workspace = make()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, shell_in(workspace), {"command": "true"})
            while "terminal/wait_for_exit" not in editor.methods():
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert editor.methods()[-2:] == ["terminal/kill", "terminal/release"]


async def test_output_cut_by_the_client_is_marked(make: Make, editor: Editor) -> None:
    class Cutting(Editor):
        async def _terminal_output(self, params: JsonObject) -> JsonObject:
            return {"output": "the end", "truncated": True}

    workspace = make()
    workspace.call_client = Cutting()
    ran = await call(shell_in(workspace), {"command": "echo long"})
    assert ran.output == "[...the beginning is not kept by the terminal]\nthe end"
