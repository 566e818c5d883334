"""The live conversations of a process: one per id, at most so many, each in a task of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest

from kimi.application.sessions.session_pool import SessionOpener, SessionPool
from kimi.domain.errors import TooManySessions

pytestmark = pytest.mark.anyio


@dataclass
class Live:
    """Something that is live."""

    name: str
    busy: bool = False


@dataclass
class Stage:
    """Opens and closes, and notes it."""

    log: list[str] = field(default_factory=list[str])
    fails: bool = False

    def opening(self, name: str) -> SessionOpener[Live]:
        @asynccontextmanager
        async def opened() -> AsyncGenerator[Live, None]:
            if self.fails:
                raise ValueError("it cannot be opened")
            self.log.append(f"open {name}")
            try:
                yield Live(name)
            finally:
                self.log.append(f"close {name}")

        def enter() -> AbstractAsyncContextManager[Live]:
            return opened()

        return enter


@asynccontextmanager
async def sessions(limit: int = 2) -> AsyncGenerator[SessionPool[Live], None]:
    """Sessions whose tasks end with the context."""
    async with anyio.create_task_group() as tasks:
        yield SessionPool[Live](tasks, lambda live: not live.busy, limit)
        tasks.cancel_scope.cancel()


async def test_a_session_is_opened_once_and_stays_until_it_is_closed() -> None:
    stage = Stage()
    async with sessions() as live:
        async with live.open_session("a", stage.opening("a")) as one, live.use_session("a") as two:
            assert one is two
        assert live.find_live("a") is one
        assert stage.log == ["open a"]
        assert await live.close("a")
        assert not await live.close("a")
        assert stage.log == ["open a", "close a"]
        with pytest.raises(KeyError):
            async with live.use_session("a"):
                pass


async def test_least_recently_used_session_is_suspended_and_reopened() -> None:
    stage = Stage()
    async with sessions() as live:
        for name in ("a", "b"):
            async with live.open_session(name, stage.opening(name)):
                pass
        async with live.use_session("a"):
            pass
        async with live.open_session("c", stage.opening("c")):
            pass
        assert stage.log == ["open a", "open b", "close b", "open c"]
        assert set(live.ids) == {"a", "b", "c"}
        async with live.use_session("b") as again:
            assert again.name == "b"
        assert stage.log[4:] == ["close a", "open b"]


async def test_busy_or_used_session_is_never_suspended() -> None:
    stage = Stage()
    async with sessions() as live:
        async with live.open_session("a", stage.opening("a")) as one:
            one.busy = True
        async with live.open_session("b", stage.opening("b")):
            with pytest.raises(TooManySessions):
                async with live.open_session("c", stage.opening("c")):
                    pass
        assert "c" not in live
        async with live.open_session("c", stage.opening("c")):
            assert stage.log == ["open a", "open b", "close b", "open c"]


async def test_a_session_that_cannot_be_opened_is_not_open() -> None:
    stage = Stage(fails=True)
    async with sessions() as live:
        for _ in range(3):
            with pytest.raises(ValueError, match="cannot be opened"):
                async with live.open_session("a", stage.opening("a")):
                    pass
        assert live.ids == ()
        stage.fails = False
        async with live.open_session("a", stage.opening("a")):
            pass


async def test_failed_open_lets_the_next_waiter_try() -> None:
    stage = Stage(fails=True)
    told: list[str] = []
    async with sessions() as live:

        async def use() -> None:
            try:
                async with live.open_session("a", stage.opening("a")):
                    told.append("open")
            except ValueError as error:
                told.append(str(error))
                stage.fails = len(told) < 2

        async with anyio.create_task_group() as users:
            for _ in range(3):
                users.start_soon(use)
        assert told == ["it cannot be opened", "it cannot be opened", "open"]
        assert live.ids == ("a",)


async def test_failing_session_does_not_affect_others_and_can_be_reopened() -> None:
    stage = Stage()
    broken = anyio.Event()

    @asynccontextmanager
    async def failing() -> AsyncGenerator[Live, None]:
        async def fail() -> None:
            await broken.wait()
            raise ValueError("broken")

        async with anyio.create_task_group() as inner:
            if not broken.is_set():
                inner.start_soon(fail)
            yield Live("failing")

    async with sessions() as live:
        async with live.open_session("a", stage.opening("a")), live.open_session("b", failing):
            pass
        broken.set()
        with anyio.fail_after(5):
            while live.find_live("b") is not None:
                await anyio.lowlevel.checkpoint()
        assert live.find_live("a") is not None
        async with live.use_session("b") as again:
            assert again.name == "failing"


async def test_many_users_open_a_session_once() -> None:
    stage = Stage()
    async with sessions() as live:

        async def use() -> None:
            async with live.use_session("a"):
                await anyio.lowlevel.checkpoint()

        async with live.open_session("a", stage.opening("a")):
            pass
        await live.suspend("a")
        async with anyio.create_task_group() as users:
            for _ in range(10):
                users.start_soon(use)
        assert stage.log == ["open a", "close a", "open a"]
        await live.close_all()
        assert live.ids == ()
