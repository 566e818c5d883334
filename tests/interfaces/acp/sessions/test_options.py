"""Models, thinking, modes and slash commands of ACP sessions (acp spec 1.7 to 1.10, 3.8, 3.9)."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from kimi.application.ports import ResponseEnd
from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from kimi.domain.turn import TokenUsage
from tests.support.acp.client import AcpClient, acp_client, prompt, using
from tests.support.fakes import FakeModel
from tests.support.program.pace import slowdown
from tests.support.program.wire_process import Json, Place

pytestmark = pytest.mark.anyio

MODELS = """
[models.other]
provider = "p"
model = "o"
max_context_size = 5000
[models.deep]
provider = "p"
model = "d"
max_context_size = 5000
capabilities = ["always_thinking"]
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path, capabilities=("thinking",))
    place.config = MODELS
    return place.script("text: Hello", "text: second", "text: third")


def values(options: list[Json]) -> Json:
    return {option["id"]: option["currentValue"] for option in options}


def choices(options: list[Json], option_id: str) -> list[str]:
    return [value["value"] for option in options if option["id"] == option_id for value in option["options"]]


async def set_option(client: AcpClient, session_id: str, option_id: str, value: object) -> list[Json]:
    params: Json = {"sessionId": session_id, "configId": option_id, "value": value}
    return (await client.result("session/set_config_option", params))["configOptions"]


@pytest.mark.spec("A-94")
async def test_options_are_set_and_answered_whole(place: Place) -> None:
    async with acp_client(place) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        options = await set_option(client, session_id, "thinking", "on")
        assert values(options) == {"model": "m", "thinking": "on", "mode": "default"}
        assert choices(options, "model") == ["m", "other", "deep"]
        assert choices(options, "thinking") == ["off", "on"]
        options = await set_option(client, session_id, "model", "other")
        assert values(options) == {"model": "other", "mode": "default"}  # it cannot think
        options = await set_option(client, session_id, "model", "deep")
        assert values(options) == {"model": "deep", "thinking": "on", "mode": "default"}
        assert choices(options, "thinking") == ["on"]
        options = await set_option(client, session_id, "mode", "plan")
        assert values(options)["mode"] == "plan"
        for option_id, value in (
            ("none", "x"),
            ("model", "none"),
            ("model", None),
            ("mode", True),
            ("thinking", "off"),
        ):
            params: Json = {"sessionId": session_id, "configId": option_id, "value": value}
            error = await client.error("session/set_config_option", params)
            assert (error["code"], error["message"]) == (-32602, "Invalid params")
        assert client.updates("config_option_update") == []
        assert client.updates("current_mode_update") == []


@pytest.mark.spec("A-95")
async def test_only_modes_that_exist_are_set(place: Place) -> None:
    async with acp_client(place) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        for mode in ("plan", "yolo", "edits", "afk", "default", "plan"):
            assert await client.result("session/set_mode", {"sessionId": session_id, "modeId": mode}) == {}
            loaded = await client.result("session/resume", {"sessionId": session_id, "cwd": str(place.work)})
            assert loaded["modes"]["currentModeId"] == mode
        for params in ({"sessionId": "none", "modeId": "plan"}, {"sessionId": session_id, "modeId": "other"}):
            assert (await client.error("session/set_mode", params))["code"] == -32602


@pytest.mark.spec("A-96")
async def test_old_clients_set_the_model_with_its_thinking(place: Place) -> None:
    async with acp_client(place) as client:
        await client.shake_hands()
        result = await client.result("session/new", {"cwd": str(place.work)})
        session_id, models = result["sessionId"], result["models"]
        assert [one["modelId"] for one in models["availableModels"]] == ["m", "m,thinking", "other", "deep,thinking"]
        for model_id, expected in (
            ("m,thinking", {"model": "m", "thinking": "on", "mode": "default"}),
            ("m", {"model": "m", "thinking": "off", "mode": "default"}),
            ("other", {"model": "other", "mode": "default"}),
            ("deep", {"model": "deep", "thinking": "on", "mode": "default"}),
        ):
            assert await client.result("session/set_model", {"sessionId": session_id, "modelId": model_id}) == {}
            update = await client.until_update("config_option_update")
            assert values(update["configOptions"]) == expected
        for model_id in ("none", "", ",thinking", 5):
            error = await client.error("session/set_model", {"sessionId": session_id, "modelId": model_id})
            assert error["code"] == -32602


async def test_model_is_restored_with_the_session(place: Place) -> None:
    async with acp_client(place) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await set_option(client, session_id, "model", "other")
        await client.say(session_id, "hi")
        await client.result("session/close", {"sessionId": session_id})
        opening: Json = {"sessionId": session_id, "cwd": str(place.work)}
        again = await client.result("session/resume", opening)
        assert values(again["configOptions"])["model"] == "other"
        await client.result("session/close", {"sessionId": session_id})
        config = place.share / "config.toml"
        config.write_text(
            config.read_text(encoding="utf-8").replace("models.other", "models.renamed"), encoding="utf-8"
        )
        again = await client.result("session/resume", opening)
        assert values(again["configOptions"])["model"] == "m"
        update = await client.until_update("config_option_update")
        assert values(update["configOptions"])["model"] == "m"


async def test_modes_and_options_are_answered_while_a_turn_runs(place: Place) -> None:
    patience_s = slowdown()  # a second on a quiet machine
    release = anyio.Event()
    model = FakeModel([[TextPart("begun"), release.wait, TextPart("ended")]])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        running = await client.request("session/prompt", prompt(session_id, "hi"))
        await client.until_update("agent_message_chunk")
        with anyio.fail_after(patience_s):
            await client.result("session/set_mode", {"sessionId": session_id, "modeId": "yolo"})
            await set_option(client, session_id, "mode", "default")
            await client.result("session/list")
        release.set()
        assert (await client.answer_of(running))["result"]["stopReason"] == "end_turn"


@pytest.mark.spec("A-97")
async def test_commands_announce_their_changes(place: Place) -> None:
    usage = TokenUsage(input_other=300)
    model = FakeModel([[TextPart("x"), ResponseEnd("m", usage)]])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        for command, mode in (("/plan on", "plan"), ("/plan off", "default"), ("/yolo", "yolo"), ("/yolo", "default")):
            client.lines.clear()
            assert (await client.say(session_id, command))["result"]["stopReason"] == "end_turn"
            assert [update["currentModeId"] for update in client.updates("current_mode_update")] == [mode]
            (update,) = client.updates("config_option_update")
            assert values(update["configOptions"])["mode"] == mode
        await client.say(session_id, "hi")
        assert client.updates("usage_update")[-1]["used"] == 300
        await client.say(session_id, "/clear")
        assert client.updates("usage_update")[-1]["used"] == 0
        for command, chosen in (
            ("/model other", ("other", None)),
            ("/model m on", ("m", "on")),
            ("/model off", ("m", "off")),
        ):
            client.lines.clear()
            assert (await client.say(session_id, command))["result"]["stopReason"] == "end_turn"
            (update,) = client.updates("config_option_update")
            options = values(update["configOptions"])
            assert (options["model"], options.get("thinking")) == chosen
        client.lines.clear()
        await client.say(session_id, "/model none")
        assert "Unknown model 'none'" in client.said()
        assert client.updates("config_option_update") == []
        await client.say(session_id, "/model")
        assert "- other" in client.said()


@pytest.mark.spec("A-98")
async def test_unknown_slash_text_goes_to_the_model(place: Place) -> None:
    model = FakeModel([[TextPart("a path")] for _ in range(3)])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await client.say(session_id, "  /nope:a more")
        assert (client.said(), model.asked) == ('Unknown slash command "/nope:a".', [])
        for number, path in enumerate(("/usr/bin is where?", "/a.b", "//"), 1):
            client.lines.clear()
            await client.say(session_id, path)
            assert (client.said(), len(model.asked)) == ("a path", number)


def a_call(name: str, call_id: str, **arguments: object) -> ToolCall:
    """A whole call."""
    return ToolCall(call_id, Function(name, json.dumps(arguments)))


async def mode_after(client: AcpClient, place: Place, session_id: str, method: str) -> str:
    """The mode of a session that was closed and is opened again."""
    await client.result("session/close", {"sessionId": session_id})
    opened = await client.result(method, {"sessionId": session_id, "cwd": str(place.work), "mcpServers": []})
    return opened["modes"]["currentModeId"]


@pytest.mark.spec("A-90")
async def test_yolo_asks_nothing_and_is_not_restored(place: Place) -> None:
    release = anyio.Event()
    commands = [a_call("Shell", f"c{number}", command="true") for number in range(3)]
    model = FakeModel(
        [commands[:1], [TextPart("begun"), release.wait, *commands[1:2]], commands[2:], [TextPart("end")]]
    )
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        mode: Json = {"sessionId": session_id, "modeId": "yolo"}
        await client.result("session/set_mode", mode)
        running = await client.request("session/prompt", prompt(session_id, "hi"))
        await client.until_update("agent_message_chunk")
        assert "session/request_permission" not in [line.get("method") for line in client.lines]
        await client.result("session/set_mode", {**mode, "modeId": "default"})
        release.set()
        for _ in range(2):
            asked = await client.until_method("session/request_permission")
            answer: Json = {"outcome": {"outcome": "selected", "optionId": "approve"}}
            await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
        assert (await client.answer_of(running))["result"]["stopReason"] == "end_turn"
        for method in ("session/load", "session/resume"):
            await client.result("session/set_mode", mode)
            assert await mode_after(client, place, session_id, method) == "default"


@pytest.mark.spec("A-91")
async def test_plan_mode_refuses_to_write_and_is_left_with_the_plan(place: Place) -> None:
    model = FakeModel([[a_call("WriteFile", "w1", path="a.txt", content="x")], [TextPart("planned")]])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await client.result("session/set_mode", {"sessionId": session_id, "modeId": "plan"})
        await client.say(session_id, "plan it")
        refused = client.updates("tool_call_update")[-1]
        assert refused["status"] == "failed"
        text = refused["content"][0]["content"]["text"]
        assert "Plan mode is active" in text
        assert not (place.work / "a.txt").exists()

        plan = text.split("`")[1]
        model.scripts += [[a_call("WriteFile", "w2", path=plan, content="# The plan")], [a_call("ExitPlanMode", "p1")]]
        model.scripts += [[TextPart("carried out")]]
        client.lines.clear()
        running = await client.request("session/prompt", prompt(session_id, "go on"))
        asked = await client.until_method("session/request_permission")
        assert asked["params"]["toolCall"]["content"][0]["content"]["text"] == "# The plan"
        assert client.updates("current_mode_update") == []
        chosen: Json = {"outcome": {"outcome": "selected", "optionId": "plan_approve"}}
        await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": chosen})
        assert (await client.answer_of(running))["result"]["stopReason"] == "end_turn"
        assert [update["currentModeId"] for update in client.updates("current_mode_update")] == ["default"]
        (options,) = client.updates("config_option_update")
        assert values(options["configOptions"])["mode"] == "default"


LEVELS = """
[providers.other]
type = "openai_legacy"
base_url = "http://127.0.0.1:1/v1"
api_key = "none"
[models.levelled]
provider = "other"
model = "l"
max_context_size = 5000
capabilities = ["thinking"]
thinking_effort = "low"
"""


@pytest.mark.spec("R-321")
async def test_levels_of_thinking_are_offered_where_the_provider_has_them(tmp_path: Path) -> None:
    place = Place(tmp_path, capabilities=("thinking",))
    place.config = LEVELS
    place.script("text: x")
    async with acp_client(place) as client:
        await client.shake_hands()
        result = await client.result("session/new", {"cwd": str(place.work)})
        assert choices(result["configOptions"], "thinking") == ["off", "on"]
        session_id = result["sessionId"]
        options = await set_option(client, session_id, "model", "levelled")
        assert choices(options, "thinking") == ["off", "on", "minimal", "low", "medium", "high", "xhigh"]
        for value, now in (("on", "low"), ("high", "high"), ("off", "off"), ("on", "high")):
            assert values(await set_option(client, session_id, "thinking", value))["thinking"] == now
        params: Json = {"sessionId": session_id, "configId": "thinking", "value": "max"}
        assert (await client.error("session/set_config_option", params))["code"] == -32602
