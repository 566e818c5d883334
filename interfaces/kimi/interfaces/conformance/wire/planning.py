"""Plan mode and questions (wire spec 3.5, 7.13)."""

from __future__ import annotations

from pathlib import Path

from kimi.interfaces.conformance.ledger import Mismatch, expect, expect_equal
from kimi.interfaces.conformance.model_server import say, tool_call, use
from kimi.interfaces.conformance.peer import Json
from kimi.interfaces.conformance.scenario import Stage, scenario
from kimi.interfaces.conformance.wire.client import (
    Answer,
    WirePeer,
    approve,
    check_error,
    check_status,
    start,
    start_ready,
)
from kimi.interfaces.conformance.wire.handshake import question_arguments

UNCHANGED = ("context_usage", "context_tokens", "max_context_tokens", "token_usage", "message_id", "mcp_status")


def choose(label: str | None) -> Answer:
    """Answer every question with this label, None to dismiss it; approve everything else."""

    def answer(params: Json) -> Json | None:
        if params["type"] != "QuestionRequest":
            return approve(params)
        payload = params["payload"]
        return {"request_id": payload["id"], "answers": {payload["questions"][0]["question"]: label} if label else {}}

    return answer


@scenario("wire", "W-83 W-84 W-85")
async def switching_plan_mode(stage: Stage) -> None:
    """`set_plan_mode` outside of a turn and within."""
    peer = await start_ready(stage)
    update = {**dict.fromkeys(UNCHANGED), "plan_mode": True}
    with stage.check("W-83"):
        for _ in range(2):
            mark = peer.mark()
            result = await peer.result("set_plan_mode", {"enabled": True})
            expect_equal(result, {"status": "ok", "plan_mode": True}, "the result")
            events = [one["params"] for one in peer.received[mark:] if "method" in one]
            expect_equal(events, [{"type": "StatusUpdate", "payload": update}], "what precedes the result")
    with stage.check("W-84"):
        for params in ({}, {"enabled": "yes"}, {"enabled": 1}, {"enabled": None}):
            check_error(await peer.request("set_plan_mode", params), -32602)
    with stage.check("W-85"):
        await peer.result("set_plan_mode", {"enabled": False})
        stage.model.script(use(tool_call("Shell", {"command": "echo kit"}, "c1")), say("done"))
        call_id = await peer.call("prompt", {"user_input": "go"})
        request = await peer.until("ApprovalRequest")
        await peer.result("set_plan_mode", {"enabled": True})
        await peer.answer(request, approve(request["params"]))
        check_status(await peer.read_turn(call_id))
        expect_equal(peer.payloads("ToolResult")[-1]["return_value"]["is_error"], False, "`is_error`")


@scenario("wire", "W-83", needs_process=True)
async def plan_mode_is_kept(stage: Stage) -> None:
    """What is recorded of plan mode, and that it holds after a restart."""
    peer = await start_ready(stage)
    update = {**dict.fromkeys(UNCHANGED), "plan_mode": True}
    with stage.check("W-83"):
        for _ in range(2):
            await peer.result("set_plan_mode", {"enabled": True})
        await peer.finish()
        recorded = [one["message"]["payload"] for one in stage.home.recorded()[1:]]
        expect(recorded == [update, update], "the updates are not recorded")
        session = stage.home.session_directories()[0].name
        again = await start(stage, "--session", session)
        await again.initialize()
        check_status(await again.prompt("hi"))
        expect_equal(again.payloads("StatusUpdate")[-1]["plan_mode"], True, "plan_mode after a restart")


@scenario("wire", "W-86 W-87")
async def planning_by_tools(stage: Stage) -> None:
    """From the question whether to plan to the answer to the plan."""
    peer = await start_ready(stage)
    with stage.check("W-86"):
        plan = await enter(peer, stage)
        plan.write_text("# The plan\n", encoding="utf-8")
        mark = await exit_plan(peer, stage, "Approve")
        kinds = [one for one in peer.types(mark) if one in ("PlanDisplay", "QuestionRequest", "ToolResult")]
        expect_equal(kinds, ["PlanDisplay", "QuestionRequest", "ToolResult"], "the order")
        expect_equal(peer.payloads("PlanDisplay", mark)[0]["content"], "# The plan\n", "the plan that is shown")
        question = peer.payloads("QuestionRequest", mark)[0]["questions"][0]
        labels = [option["label"] for option in question["options"]]
        expect_equal(labels, ["Approve", "Reject", "Reject and Exit"], "the labels")
        expect_equal((question["header"], question["other_label"]), ("Plan", "Revise"), "the header and other label")
        expect_equal(last_mode(peer), False, "plan_mode after the approval")
    with stage.check("W-87"):
        for label, stays in (("Reject", True), ("Reject and Exit", False), ("make it shorter", True), (None, True)):
            if last_mode(peer) is not True:
                (await enter(peer, stage)).write_text("# The plan\n", encoding="utf-8")
            await exit_plan(peer, stage, label)
            expect_equal(await mode_of(peer, stage), stays, f"plan_mode after {label or 'a dismissal'!r}")


async def enter(peer: WirePeer, stage: Stage) -> Path:
    """Enter plan mode by its tool; return where the plan belongs."""
    stage.model.script(use(tool_call("EnterPlanMode", {}, "p1")), say("planning"))
    mark = peer.mark()
    check_status(await peer.prompt("plan it", choose("Yes")))
    expect_equal(last_mode(peer), True, "plan_mode after EnterPlanMode")
    questions = peer.payloads("QuestionRequest", mark)
    expect(questions, "no question was asked")
    expect_equal(questions[0]["questions"][0]["question"], "Enter plan mode?", "the question")
    message: str = peer.payloads("ToolResult", mark)[0]["return_value"]["message"]
    if "`" not in message:
        raise Mismatch("the result does not name the plan file")
    path = Path(message.split("`")[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


async def exit_plan(peer: WirePeer, stage: Stage, label: str | None) -> int:
    """Let the model ask about the plan and answer; return the position before the prompt."""
    stage.model.script(use(tool_call("ExitPlanMode", {}, "p2")), say("done"))
    mark = peer.mark()
    check_status(await peer.prompt("show it", choose(label)))
    return mark


def last_mode(peer: WirePeer) -> bool | None:
    """Return the plan mode that was told last."""
    told = [one["plan_mode"] for one in peer.payloads("StatusUpdate") if one["plan_mode"] is not None]
    return told[-1] if told else None


async def mode_of(peer: WirePeer, stage: Stage) -> bool | None:
    """Run a turn; return the mode that it tells."""
    stage.model.script()
    check_status(await peer.prompt("mode?"))
    return last_mode(peer)


@scenario("wire", "W-112")
async def questions(stage: Stage) -> None:
    """Every answer to a question."""
    peer = await start_ready(stage)
    dismissed = "User dismissed the question without answering."

    async def ask(call_id: str, **members: object) -> Json:
        stage.model.script(use(tool_call("AskUserQuestion", question_arguments(), call_id)), say("done"))
        prompt = await peer.call("prompt", {"user_input": "ask"})
        request = await peer.until("QuestionRequest")
        response: Json = {"jsonrpc": "2.0", "id": request["id"], **members}
        if members == {"result": "A"}:
            response["result"] = {"request_id": request["id"], "answers": {"Which?": "A"}}
        if members == {"result": "none"}:
            response["result"] = {"request_id": request["id"], "answers": {}}
        await peer.send(response)
        check_status(await peer.read_turn(prompt))
        return peer.payloads("ToolResult")[-1]["return_value"]

    with stage.check("W-112"):
        answered = await ask("q1", result="A")
        expect_equal(answered["message"], "User has answered.", "the message")
        expect('"Which?"' in str(answered["output"]), "the output does not hold the answer")
        for number, members in enumerate(
            ({"result": "none"}, {"error": {"code": 1, "message": "x"}}, {"result": {"answers": 7}}), start=2
        ):
            value = await ask(f"q{number}", **members)
            expect_equal(value["message"], dismissed, f"the message after {members}")
            expect_equal(value["is_error"], False, "`is_error`")
