"""Approvals and questions: what the client is asked, and what its answers mean."""

from __future__ import annotations

from typing import Any

import pytest

from kimi.domain.content.message import JsonObject
from kimi.domain.events import event as ev
from kimi.domain.events.request import (
    ApprovalAnswer,
    ApprovalRequest,
    HookAnswer,
    HookRequest,
    Question,
    QuestionAnswer,
    QuestionOption,
    QuestionRequest,
    ToolCallAnswer,
    ToolCallRequest,
)
from kimi.domain.tools.tool import BackgroundTaskBlock, BriefBlock, DiffBlock, ShellBlock
from kimi.interfaces.acp.client_capabilities import ClientCapabilities
from kimi.interfaces.acp.updates.session_updates import SessionUpdateTranslator
from tests.support.acp.playing import approval, call, play, translator
from tests.support.acp.schema import check_agent_message

BEGIN: list[ev.Event] = [ev.TurnBegin("go"), ev.StepBegin(1)]
DATABASE = Question("Which database?", "Database", (QuestionOption("SQLite", "One file"), QuestionOption("Postgres")))
EXTRAS = Question("Which extras?", "", (QuestionOption("A"), QuestionOption("B")), multi_select=True)
ASKED = QuestionRequest("q", "c1", (DATABASE, EXTRAS))
PLAN_CHOICES = ("Approve", "Reject", "Reject and Exit")


def plan_request(*labels: str) -> QuestionRequest:
    """What ExitPlanMode asks."""
    options = tuple(map(QuestionOption, labels))
    return QuestionRequest("q", "c1", (Question("Approve this plan", "Plan", options, other_label="Revise"),))


def asking(
    request: Any, tool: str, client: ClientCapabilities | None = None, **arguments: Any
) -> SessionUpdateTranslator:
    """A translator that has seen the request."""
    subject = translator(client)
    play(subject, [*BEGIN, call(tool, **arguments), request])
    return subject


def permission(params: JsonObject) -> Any:
    """The params, checked as those of a request."""
    sent = {"jsonrpc": "2.0", "id": 3, "method": "session/request_permission", "params": {"sessionId": "s1", **params}}
    check_agent_message(sent)
    return params


def selected(option: str) -> JsonObject:
    """The client's answer when the person chose."""
    return {"outcome": {"outcome": "selected", "optionId": option}}


def test_an_approval_repeats_the_call() -> None:
    diff = DiffBlock("/home/u/proj/src/a.py", "one\ntwo\n", "one\n2\n", 4, 4)
    request = approval("c1", "StrReplaceFile", diff)
    subject = asking(request, "StrReplaceFile", path="src/a.py")
    assert permission(subject.build_permission(request)) == {
        "toolCall": {
            "toolCallId": "t1/c1",
            "title": "StrReplaceFile: src/a.py",
            "kind": "edit",
            "status": "pending",
            "content": [
                {
                    "type": "diff",
                    "path": "/home/u/proj/src/a.py",
                    "oldText": "one\ntwo\n",
                    "newText": "one\n2\n",
                    "_meta": {"kimi": {"oldStart": 4, "newStart": 4}},
                }
            ],
            "locations": [{"path": "/home/u/proj/src/a.py", "line": 5}],
            "rawInput": {"path": "src/a.py"},
            "_meta": {"kimi": {"toolName": "StrReplaceFile"}},
        },
        "options": [
            {"optionId": "approve", "name": "Approve once", "kind": "allow_once"},
            {"optionId": "approve_for_session", "name": "Approve for this session", "kind": "allow_always"},
            {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
        ],
    }


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (ShellBlock("bash", "ls"), "```bash\nls\n```"),
        (ShellBlock("bash", "echo '```'"), "````bash\necho '```'\n````"),
        (BriefBlock('gh: {"q": "x"}'), 'gh: {"q": "x"}'),
        (BackgroundTaskBlock("b1", "bash", "running", "build"), "b1 (bash, running): build"),
        (None, "Run a command"),
    ],
)
def test_permission_shows_the_proposed_change(block: Any, text: str) -> None:
    request = approval("c1", "Shell", *([block] if block else []))
    content = permission(asking(request, "Shell", command="ls").build_permission(request))["toolCall"]["content"]
    assert content == [{"type": "content", "content": {"type": "text", "text": text}}]


@pytest.mark.parametrize(
    ("result", "response"),
    [
        (selected("approve"), "approve"),
        (selected("approve_once"), "approve"),
        (selected("approve_for_session"), "approve_for_session"),
        (selected("approve_always"), "approve_for_session"),
        (selected("reject"), "reject"),
        (selected("surprise"), "reject"),
        ({"outcome": {"outcome": "cancelled"}}, "reject"),
        ({"outcome": {"outcome": "cancelled", "optionId": "approve"}}, "reject"),
        ({"outcome": {"outcome": "selected", "optionId": ["approve"]}}, "reject"),
        ({"outcome": "selected"}, "reject"),
        ({}, "reject"),
        (None, "reject"),
    ],
)
def test_permission_options_become_approval_answers(result: Any, response: Any) -> None:
    request = approval()
    assert asking(request, "Shell", command="ls").parse_permission_answer(request, result) == ApprovalAnswer(response)


def test_unannounced_call_is_announced_before_its_request() -> None:
    subject = translator()
    request = ApprovalRequest("r", "x1", "Shell", "run command", "Run", agent_id="a9", subagent_type="coder")
    announced = play(subject, [*BEGIN, request])
    assert [(update["sessionUpdate"], update["title"]) for update in announced] == [("tool_call", "coder › Shell")]
    assert permission(subject.build_permission(request))["toolCall"]["toolCallId"] == announced[0]["toolCallId"]
    (own,) = play(subject, [call("Shell", "x1")])
    assert own["toolCallId"] == "t1/x1", "as in a replay, which knows of no request"


@pytest.mark.parametrize(
    ("response", "statuses", "text"),
    [
        ("approve", ["in_progress", "completed"], "Approved. It runs in the background."),
        ("reject", ["failed"], "It was not approved."),
    ],
)
def test_an_agent_in_the_background_is_still_asked_about_when_the_turn_has_ended(
    response: Any, statuses: list[str], text: str
) -> None:
    subject = translator()
    request = ApprovalRequest(
        "r", "x1", "Shell", "run command", "Run it", "background_agent", "agent-1", agent_id="a9", subagent_type="coder"
    )
    play(subject, [*BEGIN, request])
    subject.build_permission(request)
    assert [*play(subject, [ev.TurnEnd()]), *subject.close_open_calls(), *play(subject, BEGIN)] == []
    updates = play(subject, [ev.ApprovalResponse("r", response)])
    assert [update["status"] for update in updates] == statuses
    assert [block["content"]["text"] for block in updates[-1]["content"]] == ["Run it", text]
    assert subject.close_open_calls(include_background=True) == []


def test_request_for_an_ended_call_keeps_its_id() -> None:
    request = approval()
    subject = asking(request, "Shell", command="ls")
    subject.close_open_calls()
    assert permission(subject.build_permission(request))["toolCall"]["toolCallId"] == "t1/c1"


def test_the_same_id_in_a_subagent_is_another_call() -> None:
    subject = translator()
    inner = ev.SubagentEvent("c1", "a1", "coder", call("Shell", "c1", command="inner"))
    request = approval("c1", agent_id="a1", subagent_type="coder")
    play(subject, [*BEGIN, call("Agent", description="d"), inner, request])
    assert subject.build_permission(request)["toolCall"]["toolCallId"] == "t1/c1/c1"


def test_requests_that_do_not_occur_are_refused() -> None:
    subject = translator()
    answer = subject.parse_permission_answer(ToolCallRequest("c", "X", None), None)
    assert isinstance(answer, ToolCallAnswer)
    assert answer.return_value.is_error
    assert subject.parse_permission_answer(HookRequest("h", "s", "Stop", "", {}), None) == HookAnswer()


@pytest.mark.spec("A-89")
def test_questions_become_an_elicitation_form() -> None:
    subject = asking(ASKED, "AskUserQuestion", ClientCapabilities(elicitation_form=True), questions=[])
    assert subject.select_question_form(ASKED) == "form"
    params = subject.build_elicitation(ASKED)
    sent = {"jsonrpc": "2.0", "id": 8, "method": "elicitation/create", "params": {"sessionId": "s1", **params}}
    check_agent_message(sent)
    assert params == {
        "toolCallId": "t1/c1",
        "mode": "form",
        "message": "Which database?\nWhich extras?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "q0": {
                    "type": "string",
                    "title": "Database",
                    "description": "Which database?",
                    "oneOf": [
                        {"const": "SQLite", "title": "SQLite", "description": "One file"},
                        {"const": "Postgres", "title": "Postgres"},
                    ],
                },
                "q0_other": {"type": "string", "title": "Other"},
                "q1": {
                    "type": "array",
                    "title": "Which extras?",
                    "items": {"anyOf": [{"const": "A", "title": "A"}, {"const": "B", "title": "B"}]},
                },
                "q1_other": {"type": "string", "title": "Other"},
            },
        },
    }


@pytest.mark.spec("A-89")
@pytest.mark.parametrize(
    ("result", "answers"),
    [
        ({"q0": "SQLite", "q1": ["A", "B"]}, {"Which database?": "SQLite", "Which extras?": ["A", "B"]}),
        ({"q0": "SQLite", "q0_other": " DuckDB "}, {"Which database?": "DuckDB"}),
        ({"q1": ["A"], "q1_other": "C"}, {"Which extras?": ["A", "C"]}),
        ({"q0": "", "q1": [], "q0_other": " "}, {}),
        ({"q0": 3, "q1": "A"}, {}),
        ({}, {}),
        (None, {}),
    ],
)
def test_form_answers_become_question_answers(result: Any, answers: dict[str, Any]) -> None:
    subject = asking(ASKED, "AskUserQuestion", ClientCapabilities(elicitation_form=True), questions=[])
    assert subject.parse_elicitation_answer(ASKED, {"action": "accept", "content": result}) == QuestionAnswer(answers)


@pytest.mark.spec("A-89")
@pytest.mark.parametrize("result", [None, {"action": "decline"}, {"action": "cancel", "content": {"q0": "SQLite"}}, {}])
def test_a_form_that_is_not_filled_in_dismisses(result: Any) -> None:
    subject = asking(ASKED, "AskUserQuestion", ClientCapabilities(elicitation_form=True), questions=[])
    assert subject.parse_elicitation_answer(ASKED, result) == QuestionAnswer({})


@pytest.mark.spec("A-89")
def test_questions_without_form_support_become_permissions() -> None:
    subject = asking(ASKED, "AskUserQuestion", questions=[{"question": "Which database?"}])
    assert subject.select_question_form(ASKED) == "options"
    first, second = map(permission, subject.build_question_permissions(ASKED))
    assert first["options"] == [
        {"optionId": "q0_opt_0", "name": "SQLite", "kind": "allow_once"},
        {"optionId": "q0_opt_1", "name": "Postgres", "kind": "allow_once"},
        {"optionId": "q0_skip", "name": "Skip", "kind": "reject_once"},
    ]
    assert first["toolCall"]["content"][0]["content"]["text"] == "Which database?\n- SQLite: One file"
    assert second["options"][0]["optionId"] == "q1_opt_0"
    chosen = [selected("q0_opt_1"), selected("q1_opt_0")]
    assert subject.parse_question_answer(ASKED, chosen).answers == {
        "Which database?": "Postgres",
        "Which extras?": ["A"],
    }
    assert subject.parse_question_answer(ASKED, [selected("q0_skip"), selected("q0_opt_0")]).answers == {}
    assert subject.parse_question_answer(ASKED, [None]).answers == {}


def test_a_plan_is_approved_as_a_permission() -> None:
    request = plan_request(*PLAN_CHOICES)
    subject = translator(ClientCapabilities(elicitation_form=True))
    play(subject, [*BEGIN, call("ExitPlanMode"), ev.PlanDisplay("# Plan", "/plans/a.md"), request])
    assert subject.select_question_form(request) == "plan"
    params = permission(subject.build_permission(request))
    assert params["toolCall"]["kind"] == "switch_mode"
    assert params["toolCall"]["locations"] == [{"path": "/plans/a.md"}]
    assert params["toolCall"]["content"] == [{"type": "content", "content": {"type": "text", "text": "# Plan"}}]
    assert params["options"] == [
        {"optionId": "plan_approve", "name": "Approve plan", "kind": "allow_once"},
        {"optionId": "plan_revise", "name": "Keep planning", "kind": "reject_once"},
        {"optionId": "plan_reject_and_exit", "name": "Reject and leave plan mode", "kind": "reject_once"},
    ]


@pytest.mark.parametrize(
    ("labels", "option", "label"),
    [
        (PLAN_CHOICES, "plan_approve", "Approve"),
        (PLAN_CHOICES, "plan_revise", "Reject"),
        (PLAN_CHOICES, "plan_reject_and_exit", "Reject and Exit"),
        (PLAN_CHOICES, "surprise", "Reject"),
        (("Fast", "Safe", *PLAN_CHOICES[1:]), "plan_approach_1", "Safe"),
    ],
)
def test_plan_options_become_answers(labels: tuple[str, ...], option: str, label: str) -> None:
    request = plan_request(*labels)
    subject = asking(request, "ExitPlanMode")
    assert option == "surprise" or option in [
        o["optionId"] for o in permission(subject.build_permission(request))["options"]
    ]
    assert subject.parse_permission_answer(request, selected(option)) == QuestionAnswer({"Approve this plan": label})


def test_a_plan_without_an_answer_is_rejected() -> None:
    request = plan_request(*PLAN_CHOICES)
    subject = asking(request, "ExitPlanMode")
    assert subject.parse_permission_answer(request, None) == QuestionAnswer({"Approve this plan": "Reject"})
