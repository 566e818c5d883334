"""What is specific to processes of this machine: the ways of reading and waiting, and what a tree is."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import uuid
from collections.abc import Callable

import anyio
import pytest

from kimi.infrastructure.workspace.pipes import (
    BLOCK_BYTES,
    PIPE_BYTES,
    OutputPipe,
    SelectorPipe,
    ThreadPipe,
    open_pipes,
)
from kimi.infrastructure.workspace.process_table import is_group_alive
from kimi.infrastructure.workspace.process_tree import end_tree
from kimi.infrastructure.workspace.processes import run_process, start_in_group, watch_exit, watch_in_thread
from tests.support.program.processes import all_gone, comes_true, is_alive, marked, started

pytestmark = pytest.mark.anyio

MakePipe = Callable[[int], OutputPipe]


@pytest.fixture(params=[SelectorPipe, ThreadPipe])
def make(request: pytest.FixtureRequest) -> MakePipe:
    return request.param


async def everything(pipe: OutputPipe) -> bytes:
    blocks: list[bytes] = []
    while block := await pipe.read():
        assert len(block) <= BLOCK_BYTES
        blocks.append(block)
    return b"".join(blocks)


async def test_a_pipe_gives_all_and_then_the_end(make: MakePipe) -> None:
    reading, writing = os.pipe()
    pipe = make(reading)
    data = os.urandom(3_000_000)

    def write() -> None:
        with open(writing, "wb") as file:
            file.write(data)

    writer = threading.Thread(target=write)
    writer.start()
    assert await everything(pipe) == data
    assert await pipe.read() == b""
    writer.join()
    pipe.close()
    pipe.close()


async def test_hurried_pipe_returns_only_available_data(make: MakePipe) -> None:
    reading, writing = os.pipe()
    pipe = make(reading)
    os.write(writing, b"first")
    assert await pipe.read() == b"first"
    async with anyio.create_task_group() as tasks:

        async def read_on() -> None:
            assert await everything(pipe) == b""

        tasks.start_soon(read_on)
        await anyio.sleep(0.05)
        pipe.stop_waiting()
    os.close(writing)
    pipe.close()


def test_failed_pipe_creation_leaks_no_descriptor() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    taken = [os.dup(0) for _ in range(free, max(int(name) for name in os.listdir("/proc/self/fd")) + 1)]
    os.close(free)
    before = set(os.listdir("/proc/self/fd"))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, before)) + 2, hard))
        with pytest.raises(OSError, match="Too many open files"):
            open_pipes()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert set(os.listdir("/proc/self/fd")) == before
    for descriptor in taken:
        os.close(descriptor)


async def test_hurried_pipe_limits_a_flood() -> None:
    reading, writing = os.pipe()
    pipe = SelectorPipe(reading)
    os.set_blocking(writing, False)
    pipe.stop_waiting()
    size = 0
    os.write(writing, bytes(4_096))
    while block := await pipe.read():
        size += len(block)
        os.write(writing, bytes(4_096))
    assert size == PIPE_BYTES
    os.close(writing)
    pipe.close()


async def test_a_thread_does_not_read_far_ahead() -> None:
    reading, writing = os.pipe()
    pipe = ThreadPipe(reading)
    os.set_blocking(writing, False)
    written = 0
    with anyio.move_on_after(0.3):
        while True:
            try:
                written += os.write(writing, bytes(65_536))
            except BlockingIOError:
                await anyio.sleep(0.01)
    assert written < 2 * PIPE_BYTES
    os.close(writing)
    assert len(await everything(pipe)) == written
    pipe.close()


@pytest.mark.parametrize("watch", [watch_exit, watch_in_thread])
@pytest.mark.parametrize(
    ("program", "status"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -9)]
)
async def test_an_exit_is_noticed(watch: Callable[..., Callable[[], None]], program: str, status: int) -> None:
    child = started(program)
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = watch(child, told.set_result)
    assert await told == status
    stop()
    assert child.wait() == status


async def test_stopped_watch_does_not_report_the_exit() -> None:
    told: list[int] = []
    for watch in (watch_exit, watch_in_thread):
        child = started("pass")
        watch(child, told.append)()
        await anyio.to_thread.run_sync(child.wait)
    await anyio.sleep(0.05)
    assert told == []


TREE = "sleep 60 & (set -m; sleep 60 & disown); setsid -f sleep 60; setsid sh -c 'sleep 60; :' & wait"
"""A child of the group, one in another group of the session, one that has left for good, one in its own session."""


async def test_process_tree_includes_other_process_groups() -> None:
    word = f"KIMI_TEST_{uuid.uuid4().hex}"
    command = ["/bin/bash", "-c", TREE]
    env = {**os.environ, word: "1"}
    async with run_process(
        command, cwd="/", env=env, merge_stderr=True, kill_orphans=False, start=start_in_group
    ) as process:
        assert comes_true(lambda: len(marked(word)) == 6)
        assert process.is_running
    [daemon] = marked(word)  # Nobody's child any more: without a keeper it is lost.
    os.kill(daemon, 9)
    assert all_gone(word)


async def test_ending_a_finished_tree_is_not_an_error() -> None:
    child = started("pass")
    assert comes_true(lambda: not is_alive(child.pid))
    assert not is_group_alive(child.pid)
    await end_tree(child.pid, 60)
    assert child.wait() == 0
