"""The outbox: order, bounds, and what happens when nobody reads."""

from __future__ import annotations

import anyio
import pytest

from kimi.interfaces.rpc.outbox import PIECE_BYTES, Outbox


@pytest.mark.anyio
async def test_outbox_keeps_order_batches_writes_and_limits_producers() -> None:
    written: list[bytes] = []
    gate = anyio.Event()

    async def write(data: bytes) -> None:
        await gate.wait()
        written.append(data)

    outbox = Outbox(write, 4, lambda: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.run)
        for line in (b"a\n", b"b\n", b"c\n"):
            outbox.put(line)
        with anyio.move_on_after(0.05) as waiting:
            await outbox.wait_for_capacity()
        assert waiting.cancelled_caught
        outbox.put(b"d\n")
        gate.set()
        await outbox.wait_for_capacity()
        await outbox.flush()
        tasks.cancel_scope.cancel()
    assert b"".join(written) == b"a\nb\nc\nd\n"


@pytest.mark.anyio
async def test_broken_outbox_reports_once_and_releases_all_waiters() -> None:
    broken: list[str] = []

    async def write(data: bytes) -> None:
        raise BrokenPipeError

    outbox = Outbox(write, 4, lambda: broken.append("broken"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.run)
        outbox.put(b"more than the mark\n")
        await outbox.wait_for_capacity()
        await outbox.flush()
    outbox.put(b"nowhere\n")
    assert broken == ["broken"]
    assert outbox.is_broken


@pytest.mark.anyio
async def test_outbox_never_joins_more_than_a_piece() -> None:
    line = b"x" * (PIECE_BYTES // 3) + b"\n"
    sizes: list[int] = []

    async def write(data: bytes) -> None:
        sizes.append(len(data))

    outbox = Outbox(write, PIECE_BYTES, lambda: None)
    for _ in range(5):
        outbox.put(line)
    outbox.put(line * 4)
    outbox.put(line)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.run)
        await outbox.flush()
        tasks.cancel_scope.cancel()
    assert sizes == [len(line) * count for count in (2, 2, 1, 4, 1)]  # a line is never split


@pytest.mark.anyio
async def test_nothing_to_write_is_no_write() -> None:
    """A batch of events may be hidden from the client as a whole."""
    written: list[bytes] = []

    async def write(data: bytes) -> None:
        written.append(data)

    outbox = Outbox(write, 4, lambda: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.run)
        outbox.put(b"")
        await anyio.wait_all_tasks_blocked()
        outbox.put(b"x\n")
        await outbox.flush()
        tasks.cancel_scope.cancel()
    assert written == [b"x\n"]
