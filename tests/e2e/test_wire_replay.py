"""Replay and steer through the process (wire spec 3.4, 3.6, 8.5)."""

from __future__ import annotations

import json

import pytest

from tests.support.program.wire_process import Json, Place, approve

SHELL = 'tool_call: {"id":"c1","name":"Shell","arguments":"{\\"command\\":\\"%s\\"}"}'


@pytest.mark.spec("R-68", "W-129")
def test_a_replay_is_the_live_sequence_with_deltas_merged_and_approvals_left_out(place: Place) -> None:
    place.script(f"text: one\ntext:  moment\n{SHELL % 'true'}", "text: done")
    with place.wire() as kimi:
        empty = kimi.response(kimi.call("replay"))
        assert empty["result"] == {"status": "finished", "events": 0, "requests": 0}
        kimi.initialize()
        assert kimi.prompt("go", approve)["result"] == {"status": "finished"}
        live = [line["params"] for line in kimi.lines if line.get("method") == "event"]
        before = len(kimi.lines)
        outcome = kimi.response(kimi.call("replay"))
        again = [line["params"] for line in kimi.lines[before:] if line.get("method") == "event"]
        assert outcome["result"] == {"status": "finished", "events": 10, "requests": 0}
        expected = [event for event in live if event["type"] != "ApprovalResponse"]
        expected[2:4] = [{"type": "ContentPart", "payload": {"type": "text", "text": "one moment"}}]
        assert again == expected


@pytest.mark.spec("W-130")
def test_replay_of_foreign_file_skips_unreadable_events(place: Place) -> None:
    place.script("text: hello")
    with place.wire() as kimi:
        kimi.prompt("hi")
        assert kimi.finish() == 0
    session = place.session_dirs()[-1]
    old = {"type": "ApprovalRequestResolved", "payload": {"request_id": "r", "response": "approve"}}
    inner = {"type": "StepBegin", "payload": {"n": 1}}
    nested = {"type": "SubagentEvent", "payload": {"task_tool_call_id": "c", "event": inner}}
    lines = [
        json.dumps({"timestamp": 1.0, "message": old}),
        "garbage",
        json.dumps({"timestamp": 1.0, "message": {"type": "Unheard", "payload": {}}}),
        json.dumps({"timestamp": 1.0, "message": nested}),
        '{"timestamp": 2.0, "message": {"type": "Tur',
    ]
    with (session / "wire.jsonl").open("a", encoding="utf-8") as file:
        file.write("\n".join(lines))
    with place.wire("--session", session.name) as kimi:
        outcome = kimi.response(kimi.call("replay"))
        assert outcome["result"] == {"status": "finished", "events": 7, "requests": 0}
        assert kimi.types[-2:] == ["ApprovalResponse", "SubagentEvent"]
        assert kimi.payloads("SubagentEvent")[0]["parent_tool_call_id"] == "c"


@pytest.mark.spec("W-78")
def test_steer_without_a_turn_and_in_a_replay_is_refused(place: Place) -> None:
    place.script("text: hello")
    with place.wire() as kimi:
        kimi.prompt("hi")
        refused = {"code": -32000, "message": "No agent turn is in progress", "data": None}
        assert kimi.response(kimi.call("steer", {"user_input": "x"}))["error"] == refused
        replay = {"id": "r", "method": "replay"}
        steer = {"id": "s", "method": "steer", "params": {"user_input": "x"}}
        kimi.send_bytes(json.dumps(replay).encode() + b"\n" + json.dumps(steer).encode() + b"\n")
        assert kimi.response("s")["error"] == refused
        assert kimi.response("r")["result"]["status"] == "finished"


@pytest.mark.spec("W-134", "W-48")
def test_a_replay_can_be_cancelled_and_refuses_other_work_meanwhile(place: Place) -> None:
    place.script("text: hello")
    with place.wire() as kimi:
        kimi.prompt("hi")
        assert kimi.finish() == 0
    session = place.session_dirs()[-1]
    record = json.dumps({"timestamp": 1.0, "message": {"type": "StepBegin", "payload": {"n": 1}}}) + "\n"
    with (session / "wire.jsonl").open("a", encoding="utf-8") as file:
        file.write(record * 30_000)
    with place.wire("--session", session.name) as kimi:
        calls = [
            {"id": "r", "method": "replay"},
            {"id": "p", "method": "prompt", "params": {"user_input": "x"}},
            {"id": "i", "method": "initialize", "params": {"protocol_version": "1.10"}},
            {"id": "c", "method": "cancel"},
        ]
        kimi.send_bytes(b"".join(json.dumps(call).encode() + b"\n" for call in calls))
        for name in ("p", "i"):
            assert kimi.response(name)["error"]["code"] == -32000
        assert kimi.response("c")["result"] == {}
        result = kimi.response("r")["result"]
        assert result["status"] == "cancelled"
        assert result["events"] == len(kimi.types) < 30_000


@pytest.mark.spec("W-135")
def test_answering_a_replayed_request_changes_nothing(place: Place) -> None:
    place.script('tool_call: {"id":"c1","name":"ask_ci","arguments":"{}"}', "text: done", "text: again")
    tool = {"name": "ask_ci", "description": "", "parameters": {"type": "object"}}
    value: Json = {"is_error": False, "output": "green", "message": "", "display": []}
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool])
        kimi.prompt("go", lambda params: {"tool_call_id": "c1", "return_value": value})
        before = place.context()
        call_id = kimi.call("replay")
        assert kimi.until("ToolCallRequest")["id"] == "c1"
        kimi.send({"id": "c1", "result": {"tool_call_id": "c1", "return_value": {**value, "output": "red"}}})
        outcome = kimi.response(call_id)["result"]
        assert (outcome["status"], outcome["requests"]) == ("finished", 1)
        assert place.context() == before
        assert kimi.prompt("again")["result"] == {"status": "finished"}


@pytest.mark.spec("W-81", "R-110")
def test_every_accepted_steer_is_delivered(place: Place) -> None:
    place.script(*["text: ok"] * 400)
    accepted = seen = 0
    with place.wire() as kimi:
        for number in range(100):
            prompt = {"id": f"p{number}", "method": "prompt", "params": {"user_input": "go"}}
            kimi.send(prompt)
            if number % 2:
                kimi.until("StatusUpdate")
            else:
                kimi.until("TurnBegin")
            kimi.send({"id": f"s{number}", "method": "steer", "params": {"user_input": f"more {number}"}})
            start = len(kimi.lines)
            answered: set[str] = set()
            while answered != {f"p{number}", f"s{number}"}:
                line = kimi.next_line()
                if "method" not in line:
                    answered.add(line["id"])
                    accepted += line.get("result") == {"status": "steered"}
                    assert "result" in line or (line["id"][0], line["error"]["code"]) == ("s", -32000)
            seen += sum("method" in line and line["params"]["type"] == "SteerInput" for line in kimi.lines[start:])
        assert accepted == seen
        assert accepted > 0
