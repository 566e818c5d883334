"""The event log of a session, and its replay (wire spec 8)."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from kimi.interfaces.conformance.ledger import expect, expect_equal
from kimi.interfaces.conformance.model_server import say, stall, tool_call, use
from kimi.interfaces.conformance.peer import Json
from kimi.interfaces.conformance.scenario import Stage, scenario
from kimi.interfaces.conformance.wire.client import (
    build_tool_result,
    check_error,
    check_status,
    start,
    start_ready,
)
from kimi.interfaces.conformance.wire.planning import choose

TOOL: Json = {"name": "ask_ci", "description": "Ask", "parameters": {"type": "object"}}
TEXT_TURN = ["TurnBegin", "StepBegin", "ContentPart", "StatusUpdate", "TurnEnd"]


def read_types(stage: Stage) -> list[str]:
    """Return the types of the records."""
    return [line["message"]["type"] for line in stage.home.recorded() if "message" in line]


def answer_all(params: Json) -> Json | None:
    """Approve, run, choose; allow every hook."""
    kind = params["type"]
    if kind == "HookRequest":
        return {"request_id": params["payload"]["id"]}
    return build_tool_result(params) if kind == "ToolCallRequest" else choose("A")(params)


@scenario("wire", "W-126 W-127 W-128 W-129 W-132 W-134 W-135 W-48 W-78", needs_process=True)
async def records_and_replay(stage: Stage) -> None:
    """What is recorded, and that a replay sends the same."""
    peer = await start_ready(stage, external_tools=[TOOL])
    with stage.check("W-129"):
        found = await peer.result("replay")
        expect_equal(found, {"status": "finished", "events": 0, "requests": 0}, "a replay without history")
    with stage.check("W-126", "W-127"):
        stage.model.script(say("a", "b", "c"), say("second"))
        check_status(await peer.prompt("one"))
        lines = stage.home.recorded()
        expect_equal(lines[0], {"type": "metadata", "protocol_version": "1.10"}, "the first line")
        expect_equal(read_types(stage), TEXT_TURN, "the records of a turn of text")
        expect_equal(lines[3]["message"]["payload"]["text"], "abc", "the recorded text")
        check_status(await peer.prompt("two"))
        expect_equal(read_types(stage), TEXT_TURN * 2, "the records of two turns")
    with stage.check("W-127", "W-128"):
        await peer.initialize(external_tools=[TOOL], hooks=[{"id": "h", "event": "PreToolUse", "matcher": "ask_ci"}],
                              capabilities={"supports_question": True})  # fmt: skip
        question = {"question": "Which?", "header": "H", "options": [{"label": "A"}, {"label": "B"}]}
        asking = tool_call("AskUserQuestion", {"questions": [question]}, "q1")
        tools = use(
            tool_call("Shell", {"command": "echo kit"}, "c1"), tool_call("ask_ci", {"job": "m"}, "c2", pieces=3), asking
        )
        stage.model.script(tools, say("done"))
        check_status(await peer.prompt("three", answer_all))
        kinds = read_types(stage)[10:]
        expect("ToolCallPart" not in kinds, "parts of arguments are recorded")
        absent = {"ApprovalRequest", "ApprovalResponse", "HookRequest"} & set(kinds)
        expect(not absent, f"recorded are {sorted(absent)}")
        expect({"ToolCallRequest", "QuestionRequest"} <= set(kinds), "a tool or question request is not recorded")
    with stage.check("W-132"):
        stamps = [line["timestamp"] for line in stage.home.recorded()[1:]]
        expect(stamps, "nothing is recorded")
        expect_equal(stamps, sorted(stamps), "the timestamps")
    with stage.check("W-129", "W-135"):
        mark = peer.mark()
        call_id = await peer.call("replay")
        response = await peer.read_turn(call_id, answer_all)
        expect_equal(peer.types(mark), read_types(stage), "the replayed types")
        replayed = [one["params"]["payload"] for one in peer.received[mark:] if "method" in one]
        recorded = [line["message"]["payload"] for line in stage.home.recorded()[1:]]
        expect_equal(replayed, recorded, "the replayed payloads")
        requests = sum(one.get("method") == "request" for one in peer.received[mark:])
        wanted = {"status": "finished", "events": len(replayed) - requests, "requests": requests}
        expect_equal(response["result"], wanted, "the result")
    with stage.check("W-135"):
        before = read_types(stage)
        check_status(await peer.request("replay"))
        expect_equal(read_types(stage), before, "the records after a replay")
    await peer.finish()
    await replay_much(stage)


@scenario("wire", "W-129 W-135")
async def replay_of_a_turn(stage: Stage) -> None:
    """A replay sends what was sent live, and answers to it change nothing."""
    peer = await start_ready(stage, external_tools=[TOOL])
    with stage.check("W-129"):
        found = await peer.result("replay")
        expect_equal(found, {"status": "finished", "events": 0, "requests": 0}, "a replay without history")
    stage.model.script(use(tool_call("ask_ci", {}, "c1", pieces=1)), say("done"))
    mark = peer.mark()
    check_status(await peer.prompt("go", answer_all))
    live = [kind for kind in peer.types(mark) if kind != "ToolCallPart"]
    for _ in range(2):
        with stage.check("W-129", "W-135"):
            mark = peer.mark()
            response = await peer.read_turn(await peer.call("replay"), answer_all)
            expect_equal(peer.types(mark), live, "the replayed types")
            wanted = {"status": "finished", "events": len(live) - 1, "requests": 1}
            expect_equal(response.get("result"), wanted, "the result")


async def replay_much(stage: Stage) -> None:
    """Cancel a long replay, and send what is not possible meanwhile."""
    log = stage.home.event_logs()[0]
    lines = log.read_text(encoding="utf-8").splitlines()
    log.write_text("\n".join([lines[0], *lines[1:11] * 3000]) + "\n", encoding="utf-8")
    peer = await start(stage, "--session", log.parent.name)
    await peer.initialize()
    calls = [
        peer.build_call("replay"),
        peer.build_call("prompt", {"user_input": "x"}),
        peer.build_call("initialize", {"protocol_version": "1.10"}),
        peer.build_call("steer", {"user_input": "x"}),
        peer.build_call("cancel"),
    ]
    await peer.send(*calls)
    mark = peer.mark()
    answers = await peer.responses(*(call["id"] for call in calls))
    replay, prompt, handshake, steer, cancel = (answers[call["id"]] for call in calls)
    with stage.check("W-134"):
        check_error(prompt, -32000, "An agent turn is already in progress")
        expect_equal(cancel.get("result"), {}, "the result of cancel")
        check_status(replay, "cancelled")
        expect_equal(replay["result"]["events"], len(peer.types(mark)), "the counted events")
        expect(replay["result"]["events"] < 30_000, "the replay was not cut short")
    with stage.check("W-48"):
        check_error(handshake, -32000)
    with stage.check("W-78"):
        check_error(steer, -32000, "No agent turn is in progress")


@scenario("wire", "W-130 W-131 W-133", needs_process=True)
async def damaged_records(stage: Stage) -> None:
    """Logs of older versions, torn and foreign lines, and a process that was killed."""
    peer = await start_ready(stage)
    with stage.check("W-133"):
        stage.model.script(stall("seen"))
        await peer.call("prompt", {"user_input": "go"})
        await peer.until("ContentPart")
        peer.connection.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        await peer.wait()
        kinds = read_types(stage)
        expect_equal(kinds[:2], ["TurnBegin", "StepBegin"], "what is recorded of what the client has seen")
    log = stage.home.event_logs()[0]
    with stage.check("W-131"):
        with log.open("a", encoding="utf-8") as file:
            file.write('{"timestamp": 1, "message": {"type": "Turn')
        again = await start(stage, "--session", log.parent.name)
        await again.initialize()
        stage.model.script(say("ok"))
        check_status(await again.prompt("next"))
        await again.finish()
        last = [parse(line) for line in log.read_text(encoding="utf-8").splitlines()][-5:]
        expect_equal(
            [line.get("message", {}).get("type") for line in last], TEXT_TURN, "the records after the torn line"
        )
    with stage.check("W-130"):
        write_old_log(log)
        again = await start(stage, "--session", log.parent.name)
        mark = again.mark()
        result = await again.result("replay")
        kinds = ["TurnBegin", "ApprovalResponse", "SubagentEvent", "ApprovalRequest", "TurnEnd"]
        expect_equal(again.types(mark), kinds, "the replayed types")
        nested = again.payloads("SubagentEvent", mark)[0]
        expect_equal(nested["parent_tool_call_id"], "p", "the parent of the nested event")
        expect_equal(again.payloads("ApprovalRequest", mark)[0]["display"], [], "the display of the approval")
        expect_equal((result["events"], result["requests"]), (4, 1), "the counts")


def parse(line: str) -> Json:
    """Return the object in a line; nothing for a torn one."""
    try:
        return json.loads(line)
    except ValueError:
        return {}


def write_old_log(path: Path) -> None:
    """Write a log as versions before 1.6 did, with damage."""
    approval = {"id": "i", "tool_call_id": "c", "sender": "s", "action": "a", "description": "d"}
    nested: Json = {"task_tool_call_id": "p", "event": {"type": "StepBegin", "payload": {"n": 1}}}
    messages: list[Json] = [
        {"type": "TurnBegin", "payload": {"user_input": "old"}},
        {"type": "ApprovalRequestResolved", "payload": {"request_id": "i", "response": "approve"}},
        {"type": "FromTheFuture", "payload": {}},
        {"type": "SubagentEvent", "payload": nested},
        {"type": "StepBegin", "payload": {"n": "one"}},
        {"type": "ApprovalRequest", "payload": approval},
        {"type": "TurnEnd", "payload": {}},
    ]
    lines = [json.dumps({"timestamp": 1.0, "message": message}) for message in messages]
    lines[3:3] = ["not json", "", "[1]"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
