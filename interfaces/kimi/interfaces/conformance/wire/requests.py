"""Requests of the server, and every way to answer them (wire spec 4.4, 4.7)."""

from __future__ import annotations

from kimi.interfaces.conformance.ledger import expect, expect_equal
from kimi.interfaces.conformance.model_server import Call, say, tool_call, use
from kimi.interfaces.conformance.peer import Json
from kimi.interfaces.conformance.scenario import Stage, scenario
from kimi.interfaces.conformance.wire.client import (
    WirePeer,
    approve,
    build_approval,
    build_tool_result,
    check_status,
    start_ready,
)

TOOL: Json = {"name": "ask_ci", "description": "Ask", "parameters": {"type": "object"}}
REJECTED = "The tool call is rejected by the user."
BARE = f"{REJECTED} Stop what you are doing and wait for the user to tell you how to proceed."
INVALID = "Invalid tool result payload from client."


def shell(call_id: str, command: str = "echo kit") -> Call:
    """Return a call of Shell."""
    return tool_call("Shell", {"command": command}, call_id)


def find_result(peer: WirePeer, call_id: str) -> Json:
    """Return the value of the result of a call."""
    found = [one for one in peer.payloads("ToolResult") if one["tool_call_id"] == call_id]
    expect(found, f"no ToolResult of {call_id}")
    return found[-1]["return_value"]


def find_brief(value: Json) -> str:
    """Return the text of the brief block of a result."""
    return next((block["text"] for block in value["display"] if block["type"] == "brief"), "")


@scenario("wire", "W-88 W-89 W-101 W-102 W-103 W-104")
async def approvals(stage: Stage) -> None:
    """Approve, reject, reject with feedback, approve for the session."""
    peer = await start_ready(stage)
    with stage.check("W-102"):
        stage.model.script(use(shell("c1")), say("ok"))
        check_status(await peer.prompt("go", approve))
        kinds = [one for one in peer.types() if one not in ("ToolCallPart", "StatusUpdate")]
        wanted = ["ToolCall", "ApprovalRequest", "ApprovalResponse", "ToolResult", "StepBegin", "ContentPart"]
        expect_equal(kinds, peer.known("TurnBegin", "StepBegin", *wanted, "TurnEnd"), "the events of an approved call")
        request = peer.payloads("ApprovalRequest")[0]
        found = (request["sender"], request["action"], request["description"], request["tool_call_id"])
        expect_equal(found, ("Shell", "run command", "Run command `echo kit`", "c1"), "the request")
        value = find_result(peer, "c1")
        expect_equal(value["message"], "Command executed successfully.", "the message")
    with stage.check("W-102"):
        stage.model.script(use(shell("c2")), say("never"))
        mark = peer.mark()
        check_status(await peer.prompt("go", lambda params: build_approval(params, "reject")))
        expect_equal(peer.types(mark).count("StepBegin"), 1, "the number of steps after a rejection")
        value = find_result(peer, "c2")
        expect_equal((value["is_error"], value["message"]), (True, BARE), "the result of a rejected call")
        expect_equal(find_brief(value), "Rejected by user", "its brief block")
    with stage.check("W-102"):
        stage.model.script(use(shell("c3")), say("ok"))
        mark = peer.mark()
        check_status(await peer.prompt("go", lambda params: build_approval(params, "reject", "use ninja")))
        expect_equal(peer.types(mark).count("StepBegin"), 2, "the number of steps after feedback")
        value = find_result(peer, "c3")
        expect_equal(value["message"], f"{REJECTED} User feedback: use ninja", "the message")
        expect_equal(find_brief(value), "Rejected: use ninja", "its brief block")
    with stage.check("W-103"):
        stage.model.script(use(shell("c4", "echo first"), shell("c5", "echo second")), say("never"))
        mark = peer.mark()
        decide = iter(("reject", "approve"))
        check_status(await peer.prompt("go", lambda params: build_approval(params, next(decide))))
        expect_equal(peer.types(mark).count("StepBegin"), 1, "the number of steps")
        failed = [one["return_value"]["is_error"] for one in peer.payloads("ToolResult", mark)]
        expect_equal(sorted(failed), [False, True], "`is_error` of both results")
    with stage.check("W-102", "W-104"):
        stage.model.script(use(shell("c6"), shell("c7")), use(shell("c8")), say("ok"))
        mark = peer.mark()
        call_id = await peer.call("prompt", {"user_input": "go"})
        first = await peer.until("ApprovalRequest")
        second = await peer.until("ApprovalRequest")
        await peer.answer(second, build_approval(second["params"], "approve_for_session"))
        check_status(await peer.read_turn(call_id))
        settled = {one["request_id"]: one["response"] for one in peer.payloads("ApprovalResponse", mark)}
        wanted_answers = {first["id"]: "approve", second["id"]: "approve_for_session"}
        expect_equal(settled, wanted_answers, "how both requests were settled")
        expect_equal(peer.types(mark).count("ApprovalRequest"), 2, "how often was asked")
    with stage.check("W-104"):
        fresh = await start_ready(stage)
        check_status(await fresh.prompt("/yolo on"))
        stage.model.script(use(shell("c9")), say("ok"))
        check_status(await fresh.prompt("go"))
        expect("ApprovalRequest" not in fresh.types(), "an approval is asked for under yolo")


@scenario("wire", "W-105 W-109 W-110 W-111")
async def broken_approvals(stage: Stage) -> None:
    """Answers to an approval that are no answers: each rejects."""
    peer = await start_ready(stage)

    async def settle(**members: object) -> str:
        stage.model.script(use(shell("c1", "echo kit > kit.txt")), say("ok"))
        mark = peer.mark()
        call_id = await peer.call("prompt", {"user_input": "go"})
        request = await peer.until("ApprovalRequest")
        await peer.send({"jsonrpc": "2.0", "id": request["id"], **members})
        check_status(await peer.read_turn(call_id))
        settled = peer.payloads("ApprovalResponse", mark)
        expect_equal(len(settled), 1, "the number of ApprovalResponse")
        return settled[0]["response"]

    wrong: list[Json] = [
        {"error": {"code": 1, "message": "no"}},
        {"result": {"response": "maybe"}},
        {"result": None},
        {"result": {"request_id": "another", "response": "approve"}},
    ]
    with stage.check("W-105"):
        for members in wrong:
            expect_equal(await settle(**members), "reject", f"the outcome of {members}")
        expect(not (stage.home.work / "kit.txt").exists(), "a call ran that was not approved")
    with stage.check("W-109"):
        expect_equal(await settle(error="text"), "reject", "the outcome of an error that is a string")
    with stage.check("W-110"):
        expect_equal(await settle(), "reject", "the outcome of a response without members")
        good = await settle(error=None, result={"response": "approve"})
        expect_equal(good, "approve", "the outcome of a result with `error` null")
    with stage.check("W-111"):
        await peer.send({"jsonrpc": "2.0", "id": "nobody", "result": {}})
        await peer.send({"jsonrpc": "2.0", "id": "nobody", "result": {}})
        expect(await peer.has_nothing_to_say("cancel"), "an answer to nothing was answered")


@scenario("wire", "W-106 W-107 W-108 W-109 W-110 W-124")
async def results_of_external_tools(stage: Stage) -> None:
    """Answers to a ToolCallRequest, good and broken."""
    peer = await start_ready(stage, external_tools=[TOOL])

    async def settle(members: Json) -> Json:
        stage.model.script(use(tool_call("ask_ci", {}, "t1")), say("ok"))
        call_id = await peer.call("prompt", {"user_input": "go"})
        request = await peer.until("ToolCallRequest")
        await peer.send({"jsonrpc": "2.0", "id": request["id"], **members})
        check_status(await peer.read_turn(call_id))
        return peer.payloads("ToolResult")[-1]["return_value"]

    value: Json = {"is_error": False, "output": "green", "message": "m", "display": []}
    with stage.check("W-106"):
        refused = await settle({"error": {"code": 1, "message": "no luck"}})
        found = (refused["is_error"], refused["message"], find_brief(refused))
        expect_equal(found, (True, "no luck", "External tool error"), "the result of an error")
        broken: list[Json | None] = [{}, None, {"tool_call_id": "t1", "return_value": {"is_error": "no"}}]
        for result in broken:
            refused = await settle({"result": result})
            expect_equal(refused["message"], INVALID, f"the message after {result}")
            expect_equal(find_brief(refused), "Invalid tool result", "the brief block")
        taken = await settle({"result": {"tool_call_id": "another", "return_value": value}})
        expect_equal(taken["output"], "green", "the output of a result that names another call")
    with stage.check("W-107"):
        foreign = {**value, "output": [{"type": "hologram"}]}
        refused = await settle({"result": {"tool_call_id": "t1", "return_value": foreign}})
        expect_equal(find_brief(refused), "Invalid tool result", "the brief block")
    with stage.check("W-108"):
        short = {"is_error": False, "output": "brown"}
        taken = await settle({"result": {"tool_call_id": "t1", "return_value": short}})
        expect_equal((taken["output"], taken["message"]), ("brown", ""), "the result without message")
        expect(taken["display"] == [], "`display` is not empty")
    with stage.check("W-109"):
        expect_equal((await settle({"error": "text"}))["message"], "text", "the message")
    with stage.check("W-110"):
        expect_equal((await settle({}))["message"], INVALID, "the message after an empty response")
        good = await settle({"error": None, "result": {"tool_call_id": "t1", "return_value": value}})
        expect_equal(good["output"], "green", "the output with `error` null")
    with stage.check("W-124"):
        display = [{"type": "brief", "text": "b"}, {"type": "chart", "data": {"k": 1}}]
        rich = {**value, "output": [{"type": "text", "text": "t"}], "display": display, "extras": {"e": [1]}}
        passed = await settle({"result": {"tool_call_id": "t1", "return_value": rich}})
        found = (passed["output"], passed["display"], passed["extras"])
        expect_equal(found, (rich["output"], display, {"e": [1]}), "what passes through")


@scenario("wire", "W-118 W-120 W-121 W-122 W-123")
async def external_tools(stage: Stage) -> None:
    """Offering tools, and calls of them."""
    peer = await start_ready(stage)
    offers: list[Json] = [
        {**TOOL, "name": "Shell"},
        {**TOOL, "name": "bad_schema", "parameters": {"type": "objekt"}},
        {**TOOL, "name": "bad name"},
        {**TOOL, "name": ""},
        TOOL,
        TOOL,
        {**TOOL, "name": "strict", "parameters": {"type": "object", "required": ["job"], "properties": {"job": {}}}},
    ]
    with stage.check("W-118"):
        answer = (await peer.initialize(external_tools=offers))["external_tools"]
        expect_equal(answer["accepted"], ["ask_ci", "strict"], "the accepted tools")
        reasons = {one["name"]: one["reason"] for one in answer["rejected"]}
        expect_equal(set(reasons), {"Shell", "bad_schema", "bad name", ""}, "the rejected tools")
        expect_equal(reasons["Shell"], "conflicts with builtin tool", "the reason of Shell")
        expect_equal(reasons["bad name"], "invalid tool name", "the reason of `bad name`")
        expect(reasons["bad_schema"], "no reason is given for a bad schema")
    with stage.check("W-120"):
        stage.model.script(use(tool_call("strict", "{no", "t1"), tool_call("strict", {"x": 1}, "t2")), say("ok"))
        mark = peer.mark()
        check_status(await peer.prompt("go"))
        expect("ToolCallRequest" not in peer.types(mark), "the client was asked about broken arguments")
        for call_id, beginning in (("t1", "Error parsing JSON"), ("t2", "Error validating JSON")):
            value = find_result(peer, call_id)
            expect(value["message"].startswith(beginning), f"the message is {value['message']!r}")
            expect_equal(find_brief(value), "Invalid arguments", "the brief block")
    with stage.check("W-121"):
        stage.model.script(use(Call("ask_ci", (), "t3")), say("ok"))
        call_id = await peer.call("prompt", {"user_input": "go"})
        request = await peer.until("ToolCallRequest")
        expect_equal(request["params"]["payload"]["arguments"], "{}", "the arguments")
        await peer.answer(request, build_tool_result(request["params"]))
        check_status(await peer.read_turn(call_id))
    with stage.check("W-122", "W-123"):
        calls = [tool_call("ask_ci", {"n": 1}, name) for name in ("a1", "a2", "a3")]
        stage.model.script(use(*calls), say("ok"))
        call_id = await peer.call("prompt", {"user_input": "go"})
        requests = [await peer.until("ToolCallRequest") for _ in calls]
        expect_equal(len({one["id"] for one in requests}), 3, "the number of different requests")
        for request in reversed(requests):
            await peer.answer(request, build_tool_result(request["params"], f"of {request['id']}"))
        check_status(await peer.read_turn(call_id))
        for request in requests:
            expect_equal(find_result(peer, request["id"])["output"], f"of {request['id']}", "the output")
        told = stage.model.tool_results()
        expect(all("of " in told.get(name, "") for name in ("a1", "a2", "a3")), f"the model was told {told}")
