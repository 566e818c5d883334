"""The event channel: who waits for the driver, and for which events."""

from __future__ import annotations

import anyio
import pytest

from kimi.application.conversation.event_channel import Delivery, EventChannel
from kimi.domain.content.parts import TextPart

pytestmark = pytest.mark.anyio


def delivery(text: str) -> Delivery:
    return Delivery(TextPart(text), None)


async def test_join_returns_at_once_when_nothing_is_unfinished() -> None:
    with anyio.fail_after(5):
        await EventChannel().join()


async def test_join_does_not_wait_for_events_that_are_sent_meanwhile() -> None:
    channel, joined = EventChannel(), anyio.Event()

    async def join() -> None:
        await channel.join()
        joined.set()

    async with anyio.create_task_group() as tasks:
        channel.put_nowait(delivery("before"))
        tasks.start_soon(join)
        await anyio.wait_all_tasks_blocked()
        await channel.receive()
        channel.put_nowait(delivery("meanwhile"))
        await anyio.wait_all_tasks_blocked()
        assert not joined.is_set()  # it was taken, but the driver may still be at it
        await channel.receive()
        with anyio.fail_after(5):
            await joined.wait()
    assert channel.unfinished == 1


async def test_closing_the_channel_ends_every_join() -> None:
    channel = EventChannel()
    channel.put_nowait(delivery("never taken"))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(channel.join)
            await anyio.wait_all_tasks_blocked()
            channel.close()
