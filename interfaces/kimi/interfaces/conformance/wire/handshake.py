"""The handshake, and clients without one (wire spec 2, 3.1)."""

from __future__ import annotations

import json
import sys
import time
from typing import cast

from kimi.interfaces.conformance.ledger import expect, expect_equal
from kimi.interfaces.conformance.model_server import fail, say, stall, tool_call, use
from kimi.interfaces.conformance.peer import Json
from kimi.interfaces.conformance.scenario import Stage, scenario
from kimi.interfaces.conformance.wire.client import CLIENT, WirePeer, approve, check_error, check_status, start

HOOK_EVENTS = [
    "PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "Stop", "StopFailure", "SessionStart",
    "SessionEnd", "SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "Notification",
]  # fmt: skip
KEYS = {"protocol_version": 1, "server": 1, "slash_commands": 1, "hooks": 7, "capabilities": 4}
"""The members of the result, and since which version 1.N they are there."""
TOOL: Json = {"name": "ask_ci", "description": "Ask", "parameters": {"type": "object", "properties": {}}}
EMPTY: Json = {}
ASKING = {"AskUserQuestion"}
PLANNING = {"EnterPlanMode", "ExitPlanMode"}


def has_null(value: object) -> bool:
    """Whether a value holds null at any depth."""
    if isinstance(value, dict):
        return any(has_null(item) for item in cast("Json", value).values())
    return any(has_null(item) for item in cast("list[object]", value)) if isinstance(value, list) else value is None


@scenario("wire", "W-38 W-39 W-40 W-41 W-42 W-43 W-44 W-45 W-46 W-48 W-51")
async def the_handshake(stage: Stage) -> None:
    """What `initialize` takes and returns."""
    peer = await start(stage)
    with stage.check("W-38"):
        for version in ("1.0", "1.10", "9.9", "zzz", ""):
            result = await peer.result("initialize", {"protocol_version": version, "client": CLIENT})
            spoken = f"1.{min(stage.target.version, 10)}"
            expect_equal(result["protocol_version"], spoken, f"the answer to version {version!r}")
    with stage.check("W-39"):
        for params in ({}, {"protocol_version": 1}, {"protocol_version": None}):
            check_error(await peer.request("initialize", params), -32602)
    plain = await peer.initialize()
    with stage.check("W-40"):
        keys = {name for name, since in KEYS.items() if since <= stage.target.version}
        expect_equal(set(plain), keys, "the members of the result")
        expect_equal(set(await peer.initialize(external_tools=[])), keys, "the members without a tool")
        offered = await peer.initialize(external_tools=[TOOL])
        expect_equal(set(offered), keys | {"external_tools"}, "the members with a tool")
    with stage.check("W-41"):
        expect(not has_null(plain), "a member is null")
        for command in plain["slash_commands"]:
            shape = isinstance(command["name"], str) and isinstance(command["description"], str)
            expect(shape and isinstance(command["aliases"], list), f"a command is {json.dumps(command)}")
    with stage.check("W-42"):
        expect_equal(plain["server"]["name"], "Kimi Code CLI", "the server's name")
        if stage.target.version >= KEYS["capabilities"]:
            expect_equal(plain["capabilities"], {"supports_question": True}, "`capabilities`")
    with stage.check("W-43"):
        expect_equal(plain["hooks"]["supported_events"], HOOK_EVENTS, "the hook events")
        hooks = [{"id": "a", "event": "Stop"}, {"id": "b", "event": "Stop"}]
        configured = (await peer.initialize(hooks=hooks))["hooks"]["configured"]
        expect_equal(configured.get("Stop"), 2, "the count of Stop")
    with stage.check("W-44"):
        for name in ("client", "external_tools", "hooks", "capabilities"):
            await peer.result("initialize", {"protocol_version": "1.10", name: None})
    with stage.check("W-45"):
        wrong: list[tuple[int, Json]] = [
            (1, {"client": {"version": "1"}}),
            (1, {"external_tools": [{"name": "a", "parameters": {}}]}),
            (KEYS["hooks"], {"hooks": [{"event": "Stop"}]}),
            (KEYS["capabilities"], {"capabilities": {"supports_question": "yes"}}),
        ]
        for params in (params for since, params in wrong if since <= stage.target.version):
            check_error(await peer.request("initialize", {"protocol_version": "1.10", **params}), -32602)
    with stage.check("W-46"):
        configured = (await peer.initialize(hooks=[{"id": "x", "event": "Nonsense"}]))["hooks"]["configured"]
        expect("Nonsense" not in configured, "the unknown event is counted")
    with stage.check("W-51"):
        await peer.initialize(client={"name": "pan\nel → ü", "version": "1"})
        check_status(await peer.prompt("hi"))
        expect(stage.model.requests, "no request reached the model")
    if stage.target.has_process:  # over WebSocket a handshake in a turn is answered (wire spec 13.2)
        with stage.check("W-48"):
            stage.model.script(stall("a"))
            call_id = await peer.call("prompt", {"user_input": "go"})
            await peer.until("ContentPart")
            busy = "An agent turn is already in progress"
            check_error(await peer.request("initialize", {"protocol_version": "1.10"}), -32000, busy)
            await peer.call("cancel")
            check_status(await peer.read_turn(call_id), "cancelled")


@scenario("wire", "W-47 W-49 W-119")
async def repeated_handshakes(stage: Stage) -> None:
    """What a second handshake changes, as the model sees it."""
    peer = await start(stage)
    hook: Json = {"id": "h", "event": "UserPromptSubmit"}
    await peer.initialize(external_tools=[TOOL], hooks=[hook])
    with stage.check("W-49"):
        check_status(await peer.prompt("hi", lambda params: {"request_id": params["payload"]["id"]}))
        hidden = (ASKING | PLANNING) & set(stage.model.offered_tools)
        expect(not hidden, f"tools are offered that the client cannot serve: {sorted(hidden)}")
        await peer.initialize(capabilities={"supports_question": True, "supports_plan_mode": True})
        await peer.prompt("hi", lambda params: {"request_id": params["payload"]["id"]})
        missing = (ASKING | PLANNING) - set(stage.model.offered_tools)
        expect(not missing, f"tools are not offered that the client can serve: {sorted(missing)}")
    with stage.check("W-47"):
        await peer.initialize(external_tools=[TOOL], hooks=[hook])
        mark = peer.mark()
        check_status(await peer.prompt("hi", lambda params: {"request_id": params["payload"]["id"]}))
        expect_equal(peer.types(mark).count("HookRequest"), 1, "the number of hook requests")
    with stage.check("W-119", "W-47"):
        changed: Json = {**TOOL, "description": "Changed", "parameters": {"type": "object", "properties": {"job": {}}}}
        accepted = (await peer.initialize(external_tools=[changed], hooks=[]))["external_tools"]["accepted"]
        expect_equal(accepted, ["ask_ci"], "the accepted tools")
        await peer.prompt("hi")
        found = [one["function"] for one in stage.model.requests[-1]["tools"] if one["function"]["name"] == "ask_ci"]
        expect_equal(len(found), 1, "how often the tool is offered")
        expect_equal(found[0]["description"], "Changed", "the description that the model sees")
        expect("job" in found[0]["parameters"].get("properties", {}), "the model sees the old schema")


@scenario("wire", "W-53 W-54 W-55 W-56 W-57 W-73")
async def a_client_without_handshake(stage: Stage) -> None:
    """Prompts before `initialize`."""
    peer = await start(stage)
    with stage.check("W-53"):
        stage.model.script(say("one", "two"))
        check_status(await peer.prompt("hi"))
        kinds = ["TurnBegin", "StepBegin", "ContentPart", "ContentPart", "StatusUpdate", "TurnEnd"]
        expect_equal(peer.types(), kinds, "the events")
    with stage.check("W-54"):
        stage.model.script(use(tool_call("Shell", {"command": "echo kit"}, "c1")), say("done"))
        mark = peer.mark()
        response = await peer.prompt("run", approve)
        check_status(response)
        expect("ApprovalRequest" in peer.types(mark), "no approval was asked for")
        expect_equal(peer.payloads("ToolResult", mark)[0]["return_value"]["is_error"], False, "`is_error`")
    with stage.check("W-57"):
        expect_equal(response.get("result"), {"status": "finished"}, "the result")
    with stage.check("W-55"):
        offered = (ASKING | PLANNING) & set(stage.model.offered_tools)
        expect(not offered, f"tools are offered that the client cannot serve: {sorted(offered)}")
        stage.model.script(use(tool_call("AskUserQuestion", question_arguments(), "q1")), say("done"))
        mark = peer.mark()
        check_status(await peer.prompt("ask"))
        text = "The connected client does not support interactive questions. Do NOT call this tool again. "
        text += "Ask the user directly in your text response instead."
        expect_equal(peer.payloads("ToolResult", mark)[0]["return_value"]["message"], text, "the result's message")
    with stage.check("W-56"):
        check_status(await peer.request("replay"))
        expect_equal((await peer.result("set_plan_mode", {"enabled": False}))["plan_mode"], False, "plan_mode")
    with stage.check("W-56", "W-73"):
        stage.model.script(stall("a"))
        call_id = await peer.call("prompt", {"user_input": "go"})
        await peer.until("ContentPart")
        cancels = [peer.build_call("cancel") for _ in range(2)]
        await peer.send(*cancels)
        first, second = (call["id"] for call in cancels)
        answers = await peer.responses(call_id, first, second)
        order = list(answers)
        expect_equal(order[0], first, "the first response")
        expect_equal(answers[first].get("result"), EMPTY, "its result")
        check_status(answers[call_id], "cancelled")
        if stage.target.has_process or order[-1] == call_id:  # elsewhere the second may come after the end of the turn
            expect_equal(order, [first, second, call_id], "the order of the responses")
            expect_equal(answers[second].get("result"), EMPTY, "the result of the second cancel")


def question_arguments() -> Json:
    """Return arguments of AskUserQuestion."""
    options = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
    return {"questions": [{"question": "Which?", "header": "H", "options": options, "multi_select": False}]}


@scenario("wire", "W-52", needs_process=True)
async def a_handshake_beside_a_mute_server(stage: Stage) -> None:
    """An MCP server that never answers does not delay the handshake."""
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    entry: Json = {"command": command[0], "args": command[1:]}
    stage.home.write_mcp_servers({"mute": entry})
    peer = await start(stage)
    with stage.check("W-52"):
        begin = time.monotonic()
        await peer.initialize()
        expect(time.monotonic() - begin < stage.allow(8), "initialize waited for the mute server")


@scenario("wire", "W-100", needs_process=True)  # there is no strict profile over WebSocket (wire spec 13.2)
async def clients_that_stop_at_unknown_events(stage: Stage) -> None:
    """The strict profile, by its handshake: a new version, neither client nor capabilities."""
    known = {
        "TurnBegin", "TurnEnd", "StepBegin", "StepInterrupted", "CompactionBegin", "CompactionEnd", "StatusUpdate",
        "ContentPart", "ToolCall", "ToolCallPart", "ToolResult", "SubagentEvent", "ApprovalResponse",
        "ApprovalRequest", "ToolCallRequest",
    }  # fmt: skip
    peer = await start(stage)
    await peer.result("initialize", {"protocol_version": "1.10"})
    with stage.check("W-100"):
        foreign = set(await play_retry(peer, stage)) - known
        expect(not foreign, f"events are sent that such a client does not know: {sorted(foreign)}")
        await peer.result("initialize", {"protocol_version": "1.1"})
        stage.model.script()
        expect("StepRetry" in await play_retry(peer, stage), "a client of version 1.1 gets no StepRetry")


async def play_retry(peer: WirePeer, stage: Stage) -> list[str]:
    """Run a turn with a failing attempt; return its events."""
    stage.model.script(fail(503, "busy"), say("ok"))
    mark = peer.mark()
    check_status(await peer.prompt("hi"))
    return peer.types(mark)
