"""Turns and sessions without end in one process: everything is back at its level afterwards (R-246)."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from kimi.application.sessions.open_session import SessionSelector
from kimi.application.settings.flags import Flags
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.start import load_settings
from kimi.interfaces.embed import serve_wire
from kimi.interfaces.process.trim_memory import trim_memory
from tests.support.acp.client import AcpClient, acp_client
from tests.support.program.processes import children
from tests.support.program.wire_process import Json, Place
from tests.support.robustness.agent_visit import use_talkative_model
from tests.support.robustness.talkative import TalkativeModel, opening

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="levels are read from /proc"),
]

LONG = os.environ.get("KIMI_LONG_TESTS") == "1"
TURNS, SESSIONS = (1000, 200) if LONG else (100, 20)
DEEDS = ("hello", "do shell", "do todo", "do many", "do fail", "do think", "do wait")
"""What the turns do, one after the other; the last of them is cancelled."""

MAX_GROWTH_MB = 5
POOL_THREADS = 8
"""Worker threads that wait for the next file operation; the pool keeps them for some seconds."""


@dataclass(frozen=True)
class Level:
    """What this process holds."""

    memory_mb: float
    handles: int
    tasks: int
    threads: int
    processes: int

    def check(self, before: Level) -> None:
        """Assert that no more is held than before."""
        assert self.tasks <= before.tasks
        assert self.threads <= before.threads + POOL_THREADS
        assert self.handles <= before.handles
        assert self.processes <= before.processes
        assert self.memory_mb < before.memory_mb + MAX_GROWTH_MB


def measure() -> Level:
    """Return the level of this process now."""
    gc.collect()
    trim_memory()
    pages = Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]
    handles = len(os.listdir("/proc/self/fd"))
    memory = int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return Level(memory, handles, len(asyncio.all_tasks()), threading.active_count(), len(children()))


async def soak(kind: str, count: int, once: Callable[[int], Awaitable[None]]) -> None:
    """Do something so many times; compare the level after the first tenth with that at the end."""
    for number in range(count // 10):
        await once(number)
    before = measure()
    for number in range(count // 10, count):
        await once(number)
    after = measure()
    with anyio.move_on_after(10):  # what follows the last answer: a sync, the end of a worker
        while after.tasks > before.tasks or after.handles > before.handles:
            await anyio.sleep(0.1)
            after = measure()
    print(f"{kind}: {count} times, from {before} to {after}")
    after.check(before)


# --- the wire -------------------------------------------------------------------------------------------------------


class WireClient:
    """A client of a server in this process, which keeps nothing of what it reads."""

    def __init__(self) -> None:
        self.to_server, self.incoming = anyio.create_memory_object_stream[bytes](100)
        self._answers: dict[int, Json] = {}
        self._came = anyio.Event()
        self._number = 0

    async def write(self, data: bytes) -> None:
        """Take whole lines."""
        for line in data.splitlines():
            message: Json = json.loads(line)
            if "method" not in message:
                self._answers[message["id"]] = message
        self._came.set()
        self._came = anyio.Event()

    async def send(self, method: str, **params: object) -> int:
        """Send a request; return its id."""
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        await self.to_server.send(json.dumps(message).encode() + b"\n")
        return self._number

    async def answer(self, call_id: int) -> Json:
        """Wait for the answer to a request."""
        with anyio.fail_after(30):
            while call_id not in self._answers:
                await self._came.wait()
        return self._answers.pop(call_id)


@asynccontextmanager
async def wire_client(place: Place, session_id: str) -> AsyncGenerator[WireClient, None]:
    """Serve a session in this process; the input ends on leaving."""
    environ = place.full_environ()
    settings = load_settings(Flags(work_dir=str(place.work), ui="wire", yolo=True), environ)
    app = App(
        settings=providers.Object(settings),
        environ=providers.Object(environ),
        open_model=providers.Object(opening(TalkativeModel())),
    )
    client = WireClient()
    async with client.to_server, client.incoming, anyio.create_task_group() as tasks:
        tasks.start_soon(serve_wire, app, client.incoming.receive, client.write, SessionSelector(session_id))
        yield client
        await client.to_server.send(b"")


async def wire_turn(client: WireClient, number: int) -> None:
    """Run one turn; the history is cleared now and then, for what a conversation holds is no leak."""
    deed = DEEDS[number % len(DEEDS)]
    prompt = await client.send("prompt", user_input=deed)
    if deed == "do wait":
        await client.answer(await client.send("cancel"))
    await client.answer(prompt)
    if number % 50 == 0:
        await client.answer(await client.send("prompt", user_input="/clear"))


@pytest.mark.spec("R-246")
async def test_turns_on_the_wire_leave_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path).script("text: unused")
    async with wire_client(place, "one") as client:
        await soak("turns on the wire", TURNS, lambda number: wire_turn(client, number))


@pytest.mark.spec("R-246")
async def test_sessions_on_the_wire_leave_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path).script("text: unused")

    async def once(number: int) -> None:
        async with wire_client(place, f"s{number}") as client:
            await wire_turn(client, 1)

    await soak("sessions on the wire", SESSIONS, once)


# --- an editor ------------------------------------------------------------------------------------------------------


async def agent_turn(client: AcpClient, session_id: str, number: int) -> None:
    """Run one turn of a session, as `wire_turn` does."""

    async def say(text: str) -> int:
        blocks = [{"type": "text", "text": text}]
        return await client.request("session/prompt", {"sessionId": session_id, "prompt": blocks})

    deed = DEEDS[number % len(DEEDS)]
    prompt = await say(deed)
    if deed == "do wait":
        await client.notify("session/cancel", {"sessionId": session_id})
    await client.answer_of(prompt)
    if number % 50 == 0:
        await client.answer_of(await say("/clear"))
    client.lines.clear()
    client.raw.clear()


@pytest.mark.spec("R-246")
async def test_turns_and_sessions_of_an_editor_leave_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path).script("text: unused")
    async with acp_client(place, adapt=use_talkative_model) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await client.result("session/set_mode", {"sessionId": session_id, "modeId": "yolo"})
        await soak("turns of an editor", TURNS, lambda number: agent_turn(client, session_id, number))

        async def once(number: int) -> None:
            opened = await client.new_session(place)
            await agent_turn(client, opened, 3)
            await client.result("session/close", {"sessionId": opened})
            client.lines.clear()
            client.raw.clear()

        await soak("sessions of an editor", SESSIONS, once)
