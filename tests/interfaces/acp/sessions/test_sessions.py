"""Sessions: opened, listed, closed, and kept apart (acp spec 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from kimi.domain.content.parts import TextPart
from kimi.domain.errors import ConfigError
from kimi.interfaces.acp.sessions.open_sessions import OpenSession
from kimi.interfaces.bootstrap.containers import SessionContainer
from kimi.interfaces.bootstrap.injector import providers
from tests.support.acp.client import acp_client, kind_of, prompt, using
from tests.support.acp.stored_sessions import at, one_turn, shell, texts_of
from tests.support.fakes import FakeModel, FakeTool, forever
from tests.support.program.wire_process import Json, Place

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path).script("text: Hello", "text: Hello again", "text: third", "text: fourth")


# --- new --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("A-33", "A-34")
async def test_new_session_returns_its_options(tmp_path: Path) -> None:
    place = Place(tmp_path, capabilities=("thinking",)).script("text: x")
    async with acp_client(place) as client:
        await client.shake_hands()
        result = await client.result("session/new", {"cwd": str(place.work)})
    assert result["sessionId"]
    assert result["modes"]["currentModeId"] == "default"
    assert [mode["id"] for mode in result["modes"]["availableModes"]] == ["default", "edits", "plan", "yolo", "afk"]
    options = {option["id"]: option for option in result["configOptions"]}
    assert list(options) == ["model", "thinking", "mode"]
    assert [option["category"] for option in options.values()] == ["model", "thought_level", "mode"]
    for option in options.values():
        assert option["currentValue"] in [value["value"] for value in option["options"]]
    models = result["models"]
    assert [model["modelId"] for model in models["availableModels"]] == ["m", "m,thinking"]
    assert models["currentModelId"] in ("m", "m,thinking")


async def test_tools_are_made_while_sessions_wait_for_their_first_prompts(place: Place) -> None:
    made: list[str] = []
    all_made = anyio.Event()

    def adapt(container: SessionContainer, session: OpenSession) -> None:
        def make() -> FakeTool:
            made.append(session.id)
            if len(made) == 3:
                all_made.set()
            if len(made) == 2:
                raise ConfigError("the tool cannot be made now")
            return FakeTool("Late")

        cast("Any", container.tools.providers["kimi_cli.tools.todo:SetTodoList"]).override(providers.Factory(make))

    async with acp_client(place, adapt=adapt) as client:
        await client.shake_hands()
        opened = [await client.new_session(place) for _ in range(3)]
        with anyio.fail_after(10):
            await all_made.wait()
        assert made == opened
        for session_id in opened:  # the one whose tool failed makes it again, at its turn
            assert (await client.say(session_id, "hi"))["result"]["stopReason"] == "end_turn"
    assert made == [*opened, opened[1]]


@pytest.mark.spec("A-35")
async def test_session_directory_must_be_a_directory(place: Place, tmp_path: Path) -> None:
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
async def test_settings_of_one_session_do_not_affect_others(tmp_path: Path) -> None:
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


@pytest.mark.spec("R-285")
async def test_a_session_is_listed_from_its_first_prompt_on(place: Place) -> None:
    async with acp_client(place, adapt=using(FakeModel([[TextPart("x")]]))) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        assert await client.result("session/list") == {"sessions": []}  # the chat that asks is not offered to itself
        await client.say(session_id, "hi")
        (one,) = (await client.result("session/list"))["sessions"]
        assert (one["sessionId"], one["cwd"], one["title"]) == (session_id, str(place.work), "hi")


# --- the end of sessions ----------------------------------------------------------------------------------------


@pytest.mark.spec("A-50")
async def test_closing_and_deleting_unknown_sessions_succeeds(place: Place) -> None:
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
async def test_least_recently_used_session_is_suspended(place: Place) -> None:
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
        assert (error["code"], error["data"]) == (-32600, {"reason": "session_limit"})
        await client.notify("session/cancel", {"sessionId": sessions[5]})
        assert (await client.answer_of(calls[5]))["result"]["stopReason"] == "cancelled"
        await client.new_session(place)
