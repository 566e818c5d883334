"""Sessions that are opened again: moved projects, other roots, records that cannot be read (acp spec 4.2, 4.3, 4.6)."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import anyio
import pytest

from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from kimi.interfaces.acp.sessions.open_sessions import OpenSession
from kimi.interfaces.acp.sessions.stored_sessions import build_page
from kimi.interfaces.acp.transport.errors import RpcError
from kimi.interfaces.bootstrap.containers import SessionContainer
from tests.support.acp.client import acp_client, prompt, using
from tests.support.acp.stored_sessions import at, one_turn, texts_of
from tests.support.fakes import FakeModel
from tests.support.program.wire_process import Json, Place
from tests.support.robustness.visit import check_stored

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path).script("text: unused")


async def moved_session(place: Place, tmp_path: Path) -> tuple[str, Path]:
    """A stored session whose project lies elsewhere now: its id and where."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    async with acp_client(place, adapt=using(FakeModel([[TextPart("one")]]))) as client:
        await client.shake_hands()
        session_id = (await client.result("session/new", {"cwd": str(old)}))["sessionId"]
        await client.say(session_id, "remember this")
    os.rename(old, new)
    return session_id, new


@pytest.mark.parametrize("is_open", [True, False])
async def test_the_fork_of_a_session_whose_project_was_moved_has_its_history(
    place: Place, tmp_path: Path, is_open: bool
) -> None:
    session_id, new = await moved_session(place, tmp_path)
    model = FakeModel([[TextPart("two")]])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        if is_open:
            await client.result("session/resume", at(place, session_id, cwd=str(new)))
        forked = (await client.result("session/fork", at(place, session_id, cwd=str(new))))["sessionId"]
        await client.say(forked, "go on")
    assert texts_of(model.asked[0]) == ["remember this", "one", "go on"]


async def test_moved_session_with_other_roots_keeps_its_history(place: Place, tmp_path: Path) -> None:
    session_id, new = await moved_session(place, tmp_path)
    model = FakeModel([[TextPart("two")]])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        await client.result("session/resume", at(place, session_id, cwd=str(new)))
        again = at(place, session_id, cwd=str(new), additionalDirectories=[str(place.work)])
        await client.result("session/resume", again)
        await client.say(session_id, "go on")
    assert texts_of(model.asked[0]) == ["remember this", "one", "go on"]


async def test_roots_are_those_of_the_latest_request(place: Place, tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    containers: list[SessionContainer] = []

    def adapt(container: SessionContainer, session: OpenSession) -> None:
        using(FakeModel([[TextPart("Hello")]]))(container, session)
        containers.append(container)

    async with acp_client(place, adapt=adapt) as client:
        await client.shake_hands()
        session_id = await client.new_session(place, additionalDirectories=[str(extra)])
        await client.say(session_id, "hi")
        assert str(extra) in (await containers[-1].path_policy().resolve_scopes()).workspace
        await client.result("session/close", {"sessionId": session_id})
        await client.result("session/load", at(place, session_id))
        assert str(extra) not in (await containers[-1].path_policy().resolve_scopes()).workspace


async def test_session_with_background_task_keeps_its_roots_and_the_task(place: Place) -> None:
    containers: list[SessionContainer] = []
    arguments = {"command": "sleep 60", "run_in_background": True, "description": "wait"}
    call = ToolCall("c1", Function("Shell", json.dumps(arguments)))
    model = FakeModel([[call], [TextPart("started")]])

    def adapt(container: SessionContainer, session: OpenSession) -> None:
        using(model)(container, session)
        containers.append(container)

    async with acp_client(place, adapt=adapt) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await client.result("session/set_mode", {"sessionId": session_id, "modeId": "yolo"})
        await client.say(session_id, "go")
        (task,) = containers[-1].background_tasks().list_tasks()
        assert task.is_active
        await client.result("session/load", at(place, session_id, additionalDirectories=[str(place.root)]))
        (task,) = containers[-1].background_tasks().list_tasks()
        assert task.is_active


async def test_unreadable_record_is_an_error_on_load(place: Place) -> None:
    session_id = await one_turn(place, "hi")
    (directory,) = place.session_dirs()
    (directory / "wire.jsonl").write_bytes(b"\0" * 4096 + b"\n{\n")
    async with acp_client(place, adapt=using(FakeModel([[TextPart("two")]]))) as client:
        await client.shake_hands()
        error = await client.error("session/load", at(place, session_id))
        assert error["code"] == -32600
        assert error["message"].startswith("Nothing of this session's record can be read")
        assert client.updates() == []
        refused = await client.error("session/prompt", prompt(session_id, "hi"))
        assert (refused["code"], refused["message"]) == (-32602, "Session not found")
        await client.result("session/resume", at(place, session_id))
        answer: Json = await client.say(session_id, "go on")
        assert answer["result"]["stopReason"] == "end_turn"


async def slowly() -> None:
    """A model that takes its time to end when it is cancelled."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep(0.3)


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_a_session_that_is_opened_while_it_closes_is_open_afterwards(place: Place, method: str) -> None:
    model = FakeModel([[TextPart("one"), slowly], [TextPart("two")]])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await client.request("session/prompt", prompt(session_id, "hi"))
        await client.until_update("agent_message_chunk")
        closed = await client.request("session/close", {"sessionId": session_id})
        opened = await client.request(method, at(place, session_id))
        assert (await client.answer_of(opened))["result"]["modes"]["currentModeId"] == "default"
        assert [line["id"] for line in client.lines if line.get("id") in (closed, opened)] == [closed, opened]
        assert (await client.say(session_id, "go on"))["result"]["stopReason"] == "end_turn"


async def test_a_session_that_is_closed_while_it_opens_is_closed_afterwards(place: Place) -> None:
    session_id = await one_turn(place)
    async with acp_client(place) as client:
        await client.shake_hands()
        opening = client.message("session/load", at(place, session_id))
        closing = client.message("session/close", {"sessionId": session_id})
        await client.send(opening, closing)
        assert (await client.answer_of(closing["id"]))["result"] == {}
        assert "result" in await client.answer_of(opening["id"])
        assert (await client.error("session/prompt", prompt(session_id, "hi")))["message"] == "Session not found"


async def test_started_close_is_not_undone(place: Place) -> None:
    model = FakeModel([[TextPart("one"), slowly], [TextPart("two")]])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        running = await client.request("session/prompt", prompt(session_id, "hi"))
        await client.until_update("agent_message_chunk")
        closed = await client.request("session/close", {"sessionId": session_id})
        await client.notify("$/cancel_request", {"requestId": closed})
        assert (await client.answer_of(running))["result"]["stopReason"] == "cancelled"
        assert (await client.answer_of(closed))["result"] == {}
        async with acp_client(place, adapt=using(model)) as another:
            await another.shake_hands()
            await another.result("session/load", at(place, session_id))


@pytest.mark.parametrize("position", [b"", b"{}", b"[1]", b"[null, 1]", b"[1" + b"0" * 400 + b', "a"]', b"[" * 100_000])
async def test_foreign_cursor_is_refused(position: bytes) -> None:
    with pytest.raises(RpcError) as refused:
        build_page([], base64.urlsafe_b64encode(position).decode())
    assert refused.value.code == -32602


async def test_a_turn_that_begins_during_a_fork_is_stored_once(place: Place) -> None:
    """The copy is made from the files: a call that is open while they are read would be answered twice in them."""
    turns = [[TextPart("said")] for _ in range(30)]
    rounds = [[[ToolCall(f"c{n}", Function("Shell", '{"command": "true"}'))], [TextPart("done")]] for n in range(10)]
    model = FakeModel([*turns, *(script for pair in rounds for script in pair)])

    approved = {"outcome": {"outcome": "selected", "optionId": "approve"}}
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        for _ in turns:
            await client.say(session_id, "x" * 2000)  # a record that takes a moment to copy
        forks = 0
        for _ in rounds:
            fork = client.message("session/fork", {"sessionId": session_id, "cwd": str(place.work), "mcpServers": []})
            asked = client.message("session/prompt", prompt(session_id, "go"))
            await client.send(fork, asked)
            forks += "result" in await client.answer_of(fork["id"])
            waiting = [line for line in client.lines if line.get("method") == "session/request_permission"]
            request = waiting[0] if waiting else await client.until_method("session/request_permission")
            client.lines.clear()
            await client.send({"jsonrpc": "2.0", "id": request["id"], "result": approved})
            assert (await client.answer_of(asked["id"]))["result"]["stopReason"] == "end_turn"
        assert forks, "a fork that came before its prompt is made"
        await client.result("session/close", {"sessionId": session_id})
    for directory in place.session_dirs():
        check_stored(directory)
