"""How long sessions and connections live: idle ones, slow and dead clients, the end of the server (wire spec 13.5)."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from kimi.application.sessions.negotiate_initialize import ExternalToolOffer, InitializeOutcome
from kimi.domain.client import Client
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import StateError
from kimi.interfaces.web.clients.stream import MAX_UNREAD_ANSWER_BYTES
from kimi.interfaces.web.sessions.event_log import MAX_LOG_BYTES, EventLog
from kimi.interfaces.web.sessions.hosted_session import Member, host_session
from tests.support.conversations import conversation_with
from tests.support.fakes import FakeModel, forever
from tests.support.program.wire_process import Place
from tests.support.web.hosting import Closed, WebClient, hosting, play

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.write_config("_echo")
    return place


async def state_of(web: WebClient, session: str) -> str:
    _, found = await web.ask("GET", "/api/sessions")
    return next((one["state"] for one in found["sessions"] if one["id"] == session), "gone")


async def until_state(web: WebClient, session: str, state: str) -> None:
    with anyio.fail_after(10):
        while await state_of(web, session) != state:  # noqa: ASYNC110
            await anyio.sleep(0.05)


@pytest.mark.spec("W-171")
async def test_a_session_without_clients_and_work_is_closed_and_opened_again(place: Place) -> None:
    async with hosting(place, idle_timeout_s=0.2) as web:
        session = await web.new_session(place)
        async with web.connect(session) as client:
            await client.response(await client.prompt("text: hello"))
            await anyio.sleep(0.5)
            assert await state_of(web, session) == "idle"  # a client is there
        await until_state(web, session, "closed")
        async with web.connect(session, client.position) as back:
            assert await back.until("Attached") == {"mode": "replayed"}
            await back.until("Current")
    assert back.text == "hello"


@pytest.mark.spec("W-171")
async def test_a_session_with_work_is_not_closed_when_its_clients_are_gone(place: Place) -> None:
    go = anyio.Event()
    model = FakeModel([[go.wait, TextPart("done")]])
    async with hosting(place, play(model), idle_timeout_s=0.1) as web:
        session = await web.new_session(place)
        async with web.connect(session) as client:
            await client.prompt("go")
            await client.until("StepBegin")
        await anyio.sleep(0.4)
        go.set()
        async with web.connect(session, client.position) as back:
            assert await back.until("Attached") == {"mode": "resumed"}
            assert await back.until("PromptFinished") == {"status": "finished"}


@pytest.mark.spec("W-172")
async def test_a_session_of_another_process_is_refused_with_a_sentence(place: Place) -> None:
    place.script("text: hello")
    with place.wire("--session", "mine") as kimi:
        kimi.prompt("go")
        async with hosting(place) as web:
            assert await state_of(web, "mine") == "elsewhere"
            async with web.connect("mine") as client:
                refusal = await client.until("Refused")
                assert refusal["code"] == "locked"
                assert f"process {kimi.process.pid}" in refusal["message"]
                with pytest.raises(Closed) as closed:
                    await client.next_line()
                assert closed.value.code == 4409
            status, answer = await web.ask("DELETE", "/api/sessions/mine")
            assert (status, answer["error"]["code"]) == (409, "locked")
            kimi.finish()
            async with web.connect("mine") as client:
                await client.until("Current")
    assert client.text == "hello"


@pytest.mark.spec("W-173")
async def test_the_end_of_the_server_cancels_turns_and_tells_the_clients(place: Place) -> None:
    model = FakeModel([[TextPart("half"), forever]])
    client = _Watched()
    async with anyio.create_task_group() as tasks, hosting(place, play(model)) as web:
        session = await web.new_session(place)
        tasks.start_soon(_watch_turn, web, session, client)
        with anyio.fail_after(10):
            while "half" not in client.text:  # noqa: ASYNC110
                await anyio.sleep(0.01)
    assert client.types[-5:] == ["StepInterrupted", "TurnEnd", "PromptFinished", "SessionChanged", "closed 1001"]
    recorded = (place.session_dirs()[-1] / "wire.jsonl").read_text("utf-8")
    assert "half" in recorded
    assert "TurnEnd" in recorded


class _Watched:
    def __init__(self) -> None:
        self.types: list[str] = []
        self.text = ""


async def _watch_turn(web: WebClient, session: str, seen: _Watched) -> None:
    async with web.connect(session) as client:
        await client.prompt("go")
        try:
            while True:
                line = await client.next_line()
                seen.text = client.text
                if "method" in line:
                    seen.types.append(line["params"]["type"])
        except Closed as closed:
            seen.types.append(f"closed {closed.code}")


# --- slow and dead clients ----------------------------------------------------------------------------------------


@pytest.mark.spec("W-174")
async def test_a_client_that_does_not_read_holds_nobody_up_and_has_to_come_back(place: Place) -> None:
    piece = "x" * 65_000
    count = 2 * MAX_LOG_BYTES // len(piece)
    model = FakeModel([[*(TextPart(piece) for _ in range(count)), TextPart("end")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        stuck = await anyio.to_thread.run_sync(open_stuck_client, web, session)
        async with web.connect(session) as steady:
            await steady.prompt("go")
            assert await steady.until("PromptFinished") == {"status": "finished"}
            assert len(steady.text) == count * len(piece) + 3
        received = await anyio.to_thread.run_sync(drain, stuck)
        assert len(received) < MAX_LOG_BYTES
        assert received.endswith(b"\x88\x02" + (4408).to_bytes(2, "big"))
        async with web.connect(session, "0.5") as back:
            await back.until("Current")
            assert len(back.text) == count * len(piece) + 3


def open_stuck_client(web: WebClient, session: str) -> socket.socket:
    """Connect to a session, with room for little, and read no more than the answer to that."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    found.connect(("127.0.0.1", int(web.base.rpartition(":")[2])))
    found.sendall(
        f"GET /api/sessions/{session}/wire HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {web.token}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    assert found.recv(12) == b"HTTP/1.1 101"
    return found


def drain(stuck: socket.socket) -> bytes:
    """Read to the end, or to a pause of a second."""
    stuck.settimeout(1)
    found = bytearray()
    try:
        while block := stuck.recv(65_536):
            found += block
            if found.endswith(b"\x88\x02" + (4408).to_bytes(2, "big")):
                break
    except TimeoutError:
        pass
    stuck.close()
    return bytes(found)


@pytest.mark.spec("W-174")
async def test_who_asks_without_reading_the_answers_is_not_read_any_more(place: Place) -> None:
    async with hosting(place) as web:
        session = await web.new_session(place)
        stuck = await anyio.to_thread.run_sync(open_stuck_client, web, session)
        stuck.setblocking(False)
        body = b'{"id":"%b","method":"cancel"}' % (b"y" * 60_000)
        frame = b"\x81\xfe" + len(body).to_bytes(2, "big") + b"\0\0\0\0" + body
        wanted = 10 * MAX_UNREAD_ANSWER_BYTES
        unsent, sent = memoryview(frame * (wanted // len(frame))), 0
        with anyio.move_on_after(2):
            while sent < len(unsent):
                try:
                    sent += stuck.send(unsent[sent : sent + 65_536])
                except BlockingIOError:
                    await anyio.sleep(0.01)
        async with web.connect(session) as steady:
            assert (await steady.initialize())["protocol_version"] == "1.10"
        stuck.close()
    assert sent < len(unsent)


# --- the log ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("W-175")
def test_the_log_keeps_the_newest_messages_within_its_bound() -> None:
    log = EventLog("n", 10_000)
    for number in range(1000):
        assert log.append(b'{"n":%d}' % number) == number + 1
    assert log.next == 1001
    assert 900 < log.first < 1000
    assert log.get(log.first).message == b'{"n":%d,"position":"n.%d"}' % (log.first - 1, log.first)
    assert log.find_next("n.1000") == 1001
    assert log.find_next(f"n.{log.first - 1}") == log.first
    assert [log.find_next(text) for text in ("n.1", "n.1001", "m.1000", "n.", "n.-1", "n.1e3", "n", "")] == [None] * 8


def test_the_log_keeps_one_message_that_is_larger_than_its_bound() -> None:
    log = EventLog("n", 1000)
    log.append(b'{"a":1}')
    log.append(b'{"a":"%b"}' % (b"x" * 5000))
    assert (log.first, log.next) == (2, 3)


# --- a session that fails -----------------------------------------------------------------------------------------


async def test_the_clients_of_a_session_that_ends_here_are_closed() -> None:
    conversation = await conversation_with(FakeModel([]))
    codes: list[int] = []
    async with host_session(conversation, "/work", _refuse_handshake) as session:
        stack = AsyncExitStack()
        await stack.enter_async_context(session.join(Member(lambda: None, codes.append)))
    assert codes == [1011]
    await stack.aclose()


async def test_a_server_that_ends_begins_no_turn() -> None:
    conversation = await conversation_with(FakeModel([[TextPart("never")]]))
    async with host_session(conversation, "/work", _refuse_handshake) as session:
        session.stop()
        with pytest.raises(StateError, match="ending"):
            session.begin_prompt(Member(lambda: None, lambda code: None), "go", lambda outcome: None)


def _refuse_handshake(client: Client, offers: Sequence[ExternalToolOffer]) -> InitializeOutcome:
    raise AssertionError("nobody shakes hands here")
