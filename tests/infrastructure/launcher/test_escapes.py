"""Whatever a command does to get away, nothing of it is left a second after its end was wanted (tools spec 3.1)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from typing import TypeAlias

import anyio
import anyio.to_thread
import pytest

from kimi.infrastructure.workspace.processes import LocalProcess, run_process
from tests.support.program.escapes import ESCAPES, Fugitives
from tests.support.program.pace import slowdown
from tests.support.program.processes import find_below

pytestmark = pytest.mark.anyio

BOUND_S = 1.0

Blow: TypeAlias = Callable[[subprocess.Popen[bytes]], None]

PROGRAM = """
import json, os, sys
import anyio
from kimi.infrastructure.workspace.processes import run_process

async def run(line):
    words = ["/bin/bash", "-c", line]
    async with run_process(words, cwd="/", env=dict(os.environ), merge_stderr=True, kill_orphans=False) as process:
        await process.wait()

async def main():
    async with anyio.create_task_group() as tasks:
        for line in json.loads(sys.stdin.readline()):
            tasks.start_soon(run, line)
        print("begun", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        os._exit(0)

anyio.run(main)
"""
"""A program that runs commands until it is told to end, or killed."""


@contextmanager
def running_program(lines: list[str]) -> Generator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(json.dumps(lines).encode() + b"\n")
        program.stdin.flush()
        assert program.stdout.readline() == b"begun\n"
        try:
            yield program
        finally:
            program.kill()


def end_normally(program: subprocess.Popen[bytes]) -> None:
    assert program.stdin is not None
    program.stdin.write(b"end\n")
    program.stdin.flush()


def kill_program(program: subprocess.Popen[bytes]) -> None:
    program.kill()


def kill_helper(program: subprocess.Popen[bytes]) -> None:
    [guard] = find_below(program.pid)
    [helper] = find_below(guard)
    os.kill(helper, signal.SIGKILL)


def kill_guard(program: subprocess.Popen[bytes]) -> None:
    [guard] = find_below(program.pid)
    os.kill(guard, signal.SIGKILL)


@pytest.mark.spec("R-170")
@pytest.mark.parametrize("then_wait", [True, False], ids=["still running", "ended"])
@pytest.mark.parametrize("end", [end_normally, kill_program, kill_helper, kill_guard])
def test_nothing_outlives_the_program_or_its_helper(end: Blow, then_wait: bool) -> None:
    fugitives = Fugitives()
    with running_program(fugitives.lines(then_wait=then_wait)) as program:
        assert fugitives.all_ran(), set(ESCAPES) - fugitives.alive()
        end(program)
        assert fugitives.left_after(BOUND_S * slowdown()) == set()


@pytest.mark.spec("R-170")
@pytest.mark.parametrize("how", ["cancel", "kill"])
@pytest.mark.parametrize("escape", ESCAPES)
async def test_nothing_outlives_a_cancel_or_a_time_out(escape: str, how: str) -> None:
    fugitives = Fugitives([escape])
    [line] = fugitives.lines(then_wait=True)
    with anyio.CancelScope() as scope:
        async with run(line) as process:
            assert await anyio.to_thread.run_sync(fugitives.all_ran)
            if how == "cancel":
                scope.cancel()
                await process.wait()
            await process.kill(grace_s=0.2)
    assert fugitives.left_after(BOUND_S * slowdown()) == set()


def run(line: str) -> AbstractAsyncContextManager[LocalProcess]:
    words = ["/bin/bash", "-c", line]
    return run_process(words, cwd="/", env=dict(os.environ), merge_stderr=True, kill_orphans=False)


async def test_what_a_command_leaves_behind_runs_on_after_it() -> None:
    fugitives = Fugitives(["background", "setsid that forks"])
    for line in fugitives.lines(then_wait=False):
        async with run(line) as process:
            assert await process.wait() == 0
    await anyio.sleep(0.3)
    assert len(fugitives.alive()) == 2
    fugitives.kill()


@pytest.mark.parametrize("blow", ["kill -9 $PPID", "kill -STOP $PPID"], ids=["killed", "stopped"])
async def test_a_command_that_attacks_its_keeper_gains_nothing(blow: str) -> None:
    fugitives = Fugitives(["setsid that forks"])
    [line] = fugitives.lines(then_wait=False)
    # A killed keeper may be gone before it has said that the command runs; of a stopped one nothing is refused.
    with suppress(ChildProcessError) if blow.startswith("kill -9") else nullcontext():
        async with run(f"{line}; {blow}; {line.replace('setsid -f', '')}") as process:
            await anyio.sleep(0.5)
            with anyio.fail_after(10):
                await process.kill(grace_s=0.1)
                assert await process.wait() == -signal.SIGKILL
    assert fugitives.left_after(BOUND_S * slowdown()) == set()
