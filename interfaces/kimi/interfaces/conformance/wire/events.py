"""What happens within turns: retries, compaction, subagents, background tasks, MCP servers (wire spec 4.2, 7)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kimi.interfaces.conformance import mcp_server
from kimi.interfaces.conformance.ledger import expect, expect_equal
from kimi.interfaces.conformance.model_server import Reply, fail, say, tool_call, use
from kimi.interfaces.conformance.peer import Json
from kimi.interfaces.conformance.scenario import Stage, scenario
from kimi.interfaces.conformance.wire.client import (
    ALL_CAPABILITIES,
    WirePeer,
    approve,
    build_tool_result,
    check_error,
    check_status,
    start,
    start_ready,
)

TOOL: Json = {"name": "ask_ci", "description": "Ask", "parameters": {"type": "object"}}
NOTES = {
    "task_id", "task_kind", "status", "description", "exit_code", "interrupted", "timed_out", "reason",
    "terminal_reason", "failure_reason", "finished_at", "duration_s",
}  # fmt: skip
REPORT = "I ran the command, read what it said and found nothing that is out of order. " * 4
COMPACTION = ["CompactionBegin", "CompactionEnd"]


def answer_all(params: Json) -> Json | None:
    """Approve everything, and run external tools."""
    return approve(params) if params["type"] == "ApprovalRequest" else build_tool_result(params)


@scenario("wire", "W-88 W-90 W-91 W-99 W-140")
async def steps_with_tools(stage: Stage) -> None:
    """Parallel calls, their streamed arguments, and the figures of each step."""
    peer = await start_ready(stage, external_tools=[TOOL])
    calls = [tool_call("ask_ci", {"job": "main" * 5, "n": number}, f"c{number}", pieces=5) for number in range(3)]
    stage.model.script(use(*calls, text="look"), use(tool_call("SetTodoList", {"todos": []}, "c9")), say("done"))
    check_status(await peer.prompt("go", answer_all))
    with stage.check("W-88"):
        expect(not peer.watcher.order.violations, "; ".join(peer.watcher.order.violations))
    with stage.check("W-90"):
        expect_equal(peer.watcher.order.usage_by_step, [1, 1, 1], "the figures of tokens of each step")
        told = [one for one in peer.payloads("StatusUpdate") if one["token_usage"]]
        for update in told:
            known = None not in (update["context_usage"], update["context_tokens"], update["max_context_tokens"])
            expect(known, "a StatusUpdate with tokens lacks the context fields")
    with stage.check("W-91"):
        texts = join_arguments(peer)
        expect_equal(
            {key: texts.get(key) for key in ("c0", "c1", "c2")},
            {call.id: "".join(call.pieces) for call in calls},
            "the arguments by call",
        )
    with stage.check("W-99"):
        stage.model.script(use(tool_call("ask_ci", {}, "twin"), tool_call("ask_ci", {}, "twin")), say("done"))
        mark = peer.mark()
        check_status(await peer.prompt("go", answer_all))
        announced = [one["id"] for one in peer.payloads("ToolCall", mark)]
        expect_equal(len(set(announced)), 2, "the number of different ids")
        done = {one["tool_call_id"] for one in peer.payloads("ToolResult", mark)}
        expect_equal(done, set(announced), "the calls with a result")
    with stage.check("W-140"):
        expect(all("usage" not in one for one in peer.payloads("StatusUpdate")), "`usage` is sent unasked")
        await peer.initialize(capabilities={**ALL_CAPABILITIES, "supports_usage": True})
        mark = peer.mark()
        stage.model.script()
        check_status(await peer.prompt("hi"))
        told = [one["usage"] for one in peer.payloads("StatusUpdate", mark) if one.get("usage")]
        expect(told, "no StatusUpdate has `usage`")
        expect_equal(told[-1]["turn"]["input_other"], 10, "the input of the turn")
        expect(told[-1]["session"]["input_other"] > 10, "the session has used no more than the turn")


def join_arguments(peer: WirePeer) -> dict[str, str]:
    """Return the arguments by call id: of ToolCall, and of the parts until the next one."""
    texts: dict[str, str] = {}
    latest = ""
    for message in peer.received:
        params = message.get("params", {})
        if params.get("type") == "ToolCall":
            latest = params["payload"]["id"]
            texts[latest] = params["payload"]["function"]["arguments"] or ""
        elif params.get("type") == "ToolCallPart":
            texts[latest] += params["payload"]["arguments_part"] or ""
    return texts


@scenario("wire", "W-92 W-94 W-93 W-97 W-138")
async def retries_and_commands(stage: Stage) -> None:
    """Failing attempts, commands over the context, the end of a background task."""
    peer = await start_ready(stage)
    with stage.check("W-92"):
        for reply, kind, status in (
            (fail(429, "slow down"), "APIStatusError", 429),
            (Reply(("half",), drop=True), "APIConnectionError", None),
            (Reply((), think=("hm",)), "APIEmptyResponseError", None),
        ):
            stage.model.script(reply, say("ok"))
            mark = peer.mark()
            check_status(await peer.prompt("hi"))
            retries = peer.payloads("StepRetry", mark)
            expect_equal(len(retries), 1, "the number of StepRetry")
            found = [retries[0][key] for key in ("n", "next_attempt", "max_attempts", "error_type", "status_code")]
            expect_equal(found, [1, 2, 3, kind, status], "StepRetry")
            expect(0.3 <= retries[0]["wait_s"] <= 0.8, f"wait_s is {retries[0]['wait_s']}")
    with stage.check("W-94"):
        mark = peer.mark()
        check_status(await peer.prompt("/clear"))
        wanted = peer.known("TurnBegin", "ContentPart", "StatusUpdate", "TurnEnd")
        expect_equal(peer.types(mark), wanted, "the events of /clear")
        expect_equal(peer.text(mark), "The context has been cleared.", "the text")
        update = peer.payloads("StatusUpdate", mark)[0]
        expect_equal((update["context_usage"], update["context_tokens"]), (0, 0), "the context")
        mark = peer.mark()
        check_status(await peer.prompt("/compact"))
        expect_equal(peer.text(mark), "The context is empty.", "the text of /compact without context")
        expect("CompactionBegin" not in peer.types(mark), "an empty context is compacted")
    with stage.check("W-93", "W-94"):
        await check_compaction(peer, stage)
    with stage.check("W-97", "W-138"):
        await peer.prompt("/yolo on")
        arguments = {"command": "echo kit", "run_in_background": True, "description": "say kit"}
        stage.model.script(use(tool_call("Shell", arguments, "b1")), say("started"))
        mark = peer.mark()
        check_status(await peer.prompt("go"))
        for _ in range(40):
            if peer.payloads("Notification", mark):
                break
            await asyncio.sleep(0.1)
            check_status(await peer.prompt("and?"))
        notes = peer.payloads("Notification", mark)
        expect_equal(len(notes), 1, "the number of notifications")
        found = [notes[0][key] for key in ("category", "type", "severity")]
        expect_equal(found, ["task", "task.completed", "success"], "the notification")
        expect(set(notes[0]["payload"]) >= NOTES, f"its payload lacks {sorted(NOTES - set(notes[0]['payload']))}")
        expect_equal(notes[0]["payload"]["exit_code"], 0, "exit_code")


async def check_compaction(peer: WirePeer, stage: Stage) -> None:
    """Expect the pair around a manual and an automatic compaction, also when it fails."""
    stage.model.script(say("one"), say("They talked."))
    check_status(await peer.prompt("first"))
    mark = peer.mark()
    check_status(await peer.prompt("/compact"))
    wanted = peer.known("TurnBegin", *COMPACTION, "ContentPart", "StatusUpdate", "TurnEnd")
    expect_equal(peer.types(mark), wanted, "the events of /compact")
    expect_equal(peer.text(mark), "The context has been compacted.", "its text")
    stage.model.script(Reply(("two",), input_tokens=90_000), say("They talked more."), say("three"))
    check_status(await peer.prompt("second"))
    mark = peer.mark()
    check_status(await peer.prompt("third"))
    wanted = peer.known("TurnBegin", "StepBegin", *COMPACTION, "ContentPart", "StatusUpdate", "TurnEnd")
    expect_equal(peer.types(mark), wanted, "the events of a turn that is compacted")
    stage.model.script(Reply(("four",), input_tokens=99_990), fail(400, "no"), fail(400, "no"))
    check_status(await peer.prompt("fourth"))
    mark = peer.mark()
    await peer.prompt("fifth")
    kinds = [one for one in peer.types(mark) if one in COMPACTION]
    expect_equal(kinds, COMPACTION, "the pair around a compaction that fails")
    await peer.prompt("/clear")


FLOW = """---
name: ship
description: Ship
type: flow
---
```mermaid
flowchart TD
s([BEGIN]) --> a
a[Build it] --> e([END])
```
"""


@scenario("wire", "W-95 W-96")
async def nested_turns(stage: Stage) -> None:
    """Subagents and flows."""
    skill = stage.home.work / ".kimi" / "skills" / "ship"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(FLOW, encoding="utf-8")
    peer = await start_ready(stage)
    with stage.check("W-95"):
        task = {"description": "look", "prompt": "look at it"}
        shell = tool_call("Shell", {"command": "echo kit"}, "s1")
        stage.model.script(use(tool_call("Agent", task, "a1")), use(shell), say(REPORT), say("done"))
        mark = peer.mark()
        check_status(await peer.prompt("go", approve))
        inner = peer.payloads("SubagentEvent", mark)
        kinds = [one["event"]["type"] for one in inner]
        expect(kinds[:2] == ["TurnBegin", "StepBegin"] and kinds[-1] == "TurnEnd", f"the inner events are {kinds}")
        parents = {(one["parent_tool_call_id"], one["task_tool_call_id"]) for one in inner}
        expect_equal(parents, {("a1", "a1")}, "the ids of the parent")
        request = peer.payloads("ApprovalRequest", mark)[0]
        expect_equal(request["agent_id"], inner[0]["agent_id"], "the agent of the approval")
        expect(isinstance(request["agent_id"], str) and request["subagent_type"], "the approval names no agent")
        expect_equal(peer.payloads("ToolResult", mark)[-1]["tool_call_id"], "a1", "the last result")
    with stage.check("W-96"):
        for reply, ends in ((say("built"), True), (fail(400, "no"), False)):
            stage.model.script(reply)
            mark = peer.mark()
            response = await peer.prompt("/flow:ship")
            if ends:
                check_status(response)
            else:
                check_error(response, -32003)
            kinds = [one for one in peer.types(mark) if one in ("TurnBegin", "TurnEnd")]
            wanted = peer.known("TurnBegin", "TurnBegin", "TurnEnd", "TurnEnd")
            expect_equal(kinds, wanted, "the nested turns")


def server(*arguments: str) -> Json:
    """Return the entry of the kit's MCP server in `mcp.json`."""
    return {"command": sys.executable, "args": [str(Path(mcp_server.__file__)), *arguments]}


@scenario("wire", "W-70 W-98 W-125 W-139", needs_process=True)
async def servers_of_tools(stage: Stage) -> None:
    """MCP servers that work, that are dead, and whose tools have names that are taken."""
    servers = {"good": server("--late", "0.5", "measure", "Shell", "ask_ci"), "dead": {"command": "/no/such/program"}}
    stage.home.write_mcp_servers(servers)
    peer = await start(stage)
    await peer.initialize(external_tools=[TOOL])
    check_status(await peer.prompt("hi"))
    states = [one["mcp_status"] for one in peer.payloads("StatusUpdate") if one.get("mcp_status")]
    with stage.check("W-98"):
        kinds = peer.types()
        wanted = ["TurnBegin", "StatusUpdate", "MCPLoadingBegin", "StatusUpdate", "MCPLoadingEnd"]
        loading = [one for one in kinds[: kinds.index("StepBegin")] if one != "Notification"]
        expect_equal(loading, wanted, "the events before the first step")
    with stage.check("W-139"):
        first = {one["name"]: one["status"] for one in states[0]["servers"]}
        expect_equal(first["good"], "connecting", "the first state")
    with stage.check("W-70"):
        last = {one["name"]: one["status"] for one in states[-1]["servers"]}
        expect_equal(last, {"good": "connected", "dead": "failed"}, "the last states")
    with stage.check("W-125"):
        offered = stage.model.offered_tools
        expect("measure" in offered, "the server's tool is not offered")
        expect_equal((offered.count("Shell"), offered.count("ask_ci")), (1, 1), "how often the names are offered")
        qualified = [name for name in offered if "good" in name]
        expect_equal(len(qualified), 2, "the number of tools with a qualified name")
        stage.model.script(use(tool_call("ask_ci", {}, "t1")), say("ok"))
        mark = peer.mark()
        check_status(await peer.prompt("go", answer_all))
        expect("ToolCallRequest" in peer.types(mark), "the call did not reach the client")


HELPER: Json = {"description": "look", "prompt": "look", "run_in_background": True}


@scenario("wire", "W-50 W-117")
async def approvals_between_turns(stage: Stage) -> None:
    """A subagent in the background asks after its parent's turn has ended."""
    peer = await start_ready(stage)
    held = asyncio.Event()
    shell = Reply((), (tool_call("Shell", {"command": "echo kit"}, "s1"),), hold=held)
    stage.model.script(use(tool_call("Agent", HELPER, "a1")))
    stage.model.choose = lambda body: shell if is_helper(body) else None
    check_status(await peer.prompt("go"))
    stage.model.choose = None
    stage.model.script(say(REPORT))
    held.set()
    with stage.check("W-117"):
        request = await peer.until("ApprovalRequest")
        expect_equal(request["params"]["payload"]["source_kind"], "background_agent", "source_kind")
    if stage.target.has_process:  # over WebSocket what waits is sent to each new connection (wire spec 13.4)
        with stage.check("W-50"):
            mark = peer.mark()
            await peer.initialize(capabilities=ALL_CAPABILITIES)
            again = await peer.until("ApprovalRequest")
            expect_equal(again["id"], request["id"], "the id of the request that is sent again")
            order = ["method" in one for one in peer.received[mark:]]
            expect_equal(order, [False, True], "whether the request follows the response")
    with stage.check("W-117"):
        await peer.answer(request, approve(request["params"]))
        settled = await peer.until("ApprovalResponse")
        expect_equal(settled["params"]["payload"]["request_id"], request["id"], "the settled request")


def is_helper(body: Json) -> bool:
    """Whether a request to the model is of the subagent: its only prompt is the task."""
    users = [one for one in body["messages"] if one["role"] == "user"]
    return "look" in str(users[0]["content"])
