"""Events in, updates out: whole turns against golden files, and what turns do to ids, messages and figures.

To write the golden files anew after a deliberate change: `KIMI_WRITE_GOLDEN=1 pytest tests/interfaces/acp`, then read
the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kimi.domain.content.message import Function, ToolCall, ToolCallPart
from kimi.domain.content.parts import AudioPart, ImagePart, MediaUrl, TextPart, ThinkPart, VideoPart
from kimi.domain.events import event as ev
from kimi.domain.events.request import ApprovalRequest, Question, QuestionOption, QuestionRequest
from kimi.domain.tools.diff import ChangedText
from kimi.domain.tools.tool import (
    CANCELLED,
    BriefBlock,
    DiffBlock,
    ShellBlock,
    TodoBlock,
    TodoItem,
    UnknownBlock,
    tool_error,
    tool_ok,
)
from kimi.domain.turn import TokenUsage
from kimi.interfaces.acp.client_capabilities import ClientCapabilities
from kimi.interfaces.acp.updates.session_updates import count_turns
from tests.support.acp.playing import Step, approval, call, golden, pieces, play, translator
from tests.support.acp.schema import check_agent_message

EDIT = (DiffBlock("/home/u/proj/src/parse.py", "one\ntwo\nthree\n", "one\n2\nthree\n"),)
EDIT_ARGUMENTS = '{"path":"src/parse.py","edit":{"old":"two","new":"2"}}'
NEWS = ev.Notification("n1", "task", "task_done", "task", "b1", "Build done", "exit 0", "success", 1.0, {})
ANSWER: list[Step] = [
    ev.TurnBegin("Fix it"),
    ev.StepBegin(1),
    ThinkPart("The test "),
    ThinkPart("fails"),
    TextPart("I "),
]
USAGE = ev.StatusUpdate(0.1, 1200, 10_000, TokenUsage(300, 340, 900), "m1", False)


def subagent(event: ev.Event, parent: str = "c1") -> ev.SubagentEvent:
    """An event of the subagent that the call `parent` started."""
    return ev.SubagentEvent(parent, "a29", "coder", event)


PLAN_QUESTION = QuestionRequest(
    "q1",
    "c1",
    (Question("Approve this plan", "Plan", tuple(map(QuestionOption, ("Approve", "Reject", "Reject and Exit")))),),
)
TURNS: dict[str, Sequence[Step]] = {
    "text": [
        *ANSWER,
        TextPart("see."),
        ImagePart(MediaUrl("data:image/png;base64,iVBORw0K")),
        ImagePart(MediaUrl("https://a.b/c/d.png?e=f")),
        AudioPart(MediaUrl("data:audio/wav;base64,UklG")),
        VideoPart(MediaUrl("data:video/mp4;base64,AAAA")),
        ThinkPart("", "signature"),
        USAGE,
        ev.StepBegin(2),
        TextPart("Done."),
        USAGE,
        ev.TurnEnd(),
    ],
    "edit": [
        *ANSWER,
        *pieces("StrReplaceFile", EDIT_ARGUMENTS, 9),
        0.2,
        USAGE,
        approval("c1", "StrReplaceFile", *EDIT),
        9.0,
        ev.ApprovalResponse("ask-c1", "approve"),
        ev.ToolResult("c1", tool_ok(message="File edited.", display=EDIT)),
        ev.TurnEnd(),
    ],
    "rejected": [
        *ANSWER,
        call("Shell", command="rm -rf build"),
        USAGE,
        approval("c1", "Shell", ShellBlock("bash", "rm -rf build")),
        ev.ApprovalResponse("ask-c1", "reject"),
        ev.ToolResult("c1", tool_error("The tool call is rejected by the user.", "Rejected by user")),
        ev.TurnEnd(),
    ],
    "cancelled": [
        *ANSWER,
        call("Shell", "c0", command="sleep 9"),
        ToolCall(id="c1", function=Function("WriteFile", '{"path": "a')),
        0.2,
        ev.ToolResult("c0", CANCELLED),
        ev.ToolResult("c1", CANCELLED),
        ev.StepInterrupted(),
        ev.TurnEnd(),
    ],
    "retry": [
        *ANSWER,
        call("ReadFile", path="a"),
        ev.StepRetry(1, 2, 5, 0.5, "APIConnectionError", None),
        TextPart("Again."),
        ev.StepRetry(1, 3, 5, 4.0, "APIStatusError", 429),
        TextPart("Well."),
        call("ReadFile", path="a"),
        ev.ToolResult("c1", tool_ok("text", display=(BriefBlock("1 line"), UnknownBlock("x", {})))),
        ev.TurnEnd(),
    ],
    "subagent": [
        *ANSWER,
        call("Agent", description="Run tests", prompt="p"),
        subagent(ev.TurnBegin("p")),
        subagent(ev.StepBegin(1)),
        subagent(ThinkPart("hm")),
        subagent(call("Shell", "x1", command="pytest -q")),
        ApprovalRequest("ask-x1", "x1", "Shell", "run command", "Run", agent_id="a29", subagent_type="coder"),
        ev.ApprovalResponse("ask-x1", "approve"),
        subagent(ev.ToolResult("x1", tool_ok("2 passed"))),
        subagent(call("SetTodoList", "x2", todos=[])),
        subagent(ev.ToolResult("x2", tool_ok(display=(TodoBlock((TodoItem("inner"),)),)))),
        subagent(call("Agent", "x3", description="deeper")),
        subagent(ev.SubagentEvent("x3", "a30", "explore", call("Grep", "y1", pattern="x"))),
        subagent(TextPart("report")),
        ev.ToolResult("c1", tool_ok("report")),
        ev.TurnEnd(),
    ],
    "plan": [
        *ANSWER,
        call("ExitPlanMode"),
        ev.StatusUpdate(plan_mode=True),
        ev.PlanDisplay("# Plan\n1. do", "/home/u/.kimi/plans/a.md"),
        PLAN_QUESTION,
        ev.ToolResult("c1", tool_ok(message="The user approved the plan.", brief="Plan approved")),
        ev.StatusUpdate(plan_mode=False),
        ev.TurnEnd(),
    ],
    "around": [
        NEWS,
        ev.TurnBegin("go"),
        ev.MCPLoadingBegin(),
        0.6,
        ev.StatusUpdate(
            mcp_status=ev.McpStatus(
                False,
                1,
                3,
                1,
                (
                    ev.McpServerStatus("gh", "connected", ("search",)),
                    ev.McpServerStatus("dead", "failed"),
                    ev.McpServerStatus("mute", "unauthorized"),
                ),
            )
        ),
        ev.MCPLoadingEnd(),
        ev.MCPLoadingBegin(),
        0.1,
        ev.MCPLoadingEnd(),
        ev.StepBegin(1),
        ev.CompactionBegin(),
        ev.CompactionEnd(),
        NEWS,
        ev.HookTriggered("PreToolUse", "Shell", 1),
        ev.HookResolved("PreToolUse", "Shell", "allow", "", 3),
        ev.BtwBegin("b", "?"),
        ev.BtwEnd("b", "!", None),
        ev.SteerInput("and more"),
        ev.TurnEnd(),
    ],
}
ABLE = ClientCapabilities(compaction=True, plan=True, elicitation_form=True)


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("client", [ClientCapabilities(), ABLE], ids=["plain", "able"])
def test_whole_turns_match_the_golden_updates(name: str, client: ClientCapabilities) -> None:
    updates = play(translator(client), TURNS[name])
    file = f"{name}_able" if client is ABLE and name in ("plan", "around") else name
    assert updates == golden(file, updates)


@pytest.mark.parametrize("name", TURNS)
def test_every_call_ends_and_gets_no_update_afterwards(name: str) -> None:
    subject = translator()
    states: dict[str, str] = {}
    for update in [*play(subject, TURNS[name]), *subject.close_open_calls()]:
        call_id = update.get("toolCallId")
        if call_id is None:
            continue
        assert states.get(call_id) not in ("completed", "failed")
        assert (call_id in states) == (update["sessionUpdate"] == "tool_call_update")
        states[call_id] = update.get("status", states.get(call_id))
    assert set(states.values()) <= {"completed", "failed"}


@pytest.mark.spec("A-56")
def test_message_ids_contain_turn_step_and_kind() -> None:
    steps = [*ANSWER, TextPart("a"), ev.StepBegin(2), TextPart("b"), ThinkPart("c"), ev.TurnEnd()]
    updates = play(translator(), [*steps, *steps])
    ids = [update["messageId"] for update in updates]
    assert ids[:7] == ["t1-1-think", "t1-1-think", "t1-1-text", "t1-1-text", "t1-2-text", "t1-2-think", "t2-1-think"]


def test_turn_numbers_continue_the_recorded_ones() -> None:
    recorded = [b'{"type":"TurnBegin","payload":{}}', b'{ "type" : "TurnBegin"}', b'{"type":"StepBegin","payload":{}}']
    nested = b'{"type": "SubagentEvent", "payload": {"event": {"type": "TurnBegin"}}}'
    subject = translator(recorded_turns=count_turns([*recorded, nested]))
    assert play(subject, ANSWER)[-1]["messageId"] == "t3-1-text"


def test_new_turn_resolves_calls_left_open_by_a_crash() -> None:
    updates = play(translator(), [*ANSWER, call("Shell", command="x"), ev.TurnBegin("again"), ev.StepBegin(1)])
    assert updates[-1]["status"] == "failed"
    assert updates[-1]["content"][0]["content"]["text"] == "Interrupted."


def test_flow_turns_count_as_one_turn() -> None:
    subject = translator()
    play(subject, [ev.TurnBegin("/flow:x"), ev.TurnBegin("node"), ev.StepBegin(1), USAGE])
    play(subject, [ev.TurnEnd(), ev.TurnBegin("node 2"), ev.StepBegin(1), USAGE, ev.TurnEnd(), NEWS, ev.TurnEnd()])
    usage = subject.turn_usage()
    assert usage is not None
    assert usage["totalTokens"] == 2 * 1540
    play(subject, [ev.TurnBegin("next")])
    assert subject.turn_usage() is None


@pytest.mark.spec("A-63")
def test_token_counts_are_sent_when_they_change() -> None:
    subject = translator()
    assert play(subject, [ev.StatusUpdate(context_tokens=5)]) == []
    assert play(subject, [ev.StatusUpdate(max_context_tokens=100)]) == [
        {"sessionUpdate": "usage_update", "used": 5, "size": 100}
    ]
    assert play(subject, [ev.StatusUpdate(context_tokens=5, context_usage=0.1)]) == []
    assert play(subject, [ev.StatusUpdate(context_tokens=500)])[0]["used"] == 100
    assert play(subject, [ev.StatusUpdate(context_tokens=-5)])[0]["used"] == 0
    assert [update["used"] for update in subject.repeat_usage_update()] == [0]
    assert translator().repeat_usage_update() == []


@pytest.mark.spec("A-63")
def test_usage_of_the_turn_is_summed() -> None:
    subject = translator()
    assert subject.turn_usage() is None
    play(subject, [*ANSWER, USAGE, USAGE])
    usage = {
        "totalTokens": 3080, "inputTokens": 2400, "outputTokens": 680, "cachedReadTokens": 1800, "cachedWriteTokens": 0
    }  # fmt: skip
    assert subject.turn_usage() == usage
    response = {"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "end_turn", "usage": usage}}
    check_agent_message(response, answers="session/prompt")


def test_mode_changes_are_sent_once() -> None:
    option: dict[str, Any] = {"type": "select", "id": "mode", "name": "Mode", "currentValue": "plan", "options": []}
    subject = translator(
        config_options=lambda: [option], mode_for_plan={True: "plan", False: "yolo"}.__getitem__, mode="yolo"
    )
    assert play(subject, [ev.StatusUpdate(plan_mode=False)]) == []
    kinds = [update["sessionUpdate"] for update in play(subject, [ev.StatusUpdate(plan_mode=True)] * 2)]
    assert kinds == ["current_mode_update", "config_option_update"]
    assert subject.update_mode("default", is_known=True) == []
    assert subject.update_mode("default") == []
    assert [update["sessionUpdate"] for update in subject.update_mode("afk")] == kinds


def test_the_whole_texts_make_one_diff() -> None:
    subject = translator()
    play(subject, ANSWER)
    play(subject, [ev.FileChangePlanned(None, "c1", ChangedText(EDIT[0].path, "one\r\ntwo\r\n", "one\r\n2\r\n"))])
    asked = approval("c1", "StrReplaceFile", *EDIT)
    play(subject, [call("StrReplaceFile", path="src/parse.py"), asked])
    diff = {
        "type": "diff",
        "path": "/home/u/proj/src/parse.py",
        "oldText": "one\r\ntwo\r\n",
        "newText": "one\r\n2\r\n",
    }
    assert subject.build_permission(asked)["toolCall"]["content"] == [diff]
    steps: list[Step] = [ev.ApprovalResponse(asked.id, "approve"), ev.ToolResult("c1", tool_ok(display=EDIT))]
    assert play(subject, steps)[-1]["content"] == [diff]


def test_a_large_change_is_shown_in_hunks() -> None:
    subject = translator()
    play(subject, ANSWER)
    play(subject, [ev.FileChangePlanned(None, "c1", ChangedText(EDIT[0].path, "x" * 300_000, "y"))])
    steps = [call("StrReplaceFile", path="src/parse.py"), ev.ToolResult("c1", tool_ok(display=EDIT))]
    content = play(subject, steps)[-1]["content"]
    assert content == [
        {
            "type": "diff",
            "path": "/home/u/proj/src/parse.py",
            "oldText": "one\ntwo\nthree\n",
            "newText": "one\n2\nthree\n",
            "_meta": {"kimi": {"oldStart": 1, "newStart": 1}},
        }
    ]


def test_a_new_file_has_no_old_text() -> None:
    new = (DiffBlock("/home/u/proj/new.py", "", "x = 1\n"),)
    steps = [call("WriteFile", path="new.py"), ev.ToolResult("c1", tool_ok(display=new))]
    for whole in (False, True):
        subject = translator()
        play(subject, ANSWER)
        if whole:
            play(subject, [ev.FileChangePlanned(None, "c1", ChangedText("/home/u/proj/new.py", None, "x = 1\n"))])
        diff = play(subject, steps)[-1]["content"][0]
        assert "oldText" not in diff
        assert diff["newText"] == "x = 1\n"


def test_change_without_content_is_shown_as_text() -> None:
    secret = (DiffBlock("/home/u/proj/.env", "(3 lines)", "(4 lines)", is_summary=True),)
    steps = [*ANSWER, call("WriteFile", path=".env"), ev.ToolResult("c1", tool_ok(display=secret))]
    text = play(translator(), steps)[-1]["content"][0]["content"]["text"]
    assert text == "/home/u/proj/.env: (3 lines) -> (4 lines)"


def test_pieces_without_a_call_are_ignored() -> None:
    assert play(translator(), [*ANSWER[:2], ToolCallPart("{}"), ev.ToolResult("?", tool_ok("x"))]) == []


def test_a_server_that_is_dead_is_named_once() -> None:
    dead = ev.McpServerStatus("dead", "failed")
    status = ev.StatusUpdate(mcp_status=ev.McpStatus(False, 0, 1, 0, (dead,)))
    subject = translator()
    assert play(subject, [status]) == []
    told: list[Any] = play(subject, [ev.TurnBegin("x"), status, ev.TurnEnd(), ev.TurnBegin("y"), status])
    assert [update["status"] for update in told] == ["completed"]
    assert told[0]["content"][0]["content"]["text"].endswith(": dead")
    back = replace(dead, status="connected")
    again = [ev.StatusUpdate(mcp_status=ev.McpStatus(False, 1, 1, 0, (back,))), status]
    assert len(play(subject, again)) == 1
