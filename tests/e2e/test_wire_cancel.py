"""`cancel`, in every place where a turn can be (wire spec 3.3, 7.4)."""

from __future__ import annotations

import time

import pytest

from tests.support.program.processes import all_gone, marked
from tests.support.program.wire_process import Json, Place, WireProcess, eventually
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply, text_events, text_reply
from tests.support.providers.scripts import (
    answer,
    call,
    error_of,
    returned,
    shell,
    stage_names,
    step,
    tool,
    tool_answer,
)

IDLE = (-32000, "No agent turn is in progress")
CANCELLED = {
    "is_error": True,
    "output": "",
    "message": "Tool call cancelled.",
    "display": [{"type": "brief", "text": "Cancelled"}],
    "extras": None,
}


def cancelled(kimi: WireProcess, prompt: str) -> list[str]:
    """Cancel the turn; in short what came from then on, the response to `prompt` last. It takes less than a second."""
    before, started = len(kimi.lines), time.monotonic()
    cancel = kimi.call("cancel")
    assert kimi.response(prompt)["result"] == {"status": "cancelled"}
    assert time.monotonic() - started < 1
    assert {"jsonrpc": "2.0", "id": cancel, "result": {}} in kimi.lines
    names = stage_names(kimi.lines[before:])
    return ["cancel" if name == f"response {cancel}" else name.partition(" ")[0] for name in names]


@pytest.mark.spec("W-72", "W-77")
def test_cancel_without_turn_and_in_the_same_write_as_a_prompt(place: Place) -> None:
    place.script("text: ok")
    with place.wire() as kimi:
        assert error_of(kimi.response(kimi.call("cancel"))) == IDLE
        assert error_of(kimi.response(kimi.call("cancel", {"anything": [1]}))) == IDLE
        lines = [
            b'{"id":"i","method":"initialize","params":{"protocol_version":"1.10"}}',
            b'{"id":"p","method":"prompt","params":{"user_input":"go"}}',
            b'{"id":"c","method":"cancel"}',
        ]
        before = len(kimi.lines)
        kimi.send_bytes(b"".join(line + b"\n" for line in lines))
        assert kimi.response("p")["result"] == {"status": "cancelled"}
        names = stage_names(kimi.lines[before:])
        assert names.pop(names.index("response c")) == "response c"
        assert names == ["response i", "TurnBegin", "TurnEnd", "response p"]
        assert kimi.prompt("again")["result"] == {"status": "finished"}


@pytest.mark.spec("W-73", "W-74", "R-98", "R-97")
def test_cancel_resolves_an_open_approval(place: Place) -> None:
    place.script(step("text: x", shell("c1", "touch made")), "text: next")
    with place.wire() as kimi:
        kimi.initialize()
        prompt = kimi.call("prompt", {"user_input": "go"})
        asked = kimi.until("ApprovalRequest")
        before, started = len(kimi.lines), time.monotonic()
        kimi.send_bytes(b'{"id":"one","method":"cancel"}\n{"id":"two","method":"cancel"}\n')
        assert kimi.response(prompt)["result"] == {"status": "cancelled"}
        assert time.monotonic() - started < 1
        names = stage_names(kimi.lines[before:])
        assert names == [
            "response one", "response two", "ApprovalResponse", "ToolResult", "StepInterrupted", "TurnEnd",
            f"response {prompt}",
        ]  # fmt: skip
        assert [line["result"] for line in kimi.lines[before : before + 2]] == [{}, {}]
        assert kimi.payloads("ApprovalResponse") == [{"request_id": asked["id"], "response": "reject", "feedback": ""}]
        assert kimi.payloads("ToolResult") == [{"tool_call_id": "c1", "return_value": CANCELLED}]
        answer(kimi, asked["id"], result={"request_id": asked["id"], "response": "approve"})
        assert kimi.prompt("next")["result"] == {"status": "finished"}
        assert not (place.work / "made").exists()
        assert len(kimi.payloads("ApprovalResponse")) == 1


@pytest.mark.spec("W-75", "T-25", "R-97")
def test_cancel_kills_a_running_command(place: Place) -> None:
    mark = f"mark-{place.root.name}"
    place.environ["KIMI_TEST_MARK"] = mark
    place.script(shell("c1", "trap '' TERM INT; sleep 30"), "text: next")
    with place.wire("--yolo", cold=True) as kimi:
        kimi.initialize()
        prompt = kimi.call("prompt", {"user_input": "go"})
        kimi.until("StatusUpdate")
        assert eventually(lambda: len(marked(mark)) > 1)
        assert cancelled(kimi, prompt) == ["cancel", "ToolResult", "StepInterrupted", "TurnEnd", "response"]
        assert kimi.payloads("ToolResult") == [{"tool_call_id": "c1", "return_value": CANCELLED}]
        assert eventually(lambda: marked(mark) == [kimi.process.pid])
        assert kimi.prompt("next")["result"] == {"status": "finished"}
    assert all_gone(mark)


@pytest.mark.spec("W-76", "T-115")
def test_cancel_resolves_an_open_external_tool_call(place: Place) -> None:
    place.script(step(call("c1", "ext"), call("c2", "ext")), call("c3", "ext"), "text: done")
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool("ext")])
        prompt = kimi.call("prompt", {"user_input": "go"})
        kimi.until("ToolCallRequest")
        kimi.until("ToolCallRequest")
        answer(kimi, "c2", result=tool_answer("c2", "in time"))
        kimi.until("ToolResult")
        assert cancelled(kimi, prompt) == ["cancel", "ToolResult", "StepInterrupted", "TurnEnd", "response"]
        outputs = {item["tool_call_id"]: item["return_value"] for item in kimi.payloads("ToolResult")}
        assert outputs["c1"] == CANCELLED
        assert outputs["c2"]["output"] == "in time"
        before = len(kimi.lines)
        answer(kimi, "c1", result=tool_answer("c1", "late"))
        second = kimi.call("prompt", {"user_input": "next"})
        kimi.until("ToolCallRequest")
        answer(kimi, "c1", result=tool_answer("c1", "later"))
        answer(kimi, "c3", result=tool_answer("c3", "right"))
        assert kimi.response(second)["result"] == {"status": "finished"}
        results = [line["params"]["payload"] for line in kimi.lines[before:] if "ToolResult" in str(line)]
        assert [(item["tool_call_id"], item["return_value"]["output"]) for item in results] == [("c3", "right")]
    roles = [record["tool_call_id"] for record in place.context() if record["role"] == "tool"]
    assert roles == ["c1", "c2", "c3"]  # the history is whole, in the order of the calls


def test_late_answer_is_not_used_for_a_new_call_with_the_same_id(place: Place) -> None:
    place.script(call("c1", "ext"), call("c1", "ext"), "text: done")
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool("ext")])
        prompt = kimi.call("prompt", {"user_input": "go"})
        kimi.until("ToolCallRequest")
        cancelled(kimi, prompt)
        second = kimi.call("prompt", {"user_input": "next"})
        asked = kimi.until("ToolCallRequest")["id"]
        answer(kimi, "c1", result=tool_answer("c1", "late"))
        answer(kimi, asked, result=tool_answer(asked, "right"))
        assert kimi.response(second)["result"] == {"status": "finished"}
        assert kimi.payloads("ToolResult")[-1] == {
            "tool_call_id": asked,
            "return_value": returned("right", extras=None),
        }
        assert kimi.payloads("ToolCall")[-1]["id"] == asked


def stalled_reply(*pieces: str) -> Reply:
    """Some text, then nothing more."""
    return Reply(text_events(*pieces), fault="stall", fault_after=len(pieces))


@pytest.mark.spec("R-97")
def test_cancel_while_provider_streams_stalls_or_summarises(place: Place) -> None:
    slow = Reply(text_events(*["x"] * 2000), event_delay_s=0.005)
    mute = Reply(fault="mute")
    with loopback(slow, stalled_reply("half"), mute, mute, text_reply("next")) as server:
        place.provider(server.base_url)
        with place.wire() as kimi:
            kimi.initialize()
            for number, awaited in enumerate(("ContentPart", "ContentPart", "StepBegin"), 1):
                prompt = kimi.call("prompt", {"user_input": "go"})
                kimi.until(awaited)
                assert eventually(lambda asked=number: len(server.requests) == asked)
                names = [name for name in cancelled(kimi, prompt) if name != "ContentPart"]
                assert names == ["cancel", "StepInterrupted", "TurnEnd", "response"]
            prompt = kimi.call("prompt", {"user_input": "/compact"})
            kimi.until("CompactionBegin")
            assert eventually(lambda: len(server.requests) == 4)
            assert cancelled(kimi, prompt) == ["cancel", "CompactionEnd", "TurnEnd", "response"]
            assert kimi.prompt("next")["result"] == {"status": "finished"}
            asked: list[Json] = server.requests[-1].json["messages"]
            assert all(request.gone.is_set() for request in server.requests[:-1])
        assert [message["role"] for message in asked if message["role"] == "assistant"] == []


def test_cancel_during_retry_wait(place: Place) -> None:
    place.script("error: 429", "text: next")
    with place.wire() as kimi:
        kimi.initialize(capabilities={})
        prompt = kimi.call("prompt", {"user_input": "go"})
        kimi.until("StepRetry")
        assert cancelled(kimi, prompt) == ["cancel", "StepInterrupted", "TurnEnd", "response"]
        assert kimi.prompt("next")["result"] == {"status": "finished"}
        assert kimi.text == "next"
