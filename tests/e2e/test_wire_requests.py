"""Requests to the client and every way to answer them (wire spec 4.4, 4.7)."""

from __future__ import annotations

import json

import pytest

from tests.support.program.wire_process import Json, Place, WireProcess, approval, approve
from tests.support.providers.scripts import answer, call, error_of, shell, step, tool, tool_answer

BARE = (
    "The tool call is rejected by the user. Stop what you are doing and wait for the user to tell you how to proceed."
)
ACCEPTED = "accepted"


def result_of(kimi: WireProcess, call_id: str) -> Json:
    """The value of the last result of a call."""
    found = [item for item in kimi.payloads("ToolResult") if item["tool_call_id"] == call_id]
    return found[-1]["return_value"]


def brief(value: Json) -> str:
    """The brief block of a result."""
    return next(block["text"] for block in value["display"] if block["type"] == "brief")


def since(kimi: WireProcess, before: int) -> list[str]:
    """The types of what came after the first `before` lines."""
    return [line["params"]["type"] for line in kimi.lines[before:] if "method" in line]


@pytest.mark.spec("W-101", "W-102", "T-98", "T-105")
def test_approval_accepts_every_answer_kind(place: Place) -> None:
    place.script(
        shell("c1", "echo one"), "text: after approval",
        shell("c2", "echo two"),
        shell("c3", "echo three"), "text: after feedback",
        step(shell("c4", "echo four"), shell("c5", "echo five"), shell("c6", "echo six")), "text: after session",
    )  # fmt: skip
    with place.wire() as kimi:
        kimi.initialize()
        asked = ["ToolCall", "StatusUpdate", "ApprovalRequest", "ApprovalResponse", "ToolResult"]
        spoken = ["StepBegin", "ContentPart", "StatusUpdate"]

        assert kimi.prompt("approve", approve)["result"] == {"status": "finished"}
        assert kimi.types == ["TurnBegin", "StepBegin", *asked, *spoken, "TurnEnd"]
        assert result_of(kimi, "c1") == {
            "is_error": False, "output": "one\n", "message": "Command executed successfully.", "display": [],
            "extras": None,
        }  # fmt: skip

        before = len(kimi.lines)
        assert kimi.prompt("reject", lambda params: approval(params, "reject"))["result"] == {"status": "finished"}
        assert since(kimi, before) == ["TurnBegin", "StepBegin", *asked, "TurnEnd"]
        assert (result_of(kimi, "c2")["is_error"], result_of(kimi, "c2")["message"]) == (True, BARE)
        assert brief(result_of(kimi, "c2")) == "Rejected by user"

        before = len(kimi.lines)
        kimi.prompt("feedback", lambda params: approval(params, "reject", "use ninja"))
        assert since(kimi, before) == ["TurnBegin", "StepBegin", *asked, *spoken, "TurnEnd"]
        message = "The tool call is rejected by the user. User feedback: use ninja"
        assert (result_of(kimi, "c3")["message"], brief(result_of(kimi, "c3"))) == (message, "Rejected: use ninja")
        assert kimi.payloads("ApprovalResponse")[-1]["feedback"] == "use ninja"

        answers = len(kimi.payloads("ApprovalResponse"))
        prompt = kimi.call("prompt", {"user_input": "session"})
        pending = [kimi.until("ApprovalRequest") for _ in range(3)]
        again = kimi.response(kimi.call("initialize", {"protocol_version": "1.10"}))
        assert error_of(again)[0] == -32000  # other messages are answered while requests are open
        middle = pending[1]["id"]
        answer(kimi, middle, result={"request_id": middle, "response": "approve_for_session"})
        assert kimi.response(prompt)["result"] == {"status": "finished"}
        given = {item["request_id"]: item["response"] for item in kimi.payloads("ApprovalResponse")[answers:]}
        assert given == {item["id"]: "approve_for_session" if item["id"] == middle else "approve" for item in pending}
        assert [result_of(kimi, call_id)["is_error"] for call_id in ("c4", "c5", "c6")] == [False] * 3

        requests = [line for line in kimi.lines if line.get("method") == "request"]
        assert all(line["id"] == line["params"]["payload"]["id"] for line in requests)
        assert len({line["id"] for line in requests}) == len(requests)
        first = requests[0]["params"]["payload"]
        assert first == {
            "id": first["id"], "tool_call_id": "c1", "sender": "Shell", "action": "run command",
            "description": "Run command `echo one`", "source_kind": "foreground_turn", "source_id": first["source_id"],
            "agent_id": None, "subagent_type": None, "source_description": None,
            "display": [{"type": "shell", "language": "bash", "command": "echo one"}],
        }  # fmt: skip


def test_call_requested_again_after_rejection_is_not_a_repetition(place: Place) -> None:
    place.script(*[shell("c1", "true")] * 4)
    with place.wire() as kimi:
        for _ in range(4):
            kimi.prompt("again", lambda params: approval(params, "reject"))
        assert [item["return_value"]["output"] for item in kimi.payloads("ToolResult")] == [""] * 4


@pytest.mark.spec("W-103")
def test_one_rejected_parallel_call_ends_the_turn_after_the_others(place: Place) -> None:
    place.script(step(shell("c1", "echo one"), shell("c2", "echo two"), call("c3", "ext")), "text: never")
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool("ext")])
        prompt = kimi.call("prompt", {"user_input": "go"})
        requests = {
            item["tool_call_id"]: item["id"] for item in (kimi.until("ApprovalRequest"), kimi.until("ApprovalRequest"))
        }
        answer(kimi, requests["c2"], result={"request_id": requests["c2"], "response": "reject"})
        kimi.until("ToolResult")
        assert "TurnEnd" not in kimi.types
        answer(kimi, "c3", result=tool_answer("c3", "mine"))
        answer(kimi, requests["c1"], result={"request_id": requests["c1"], "response": "approve"})
        assert kimi.response(prompt)["result"] == {"status": "finished"}
        assert [result_of(kimi, name)["is_error"] for name in ("c1", "c2", "c3")] == [False, True, False]
        assert kimi.types.count("StepBegin") == 1
        assert kimi.types[-1] == "TurnEnd"


@pytest.mark.spec("W-104")
def test_remembered_or_automatic_approval_sends_no_request(place: Place) -> None:
    place.script(
        shell("c1", "echo 1"), "text: a", shell("c2", "echo 2"), "text: b", shell("c3", "echo 3"), "text: c",
        call("c4", "WriteFile", {"path": "new.txt", "content": "x"}), "text: d",
        shell("c5", "echo 5"), "text: e", shell("c6", "echo 6"), "text: f",
    )  # fmt: skip
    session = ("--session", "remembered")

    def asked(kimi: WireProcess, text: str, response: str = "approve") -> int:
        before = kimi.types.count("ApprovalRequest")
        assert kimi.prompt(text, lambda params: approval(params, response))["result"] == {"status": "finished"}
        return kimi.types.count("ApprovalRequest") - before

    with place.wire(*session) as kimi:
        assert asked(kimi, "first", "approve_for_session") == 1
        assert asked(kimi, "remembered") == 0
        kimi.prompt("/yolo")
        assert asked(kimi, "yolo") == 0
        assert asked(kimi, "a file, still yolo") == 0
        kimi.prompt("/yolo")
        assert asked(kimi, "the command is remembered still") == 0
        assert all(not result_of(kimi, f"c{number}")["is_error"] for number in range(1, 6))
        assert kimi.finish() == 0
    place.script(
        shell("c7", "echo 7"), "text: g", call("c8", "WriteFile", {"path": "b.txt", "content": "x"}), "text: h"
    )
    with place.wire(*session) as kimi:
        assert asked(kimi, "remembered after a restart") == 0
        assert asked(kimi, "another action is not") == 1
    place.script(shell("c9", "echo 9"), "text: i")
    with place.wire("--yolo") as kimi:
        assert asked(kimi, "by flag") == 0


@pytest.mark.spec("W-105")
def test_invalid_approval_answers_reject(place: Place) -> None:
    """In the answers "?" stands for the id of the request."""
    right: Json = {"request_id": "?", "response": "approve"}
    odd: list[tuple[Json, str]] = [
        ({"error": {"code": 1, "message": "no", "data": None}}, "reject"),
        ({"error": "no"}, "reject"),
        ({"error": []}, "reject"),
        ({"error": False}, "reject"),
        ({"result": right, "error": {"code": 1, "message": "both"}}, "reject"),
        ({"result": None}, "reject"),
        ({}, "reject"),
        ({"result": "approve"}, "reject"),
        ({"result": []}, "reject"),
        ({"result": {}}, "reject"),
        ({"result": {"request_id": "?"}}, "reject"),
        ({"result": right | {"response": "yes"}}, "reject"),
        ({"result": right | {"response": None}}, "reject"),
        ({"result": right | {"response": ["approve"]}}, "reject"),
        ({"result": right | {"response": {"approve": True}}}, "reject"),
        ({"result": right | {"feedback": 1}}, "reject"),
        ({"result": right | {"request_id": "another"}}, "reject"),
        ({"result": right | {"request_id": "another", "response": "approve_for_session"}}, "reject"),
        ({"result": right | {"request_id": ""}}, "reject"),
        ({"result": right | {"request_id": ["?"]}}, "reject"),
        ({"result": {"response": "approve"}}, "approve"),
        ({"result": right, "error": None}, "approve"),
    ]
    scripts: list[str] = []
    for number, (_, outcome) in enumerate(odd):
        scripts += [shell(f"c{number}", f"echo {number}"), *(["text: ok"] if outcome == "approve" else [])]
    place.script(*scripts)
    with place.wire() as kimi:
        kimi.initialize()
        for members, outcome in odd:
            prompt = kimi.call("prompt", {"user_input": "go"})
            request_id = kimi.until("ApprovalRequest")["id"]
            answer(kimi, request_id, **json.loads(json.dumps(members).replace('"?"', json.dumps(request_id))))
            assert kimi.response(prompt)["result"] == {"status": "finished"}
            assert kimi.payloads("ApprovalResponse")[-1]["response"] == outcome, members


INVALID = ("Invalid tool result payload from client.", "Invalid tool result")
FAILED = "External tool error"
CUT = (
    "\n\n[Output truncated: exceeded 100000 character limit. "
    "Use pagination or more specific queries to get remaining content.]"
)
GOOD: Json = {"is_error": False, "output": ACCEPTED, "message": "", "display": []}

TOOL_ANSWERS: list[tuple[Json, tuple[str, str] | str]] = [
    ({"error": {"code": 1, "message": "no CI", "data": None}}, ("no CI", FAILED)),
    ({"error": "bare text"}, ("bare text", FAILED)),
    ({"error": {"code": 1}}, ('{"code":1}', FAILED)),
    ({"error": {"message": 5}}, ('{"message":5}', FAILED)),
    ({"error": 7}, ("7", FAILED)),
    ({"error": {"message": "both"}, "result": {"tool_call_id": "?", "return_value": GOOD}}, ("both", FAILED)),
    ({"result": None}, INVALID),
    ({}, INVALID),
    ({"result": {}}, INVALID),
    ({"result": []}, INVALID),
    ({"result": "done"}, INVALID),
    ({"result": {"return_value": None}}, INVALID),
    ({"result": {"return_value": "done"}}, INVALID),
    *(({"result": {"return_value": GOOD | {"is_error": value}}}, INVALID) for value in ("no", 0, None)),
    *(({"result": {"return_value": GOOD | {"output": value}}}, INVALID) for value in (1, None, {"a": 1}, ["x"])),
    ({"result": {"return_value": GOOD | {"output": [{"type": "nope"}]}}}, INVALID),
    ({"result": {"return_value": GOOD | {"output": [{"type": "text"}]}}}, INVALID),
    *(({"result": {"return_value": GOOD | {"message": value}}}, INVALID) for value in (1, {"a": 1})),
    *(({"result": {"return_value": GOOD | {"display": value}}}, INVALID) for value in ("x", [1], [{"text": "x"}])),
    ({"result": {"return_value": GOOD | {"display": [{"type": "brief"}]}}}, INVALID),
    *(({"result": {"return_value": GOOD | {"extras": value}}}, INVALID) for value in ("x", 1, ["x"])),
    ({"result": {"return_value": {"output": ACCEPTED}}}, INVALID),
    ({"result": {"return_value": {"is_error": False}}}, INVALID),
    ({"result": {"tool_call_id": "another", "return_value": GOOD}}, ACCEPTED),
    ({"result": {"tool_call_id": 5, "return_value": GOOD}}, ACCEPTED),
    ({"result": {"return_value": {"is_error": False, "output": ACCEPTED}}}, ACCEPTED),
    ({"result": {"return_value": GOOD | {"display": None, "extras": None}}}, ACCEPTED),
    ({"result": {"return_value": GOOD}, "error": None}, ACCEPTED),
    ({"result": {"return_value": GOOD | {"output": "x" * 150_000}}}, "x" * 100_000 + CUT),
]


@pytest.mark.spec("W-106", "W-107", "W-108", "W-109", "W-110", "T-115")
def test_invalid_tool_call_answers_resolve_the_call_with_an_error(place: Place) -> None:
    scripts: list[str] = []
    for number in range(len(TOOL_ANSWERS)):
        scripts += [call(f"c{number}", "ext", {"n": number}), "text: ok"]
    place.script(*scripts)
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool("ext")])
        for number, (members, expected) in enumerate(TOOL_ANSWERS):
            prompt = kimi.call("prompt", {"user_input": "go"})
            kimi.until("ToolCallRequest")
            answer(kimi, f"c{number}", **members)
            assert kimi.response(prompt)["result"] == {"status": "finished"}
            value = result_of(kimi, f"c{number}")
            if isinstance(expected, str):
                assert (value["is_error"], value["output"]) == (False, expected), members
                assert (value["message"], value["display"], value["extras"]) == ("", [], None)
            else:
                assert value["is_error"] is True
                assert (value["message"], brief(value)) == expected, members


@pytest.mark.spec("W-111")
def test_unexpected_answers_are_ignored(place: Place) -> None:
    place.script(step(call("c1", "ext"), shell("c2", "true")), "text: ok", "text: next")
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool("ext")])
        answer(kimi, "unknown", result={})
        answer(kimi, "unknown", error={"code": 1, "message": "x"})
        answer(kimi, "unknown", error="x")
        kimi.send({"id": 77, "result": {}})
        prompt = kimi.call("prompt", {"user_input": "go"})
        request_id = kimi.until("ApprovalRequest")["id"]
        for response in ("reject", "approve"):
            answer(kimi, request_id, result={"request_id": request_id, "response": response})
        for output in ("first", "second"):
            answer(kimi, "c1", result=tool_answer("c1", output))
        assert kimi.response(prompt)["result"] == {"status": "finished"}
        answer(kimi, "c1", result=tool_answer("c1", "third"))
        answer(kimi, request_id, error="late")
        assert result_of(kimi, "c1")["output"] == "first"
        assert [item["response"] for item in kimi.payloads("ApprovalResponse")] == ["reject"]
        assert [line for line in kimi.lines if "error" in line] == []
        answer(kimi, "unknown")
        malformed = kimi.next_line()
        assert (malformed["id"], *error_of(malformed)) == (None, -32600, "Invalid response")
        assert kimi.prompt("next")["result"] == {"status": "finished"}
