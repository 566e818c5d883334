"""Sessions that are loaded, resumed and forked: what comes back of them (acp spec 4)."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from kimi.domain.content.parts import TextPart, ThinkPart
from tests.support.acp.client import acp_client, kind_of, prompt, using
from tests.support.acp.stored_sessions import at, one_turn, shell, texts_of
from tests.support.fakes import FakeModel, forever
from tests.support.program.pace import slowdown
from tests.support.program.wire_process import Json, Place

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path).script("text: unused")


@pytest.mark.spec("A-42")
async def test_session_is_loaded_in_another_process(tmp_path: Path) -> None:
    place = Place(tmp_path, capabilities=("image_in", "thinking")).script("text: unused")
    model = FakeModel(
        [
            [ThinkPart("thinking "), ThinkPart("hard"), TextPart("I will "), TextPart("look."), shell("echo out")],
            [TextPart("Done.")],
        ],
        capabilities=frozenset({"image_in", "thinking"}),
    )
    blocks: list[Json] = [
        {"type": "text", "text": "look at this"},
        {"type": "image", "mimeType": "image/png", "data": "iVBORw0K"},
    ]
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await client.result("session/set_mode", {"sessionId": session_id, "modeId": "yolo"})
        await client.result("session/prompt", {"sessionId": session_id, "prompt": blocks})
        (live_call,) = client.updates("tool_call")
    async with acp_client(place) as client:
        await client.shake_hands()
        answer = await client.ask("session/load", at(place, session_id))
        replayed = client.updates()
        assert [update["sessionUpdate"] for update in replayed] == [
            *("user_message_chunk", "user_message_chunk"),
            *("agent_thought_chunk", "agent_message_chunk", "tool_call", "agent_message_chunk"),
        ]
        assert replayed[0]["content"] == blocks[0]
        assert replayed[1]["content"] == blocks[1]
        assert [replayed[n]["content"]["text"] for n in (2, 3, 5)] == ["thinking hard", "I will look.", "Done."]
        assert (replayed[4]["status"], replayed[4]["toolCallId"]) == ("completed", live_call["toolCallId"])
        assert {"modes", "configOptions", "models"} <= answer["result"].keys()
        assert answer["result"]["modes"]["currentModeId"] == "default"  # yolo does not come back
        followed = [kind_of(await client.next_line()) for _ in range(3)]
        assert followed == ["available_commands_update", "usage_update", "session_info_update"]


@pytest.mark.spec("A-45")
async def test_unloadable_sessions_are_refused_at_once(place: Place, tmp_path: Path) -> None:
    stored = await one_turn(place)
    other = tmp_path / "other"
    other.mkdir()
    async with acp_client(place) as client:
        await client.shake_hands()
        for method in ("session/load", "session/resume", "session/fork"):
            error = await client.error(method, at(place, "unknown"))
            assert (error["code"], error["message"]) == (-32002, "Resource not found: session")
            assert error["data"] == {"sessionId": "unknown", "session_id": "Session not found"}
            error = await client.error(method, at(place, stored, cwd=str(other)))
            assert error["code"] == -32602
            assert error["data"]["details"] == "session belongs to another directory"
            assert (await client.error(method, at(place, "../x")))["code"] == -32602
        assert client.updates() == []


async def test_a_project_that_was_moved_keeps_its_sessions(tmp_path: Path) -> None:
    place = Place(tmp_path).script("text: unused")
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    async with acp_client(place, adapt=using(FakeModel([[TextPart("one")]]))) as client:
        await client.shake_hands()
        session_id = (await client.result("session/new", {"cwd": str(old)}))["sessionId"]
        await client.say(session_id, "hi")
    os.rename(old, new)
    model = FakeModel([[shell("pwd")], [TextPart("two")]])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        await client.result("session/load", at(place, session_id, cwd=str(new)))
        assert client.said() == "one"
        await client.result("session/set_mode", {"sessionId": session_id, "modeId": "yolo"})
        await client.say(session_id, "where")
        done = [update for update in client.updates("tool_call_update") if update.get("status") == "completed"]
        assert str(new) in done[0]["content"][0]["content"]["text"]


@pytest.mark.spec("A-46")
async def test_open_session_is_replayed_again_and_its_turn_continues(place: Place) -> None:
    release = anyio.Event()
    model = FakeModel(
        [[TextPart("first")], [TextPart("begun"), release.wait, TextPart(" more"), forever], [TextPart("last")]]
    )
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await client.say(session_id, "one")
        client.lines.clear()
        await client.result("session/load", at(place, session_id))
        assert [kind_of(line) for line in client.lines if "method" in line] == [
            "user_message_chunk",
            "agent_message_chunk",
        ]
        running = await client.request("session/prompt", prompt(session_id, "two"))
        await client.until(lambda line: kind_of(line) == "agent_message_chunk")
        client.lines.clear()
        await client.result("session/load", at(place, session_id))
        texts = [update["content"]["text"] for update in client.updates() if "content" in update]
        assert texts == ["one", "first", "two", "begun"]
        release.set()
        more = await client.until_update("agent_message_chunk")
        assert more["content"]["text"] == " more"
        await client.notify("session/cancel", {"sessionId": session_id})
        assert (await client.answer_of(running))["result"]["stopReason"] == "cancelled"
        assert (await client.say(session_id, "three"))["result"]["stopReason"] == "end_turn"


async def test_a_question_that_is_open_survives_a_replay(place: Place) -> None:
    model = FakeModel([[shell()], [TextPart("done")]])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        running = await client.request("session/prompt", prompt(session_id, "one"))
        asked = await client.until_method("session/request_permission")
        await client.result("session/load", at(place, session_id))
        chosen: Json = {"outcome": {"outcome": "selected", "optionId": "approve"}}
        await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": chosen})
        assert (await client.answer_of(running))["result"]["stopReason"] == "end_turn"
        last = [update for update in client.updates("tool_call_update") if "status" in update][-1]
        assert last["status"] == "completed"


@pytest.mark.spec("A-47")
async def test_resume_continues_without_a_replay(place: Place) -> None:
    stored = await one_turn(place, "remember this")
    model = FakeModel([[TextPart("yes")]])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        result = await client.result("session/resume", at(place, stored))
        assert {"modes", "configOptions"} <= result.keys()
        assert client.updates() == []
        await client.say(stored, "do you?")
        assert client.updates("user_message_chunk") == []
        assert client.updates("agent_message_chunk")[0]["messageId"].startswith("t2-")
    assert texts_of(model.asked[0]) == ["remember this", "Hello", "do you?"]


@pytest.mark.spec("A-48")
@pytest.mark.parametrize("is_open", [True, False])
async def test_fork_is_independent_of_its_source(place: Place, is_open: bool) -> None:
    stored = await one_turn(place, "remember this")
    model = FakeModel([[TextPart("in the fork")], [TextPart("in the source")]])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        if is_open:
            await client.result("session/resume", at(place, stored))
        result = await client.result("session/fork", at(place, stored))
        forked = result["sessionId"]
        assert forked != stored
        assert {"modes", "configOptions"} <= result.keys()
        await client.say(forked, "go on")
        if not is_open:
            await client.result("session/resume", at(place, stored))
        await client.say(stored, "and you?")
    assert [texts_of(asked) for asked in model.asked] == [
        ["remember this", "Hello", "go on"],
        ["remember this", "Hello", "and you?"],
    ]


@pytest.mark.spec("R-286")
async def test_session_of_another_process_is_refused_soon_and_in_words(place: Place) -> None:
    model = FakeModel([[TextPart("one")]])
    async with acp_client(place, adapt=using(model)) as holder:
        await holder.shake_hands()
        session_id = await holder.new_session(place)
        await holder.say(session_id, "hi")
        async with acp_client(place) as client:
            await client.shake_hands()
            for method in ("session/load", "session/resume", "session/fork"):
                began = anyio.current_time()
                error = await client.error(method, at(place, session_id))
                assert (error["code"], error["data"]) == (-32600, {"reason": "session_locked"})
                assert f"Session {session_id} is already open" in error["message"]
                assert anyio.current_time() - began < 2.5 * slowdown()
            assert (await client.result("session/list"))["sessions"]


async def test_a_request_that_takes_its_time_can_be_cancelled(place: Place) -> None:
    patience_s = slowdown()  # a second on a quiet machine
    model = FakeModel([[TextPart("one")]])
    async with acp_client(place, adapt=using(model)) as holder:
        await holder.shake_hands()
        session_id = await holder.new_session(place)
        await holder.say(session_id, "hi")
        async with acp_client(place) as client:
            await client.shake_hands()
            loading = await client.request("session/load", at(place, session_id))
            await anyio.sleep(0.1)
            await client.notify("$/cancel_request", {"requestId": loading})
            with anyio.fail_after(patience_s):
                error = (await client.answer_of(loading))["error"]
            assert (error["code"], error["message"]) == (-32800, "Request cancelled")
            await client.new_session(place)
