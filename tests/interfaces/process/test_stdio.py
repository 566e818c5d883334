"""The reader of standard input."""

from __future__ import annotations

import os
from collections.abc import Generator

import anyio
import pytest

from kimi.interfaces.process.stdio import BlockReader

pytestmark = pytest.mark.anyio


@pytest.fixture
def pipe() -> Generator[tuple[int, int], None, None]:
    """A pipe: the descriptor to read from, the one to write to."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


async def test_blocks_come_in_order_and_the_end_is_told_at_each_read(pipe: tuple[int, int]) -> None:
    ends: list[str] = []
    reader = BlockReader(pipe[0], lambda: ends.append("end"))
    os.write(pipe[1], b"one")
    assert await reader.read() == b"one"
    assert ends == []
    os.close(pipe[1])
    assert await reader.read() == b""
    assert await reader.read() == b""
    assert ends == ["end", "end"]


async def test_closing_ends_the_input_whatever_is_still_in_it(pipe: tuple[int, int]) -> None:
    ends: list[str] = []
    reader = BlockReader(pipe[0], lambda: ends.append("end"))
    os.write(pipe[1], b"one")
    assert await reader.read() == b"one"
    os.write(pipe[1], b"never taken")
    await anyio.sleep(0.05)
    reader.close()
    assert await reader.read() == b""
    assert ends == ["end"]
    os.close(pipe[1])


async def test_closing_wakes_a_reader_that_waits(pipe: tuple[int, int]) -> None:
    reader = BlockReader(pipe[0])
    async with anyio.create_task_group() as tasks:

        async def close_soon() -> None:
            await anyio.sleep(0.02)
            reader.close()

        tasks.start_soon(close_soon)
        with anyio.fail_after(5):
            assert await reader.read() == b""
    os.close(pipe[1])
