"""Whatever comes in whatever order: valid updates, calls that end once, and a replay that agrees."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.content.message import Function, ToolCall, ToolCallPart
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.events import event as ev
from kimi.domain.events.request import ApprovalRequest, QuestionRequest
from kimi.domain.tools.diff import ChangedText
from kimi.domain.tools.tool import BackgroundTaskBlock, tool_error, tool_ok
from kimi.interfaces.acp.client_capabilities import ClientCapabilities
from tests.interfaces.acp.updates.test_replay import recorded
from tests.interfaces.acp.updates.test_session_updates import NEWS, PLAN_QUESTION, TURNS, USAGE, Step, subagent
from tests.support.acp.playing import approval, call, checked, play, replayed, translator

ABILITIES = [ClientCapabilities(), ClientCapabilities(compaction=True, plan=True, elicitation_form=True)]
_IDS = st.sampled_from(["c1", "c2", "x1"])
_CALLS = st.builds(
    call, st.sampled_from(["Shell", "WriteFile", "Agent", "ExitPlanMode", "Grep", "?"]), _IDS, path=st.text()
)
_GROWING = st.builds(ToolCall, id=_IDS, function=st.just(Function("Shell", '{"comm')))
_RESULTS = st.builds(
    ev.ToolResult,
    _IDS,
    st.sampled_from(
        [
            tool_ok("a.py:1:x"),
            tool_error("no", "no"),
            tool_ok(display=(BackgroundTaskBlock("b", "agent", "running", "d"),)),
        ]
    ),
)
_PLAIN = st.sampled_from([event for turn in TURNS.values() for event in turn])
_ANY = st.one_of(
    _PLAIN,
    _CALLS,
    _GROWING,
    _RESULTS,
    st.builds(subagent, st.one_of(_CALLS, _RESULTS, st.just(ev.StepInterrupted())), _IDS),
    st.builds(ev.ToolCallStarted, st.sampled_from([None, "a29"]), _IDS),
    st.builds(ev.FileChangePlanned, st.sampled_from([None, "a29"]), _IDS, st.just(ChangedText("/a", None, "x"))),
    st.builds(approval, _IDS, agent_id=st.sampled_from([None, "a29"])),
    st.sampled_from([ev.ApprovalResponse("ask-c1", "approve"), ev.ApprovalResponse("ask-x1", "reject"), PLAN_QUESTION]),
    st.sampled_from([ev.TurnBegin("x"), ev.TurnEnd(), ev.StepBegin(2), NEWS, USAGE, TextPart("t"), ThinkPart("h")]),
    st.sampled_from([ToolCallPart('and":"ls'), ToolCallPart('"}'), ev.StepInterrupted(), 0.05, 0.3, 1.0]),
)
_STEPS = st.lists(_ANY, max_size=40)


@given(_STEPS, st.sampled_from(ABILITIES))
def test_calls_end_once_and_all_are_resolved(steps: list[Step], client: ClientCapabilities) -> None:
    subject = translator(client)
    updates: list[Any] = []
    for step in [ev.TurnBegin("go"), *steps]:
        updates += play(subject, [step])
        if isinstance(step, (ApprovalRequest, QuestionRequest)):
            assert subject.build_permission(step)["toolCall"]["toolCallId"]
    updates += checked(subject.close_open_calls(include_background=True))
    states: dict[str, str] = {}
    for update in updates:
        if (call_id := update.get("toolCallId")) is None:
            continue
        assert states.get(call_id) not in ("completed", "failed")
        assert (call_id in states) == (update["sessionUpdate"] == "tool_call_update")
        states[call_id] = update.get("status", states.get(call_id))
    assert set(states.values()) <= {"completed", "failed"}
    assert subject.next_update_at() is None


@given(_STEPS)
def test_a_replay_has_the_calls_of_the_record(steps: list[Step]) -> None:
    asked = [step for step in steps if not isinstance(step, (ApprovalRequest, QuestionRequest))]
    events = recorded([ev.TurnBegin("go"), *asked])
    subject = translator()
    live = [*play(subject, events), *subject.close_open_calls(include_background=True)]
    again = replayed(events)
    shown = {update["toolCallId"] for update in live if "toolCallId" in update and "/mcp-" not in update["toolCallId"]}
    assert {update["toolCallId"] for update in again if "toolCallId" in update} == shown
    assert all(update["status"] in ("completed", "failed") for update in again if "toolCallId" in update)
