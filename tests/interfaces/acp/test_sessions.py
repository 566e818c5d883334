"""Sessions: opened, listed, replayed, forked, closed, and kept apart (acp spec 4)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio
import pytest

from kimi.domain.content import TextPart, ThinkPart
from kimi.domain.message import Function, ToolCall
from kimi.interfaces.acp.open_sessions import OpenSession
from tests.acp_client import acp_client, kind_of, prompt, using
from tests.e2e.process import Json, Place
from tests.fakes import Asked, FakeModel, forever

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path).script("text: Hello", "text: Hello again", "text: third", "text: fourth")


def at(place: Place, session_id: str, **more: object) -> Json:
    """The params that open a stored session."""
    return {"sessionId": session_id, "cwd": str(place.work), "mcpServers": [], **more}


async def one_turn(place: Place, text: str = "hi", model: FakeModel | None = None) -> str:
    """A session with one turn, of a process that has ended; its id."""
    adapt = using(model or FakeModel([[TextPart("Hello")]]))
    async with acp_client(place, adapt=adapt) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await client.say(session_id, text)
    return session_id


def texts_of(asked: Asked) -> list[str]:
    """The texts of the context that the model was asked with."""
    return [part.text for message in asked.history for part in message.content if isinstance(part, TextPart)]


# --- new --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("A-33", "A-34")
async def test_a_new_session_tells_its_options(tmp_path: Path) -> None:
    place = Place(tmp_path, capabilities=("thinking",)).script("text: x")
    async with acp_client(place) as client:
        await client.shake_hands()
        result = await client.result("session/new", {"cwd": str(place.work)})
    assert result["sessionId"]
    assert result["modes"]["currentModeId"] == "default"
    assert [mode["id"] for mode in result["modes"]["availableModes"]] == ["default", "plan", "yolo", "afk"]
    options = {option["id"]: option for option in result["configOptions"]}
    assert list(options) == ["model", "thinking", "mode"]
    assert [option["category"] for option in options.values()] == ["model", "thought_level", "mode"]
    for option in options.values():
        assert option["currentValue"] in [value["value"] for value in option["options"]]
    models = result["models"]
    assert [model["modelId"] for model in models["availableModels"]] == ["m", "m,thinking"]
    assert models["currentModelId"] in ("m", "m,thinking")


@pytest.mark.spec("A-35")
async def test_the_directory_must_be_one(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    odd = tmp_path / "mit Leerzeichen ✓"
    odd.mkdir()
    async with acp_client(place) as client:
        await client.shake_hands()
        for cwd, details in (
            ("work", "cwd must be an absolute path"),
            ("~", "cwd must be an absolute path"),
            (str(tmp_path / "missing"), "cwd does not exist"),
            (str(file), "cwd does not exist"),
        ):
            error = await client.error("session/new", {"cwd": cwd, "mcpServers": []})
            assert (error["code"], error["data"]) == (-32602, {"cwd": cwd, "details": details})
            more = {"cwd": str(place.work), "additionalDirectories": [cwd]}
            assert (await client.error("session/new", more))["code"] == -32602
        for cwd in (None, 5, ["/"]):
            assert (await client.error("session/new", {"cwd": cwd}))["code"] == -32602
        result = await client.result("session/new", {"cwd": str(odd), "additionalDirectories": [str(tmp_path)]})
        assert (await client.say(result["sessionId"], "hi"))["result"]["stopReason"] == "end_turn"


@pytest.mark.spec("A-36")
async def test_commands_follow_the_answer_that_opens_a_session(place: Place) -> None:
    stored = await one_turn(place)
    async with acp_client(place) as client:
        await client.shake_hands()
        for _ in range(2):  # before and after the SDK has taken over
            for method in ("session/load", "session/resume", "session/new", "session/fork"):
                client.lines.clear()
                answer = await client.ask(method, at(place, stored))
                session_id = answer["result"].get("sessionId", stored)
                before = [kind_of(line) for line in client.lines[:-1]]
                assert "available_commands_update" not in before
                commands = (await client.until_update("available_commands_update"))["availableCommands"]
                assert client.lines[-1]["params"]["sessionId"] == session_id
                assert {"compact", "init", "plan"} <= {command["name"] for command in commands}
                assert next(one for one in commands if one["name"] == "compact")["input"]["hint"]
                await client.result("session/close", {"sessionId": session_id})
            await anyio.sleep(0.4)


# --- side by side -----------------------------------------------------------------------------------------------


@pytest.mark.spec("A-37")
async def test_a_slow_session_does_not_hold_up_another(place: Place) -> None:
    slow, quick = FakeModel([[TextPart("slow"), forever]]), FakeModel([[TextPart("quick")]])
    models = [slow, quick]
    chosen: dict[str, FakeModel] = {}

    def model_of(session: OpenSession) -> FakeModel:
        return chosen.setdefault(session.id, models[len(chosen)])

    async with acp_client(place, adapt=using(model_of)) as client:
        await client.shake_hands()
        one, two = await client.new_session(place), await client.new_session(place)
        running = await client.request("session/prompt", prompt(one, "hi"))
        await client.until_update("agent_message_chunk")
        assert (await client.say(two, "hi"))["result"]["stopReason"] == "end_turn"
        assert (client.said(one), client.said(two)) == ("slow", "quick")
        await client.notify("session/cancel", {"sessionId": one})
        assert (await client.answer_of(running))["result"]["stopReason"] == "cancelled"


@pytest.mark.spec("A-38")
async def test_each_session_works_in_its_own_directory(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    model = FakeModel([])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        one = await client.new_session(place)
        two = (await client.result("session/new", {"cwd": str(other), "mcpServers": []}))["sessionId"]
        for session_id, directory in ((one, place.work), (two, other), (one, place.work)):
            await client.result("session/set_mode", {"sessionId": session_id, "modeId": "yolo"})
            model.scripts += [[shell("pwd")], [TextPart("done")]]
            await client.say(session_id, "where are you?")
            ended = client.updates("tool_call_update", session_id)[-1]
            assert ended["content"][0]["content"]["text"].strip() == str(directory)


@pytest.mark.spec("A-39", "A-86")
async def test_what_is_chosen_in_one_session_stays_there(tmp_path: Path) -> None:
    place = Place(tmp_path, capabilities=("thinking",))
    place.config = '[models.other]\nprovider = "p"\nmodel = "o"\nmax_context_size = 5000\n'
    place.script("text: x")
    config = (place.share / "config.toml").read_bytes()
    model = FakeModel([[shell()], [TextPart("done")]])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        one = await client.new_session(place)
        call_id = await client.request("session/prompt", prompt(one, "hi"))
        asked = await client.until_method("session/request_permission")
        chosen: Json = {"outcome": {"outcome": "selected", "optionId": "approve_for_session"}}
        await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": chosen})
        await client.answer_of(call_id)
        model.scripts += [[shell()], [TextPart("done")]]
        client.lines.clear()
        await client.say(one, "again")  # would wait for ever if somebody were asked
        assert "session/request_permission" not in [line.get("method") for line in client.lines]
        for option, value in (("mode", "yolo"), ("model", "other")):
            await client.result("session/set_config_option", {"sessionId": one, "configId": option, "value": value})
        fresh = await client.result("session/new", {"cwd": str(place.work)})
        assert {option["id"]: option["currentValue"] for option in fresh["configOptions"]} == {
            "model": "m",
            "thinking": "off",
            "mode": "default",
        }
        two = fresh["sessionId"]
        model.scripts += [[shell()], [TextPart("done")]]
        call_id = await client.request("session/prompt", prompt(two, "hi"))
        asked = await client.until_method("session/request_permission")
        assert asked["params"]["sessionId"] == two
        await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": chosen})
        await client.answer_of(call_id)
    assert (place.share / "config.toml").read_bytes() == config


def shell(command: str = "true") -> ToolCall:
    return ToolCall("c1", Function("Shell", json.dumps({"command": command})))


# --- list -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("A-40", "A-41")
async def test_sessions_of_all_directories_are_listed_in_pages(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    model = FakeModel([[TextPart("x")] for _ in range(60)])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        made: dict[str, str] = {}
        for number in range(53):
            cwd = str(other if number % 10 == 0 else place.work)
            session_id = (await client.result("session/new", {"cwd": cwd}))["sessionId"]
            await client.say(session_id, f"prompt {number}")
            await client.result("session/close", {"sessionId": session_id})
            made[session_id] = cwd
        first = await client.result("session/list")
        second = await client.result("session/list", {"cursor": first["nextCursor"]})
        assert (len(first["sessions"]), len(second["sessions"])) == (50, 3)
        assert "nextCursor" not in second
        listed = [*first["sessions"], *second["sessions"]]
        assert {one["sessionId"]: one["cwd"] for one in listed} == made
        assert [one["updatedAt"] for one in listed] == sorted((one["updatedAt"] for one in listed), reverse=True)
        assert {one["title"] for one in listed} == {f"prompt {number}" for number in range(53)}
        here = await client.result("session/list", {"cwd": str(other)})
        assert {one["sessionId"] for one in here["sessions"]} == {key for key in made if made[key] == str(other)}
        assert await client.result("session/list", {"cwd": str(tmp_path)}) == {"sessions": []}
        for cursor in ("", "x", "bm8=", 5, first["nextCursor"][:-6]):
            assert (await client.error("session/list", {"cursor": cursor}))["code"] == -32602
        assert (await client.error("session/list", {"cwd": "relative"}))["code"] == -32602


async def test_a_session_without_a_turn_is_listed_while_it_is_open(place: Place) -> None:
    async with acp_client(place) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        (one,) = (await client.result("session/list"))["sessions"]
        assert (one["sessionId"], one["cwd"]) == (session_id, str(place.work))
        await client.result("session/close", {"sessionId": session_id})
        assert await client.result("session/list") == {"sessions": []}


# --- load, resume, fork -----------------------------------------------------------------------------------------


@pytest.mark.spec("A-42")
async def test_a_session_comes_back_in_another_process(tmp_path: Path) -> None:
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
async def test_what_cannot_be_loaded_is_refused_at_once(place: Place, tmp_path: Path) -> None:
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
async def test_a_session_that_is_open_is_replayed_again_and_its_turn_goes_on(place: Place) -> None:
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
async def test_resume_goes_on_without_a_replay(place: Place) -> None:
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
async def test_a_fork_goes_its_own_way(place: Place, is_open: bool) -> None:
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


# --- the end of sessions ----------------------------------------------------------------------------------------


@pytest.mark.spec("A-50")
async def test_closing_and_deleting_what_is_not_there_succeeds(place: Place) -> None:
    async with acp_client(place) as client:
        await client.shake_hands()
        for _ in range(2):
            assert await client.result("session/close", {"sessionId": "unknown"}) == {}
            assert await client.result("session/delete", {"sessionId": "unknown"}) == {}
            await client.new_session(place)


@pytest.mark.spec("A-51")
async def test_a_deleted_session_is_listed_no_longer(place: Place) -> None:
    stored = await one_turn(place)
    model = FakeModel([[TextPart("x"), forever]])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        active = await client.new_session(place)
        running = await client.request("session/prompt", prompt(active, "hi"))
        await client.until_update("agent_message_chunk")
        assert len((await client.result("session/list"))["sessions"]) == 2
        assert await client.result("session/delete", {"sessionId": stored}) == {}
        assert await client.result("session/delete", {"sessionId": active}) == {}
        assert (await client.answer_of(running))["result"]["stopReason"] == "cancelled"
        assert await client.result("session/list") == {"sessions": []}
        assert (await client.error("session/load", at(place, stored)))["code"] == -32002
        assert (await client.error("session/prompt", prompt(active, "hi")))["code"] == -32602
    assert place.session_dirs() == []


@pytest.mark.spec("A-52")
async def test_a_closed_session_can_be_loaded_again(place: Place) -> None:
    model = FakeModel([[TextPart("one")], [TextPart("two"), forever], [TextPart("three")]])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await client.say(session_id, "hi")
        running = await client.request("session/prompt", prompt(session_id, "again"))
        await client.until_update("agent_message_chunk")
        closed = await client.request("session/close", {"sessionId": session_id})
        assert (await client.answer_of(running))["result"]["stopReason"] == "cancelled"
        assert (await client.answer_of(closed))["result"] == {}
        for method in ("session/prompt", "session/set_mode", "session/set_config_option", "session/set_model"):
            params = {**prompt(session_id, "x"), "modeId": "plan", "configId": "mode", "modelId": "m", "value": "plan"}
            error = await client.error(method, params)
            assert (error["code"], error["message"]) == (-32602, "Session not found")
        await client.result("session/load", at(place, session_id))
        assert (await client.say(session_id, "third"))["result"]["stopReason"] == "end_turn"


@pytest.mark.spec("A-53")
async def test_the_session_that_was_not_used_for_longest_makes_room(place: Place) -> None:
    opened: list[str] = []
    model = FakeModel([[TextPart("kept")], [TextPart("still open")], [TextPart("again")]])

    def model_of(session: OpenSession) -> FakeModel:
        opened.append(session.id)
        return model

    async with acp_client(place, adapt=using(model_of)) as client:
        await client.shake_hands()
        first, second = await client.new_session(place), await client.new_session(place)
        await client.say(second, "remember")
        await client.result("session/set_mode", {"sessionId": second, "modeId": "yolo"})
        for _ in range(62):
            await client.new_session(place)
        assert (await client.say(first, "are you open?"))["result"]["stopReason"] == "end_turn"
        assert opened.count(first) == 1  # there is room for 64
        await client.new_session(place)
        assert (await client.say(second, "do you?"))["result"]["stopReason"] == "end_turn"
        assert (opened.count(first), opened.count(second)) == (1, 2)
        result = await client.result("session/set_config_option", option(second, "mode", "yolo"))
        assert result["configOptions"][-1]["currentValue"] == "yolo"
    assert texts_of(model.asked[-1]) == ["remember", "kept", "do you?"]


def option(session_id: str, config_id: str, value: object) -> Json:
    return {"sessionId": session_id, "configId": config_id, "value": value}


async def test_when_all_sessions_are_busy_no_further_one_opens(place: Place) -> None:
    model = FakeModel([[TextPart("x"), forever] for _ in range(64)])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        sessions = [await client.new_session(place) for _ in range(64)]
        calls = [await client.request("session/prompt", prompt(session_id, "hi")) for session_id in sessions]
        while len(client.updates("agent_message_chunk")) < 64:
            await client.next_line()
        error = await client.error("session/new", {"cwd": str(place.work)})
        assert (error["code"], error["data"]) == (-32603, {"reason": "session_limit"})
        await client.notify("session/cancel", {"sessionId": sessions[5]})
        assert (await client.answer_of(calls[5]))["result"]["stopReason"] == "cancelled"
        await client.new_session(place)


async def test_a_session_of_another_process_is_not_written_by_two(place: Place) -> None:
    model = FakeModel([[TextPart("one")]])
    async with acp_client(place, adapt=using(model)) as holder:
        await holder.shake_hands()
        session_id = await holder.new_session(place)
        await holder.say(session_id, "hi")
        async with acp_client(place) as client:
            await client.shake_hands()
            error = await client.error("session/load", at(place, session_id))
            assert (error["code"], error["data"]) == (-32603, {"reason": "session_locked"})
            assert (await client.result("session/list"))["sessions"]


async def test_a_request_that_takes_its_time_can_be_cancelled(place: Place) -> None:
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
            with anyio.fail_after(1):
                error = (await client.answer_of(loading))["error"]
            assert (error["code"], error["message"]) == (-32800, "Request cancelled")
            await client.new_session(place)
