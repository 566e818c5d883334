"""ReadFile: windows of lines, the sentence about them, what cannot be read, bounded memory."""

import os
import socket
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kimi.application.ports import FileStat
from kimi.application.settings.settings import ShellSettings
from kimi.infrastructure.tools.files.file_types import detect_file_type
from kimi.infrastructure.tools.files.line_window import LineBreakNormalizer, LineWindow
from kimi.infrastructure.tools.files.read_file import ReadFileTool
from kimi.infrastructure.workspace.local import LocalWorkspace
from tests.support.file_tools import CONTEXT, Files, brief, call, text

pytestmark = pytest.mark.anyio

TOTAL = "Total lines in file:"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def numbered(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(1, count + 1))


@pytest.mark.spec("T-63")
async def test_result_messages_are_as_documented(files: Files) -> None:
    files.put("empty.txt")
    result = await call(files.read, path="empty.txt")
    assert (result.output, result.display) == ("", ())
    assert result.message == "No lines read from file. Total lines in file: 0. End of file reached."

    files.put("a.txt", "a\nb\nc\n")
    result = await call(files.read, path="a.txt")
    assert result.output == "     1\ta\n     2\tb\n     3\tc\n"
    assert result.message == "3 lines read from file starting from line 1. Total lines in file: 3. End of file reached."
    result = await call(files.read, path="a.txt", n_lines=1)
    assert result.output == "     1\ta\n"
    assert result.message == "1 lines read from file starting from line 1. Total lines in file: 3."
    result = await call(files.read, path="a.txt", line_offset=9)
    assert result.message == "No lines read from file. Total lines in file: 3. End of file reached."
    result = await call(files.read, path="a.txt", line_offset=-2)
    assert result.output == "     2\tb\n     3\tc\n"
    assert result.message == "2 lines read from file starting from line 2. Total lines in file: 3. End of file reached."
    result = await call(files.read, path="a.txt", line_offset=-3, n_lines=1)
    assert result.message == "1 lines read from file starting from line 1. Total lines in file: 3."

    files.put("long.txt", numbered(1001))
    for n_lines in (1000, 2000):
        result = await call(files.read, path="long.txt", n_lines=n_lines)
        assert result.message == (
            "1000 lines read from file starting from line 1. Total lines in file: 1001. Max 1000 lines reached."
        )

    files.put("wide.txt", ("x" * 1023 + "\n") * 101)
    result = await call(files.read, path="wide.txt")
    assert result.message == (
        "100 lines read from file starting from line 1. Total lines in file: 101. Max 102400 bytes reached."
    )

    files.put("cut.txt", "\n".join("y" * 2500 if number in (3, 9) else "short" for number in range(1, 11)))
    result = await call(files.read, path="cut.txt")
    assert result.message.endswith("End of file reached. Lines [3, 9] were truncated.")
    third = text(result).split("\n")[2]
    assert third == "     3\t" + "y" * 1996 + "..."


async def test_the_newest_lines_stay_when_the_tail_is_too_large(files: Files) -> None:
    files.put("wide.txt", "".join(f"{number:1023d}\n" for number in range(1, 201)))
    result = await call(files.read, path="wide.txt", line_offset=-150)
    assert result.message == (
        "100 lines read from file starting from line 101. Total lines in file: 200. Max 102400 bytes reached."
    )
    assert text(result).endswith("200\n")


@pytest.mark.spec("T-64")
async def test_line_numbers_have_six_columns_and_line_endings_are_unified(files: Files) -> None:
    files.put("crlf.txt", b"one\r\ntwo\rthree\nlast")
    result = await call(files.read, path="crlf.txt")
    assert result.output == "     1\tone\n     2\ttwo\n     3\tthree\n     4\tlast"


@pytest.mark.spec("T-65")
async def test_invalid_offsets_are_refused(files: Files) -> None:
    files.put("a.txt", "a\n")
    result = await call(files.read, path="a.txt", line_offset=0)
    assert result.message.startswith("Error validating JSON arguments: 1 validation error for Params\n")
    assert "line_offset cannot be 0; use 1 for the first line or -1 for the last line" in result.message
    result = await call(files.read, path="a.txt", line_offset=-1001)
    assert "line_offset cannot be less than -1000" in result.message
    assert brief(result) == "Invalid arguments"
    assert (await call(files.read, path="a.txt", n_lines=0)).is_error
    assert not (await call(files.read, path="a.txt", line_offset=-1000)).is_error


PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.mark.spec("T-66")
@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.png", PNG, "image"),
        ("a.svg", b"<svg/>", "text"),
        ("a.ts", b"let a = 1", "text"),
        ("a.mts", b"let a = 1", "text"),
        ("a.txt", b"a\0b", "unknown"),
        ("a.docx", b"PK\x03\x04", "unknown"),
        ("a.png", b"not a picture", "unknown"),
        ("a.txt", PNG, "unknown"),
        ("noext", PNG, "image"),
        ("a.mp4", b"\0\0\0\x18ftypisom" + bytes(12), "video"),
        ("a.webp", b"RIFF\0\0\0\0WEBP", "image"),
        ("a.mp4", PNG, "unknown"),
        ("Makefile", b"all:\n", "text"),
        ("a.ts", b"G" + bytes(400), "unknown"),
    ],
)
async def test_file_type_decides_whether_a_file_is_read(files: Files, name: str, content: bytes, kind: str) -> None:
    assert detect_file_type(name, content).kind == kind
    files.put(name, content)
    result = await call(files.read, path=name)
    if kind == "text":
        assert not result.is_error
    elif kind == "unknown":
        assert brief(result) == "File not readable"
        assert result.message == (
            f"`{name}` seems not readable. You may need to read it with proper shell commands, Python tools or MCP "
            "tools if available. If you read/operate it with Python, you MUST ensure that any third-party packages "
            "are installed in a virtual environment (venv)."
        )
    else:
        assert brief(result) == "Unsupported file type"
        assert result.message == (
            f"`{name}` is a {kind} file. Use other appropriate tools to read image or video files."
        )


@pytest.mark.spec("T-46")
async def test_paths_other_than_regular_files_are_refused_at_once(files: Files) -> None:
    (files.work_dir / "dir").mkdir()
    os.mkfifo(files.work_dir / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(files.work_dir)
        try:
            listener.bind("sock")
        finally:
            os.chdir(here)
        for path in ("dir", "fifo", "sock", "/dev/zero"):
            for result in (
                await call(files.read, path=path),
                await call(files.write, path=path, content="x"),
                await call(files.write, path=path, content="x", mode="append"),
                await call(files.edit, path=path, edit={"old": "a", "new": "b"}),
            ):
                assert result.message == f"`{path}` is not a file."
                assert brief(result) == "Invalid path"
    missing = await call(files.read, path="nothing")
    assert (missing.message, brief(missing)) == ("`nothing` does not exist.", "File not found")


async def test_system_errors_are_reported(files: Files) -> None:
    os.symlink("loop", files.work_dir / "loop")
    result = await call(files.read, path="loop")
    assert result.message.startswith("Failed to read loop. Error: ")
    assert brief(result) == "Failed to read file"


async def test_bytes_that_are_no_text_are_replaced(files: Files) -> None:
    files.put("odd.txt", b"caf\xe9\x02\x90\x06\x04\x98\n")
    result = await call(files.read, path="odd.txt")
    assert result.output == "     1\tcaf\ufffd\x02\ufffd\x06\x04\ufffd\n"
    assert result.message.endswith("Some bytes are text in no known encoding and are shown as U+FFFD.")


MIB = 1024 * 1024


@pytest.mark.parametrize("offset", [1, -1, 150_000])
async def test_memory_does_not_depend_on_size(files: Files, offset: int) -> None:
    path = files.work_dir / "big.txt"
    block = (b"x" * 99 + b"\n") * 10_486
    with path.open("wb") as big:
        for _ in range(60):
            big.write(block)
    tracemalloc.start()
    result = await call(files.read, path="big.txt", line_offset=offset, n_lines=3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * MIB
    lines = 60 * 10_486
    if offset < 0:
        assert f"{TOTAL} {lines}." in result.message
        assert text(result) == f"{lines}\t" + "x" * 99 + "\n"
    else:
        assert f"{TOTAL} more than " in result.message


async def test_a_huge_line_is_cut_while_it_is_read(files: Files) -> None:
    path = files.work_dir / "line.txt"
    with path.open("wb") as big:
        for _ in range(60):
            big.write(b"z" * MIB)
        big.write(b"\nend\n")
    for offset in (1, -2):
        tracemalloc.start()
        result = await call(files.read, path="line.txt", line_offset=offset)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8 * MIB
        assert text(result) == "     1\t" + "z" * 1996 + "...\n     2\tend\n"


pieces = st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"bc", b"\xc3", b"\xa9"]), max_size=30)


@given(pieces, st.integers(1, 12), st.integers(1, 6), st.integers(1, 5))
def test_block_size_does_not_change_the_lines(parts: list[bytes], first: int, n_lines: int, size: int) -> None:
    content = b"".join(parts)
    breaks, window = LineBreakNormalizer(), LineWindow(first, n_lines)
    for at in range(0, len(content), size):
        window.feed(breaks.normalize(content[at : at + size]))
    window.feed(breaks.flush())
    window.close()
    plain = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = plain.decode("utf-8", "replace").split("\n")
    lines = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    expected = list(enumerate(lines, 1))[first - 1 : first - 1 + n_lines]
    assert list(window.lines) == expected
    assert window.total_lines == len(lines)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, 30), st.integers(1, 20), st.integers(1, 10))
async def test_the_tail_is_the_end_of_the_whole(files: Files, count: int, lines: int, n_lines: int) -> None:
    files.put("t.txt", numbered(count))
    whole = text(await call(files.read, path="t.txt")).splitlines(keepends=True)
    tail = text(await call(files.read, path="t.txt", line_offset=-lines, n_lines=n_lines)).splitlines(keepends=True)
    assert tail == whole[-lines:][:n_lines]


class CountingWorkspace(LocalWorkspace):
    """Counts how often it looks at the disk."""

    looks = 0

    async def real_path(self, path: str) -> str:
        self.looks += 1
        return await super().real_path(path)

    async def read_small(
        self, path: str, may_read: Callable[[str], bool] | None = None
    ) -> tuple[FileStat, bytes | None] | None:
        self.looks += 1
        return await super().read_small(path, may_read)


@pytest.mark.parametrize("has_rule", [False, True])
async def test_a_file_that_a_rule_may_hold_back_is_read_when_its_call_runs(files: Files, has_rule: bool) -> None:
    path = files.put("a.txt", "before\n")

    def names(subject: str) -> bool:
        return has_rule and subject == str(path.resolve())

    context = replace(CONTEXT, has_rule=names)
    async with files.read.prepare({"path": "a.txt"}, context) as prepared:
        path.write_text("after\n")
        result = await prepared.run()
    assert text(result) == ("     1\tafter\n" if has_rule else "     1\tbefore\n")


async def test_an_ordinary_small_file_takes_one_look_at_the_disk(files: Files) -> None:
    files.put("a.txt", "one\n")
    workspace = CountingWorkspace(str(files.work_dir), ShellSettings(), frozenset(), {})
    files.policy.workspace = workspace
    tool = ReadFileTool(workspace, files.policy, files.record)
    assert text(await call(tool, path="a.txt")) == "     1\tone\n"
    workspace.looks = 0  # the first call has also resolved the roots
    assert text(await call(tool, path="a.txt")) == "     1\tone\n"
    assert workspace.looks == 1


@given(st.text("aé€\n\r\ufffd", max_size=60), st.integers(1, 6), st.integers(1, 8), st.integers(1, 9))
def test_pieces_of_a_text_make_the_window_that_the_whole_makes(content: str, first: int, count: int, size: int) -> None:
    raw = content.encode()
    whole, pieces = LineWindow(first, count), LineWindow(first, count)
    whole.feed(raw)
    for at in range(0, len(raw), size):
        pieces.feed(raw[at : at + size])
    whole.close()
    pieces.close()
    assert whole == pieces
