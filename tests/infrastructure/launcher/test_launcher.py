"""The helper of the program: what it costs, what it hides, and that it is there again after it was killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from kimi.infrastructure.workspace.processes import run_process
from tests.support.program.processes import comes_true, find_below

pytestmark = pytest.mark.anyio


async def run(*words: str, cwd: str = "/", env: dict[str, str] | None = None) -> tuple[int, bytes]:
    given = dict(os.environ) if env is None else env
    async with run_process(words, cwd=cwd, env=given, merge_stderr=True, kill_orphans=False) as process:
        output = b"".join([block async for block in process.output()])
        return await process.wait(), output


def find_helper() -> int:
    """The helper of this process, by the names of its children."""
    for guard in find_below(os.getpid()):
        if Path(f"/proc/{guard}/comm").read_text() == "kimi-guard\n":
            return next(pid for pid in find_below(guard) if Path(f"/proc/{pid}/comm").read_text() == "kimi-launcher\n")
    raise AssertionError("no helper")


def list_handles(pid: int) -> list[str]:
    """The open descriptors of a process; none where only the administrator may look into it."""
    try:
        return sorted(os.listdir(f"/proc/{pid}/fd"))
    except PermissionError:
        return []


def resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def test_commands_that_are_asked_for_at_the_same_moment_run_at_the_same_time(tmp_path: Path) -> None:
    wait = 'touch "$1"; while [ $(ls | wc -l) -lt 6 ]; do sleep 0.01; done; echo met'
    met: list[tuple[int, bytes]] = []

    async def meet(name: str) -> None:
        met.append(await run("/bin/sh", "-c", wait, "sh", name, cwd=str(tmp_path)))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(meet, str(number))
    assert met == [(0, b"met\n")] * 6


@pytest.mark.spec("R-171")
async def test_two_hundred_commands_leave_no_handle_process_or_memory() -> None:
    await run("/bin/true")
    helper = find_helper()
    ours, theirs = list_handles(os.getpid()), list_handles(helper)
    memory = resident_kb(helper)
    for number in range(200):
        assert await run("/bin/sh", "-c", f"echo {number}; exit 7") == (7, f"{number}\n".encode())
    assert list_handles(os.getpid()) == ours
    assert list_handles(helper) == theirs
    assert comes_true(lambda: len(find_below(helper)) == 1), "only the keeper of the next command is left"
    assert resident_kb(helper) <= memory + 1024


async def test_many_commands_at_once_all_get_their_own_end() -> None:
    found: dict[int, tuple[int, bytes]] = {}

    async def one(number: int) -> None:
        found[number] = await run("/bin/sh", "-c", f"sleep 0.1; echo {number}; exit {number}")

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(one, number)
    assert found == {number: (number, f"{number}\n".encode()) for number in range(40)}


@pytest.mark.parametrize("which", ["helper", "guard", "keeper"])
async def test_command_runs_after_the_helper_was_killed(which: str) -> None:
    await run("/bin/true")
    helper = find_helper()
    guard = int(Path(f"/proc/{helper}/stat").read_text().rpartition(")")[2].split()[1])
    assert comes_true(lambda: len(find_below(helper)) == 1)
    victim = {"helper": helper, "guard": guard, "keeper": find_below(helper)[0]}[which]
    os.kill(victim, signal.SIGKILL)
    await anyio.sleep(0.2)
    assert await run("/bin/echo", "again") == (0, b"again\n")


async def test_a_stopped_helper_holds_up_nothing_but_the_command() -> None:
    await run("/bin/true")
    helper = find_helper()
    os.kill(helper, signal.SIGSTOP)
    try:
        with anyio.move_on_after(0.5):
            for _ in range(3):
                await run("/bin/true")
    finally:
        os.kill(helper, signal.SIGCONT)
    assert await run("/bin/echo", "again") == (0, b"again\n")


async def test_a_command_is_started_although_its_keeper_was_stopped() -> None:
    await run("/bin/true")
    helper = find_helper()
    assert comes_true(lambda: len(find_below(helper)) == 1)
    os.kill(find_below(helper)[0], signal.SIGSTOP)
    assert await run("/bin/echo", "again") == (0, b"again\n")
    assert comes_true(lambda: not find_below(helper))


@pytest.mark.spec("R-173")
async def test_helper_holds_neither_environment_nor_words_of_the_program() -> None:
    await run("/bin/true", env={"SECRET": "in a command"})
    helper = find_helper()
    try:
        environment = Path(f"/proc/{helper}/environ").read_bytes()
    except PermissionError:
        environment = b""  # only the administrator may look into it
    names = {line.partition(b"=")[0] for line in environment.split(b"\0")}
    assert names <= {b"", b"LANG", b"LC_ALL", b"LC_CTYPE", b"LD_LIBRARY_PATH"}


async def test_command_sees_its_own_environment_and_directory(tmp_path: Path) -> None:
    env = {"ONE": "1", "Ü": "ä\udcff", "EMPTY": ""}
    status, output = await run("/usr/bin/env", cwd=str(tmp_path), env=env)
    assert status == 0
    assert set(output.splitlines()) == {os.fsencode(f"{name}={value}") for name, value in env.items()}
    assert await run("/bin/pwd", cwd=str(tmp_path)) == (0, f"{tmp_path}\n".encode())


async def test_command_gets_no_handle_that_the_program_has_inherited() -> None:
    program = """
import os, anyio
from kimi.infrastructure.workspace.processes import run_process
async def main():
    words = ["/bin/ls", "/proc/self/fd"]
    async with run_process(words, cwd="/", env={}, merge_stderr=True, kill_orphans=False) as process:
        print(b"".join([block async for block in process.output()]).decode().split())
anyio.run(main)
"""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        done = await anyio.run_process([sys.executable, "-c", program], pass_fds=(writing,))
    finally:
        os.close(reading)
        os.close(writing)
    assert done.stdout == b"['0', '1', '2', '3']\n", "the fourth one is that of ls"


async def test_signals_are_as_in_a_fresh_process() -> None:
    program = "import signal; print([s.name for s in signal.Signals if signal.getsignal(s) is signal.SIG_IGN])"
    _, output = await run(sys.executable, "-c", program)
    assert output == (await anyio.run_process([sys.executable, "-c", program])).stdout


async def test_command_that_cannot_be_started_is_an_error_of_the_system(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    with pytest.raises(PermissionError, match="plain"):
        await run(str(plain))
    with pytest.raises(FileNotFoundError, match="missing"):
        await run(str(tmp_path / "missing"))
    with pytest.raises(NotADirectoryError, match="plain"):
        await run("/bin/true", cwd=str(plain))
    with pytest.raises(ValueError, match="null"):
        await run("/bin/true", "a\0b")
    with pytest.raises(ValueError, match="surrogates"):
        await run("/bin/true", "\ud800")
    with pytest.raises(OSError, match="Argument list too long"):
        await run("/bin/true", *["x" * 100_000] * 40)


async def test_long_environment_and_command_line_arrive_whole() -> None:
    words = ["x" * 100_000] * 8
    status, output = await run("/bin/sh", "-c", 'echo "$#" ${#LONG}', "sh", *words, env={"LONG": "y" * 120_000})
    assert (status, output) == (0, b"8 120000\n")
