"""Prompts, cancelling, steering and their outcomes (wire spec 3.2 to 3.4)."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from kimi.interfaces.conformance.ledger import Mismatch, expect, expect_equal
from kimi.interfaces.conformance.model_server import fail, say, stall, tool_call, use
from kimi.interfaces.conformance.peer import Json
from kimi.interfaces.conformance.scenario import Stage, scenario
from kimi.interfaces.conformance.wire.client import (
    WirePeer,
    approve,
    build_tool_result,
    check_error,
    check_status,
    start_ready,
)

BUSY = "An agent turn is already in progress"
IDLE = "No agent turn is in progress"
TOOL: Json = {"name": "ask_ci", "description": "Ask", "parameters": {"type": "object"}}


@scenario("wire", "W-62 W-63 W-66 W-67 W-69 W-72 W-78")
async def outcomes_of_prompts(stage: Stage) -> None:
    """Errors, busy turns, slash commands."""
    peer = await start_ready(stage)
    with stage.check("W-72"):
        check_error(await peer.request("cancel"), -32000, IDLE)
    with stage.check("W-78"):
        check_error(await peer.request("steer", {"user_input": "x"}), -32000, IDLE)
    with stage.check("W-62"):
        mark = peer.mark()
        picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
        text = "LLM model 'kit-model' does not support required capability: image_in."
        check_error(await peer.prompt(picture), -32002, text)
        expect_equal(peer.types(mark), ["TurnBegin", "TurnEnd"], "the events")
    with stage.check("W-63"):
        for status in (400, 401):
            stage.model.script(fail(status, "no such thing"))
            mark = peer.mark()
            response = await peer.prompt("hi")
            check_error(response, -32003)
            expect("no such thing" in response["error"]["message"], "the provider's text is not told")
            kinds = ["TurnBegin", "StepBegin", "StepInterrupted", "TurnEnd"]
            expect_equal(peer.types(mark), kinds, "the events")
    stage.model.script(stall("a"))
    with stage.check("W-66"):
        call_id = await peer.call("prompt", {"user_input": "go"})
        await peer.until("ContentPart")
        check_error(await peer.request("prompt", {"user_input": "me too"}), -32000, BUSY)
        await peer.call("cancel")
        check_status(await peer.read_turn(call_id), "cancelled")
    with stage.check("W-67"):
        for number in range(10):
            response = await peer.prompt(f"prompt {number}")
            expect("error" not in response, "a prompt after the response to the last one was refused")
    with stage.check("W-69"):
        await check_slash_rules(peer, stage)


async def check_slash_rules(peer: WirePeer, stage: Stage) -> None:
    """Expect that commands are commands and text that only looks so goes to the model."""
    stage.model.script()
    mark = peer.mark()
    check_status(await peer.prompt("/nope"))
    expect_equal(peer.text(mark), 'Unknown slash command "/nope".', "the answer to /nope")
    mark = peer.mark()
    check_status(await peer.prompt(" /yolo"))
    check_status(await peer.prompt([{"type": "text", "text": "/yolo"}]))
    expect("StepBegin" not in peer.types(mark), "a command went to the model")
    expect_equal(len(stage.model.requests), 0, "how often the model was asked")
    for text in ("/ x", "//x"):
        check_status(await peer.prompt(text))
    expect_equal(len(stage.model.requests), 2, "how often the model was asked")


@scenario("wire", "W-61", needs_process=True)
async def no_model(stage: Stage) -> None:
    """A configuration without a model."""
    stage.home.write_config("")
    peer = await start_ready(stage)
    with stage.check("W-61"):
        check_error(await peer.prompt("hi"), -32001, "LLM is not set")
        expect_equal(peer.types(), ["TurnBegin", "TurnEnd"], "the events")


@scenario("wire", "W-68 W-57", config="[loop_control]\nmax_steps_per_turn = 2\n")
async def the_limit_of_steps(stage: Stage) -> None:
    """A turn that uses up its steps."""
    peer = await start_ready(stage)
    calls = [use(tool_call("SetTodoList", {"todos": []}, f"c{n}")) for n in (1, 2)]
    stage.model.script(*calls, say("never"))
    response = await peer.prompt("go", approve)
    with stage.check("W-68", "W-57"):
        expect_equal(response.get("result"), {"status": "max_steps_reached", "steps": 2}, "the result")
        kinds = [one for one in peer.types() if one not in ("ToolCallPart", "StatusUpdate")]
        expect_equal(kinds, ["TurnBegin", *["StepBegin", "ToolCall", "ToolResult"] * 2, "TurnEnd"], "the events")


@scenario("wire", "W-74 W-75 W-76 W-88")
async def cancelled_turns(stage: Stage) -> None:
    """A cancel with an open approval, a running command, an open external tool."""
    peer = await start_ready(stage, external_tools=[TOOL])
    with stage.check("W-74"):
        stage.model.script(use(tool_call("Shell", {"command": "echo kit"}, "c1")))
        call_id = await peer.call("prompt", {"user_input": "go"})
        await peer.until("ApprovalRequest")
        mark = peer.mark()
        cancel_id = await peer.call("cancel")
        check_status(await peer.read_turn(call_id), "cancelled")
        expect_equal(peer.received[mark].get("id"), cancel_id, "the first message after the cancel")
        kinds = ["ApprovalResponse", "ToolResult", "StepInterrupted", "TurnEnd"]
        expect_equal(peer.types(mark), kinds, "the events after the cancel")
        expect_equal(peer.payloads("ApprovalResponse", mark)[0]["response"], "reject", "the approval's outcome")
        message = peer.payloads("ToolResult", mark)[0]["return_value"]["message"]
        expect_equal(message, "Tool call cancelled.", "the message of the result")
    with stage.check("W-75"):
        stage.model.script(use(tool_call("Shell", {"command": "echo $$ > pid; sleep 60"}, "c2")))
        call_id = await peer.call("prompt", {"user_input": "go"})
        request = await peer.until("ApprovalRequest")
        await peer.answer(request, approve(request["params"]))
        pid = await read_pid(stage)
        begin = time.monotonic()
        await peer.call("cancel")
        check_status(await peer.read_turn(call_id), "cancelled")
        expect(time.monotonic() - begin < stage.allow(3), "the cancel took too long")
        expect(await is_gone(pid), "the command still runs")
    with stage.check("W-76"):
        stage.model.script(use(tool_call("ask_ci", {}, "c3")))
        call_id = await peer.call("prompt", {"user_input": "go"})
        request = await peer.until("ToolCallRequest")
        await peer.call("cancel")
        check_status(await peer.read_turn(call_id), "cancelled")
        await peer.answer(request, build_tool_result(request["params"]))
        stage.model.script(say("fine"))
        mark = peer.mark()
        check_status(await peer.prompt("next"))
        expect_equal(peer.text(mark), "fine", "the text of the next turn")
        expect("ToolResult" not in peer.types(mark), "the late answer became a result")


async def read_pid(stage: Stage) -> int:
    """Return the number that a command has written, once it is there. Raises Mismatch."""
    path = stage.home.work / "pid"
    end = time.monotonic() + stage.target.timeout_s
    while time.monotonic() < end:
        if path.exists() and path.read_text().strip():
            return int(path.read_text())
        await asyncio.sleep(0.02)
    raise Mismatch("the command did not run in the work directory")


async def is_gone(pid: int, seconds: float = 6) -> bool:
    """Whether a process ends within so many seconds; one that is dead but not collected counts as gone."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not is_alive(pid):
            return True
        await asyncio.sleep(0.02)
    return False


def is_alive(pid: int) -> bool:
    """Whether there is a process with this id that has not ended."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@scenario("wire", "W-79 W-80 W-81 W-82")
async def steered_turns(stage: Stage) -> None:
    """Messages that are put into a running turn."""
    peer = await start_ready(stage, external_tools=[TOOL])
    with stage.check("W-79"):
        stage.model.script(use(tool_call("ask_ci", {}, "c1")), say("done"))
        call_id = await peer.call("prompt", {"user_input": "go"})
        request = await peer.until("ToolCallRequest")
        mark = peer.mark()
        for text in ("one", "/two", "three"):
            expect_equal((await peer.result("steer", {"user_input": text})), {"status": "steered"}, "the result")
        await peer.answer(request, build_tool_result(request["params"]))
        check_status(await peer.read_turn(call_id))
        steered = [one["user_input"] for one in peer.payloads("SteerInput", mark)]
        expect_equal(steered, ["one", "/two", "three"], "the steered messages")
        kinds = [one for one in peer.types(mark) if one in ("SteerInput", "StepBegin")]
        expect_equal(kinds, ["SteerInput"] * 3 + ["StepBegin"], "the order")
    with stage.check("W-80"):
        answer = stall("last")
        stage.model.script(answer, say("more"))
        call_id = await peer.call("prompt", {"user_input": "go"})
        await peer.until("ContentPart")
        mark = peer.mark()
        await peer.result("steer", {"user_input": "wait"})
        assert answer.hold is not None
        answer.hold.set()
        check_status(await peer.read_turn(call_id))
        kinds = [one for one in peer.types(mark) if one in ("SteerInput", "StepBegin")]
        expect_equal(kinds, ["SteerInput", "StepBegin"], "what follows the step")
    with stage.check("W-81"):
        await check_no_steer_is_lost(peer)
    with stage.check("W-82"):
        stage.model.script(use(tool_call("ask_ci", {}, "c2")), say("done"))
        call_id = await peer.call("prompt", {"user_input": "go"})
        request = await peer.until("ToolCallRequest")
        picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
        await peer.result("steer", {"user_input": picture})
        await peer.answer(request, build_tool_result(request["params"]))
        check_error(await peer.read_turn(call_id), -32002)
        check_status(await peer.prompt("still there"))


async def check_no_steer_is_lost(peer: WirePeer) -> None:
    """Expect that each steer at the end of a turn is either refused or becomes a SteerInput."""
    for number in range(15):
        mark = peer.mark()
        call = peer.build_call("prompt", {"user_input": "go"})
        await peer.send(call)
        await peer.until("ContentPart")
        await asyncio.sleep(0.001 * (number % 5))
        steer_id = await peer.call("steer", {"user_input": "late"})
        answers = await peer.responses(call["id"], steer_id)
        accepted = "result" in answers[steer_id]
        expect_equal(len(peer.payloads("SteerInput", mark)), int(accepted), "the number of SteerInput")
