"""Plan mode and questions through the process (wire spec 3.5, 7.13; tools spec 3.15)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.program.wire_process import Answer, Json, Place, WireProcess, approval
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import text_reply
from tests.support.providers.strict import sent, text_of

SUPPORTED = {"supports_question": True, "supports_plan_mode": True}


def call(call_id: str, name: str, **arguments: object) -> str:
    """A line of a script that calls a tool."""
    return "tool_call: " + json.dumps({"id": call_id, "name": name, "arguments": json.dumps(arguments)})


def answering(label: str | None) -> Answer:
    """A client that gives this answer to every question, None to dismiss it, and approves everything."""

    def answer(params: Json) -> Json | None:
        payload = params["payload"]
        if params["type"] == "ApprovalRequest":
            return approval(params, "approve")
        question = payload["questions"][0]["question"]
        return {"request_id": payload["id"], "answers": {} if label is None else {question: label}}

    return answer


def plan_in(kimi: WireProcess) -> Path:
    """Where the plan belongs, as the tool told the model."""
    message = kimi.payloads("ToolResult")[0]["return_value"]["message"]
    return Path(message.split("`")[1])


@pytest.mark.spec("W-83", "R-144", "W-88")
def test_set_plan_mode_announces_records_and_survives_a_restart(place: Place) -> None:
    place.script("text: ok")
    update = dict.fromkeys(
        ["context_usage", "context_tokens", "max_context_tokens", "token_usage", "message_id", "mcp_status"]
    ) | {"plan_mode": True}
    with place.wire() as kimi:
        for _ in range(2):  # idempotent, announced all the same
            before = len(kimi.lines)
            answer = kimi.response(kimi.call("set_plan_mode", {"enabled": True}))
            assert answer["result"] == {"status": "ok", "plan_mode": True}
            assert [line["params"] for line in kimi.lines[before:-1]] == [{"type": "StatusUpdate", "payload": update}]
        assert kimi.finish() == 0
    session = place.session_dirs()[-1]
    assert [line["message"]["payload"] for line in place.recorded()[1:]] == [update, update]
    with place.wire("--session", session.name) as kimi:
        kimi.prompt("hi")
        assert kimi.payloads("StatusUpdate")[-1]["plan_mode"] is True
        answer = kimi.response(kimi.call("set_plan_mode", {"enabled": False}))
        assert answer["result"] == {"status": "ok", "plan_mode": False}


def test_concurrent_set_plan_mode_calls_are_announced_in_order(place: Place) -> None:
    place.script("text: ok")
    wanted = [True, False, False, True]
    with place.wire() as kimi:
        calls = [kimi.call("set_plan_mode", {"enabled": enabled}) for enabled in wanted]
        answers = [kimi.response(call_id)["result"]["plan_mode"] for call_id in calls]
        assert answers == wanted
        assert [update["plan_mode"] for update in kimi.payloads("StatusUpdate")] == wanted


@pytest.mark.spec("W-84")
@pytest.mark.parametrize("params", [None, {}, {"enabled": "yes"}, {"enabled": 1}, {"enabled": None}, []])
def test_set_plan_mode_takes_a_boolean_only(place: Place, params: object) -> None:
    place.script("text: ok")
    with place.wire() as kimi:
        kimi.send({"id": "1", "method": "set_plan_mode", "params": params})
        error = kimi.response("1")["error"]
        assert (error["code"], error["message"]) == (-32602, "Invalid parameters for method `set_plan_mode`")


@pytest.mark.spec("W-85")
def test_set_plan_mode_during_turn_does_not_disturb_it(place: Place) -> None:
    place.script(call("c1", "Shell", command="sleep 0.3"), "text: done")
    with place.wire() as kimi:
        kimi.initialize()
        prompt = kimi.call("prompt", {"user_input": "go"})
        request = kimi.until("ApprovalRequest")
        mode = kimi.call("set_plan_mode", {"enabled": True})
        kimi.send({"id": request["id"], "result": {"request_id": request["id"], "response": "approve"}})
        answers: dict[str, Json] = {}
        while len(answers) < 2:
            line = kimi.next_line()
            if "method" not in line:
                answers[line["id"]] = line["result"]
        assert answers == {mode: {"status": "ok", "plan_mode": True}, prompt: {"status": "finished"}}
        assert kimi.payloads("ToolResult")[0]["return_value"]["is_error"] is False


@pytest.mark.spec("W-86", "R-144", "T-94", "W-88")
def test_planning_runs_from_question_to_approval(place: Place) -> None:
    place.script(call("c0", "EnterPlanMode"), "text: as it is", call("c1", "EnterPlanMode"), "text: planning")
    with place.wire() as kimi:
        kimi.initialize(capabilities=SUPPORTED)
        kimi.prompt("plan it?", answering("No"))
        assert [update["plan_mode"] for update in kimi.payloads("StatusUpdate")] == [False] * 2
        kimi.lines.clear()
        kimi.prompt("plan it", answering("Yes"))
        session = place.session_dirs()[-1].name
        question = kimi.payloads("QuestionRequest")[0]["questions"][0]
        assert (question["question"], question["header"]) == ("Enter plan mode?", "Plan Mode")
        assert [option["label"] for option in question["options"]] == ["Yes", "No"]
        assert kimi.types == [
            "TurnBegin", "StepBegin", "ToolCall", "StatusUpdate", "QuestionRequest", "ToolResult", "StatusUpdate",
            "StepBegin", "ContentPart", "StatusUpdate", "TurnEnd",
        ]  # fmt: skip
        assert kimi.payloads("StatusUpdate")[1]["plan_mode"] is True
        plan = plan_in(kimi)
        assert kimi.finish() == 0
    assert plan.parent == place.share / "plans"

    place.script(
        call("c2", "WriteFile", path=str(plan), content="1. do it\n"), call("c3", "ExitPlanMode"), "text: carried out"
    )
    with place.wire("--session", session) as kimi:
        kimi.initialize(capabilities=SUPPORTED)
        kimi.prompt("go on", answering("Approve"))
        assert plan.read_text() == "1. do it\n"
        assert kimi.payloads("PlanDisplay") == [{"content": "1. do it\n", "file_path": str(plan)}]
        question = kimi.payloads("QuestionRequest")[0]["questions"][0]
        assert (question["question"], question["header"], question["other_label"]) == (
            "Approve this plan",
            "Plan",
            "Revise",
        )
        assert [option["label"] for option in question["options"]] == ["Approve", "Reject", "Reject and Exit"]
        assert "ApprovalRequest" not in kimi.types
        start = kimi.types.index("PlanDisplay")
        assert kimi.types[start - 2 : start + 5] == [
            "ToolCall", "StatusUpdate", "PlanDisplay", "QuestionRequest", "ToolResult", "StatusUpdate", "StepBegin",
        ]  # fmt: skip
        assert kimi.payloads("StatusUpdate")[-1]["plan_mode"] is False


@pytest.mark.spec("W-87", "T-94", "R-144")
@pytest.mark.parametrize(
    ("label", "plan_mode", "steps", "is_error"),
    [
        (None, True, 2, False),
        ("Reject", True, 1, True),
        ("Reject and Exit", False, 1, True),
        ("make it shorter", True, 2, False),
        ("Small steps", False, 2, False),
    ],
)
def test_plan_approval_answers_decide_plan_mode(
    place: Place, label: str | None, plan_mode: bool, steps: int, is_error: bool
) -> None:
    options = [{"label": "Small steps", "description": "slow"}, {"label": "One go", "description": "quick"}]
    place.script(call("c1", "EnterPlanMode"), "text: ok")
    with place.wire("--yolo") as kimi:
        kimi.initialize(capabilities=SUPPORTED)
        kimi.prompt("plan")
        plan = plan_in(kimi)
        session = place.session_dirs()[-1].name
        assert kimi.finish() == 0
    plan.parent.mkdir(exist_ok=True)
    plan.write_text("the plan")
    place.script(
        call("c0", "ExitPlanMode", options=[{"label": "Approve"}]) + "\n"
        + call("c1", "WriteFile", path=str(place.work / "other.txt"), content="x"),
        call("c2", "ExitPlanMode", options=options),
        "text: end",
    )  # fmt: skip
    with place.wire("--session", session, "--yolo") as kimi:
        kimi.initialize(capabilities=SUPPORTED)
        kimi.prompt("decide", answering(label))
        results = {result["tool_call_id"]: result["return_value"] for result in kimi.payloads("ToolResult")}
        assert "is reserved" in results["c0"]["message"]
        assert results["c1"]["message"] == (f"Plan mode is active. You may only edit the current plan file: `{plan}`.")
        assert not (place.work / "other.txt").exists()
        assert results["c2"]["is_error"] is is_error
        assert kimi.types.count("StepBegin") == 1 + steps
        assert kimi.response(kimi.call("set_plan_mode", {"enabled": plan_mode}))["result"]["plan_mode"] is plan_mode
        last = [update["plan_mode"] for update in kimi.payloads("StatusUpdate")][-2]
        assert last is plan_mode
        if label == "make it shorter":
            assert "make it shorter" in results["c2"]["message"]


@pytest.mark.spec("T-95")
def test_plan_mode_restrains_commands_and_external_tools(place: Place) -> None:
    tool = {"name": "deploy", "description": "", "parameters": {"type": "object"}}
    calls = call("c1", "Shell", command="touch made") + "\n" + call("c2", "deploy")
    place.script(calls)
    with place.wire("--yolo") as kimi:
        kimi.initialize(external_tools=[tool])
        kimi.response(kimi.call("set_plan_mode", {"enabled": True}))
        kimi.prompt("go", lambda params: approval(params, "reject"))
        asked = sorted(request["action"] for request in kimi.payloads("ApprovalRequest"))
        assert asked == ["external tool", "run command"]
        assert kimi.payloads("ToolCallRequest") == []
    place.script(calls, "text: end")
    with place.wire("--afk") as kimi:
        kimi.initialize(external_tools=[tool])
        kimi.response(kimi.call("set_plan_mode", {"enabled": True}))
        kimi.prompt("go")
        assert kimi.payloads("ApprovalRequest") == []
        briefs = [result["return_value"]["display"][0]["text"] for result in kimi.payloads("ToolResult")]
        assert briefs == ["Not allowed", "Not allowed"]
    assert not (place.work / "made").exists()


ASK = call(
    "c1",
    "AskUserQuestion",
    questions=[{"question": "Which?", "options": [{"label": "A"}, {"label": "B"}], "multi_select": True}],
)


@pytest.mark.spec("W-112", "R-145", "T-93")
@pytest.mark.parametrize(
    ("reply", "output", "message", "brief"),
    [
        (
            {"result": {"answers": {"Which?": "A, B"}}},
            '{"answers": {"Which?": "A, B"}}',
            "User has answered.",
            "User answered",
        ),
        (
            {"result": {"answers": {}}},
            '{"answers": {}, "note": "User dismissed the question without answering."}',
            "User dismissed the question without answering.",
            "User dismissed",
        ),
        (
            {"error": {"code": 1, "message": "no"}},
            '{"answers": {}, "note": "User dismissed the question without answering."}',
            "User dismissed the question without answering.",
            "User dismissed",
        ),
        (
            {"result": {"answers": 7}},
            '{"answers": {}, "note": "User dismissed the question without answering."}',
            "User dismissed the question without answering.",
            "User dismissed",
        ),
    ],
    ids=["answered", "dismissed", "error", "wrong shape"],
)  # fmt: skip
def test_question_answers_become_the_tool_result(
    place: Place, reply: Json, output: str, message: str, brief: str
) -> None:
    place.script(ASK, "text: thanks")
    with place.wire() as kimi:
        kimi.initialize(capabilities=SUPPORTED)
        prompt = kimi.call("prompt", {"user_input": "ask"})
        request = kimi.until("QuestionRequest")
        assert request["questions"] == [
            {
                "question": "Which?",
                "header": "",
                "options": [{"label": "A", "description": ""}, {"label": "B", "description": ""}],
                "multi_select": True,
                "body": "",
                "other_label": "",
                "other_description": "",
            }
        ]
        kimi.send({"id": request["id"], **reply})
        assert kimi.response(prompt)["result"] == {"status": "finished"}
        result = kimi.payloads("ToolResult")[0]["return_value"]
        assert result == {
            "is_error": False,
            "output": output,
            "message": message,
            "display": [{"type": "brief", "text": brief}],
            "extras": None,
        }


@pytest.mark.spec("W-55", "T-93", "R-145")
def test_without_the_capability_questions_and_plan_tools_are_refused(place: Place) -> None:
    calls = [ASK, call("c2", "EnterPlanMode"), call("c3", "ExitPlanMode")]
    place.script("\n".join(calls), "text: end")
    with place.wire() as kimi:
        kimi.prompt("ask")
        results = {result["tool_call_id"]: result["return_value"] for result in kimi.payloads("ToolResult")}
        assert results["c1"]["message"].startswith("The connected client does not support interactive questions.")
        assert results["c2"]["message"].startswith("The connected client does not support plan mode.")
        assert {result["display"][0]["text"] for result in results.values()} == {
            "Client unsupported",
            "Not in plan mode",
        }
        assert kimi.payloads("QuestionRequest") == []


@pytest.mark.spec("T-93", "R-145")
def test_away_mode_dismisses_questions(place: Place) -> None:
    place.script(ASK, "text: end")
    with place.wire("--afk") as kimi:
        kimi.initialize(capabilities=SUPPORTED)
        kimi.prompt("ask")
        result = kimi.payloads("ToolResult")[0]["return_value"]
        assert result["message"] == "Afk mode, auto-dismissed."
        assert result["display"] == [{"type": "brief", "text": "Auto-dismissed (afk)"}]
        assert kimi.payloads("QuestionRequest") == []


@pytest.mark.spec("R-144")
def test_plan_mode_is_enabled_by_flag_and_command_with_reminders(place: Place) -> None:
    with loopback(*[text_reply("ok")] * 30) as server:
        place.provider(server.base_url)
        with place.wire("--plan") as kimi:

            def reminders() -> list[str]:
                """The plan reminders that the model has seen, oldest first."""
                texts = [text_of(message) for message in sent(server) if message["role"] == "user"]
                return [text for text in texts if "Plan mode is on." in text]

            kimi.prompt("first")
            assert len(reminders()) == 1
            assert "How to work in it" in reminders()[0]
            assert kimi.payloads("StatusUpdate")[-1]["plan_mode"] is True
            for number in range(5):
                kimi.prompt(f"more {number}")
            assert len(reminders()) == 2  # after five answers a short one
            assert "How to work in it" not in reminders()[1]
            for number in range(20):
                kimi.prompt(f"further {number}")
            kinds = ["full" if "How to work in it" in text else "short" for text in reminders()]
            assert kinds == ["full", "short", "short", "short", "short", "full"]

            before = len(kimi.lines)
            kimi.prompt("/plan off")
            assert kimi.payloads("ContentPart")[-1]["text"] == "Plan mode OFF. All tools are now available."
            kimi.prompt("/plan on")
            on = kimi.payloads("ContentPart")[-1]["text"]
            assert on.startswith("Plan mode ON. Plan file: ")
            kinds = [line["params"]["type"] for line in kimi.lines[before:] if "method" in line]
            assert kinds == ["TurnBegin", "StatusUpdate", "ContentPart", "TurnEnd"] * 2
            plan = Path(on.removeprefix("Plan mode ON. Plan file: "))
            kimi.prompt("/plan view")
            assert kimi.payloads("ContentPart")[-1]["text"] == "There is no plan yet."
            plan.parent.mkdir(exist_ok=True)
            plan.write_text("1. look")
            kimi.prompt("/plan view")
            assert kimi.payloads("ContentPart")[-1]["text"] == "1. look"
            kimi.prompt("go on")
            assert "It exists already" in reminders()[-1]  # switched on by hand: the full text again
            kimi.prompt("/plan clear")
            assert not plan.exists()
            kimi.prompt("/plan nonsense")
            assert kimi.payloads("ContentPart")[-1]["text"].startswith("Usage: /plan")


@pytest.mark.spec("R-144")
def test_the_configured_plan_mode_is_for_new_sessions(place: Place) -> None:
    place.script("text: one", "text: two")
    file = place.share / "config.toml"
    file.write_text("default_plan_mode = true\n" + file.read_text())
    with place.wire() as kimi:
        kimi.prompt("hi")
        assert kimi.payloads("StatusUpdate")[-1]["plan_mode"] is True
        kimi.response(kimi.call("set_plan_mode", {"enabled": False}))
        session = place.session_dirs()[-1].name
        assert kimi.finish() == 0
    with place.wire("--session", session) as kimi:
        kimi.prompt("hi")
        assert kimi.payloads("StatusUpdate")[-1]["plan_mode"] is False
