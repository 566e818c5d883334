"""The whole feature list with the protocol's own library as the client, in one process and with a real one.

Every message of the agent is checked against the protocol's schema on its way (`tests.support.acp.sdk_editor`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import acp
import anyio
import pytest
from acp import schema

from tests.support.acp.sdk_editor import ALL_ABILITIES, PATIENCE_S, Agent, SdkEditor, Where, first_option, sdk_agent
from tests.support.mcp.entries import RAW
from tests.support.program.wire_process import Json, Place, eventually
from tests.support.providers.scripts import call, shell, step

pytestmark = pytest.mark.anyio

DONE = step("text: Done.")
QUESTION = {"question": "Which?", "header": "Pick", "options": [{"label": "A"}, {"label": "B"}]}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

Connect: TypeAlias = Callable[[Place, SdkEditor], AbstractAsyncContextManager[Agent]]


@pytest.fixture(params=["in process", "a process"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Where the agent runs."""
    where: Where = request.param

    @asynccontextmanager
    async def connected(place: Place, editor: SdkEditor) -> AsyncGenerator[Agent, None]:
        with anyio.fail_after(PATIENCE_S):
            async with sdk_agent(where, place, editor) as agent:
                yield agent

    return connected


@pytest.fixture
def editor() -> SdkEditor:
    return SdkEditor()


# --- sessions -----------------------------------------------------------------------------------------------------


async def test_sessions_are_opened_listed_replayed_forked_and_removed(
    connect: Connect, place: Place, editor: SdkEditor
) -> None:
    place.script(*(step("think: Hm.", f"text: answer {number}") for number in range(9)))
    cwd = str(place.work)
    async with connect(place, editor) as agent:
        told = await agent.hello()
        assert told["protocolVersion"] == 1
        assert told["agentInfo"]["name"] == "Kimi Code CLI"
        await agent.sdk.authenticate(method_id="login")
        first = await agent.new(place)
        assert await agent.say(first, "one") == "end_turn"
        await editor.until(lambda: editor.of("session_info_update", first))
        listed = await agent.sdk.list_sessions(cwd=cwd)
        assert [(one.session_id, one.title) for one in listed.sessions] == [(first, "one")]
        fork = (await agent.sdk.fork_session(session_id=first, cwd=cwd)).session_id
        assert await agent.say(fork, "two") == "end_turn"
        assert {one.session_id for one in (await agent.sdk.list_sessions()).sessions} == {first, fork}
        await agent.sdk.close_session(session_id=first)
        assert (await agent.refusal(agent.say(first)))["code"] == -32602
        editor.updates.clear()
        await agent.sdk.resume_session(session_id=first, cwd=cwd)
        assert not editor.of("user_message_chunk")
        await agent.sdk.close_session(session_id=first)
        editor.updates.clear()
        loaded = await agent.sdk.load_session(session_id=first, cwd=cwd)
        assert [one["content"]["text"] for one in editor.of("user_message_chunk", first)] == ["one"]
        assert len(editor.of("agent_thought_chunk", first)) == 1
        assert loaded.modes.current_mode_id == "default"
        assert await agent.call("session/delete", {"sessionId": fork}) == {}
        assert [one.session_id for one in (await agent.sdk.list_sessions(cwd=cwd)).sessions] == [first]


async def test_models_modes_and_options_are_chosen(connect: Connect, tmp_path: Path, editor: SdkEditor) -> None:
    place = Place(tmp_path, capabilities=("thinking",))
    place.config = (
        '[models.other]\nprovider = "p"\nmodel = "test-model"\nmax_context_size = 100000\ncapabilities = []\n'
    )
    place.script(DONE, DONE)
    async with connect(place, editor) as agent:
        await agent.hello()
        session_id = await agent.new(place)

        async def chosen(**wanted: str) -> dict[str, str]:
            [(option, value)] = wanted.items()
            result = await agent.sdk.set_config_option(session_id=session_id, config_id=option, value=value)
            return {one.id: one.current_value for one in result.config_options}

        assert await chosen(thinking="off") == {"model": "m", "thinking": "off", "mode": "default"}
        assert await chosen(mode="plan") == {"model": "m", "thinking": "off", "mode": "plan"}
        assert await chosen(model="other") == {"model": "other", "mode": "plan"}
        await agent.sdk.set_session_mode(session_id=session_id, mode_id="default")
        assert await agent.call("session/set_model", {"sessionId": session_id, "modelId": "m,thinking"}) == {}
        await editor.until(lambda: editor.of("config_option_update"))
        assert await chosen(mode="yolo") == {"model": "m", "thinking": "on", "mode": "yolo"}
        for bad in (
            agent.sdk.set_config_option(session_id=session_id, config_id="model", value="none"),
            agent.sdk.set_config_option(session_id=session_id, config_id="none", value="m"),
            agent.sdk.set_session_mode(session_id=session_id, mode_id="none"),
            agent.sdk.set_session_mode(session_id="none", mode_id="yolo"),
        ):
            assert (await agent.refusal(bad))["code"] == -32602


async def test_requests_that_cannot_be_met_are_refused_at_once(
    connect: Connect, place: Place, editor: SdkEditor
) -> None:
    place.script(DONE, DONE)
    (place.work / "file").write_text("")
    at: Json = {"cwd": str(place.work), "mcpServers": []}
    outside = place.work.parent / "x"
    outside.mkdir()
    (outside / "context.jsonl").write_text("{}\n")
    async with connect(place, editor) as agent:
        await agent.hello()
        for cwd in ("relative", "", "~", str(place.work / "none"), str(place.work / "file"), "/x\0y"):
            assert (await agent.refusal(agent.sdk.new_session(cwd=cwd)))["code"] == -32602, cwd
        assert (await agent.refusal(agent.call("session/new", {})))["code"] == -32602
        for name in ("none", "../../x", "/etc", "", "a\0b", ".", "..", "x" * 5000, "ä/ö"):
            for method in ("session/load", "session/resume", "session/fork"):
                error = await agent.refusal(agent.call(method, {**at, "sessionId": name}))
                assert error["code"] in (-32002, -32602), (method, name, error)
            for method in ("session/prompt", "session/set_mode"):
                params: Json = {"sessionId": name, "modeId": "yolo", "prompt": [{"type": "text", "text": "x"}]}
                assert (await agent.refusal(agent.call(method, params)))["code"] == -32602, (method, name)
            assert await agent.call("session/close", {"sessionId": name}) == {}
            await agent.sdk.cancel(session_id=name)
        assert await agent.call("session/delete", {"sessionId": "none"}) == {}
        assert (await agent.refusal(agent.call("session/delete", {"sessionId": "../../x"})))["code"] == -32602
        assert (await agent.refusal(agent.call("session/load", {**at, "sessionId": "none"})))["code"] == -32002
        for method in ("nonsense", "logout", "_x/y", "providers/list"):
            error = await agent.refusal(agent.call(method, {}))
            assert (error["code"], error["data"]) == (-32601, {"method": method})
        assert (await agent.refusal(agent.sdk.list_sessions(cursor="none")))["code"] == -32602
        assert await agent.say(await agent.new(place)) == "end_turn"
    assert (outside / "context.jsonl").exists()


async def test_sessions_require_credentials(connect: Connect, place: Place, editor: SdkEditor) -> None:
    place.script(DONE)
    config = place.share / "config.toml"
    usable = config.read_text(encoding="utf-8")
    place.write_config("openai_legacy", base_url="https://api.test/v1")
    keyless = config.read_text(encoding="utf-8").replace('api_key = "sk-test-secret"', 'api_key = ""')
    config.write_text(keyless, encoding="utf-8")
    async with connect(place, editor) as agent:
        told = await agent.hello(**ALL_ABILITIES)
        assert [(one["id"], one["type"]) for one in told["authMethods"]] == [("login", "terminal")]
        new: Json = {"cwd": str(place.work), "mcpServers": []}
        for method, params in (("session/new", new), ("authenticate", {"methodId": "login"})):
            error = await agent.refusal(agent.call(method, params))
            assert (error["code"], error["message"]) == (-32000, "Authentication required")
            assert error["data"]["authMethods"][0]["id"] == "login"
        assert (await agent.refusal(agent.sdk.authenticate(method_id="none")))["code"] == -32602
        assert (await agent.sdk.list_sessions()).sessions == []
        config.write_text(usable, encoding="utf-8")
        await agent.sdk.authenticate(method_id="login")
        assert await agent.say(await agent.new(place)) == "end_turn"


# --- turns --------------------------------------------------------------------------------------------------------


async def test_turn_sends_all_updates(connect: Connect, tmp_path: Path, editor: SdkEditor) -> None:
    place = Place(tmp_path, capabilities=("image_in", "thinking")).script(
        step(
            "usage: " + json.dumps({"input_other": 100, "output": 5}),
            "think: I think.",
            "text: I look.",
            call("r1", "ReadFile", {"path": "a.txt"}),
            call("t1", "SetTodoList", {"todos": [{"title": "Do it", "status": "in_progress"}]}),
            call("e1", "StrReplaceFile", {"path": "a.txt", "edit": {"old": "one", "new": "1"}}),
        ),
        DONE,
        DONE,
    )
    (place.work / "a.txt").write_text("one\ntwo\n")
    async with connect(place, editor) as agent:
        await agent.hello()
        session_id = await agent.new(place)
        blocks: list[Any] = [
            acp.text_block("look"),
            acp.image_block(PIXEL, "image/png"),
            acp.resource_link_block("a", f"file://{place.work}/a.txt"),
            acp.resource_block(acp.embedded_text_resource("file:///b.py", "x = 1")),
            acp.resource_block(acp.embedded_blob_resource("file:///c.png", PIXEL, mime_type="image/png")),
        ]
        answer = await agent.sdk.prompt(session_id=session_id, prompt=blocks)
        assert answer.stop_reason == "end_turn"
        assert editor.said() == "I look.Done."
        assert editor.ends() == {"r1": "completed", "t1": "completed", "e1": "completed"}
        assert [one["toolCall"]["status"] for one in editor.asked] == ["pending"]
        assert editor.of("plan")[-1]["entries"][0]["content"] == "Do it"
        assert await agent.say(session_id, "/plan on") == "end_turn"
        assert await agent.say(session_id, "/plan off") == "end_turn"
        assert [one["currentModeId"] for one in editor.of("current_mode_update")] == ["plan", "default"]
        assert editor.kinds() == {
            "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan", "usage_update",
            "available_commands_update", "current_mode_update", "config_option_update", "session_info_update",
        }  # fmt: skip
        audio = [acp.audio_block("AAAA", "audio/wav")]
        assert (await agent.refusal(agent.sdk.prompt(session_id=session_id, prompt=audio)))["code"] == -32602
        assert (await agent.refusal(agent.sdk.prompt(session_id=session_id, prompt=[])))["code"] == -32602
        editor.updates.clear()
        await agent.sdk.load_session(session_id=session_id, cwd=str(place.work))
        assert "image" in [one["content"]["type"] for one in editor.of("user_message_chunk")]
        assert editor.ends() == {"r1": "completed", "t1": "completed", "e1": "completed"}
    assert (place.work / "a.txt").read_text() == "1\ntwo\n"


async def test_permission_for_the_session_is_asked_once(connect: Connect, place: Place, editor: SdkEditor) -> None:
    asks = [shell(f"s{number}", f"echo {number}; exit 0") for number in range(5)]
    place.script(step(asks[0]), DONE, step(asks[1]), step(asks[2]), DONE, step(asks[3]), DONE)
    answers = iter(["approve", "reject", "approve_for_session"])

    async def choose(request: Json) -> str:
        return next(answers)

    editor.choose = choose
    async with connect(place, editor) as agent:
        await agent.hello()
        session_id = await agent.new(place)
        assert await agent.say(session_id) == "end_turn"
        assert await agent.say(session_id) == "end_turn"
        assert editor.ends() == {"s0": "completed", "s1": "failed"}
        assert await agent.say(session_id) == "end_turn"
        assert await agent.say(session_id) == "end_turn"
        assert editor.ends() == {"s0": "completed", "s1": "failed", "s2": "completed", "s3": "completed"}
        assert len(editor.asked) == 3
        assert [option["kind"] for option in editor.asked[0]["options"]] == [
            "allow_once", "allow_always", "reject_once",
        ]  # fmt: skip


async def test_subagent_requests_permission(connect: Connect, place: Place, editor: SdkEditor) -> None:
    report = "text: " + "I looked at everything and found nothing that has to be done there. " * 5
    place.script(
        step(call("a1", "Agent", {"description": "Look", "prompt": "Look.", "subagent_type": "coder"})),
        step(shell("s1", "echo from below > below")),
        step(report),
        DONE,
    )
    async with connect(place, editor) as agent:
        await agent.hello()
        assert await agent.say(await agent.new(place)) == "end_turn"
    announced = [one["toolCallId"] for one in editor.of("tool_call")]
    [asked] = [request["toolCall"]["toolCallId"] for request in editor.asked]
    assert asked.endswith("/a1/s1")
    assert asked in announced
    assert (place.work / "below").read_text() == "from below\n"


async def test_files_and_terminals_of_the_editor_are_used(connect: Connect, place: Place, editor: SdkEditor) -> None:
    path = place.work / "a.txt"
    path.write_text("on disk\n")
    editor.desk.buffers[str(path)] = "not saved\n"
    place.script(
        step(call("e1", "StrReplaceFile", {"path": "a.txt", "edit": {"old": "not saved", "new": "saved"}})),
        step(shell("s1", "cat a.txt; exit 3")),
        DONE,
    )
    async with connect(place, editor) as agent:
        await agent.hello(**ALL_ABILITIES)
        assert await agent.say(await agent.new(place)) == "end_turn"
    assert path.read_text() == "saved\n"
    methods = editor.desk.methods()
    assert "fs/read_text_file" in methods
    assert "fs/write_text_file" in methods
    assert [one for one in methods if one.startswith("terminal/")][-1] == "terminal/release"
    assert editor.ends() == {"e1": "completed", "s1": "failed"}
    shown = [one["content"] for one in editor.of("tool_call_update") if one.get("content")]
    assert [{"type": "terminal", "terminalId": "t1"}] in shown
    assert not editor.desk.terminals


@pytest.mark.spec("A-89")
@pytest.mark.parametrize("by", ["form", "options"])
async def test_questions_are_asked(connect: Connect, place: Place, editor: SdkEditor, by: str) -> None:
    place.script(step(call("q1", "AskUserQuestion", {"questions": [QUESTION]})), DONE)
    editor.form = {"q0": "A"}
    async with connect(place, editor) as agent:
        await agent.hello(**(ALL_ABILITIES if by == "form" else {}))
        assert await agent.say(await agent.new(place)) == "end_turn"
    assert (len(editor.forms), len(editor.asked)) == ((1, 0) if by == "form" else (0, 1))
    assert editor.ends() == {"q1": "completed"}
    answer = [one for one in editor.of("tool_call_update") if one.get("status") == "completed"][-1]
    assert "A" in json.dumps(answer["rawOutput"])


async def test_a_running_turn_is_steered(connect: Connect, place: Place, editor: SdkEditor) -> None:
    place.script(step(shell("s1", "true")), step("text: steered"), step("text: again"))
    outcomes: list[Json] = []
    async with connect(place, editor) as agent:

        async def steer(request: Json) -> str:
            params = {"sessionId": request["sessionId"], "prompt": [{"type": "text", "text": "more"}]}
            outcomes.append(await agent.sdk.ext_method("session/steering", params))
            return await first_option(request)

        editor.choose = steer
        await agent.hello()
        session_id = await agent.new(place)
        assert await agent.say(session_id) == "end_turn"
        idle = {"sessionId": session_id, "prompt": [{"type": "text", "text": "more"}]}
        outcomes.append(await agent.sdk.ext_method("session/steering", idle))
        assert outcomes == [{"outcome": "injected"}, {"outcome": "promptRequired", "reason": "noRunningTurn"}]
        editor.updates.clear()
        await agent.sdk.load_session(session_id=session_id, cwd=str(place.work))
        assert [one["content"]["text"] for one in editor.of("user_message_chunk")] == ["go", "more"]


async def test_servers_of_the_session_are_used(connect: Connect, place: Place, editor: SdkEditor) -> None:
    place.script(step(call("m1", "env", {})), DONE)
    told = json.dumps({"tools": ["env"]})
    server = schema.McpServerStdio(
        name="own",
        command=sys.executable,
        args=["-S", str(RAW), told],
        env=[schema.EnvVariable(name="OF_SESSION", value="yes")],
    )
    async with connect(place, editor) as agent:
        await agent.hello()
        assert await agent.say(await agent.new(place, mcp_servers=[server])) == "end_turn"
        assert editor.ends()["m1"] == "completed"
        shown = [one for one in editor.of("tool_call_update") if one.get("status") == "completed"]
        assert "OF_SESSION" in json.dumps(shown)
        bad: Json = {"cwd": str(place.work), "mcpServers": [{"type": "riddle", "name": "broken"}]}
        assert (await agent.refusal(agent.call("session/new", bad)))["code"] == -32602


# --- cancelling ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="the commands are for a POSIX shell")
@pytest.mark.parametrize("how", ["notification", "request"])
async def test_a_running_command_is_cancelled(connect: Connect, place: Place, editor: SdkEditor, how: str) -> None:
    place.script(step(shell("s1", "echo $$ > pid; sleep 60")), step("text: after"))
    async with connect(place, editor) as agent:
        await agent.hello()
        session_id = await agent.new(place)
        stopped: list[str] = []

        async def run() -> None:
            stopped.append(await agent.say(session_id))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await anyio.to_thread.run_sync(lambda: eventually((place.work / "pid").exists, 20))
            if how == "notification":
                await agent.sdk.cancel(session_id=session_id)
            else:
                await agent.tell("$/cancel_request", {"requestId": agent.sdk._conn._next_request_id - 1})
        assert stopped == ["cancelled"]
        assert editor.ends() == {"s1": "failed"}
        assert await agent.say(session_id) == "end_turn"
        assert editor.said() == "after"


async def test_open_permission_and_queued_prompts_are_cancelled(
    connect: Connect, place: Place, editor: SdkEditor
) -> None:
    place.script(step(shell("s1", "true")), step("text: after"))
    never, asked = anyio.Event(), anyio.Event()

    async def keep_waiting(request: Json) -> str | None:
        asked.set()
        await never.wait()
        return None

    editor.choose = keep_waiting
    async with connect(place, editor) as agent:
        await agent.hello()
        session_id = await agent.new(place)
        stopped: list[str] = []

        async def run(text: str) -> None:
            stopped.append(await agent.say(session_id, text))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, "one")
            await asked.wait()
            tasks.start_soon(run, "two")
            await anyio.lowlevel.checkpoint()
            await agent.call("session/list", {})
            await agent.sdk.cancel(session_id=session_id)
        assert stopped == ["cancelled", "cancelled"]
        assert editor.ends() == {"s1": "failed"}
        never.set()
        assert await agent.say(session_id) == "end_turn"
        assert editor.said() == "after"


@pytest.mark.skipif(os.name == "nt", reason="the commands are for a POSIX shell")
async def test_terminal_created_after_cancel_is_released(connect: Connect, place: Place, editor: SdkEditor) -> None:
    place.script(step(shell("s1", "sleep 60")))
    async with connect(place, editor) as agent:

        async def make_late(method: str) -> None:
            if method == "terminal/create":
                await agent.sdk.cancel(session_id=session_id)
                await anyio.sleep(0.1)

        editor.before = make_late
        await agent.hello(terminal=True)
        session_id = await agent.new(place)
        assert await agent.say(session_id) == "cancelled"
        assert editor.desk.methods()[-1] == "terminal/release"
        assert not editor.desk.terminals
