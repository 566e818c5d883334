"""One conversation over several drivers: its events, their order and its outcome are the same in each.

The drivers are `kimi --wire` (the server, over streams of the test), `kimi web` (over a real WebSocket), and both faces
of `open_agent`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import anyio
import anyio.to_thread
import pytest

from kimi.application.codec.envelope import encode_event
from kimi.application.settings.settings import LoopSettings, Settings
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import APIStatusError, KimiError, ModelNotSet
from kimi.domain.events.event import Event
from kimi.domain.events.request import ApprovalKind, ApprovalRequest
from kimi.domain.hook import CommandHook
from kimi.infrastructure.store.memory import MemoryStore
from kimi.interfaces.bootstrap.containers import SessionContainer
from kimi.interfaces.embed import (
    Agent,
    App,
    SessionSelector,
    SyncAgent,
    open_agent,
    open_agent_sync,
    providers,
    scripted_model,
    serve_wire,
)
from tests.support.fakes import FakeModel, forever
from tests.support.program.wire_process import Place as ProgramPlace
from tests.support.providers.scripted_calls import call
from tests.support.web.hosting import SocketClient, hosting

pytestmark = pytest.mark.anyio


@dataclass
class Place:
    """What a conversation happens in, and what it is: prompts, the model's answers, the user's."""

    settings: Settings
    model: Any
    prompts: Sequence[str]
    approval: str = "approve"
    cancel_at: str = ""
    """The text at which the turn is cancelled."""


@dataclass
class Heard:
    """What a driver's reader heard: events as they are on the wire, and how each prompt ended."""

    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    ends: list[str] = field(default_factory=list[str])


Driver: TypeAlias = Callable[[Place], Awaitable[Heard]]


# --- the drivers --------------------------------------------------------------------------------------------------


class _WireClient:
    """The client's end of a wire server in this process."""

    def __init__(self, place: Place) -> None:
        self.heard = Heard()
        self._place = place
        self._send, self._receive = anyio.create_memory_object_stream[bytes](100)
        self._answered = anyio.Event()

    async def talk(self) -> Heard:
        place = self._place
        store = MemoryStore(place.settings.work_dir)
        app = App(
            settings=providers.Object(place.settings),
            open_model=providers.Object(lambda session_id, client: place.model),  # pyright: ignore
            store=providers.Object(store),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(serve_wire, app, self._read, self._write, SessionSelector("s")))
            client = {"name": "test"}
            self._call("0", "initialize", {"protocol_version": "1.10", "client": client})
            for number, text in enumerate(place.prompts, 1):
                self._answered = anyio.Event()
                self._call(str(number), "prompt", {"user_input": text})
                await self._answered.wait()
            self._send.close()
        return self.heard

    async def _read(self) -> bytes:
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            self._receive.close()
            return b""

    async def _write(self, lines: bytes) -> None:
        for line in lines.splitlines():
            self._hear(json.loads(line))

    def _call(self, call_id: str, method: str, params: Any) -> None:
        message = {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}
        self._send.send_nowait(json.dumps(message).encode() + b"\n")

    def _hear(self, message: Any) -> None:
        if (event := message.get("params")) is not None:
            self.heard.events.append(event)
            if event["type"] == "ApprovalRequest":
                result = {"request_id": event["payload"]["id"], "response": self._place.approval}
                self._send.send_nowait(
                    json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n"
                )
            if self._place.cancel_at and event["payload"].get("text") == self._place.cancel_at:
                self._call("cancel", "cancel", {})
        elif message["id"] not in ("0", "cancel"):
            self.heard.ends.append(message["result"]["status"] if "result" in message else message["error"]["message"])
            self._answered.set()


async def wire(place: Place) -> Heard:
    with anyio.fail_after(30):
        return await _WireClient(place).talk()


async def web(place: Place) -> Heard:
    def adapt(container: SessionContainer) -> None:
        cast("Any", container).settings.override(providers.Object(place.settings))
        cast("Any", container).open_model.override(providers.Object(lambda session_id, client: place.model))  # pyright: ignore

    heard = Heard()
    program = ProgramPlace(Path(f"{place.settings.work_dir}-hosted"))
    program.write_config("_echo")
    async with hosting(program, adapt) as client, client.connect(await client.new_session(program)) as socket:
        await socket.initialize()
        for text in place.prompts:
            prompt = await socket.prompt(text)
            while "method" in (line := await socket.next_line()) or line["id"] != prompt:
                if line.get("method") in ("event", "request"):
                    await _react(place, socket, line, heard)
            heard.ends.append(line["result"]["status"] if "result" in line else line["error"]["message"])
    return heard


async def _react(place: Place, socket: SocketClient, line: Any, heard: Heard) -> None:
    event = line["params"]
    heard.events.append(event)
    if event["type"] == "ApprovalRequest":
        await socket.answer(line["id"], {"request_id": event["payload"]["id"], "response": place.approval})
    if place.cancel_at and event["payload"].get("text") == place.cancel_at:
        await socket.call("cancel")


def _react_in_process(place: Place, agent: Agent | SyncAgent, heard: Heard, event: Event) -> None:
    heard.events.append(json.loads(encode_event(event)))
    if isinstance(event, ApprovalRequest):
        agent.resolve(event, cast("ApprovalKind", place.approval))
    if isinstance(event, TextPart) and event.text == place.cancel_at != "":
        agent.cancel()


def _message(error: KimiError) -> str:
    """Return the text of an error; a program without a model is told what to do, where the wire has a fixed text."""
    return "LLM is not set" if isinstance(error, ModelNotSet) else str(error)


def _options(place: Place) -> Any:
    return {"settings": place.settings, "store": MemoryStore(place.settings.work_dir), "session": "s"}


async def embed(place: Place) -> Heard:
    heard = Heard()
    async with open_agent(place.settings.work_dir, place.model, approve="events", **_options(place)) as agent:
        for text in place.prompts:
            turn = agent.prompt(text)
            try:
                async for event in turn:
                    _react_in_process(place, agent, heard, event)
                heard.ends.append(turn.status.status if turn.status else "none")
            except KimiError as error:
                heard.ends.append(_message(error))
    return heard


async def embed_sync(place: Place) -> Heard:
    def talk() -> Heard:
        heard = Heard()
        with open_agent_sync(place.settings.work_dir, place.model, approve="events", **_options(place)) as agent:
            for text in place.prompts:
                turn = agent.prompt(text)
                try:
                    for event in turn:
                        _react_in_process(place, agent, heard, event)
                    heard.ends.append(turn.status.status if turn.status else "none")
                except KimiError as error:
                    heard.ends.append(_message(error))
        return heard

    return await anyio.to_thread.run_sync(talk)


# --- the conversations --------------------------------------------------------------------------------------------

WRITE = call("c1", "WriteFile", path="new.txt", content="written\n")
CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "text": lambda: {"model": scripted_model("think: hm\ntext: a\ntext: b", "text: c"), "prompts": ["one", "two"]},
    "calls": lambda: {
        "model": scripted_model(call("c1", "Glob", pattern="*"), call("c2", "ReadFile", path="none.txt"), "text: done"),
        "prompts": ["go"],
    },
    "approved": lambda: {"model": scripted_model(WRITE, "text: done"), "prompts": ["go"]},
    "rejected": lambda: {"model": scripted_model(WRITE, "text: next"), "prompts": ["go", "on"], "approval": "reject"},
    "for-session": lambda: {
        "model": scripted_model(WRITE, WRITE.replace("new", "other").replace("c1", "c2"), "text: done"),
        "prompts": ["go"],
        "approval": "approve_for_session",
    },
    "model-fails": lambda: {
        "model": FakeModel([[TextPart("so far"), APIStatusError(400, "refused")], [TextPart("again")]]),
        "prompts": ["go", "on"],
    },
    "cancelled": lambda: {
        "model": FakeModel([[TextPart("so far"), forever], [TextPart("again")]]),
        "prompts": ["go", "on"],
        "cancel_at": "so far",
    },
    "no-model": lambda: {"model": None, "prompts": ["go"]},
    "commands": lambda: {"model": scripted_model("text: a"), "prompts": ["/nothing", "/clear", "/yolo", "hello"]},
    "steps": lambda: {
        "model": scripted_model(*[call(f"c{number}", "Glob", pattern="*") for number in range(5)]),
        "prompts": ["go"],
    },
    "subagent": lambda: {
        "model": scripted_model(
            call("c1", "Agent", description="Look", prompt="Look around."),
            call("d1", "WriteFile", path="new.txt", content="by a subagent"),
            "text: " + "A long report. " * 20,
            "text: done",
        ),
        "prompts": ["go"],
    },
    "hooks": lambda: {
        "model": scripted_model(call("c1", "Glob", pattern="*"), "text: done"),
        "prompts": ["go"],
        "hooks": (CommandHook("PreToolUse", "exit 2"),),
    },
}


def place_of(directory: Path, model: Any, prompts: Sequence[str], hooks: Any = (), **more: Any) -> Place:
    directory.mkdir()
    loop = LoopSettings(max_steps_per_turn=3)
    settings = Settings(share_dir=str(directory / "share"), work_dir=str(directory), loop=loop, hooks=hooks)
    return Place(settings, model, prompts, **more)


def normalised(heard: Heard, directory: Path) -> tuple[list[Any], list[str]]:
    """What was heard without what differs from run to run: paths, times, and ids, which are numbered."""
    known: dict[str, str] = {}
    text = json.dumps(heard.events).replace(str(directory), "DIR")
    ids = r"[0-9a-f]{8}-[0-9a-f-]{27}|\ba[0-9a-f]{8}\b"
    text = re.sub(ids, lambda found: known.setdefault(found[0], f"id-{len(known)}"), text)
    text = re.sub(r'"duration_ms": \d+', '"duration_ms": 0', text)
    return json.loads(text), heard.ends


@pytest.mark.spec("R-420")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("driver", [web, embed, embed_sync])
async def test_driver_has_the_events_and_the_ends_of_the_wire(tmp_path: Path, driver: Driver, case: str) -> None:
    found: list[Any] = []
    for name, talk in (("wire", wire), ("other", driver)):
        directory = tmp_path / name
        heard = await talk(place_of(directory, **CASES[case]()))
        assert heard.ends
        found.append(normalised(heard, directory))
    assert found[1] == found[0]
