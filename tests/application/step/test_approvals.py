"""Approvals through a turn: who is asked, what is remembered, what the model reads (tools spec 5)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

import anyio
import pytest

from kimi.application.control.resolve_request import resolve_request
from kimi.application.conversation.conversation import Conversation
from kimi.application.ports import ModelItem, ToolCallContext
from kimi.domain.content.message import Function, JsonObject, ToolCall, message_text
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import ApprovalResponse, Event, ToolResult
from kimi.domain.events.request import Answer, ApprovalAnswer, ApprovalKind, ApprovalRequest, Request
from kimi.domain.permissions.approval import Policy, Rule
from kimi.domain.tools.tool import BriefBlock, ToolReturnValue, tool_ok
from kimi.domain.turn import TurnStatus
from tests.support.conversations import Run, conversation_with, run
from tests.support.fakes import FakeModel, FakeTool, Pause
from tests.support.program.pace import slowdown

pytestmark = pytest.mark.anyio

REJECTED = (
    "The tool call is rejected by the user. Stop what you are doing and wait for the user to tell you how to proceed."
)


def call(call_id: str, name: str) -> ToolCall:
    """A call without arguments."""
    return ToolCall(call_id, Function(name, "{}"))


def always(response: ApprovalAnswer) -> Callable[[Request], Answer | None]:
    """Answer every request in the same way."""
    return lambda request: response


def results(outcome: Run) -> dict[str, ToolReturnValue]:
    """The results of a run, by call id."""
    return {event.tool_call_id: event.return_value for event in outcome.events if isinstance(event, ToolResult)}


def asked(outcome: Run) -> list[ApprovalRequest]:
    """The approval requests of a run."""
    return [event for event in outcome.events if isinstance(event, ApprovalRequest)]


async def test_an_approved_call_runs_after_the_answer_was_announced() -> None:
    tool = FakeTool("Write", action="edit file")
    conversation = await conversation_with(FakeModel([[call("c1", "Write")], [TextPart("ok")]]), [tool])

    outcome = await run(conversation, "go", answer=always(ApprovalAnswer("approve")))

    assert tool.ran == [{}]
    request = asked(outcome)[0]
    assert request == ApprovalRequest(
        id=request.id,
        tool_call_id="c1",
        sender="Write",
        action="edit file",
        description="Do edit file",
        source_kind="foreground_turn",
        source_id="id-1",
    )
    assert outcome.names[2:7] == ["ToolCall", "StatusUpdate", "ApprovalRequest", "ApprovalResponse", "ToolResult"]
    assert ApprovalResponse(request.id, "approve", "") in outcome.events


@pytest.mark.spec("T-98", "R-96")
async def test_rejection_without_feedback_ends_turn_and_with_feedback_does_not() -> None:
    bare = await conversation_with(FakeModel([[call("c1", "Write")]]), [FakeTool("Write", action="edit file")])
    outcome = await run(bare, "go", answer=always(ApprovalAnswer("reject")))
    assert outcome.status == TurnStatus("finished", stop_reason="unknown")
    result = results(outcome)["c1"]
    assert (result.is_error, result.message, result.display) == (True, REJECTED, (BriefBlock("Rejected by user"),))
    assert outcome.names.count("StepBegin") == 1

    model = FakeModel([[call("c1", "Write")], [TextPart("with ninja then")]])
    spoken = await conversation_with(model, [FakeTool("Write", action="edit file")])
    outcome = await run(spoken, "go", answer=always(ApprovalAnswer("reject", "use ninja")))
    result = results(outcome)["c1"]
    assert result.message == "The tool call is rejected by the user. User feedback: use ninja"
    assert result.display == (BriefBlock("Rejected: use ninja"),)
    assert outcome.names.count("StepBegin") == 2
    assert "use ninja" in message_text(model.asked[1].history[-1])

    approved = await conversation_with(
        FakeModel([[call("c1", "Write")], [TextPart("done")]]), [FakeTool("Write", action="edit file")]
    )
    outcome = await run(approved, "go", answer=always(ApprovalAnswer("approve")))
    assert outcome.names.count("StepBegin") == 2
    assert not results(outcome)["c1"].is_error


@pytest.mark.spec("T-99", "W-103")
async def test_rejected_parallel_call_lets_others_finish_before_turn_ends() -> None:
    tool = FakeTool("Write", action="edit file")
    free = FakeTool("Look")
    calls = [call("c1", "Write"), call("c2", "Write"), call("c3", "Look")]
    conversation = await conversation_with(FakeModel([calls]), [tool, free])

    def answer(request: Request) -> Answer:
        assert isinstance(request, ApprovalRequest)
        return ApprovalAnswer("reject" if request.tool_call_id == "c1" else "approve")

    outcome = await run(conversation, "go", answer=answer)

    assert {call_id: result.is_error for call_id, result in results(outcome).items()} == {
        "c1": True,
        "c2": False,
        "c3": False,
    }
    assert outcome.names.count("StepBegin") == 1
    stored = [message.tool_call_id for message in conversation.history.messages if message.role == "tool"]
    assert stored == ["c1", "c2", "c3"]


@pytest.mark.spec("T-100", "R-150")
async def test_session_approval_releases_pending_calls_of_same_action_only() -> None:
    calls = [call("c1", "Write"), call("c2", "Write"), call("c3", "Run")]
    later = [call("c4", "Write"), call("c5", "Run")]
    tools = [FakeTool("Write", action="edit file"), FakeTool("Run", action="run command")]
    conversation = await conversation_with(FakeModel([calls, later, [TextPart("ok")]]), tools)
    waiting: list[ApprovalRequest] = []

    def answer(request: Request) -> Answer | None:
        assert isinstance(request, ApprovalRequest)
        waiting.append(request)
        if len(waiting) == 3:
            first = next(one for one in waiting if one.tool_call_id == "c1")
            command = next(one for one in waiting if one.tool_call_id == "c3")
            resolve_request(conversation, first.id, ApprovalAnswer("approve_for_session"))
            assert conversation.events.pending_requests.find(command.id) is not None
            resolve_request(conversation, command.id, ApprovalAnswer("approve"))
        return ApprovalAnswer("approve") if len(waiting) > 3 else None

    outcome = await run(conversation, "go", answer=answer)

    assert [request.tool_call_id for request in waiting] == ["c1", "c2", "c3", "c5"]
    kinds = sorted(event.response for event in outcome.events if isinstance(event, ApprovalResponse))
    assert kinds == ["approve", "approve", "approve", "approve_for_session"]
    assert conversation.files.state.auto_approve_actions == {"edit file"}
    assert conversation.policy.remembered == {"edit file"}


@pytest.mark.spec("T-104", "W-111")
async def test_late_duplicate_and_unknown_answers_are_ignored() -> None:
    tool = FakeTool("Write", action="edit file")
    conversation = await conversation_with(FakeModel([[call("c1", "Write")], [TextPart("ok")]]), [tool])

    def answer(request: Request) -> Answer | None:
        assert resolve_request(conversation, request.id, ApprovalAnswer("approve"))
        assert not resolve_request(conversation, request.id, ApprovalAnswer("reject"))
        assert not resolve_request(conversation, "unknown", ApprovalAnswer("approve_for_session"))
        return None

    outcome = await run(conversation, "go", answer=answer)

    assert not resolve_request(conversation, asked(outcome)[0].id, ApprovalAnswer("approve_for_session"))
    assert tool.ran == [{}]
    assert conversation.policy.remembered == frozenset()


@pytest.mark.spec("T-105")
async def test_five_pending_requests_can_be_answered_in_reverse() -> None:
    calls = [call(f"c{n}", "Write") for n in range(5)]
    conversation = await conversation_with(
        FakeModel([calls, [TextPart("ok")]]), [FakeTool("Write", action="edit file")]
    )
    waiting: list[str] = []

    def answer(request: Request) -> Answer | None:
        waiting.append(request.id)
        if len(waiting) == 5:
            for request_id in reversed(waiting):
                assert resolve_request(conversation, request_id, ApprovalAnswer("approve"))
        return None

    outcome = await run(conversation, "go", answer=answer)
    assert len(results(outcome)) == 5
    answered = [event.request_id for event in outcome.events if isinstance(event, ApprovalResponse)]
    assert answered == list(reversed(waiting))


async def test_yolo_asks_nothing_but_deny_rules_still_apply() -> None:
    rules = (Rule("deny", tool="Run"),)
    tools = [FakeTool("Write", action="edit file"), FakeTool("Run", action="run command")]
    conversation = await conversation_with(
        FakeModel([[call("c1", "Write"), call("c2", "Run")], [TextPart("ok")]]),
        tools,
        policy=Policy(yolo=True, rules=rules),
    )
    outcome = await run(conversation, "go")
    assert asked(outcome) == []
    assert not results(outcome)["c1"].is_error
    assert results(outcome)["c2"].display == (BriefBlock("Not allowed"),)
    assert tools[1].ran == []


@pytest.mark.parametrize(
    ("rule", "held"),
    [
        (Rule("deny", tool="Look"), True),
        (Rule("deny", match="/w/private/*"), True),
        (Rule("deny", tool="Look", action="edit file"), False),
        (Rule("deny", tool="Look", match="/w/open/*"), False),
        (Rule("allow", tool="Look"), False),
    ],
)
async def test_deny_rule_applies_to_calls_without_approval(rule: Rule, held: bool) -> None:
    tool = FakeTool("Look", subject="/w/private/a")
    model = FakeModel([[call("c1", "Look")], [TextPart("ok")]])
    outcome = await run(await conversation_with(model, [tool], policy=Policy(yolo=True, rules=(rule,))), "go")
    assert (tool.ran == []) is held
    assert (results(outcome)["c1"].display == (BriefBlock("Not allowed"),)) is held


@pytest.mark.parametrize("decision", ["deny", "ask"])
async def test_a_tool_learns_for_which_subjects_a_rule_may_hold_it_back(decision: Literal["deny", "ask"]) -> None:
    found: dict[str, bool] = {}

    async def look(arguments: JsonObject, context: ToolCallContext) -> ToolReturnValue:
        found.update({path: context.has_rule(path) for path in ("/w/private/a", "/w/open/a")})
        return tool_ok("done")

    rules = (Rule(decision, match="/w/private/*"), Rule("deny", tool="Other"), Rule("allow", tool="Look"))
    model = FakeModel([[call("c1", "Look")], [TextPart("ok")]])
    tool = FakeTool("Look", look, subject="/w/open/a")
    await run(await conversation_with(model, [tool], policy=Policy(rules=rules)), "go")
    assert found == {"/w/private/a": True, "/w/open/a": False}


@pytest.mark.spec("R-190")
@pytest.mark.parametrize("response", ["approve", "approve_for_session", "reject"])
async def test_ask_rule_asks_under_yolo_and_its_approval_holds_once(response: ApprovalKind) -> None:
    rule = Rule("ask", tool="Write")
    tool = FakeTool("Write", action="edit file")
    model = FakeModel([[call("c1", "Write")], [call("c2", "Write")], [TextPart("ok")]])
    conversation = await conversation_with(model, [tool], policy=Policy(yolo=True, rules=(rule,)))

    outcome = await run(conversation, "go", answer=always(ApprovalAnswer(response)))

    rejected = response == "reject"  # which ends the turn
    assert [one.description for one in asked(outcome)] == ["Do edit file (asked by the rule: ask tool='Write')"] * (
        1 if rejected else 2
    )
    assert len(tool.ran) == (0 if rejected else 2)
    # The client reads that its approval held once.
    announced = {event.response for event in outcome.events if isinstance(event, ApprovalResponse)}
    assert announced == {"reject" if rejected else "approve"}
    assert conversation.policy.remembered == frozenset()


@pytest.mark.spec("R-190")
@pytest.mark.parametrize("response", ["approve", "reject"])
async def test_ask_rule_asks_about_a_call_that_needs_no_approval(response: ApprovalKind) -> None:
    tool = FakeTool("Look", subject="/w/private/a", read_only=True)
    policy = Policy(yolo=True, rules=(Rule("ask", match="/w/private/*"),))
    conversation = await conversation_with(FakeModel([[call("c1", "Look")], [TextPart("ok")]]), [tool], policy=policy)

    outcome = await run(conversation, "go", answer=always(ApprovalAnswer(response)))

    (request,) = asked(outcome)
    assert (request.sender, request.action) == ("Look", "use Look")
    assert request.description == "Use Look on `/w/private/a` (asked by the rule: ask match='/w/private/*')"
    assert tool.ran == ([{}] if response == "approve" else [])


async def test_no_question_comes_between_the_streamed_parts() -> None:
    tool = FakeTool("Look", subject="/w/a", read_only=True)

    async def pause() -> None:
        await anyio.wait_all_tasks_blocked()

    answer: list[ModelItem | Pause] = [call("c1", "Look"), TextPart("so "), pause, TextPart("far")]
    conversation = await conversation_with(
        FakeModel([answer, [TextPart("ok")]]), [tool], policy=Policy(rules=(Rule("ask", tool="Look"),))
    )
    outcome = await run(conversation, "go", answer=always(ApprovalAnswer("approve")))
    assert tool.ran == [{}]
    assert outcome.names.index("ApprovalRequest") > outcome.names.index("StatusUpdate")


@pytest.mark.spec("R-193")
@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Policy(rules=(Rule("deny", tool="Write"),)), "by the user's approval rules: deny tool='Write'. Do not"),
        (
            Policy(afk=True, rules=(Rule("ask", action="edit*"),)),
            "by the user's approval rules: ask action='edit*', and nobody can be asked. Do not",
        ),
    ],
)
async def test_refusal_and_log_name_the_deciding_rule(
    policy: Policy, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    conversation = await conversation_with(
        FakeModel([[call("c1", "Write")], [TextPart("ok")]]), [FakeTool("Write", action="edit file")], policy=policy
    )
    outcome = await run(conversation, "go")
    assert reason in results(outcome)["c1"].message
    assert f"call c1 of Write: deny edit file by rule ({policy.rules[0]})" in caplog.text


@pytest.mark.spec("R-198")
async def test_session_approval_releases_nothing_that_is_asked_about_by_now() -> None:
    tools = [FakeTool("Run", action="run command", kind="command", subject="ls")]
    model = FakeModel([[call("c1", "Run"), call("c2", "Run")], [TextPart("ok")]])
    conversation = await conversation_with(model, tools)
    waiting: list[ApprovalRequest] = []

    def answer(request: Request) -> Answer | None:
        assert isinstance(request, ApprovalRequest)
        waiting.append(request)
        if len(waiting) == 2:
            first, second = waiting
            conversation.permissions.switch_modes(plan=True)
            resolve_request(conversation, first.id, ApprovalAnswer("approve_for_session"))
            assert conversation.events.pending_requests.find(second.id) is not None
            assert not resolve_request(conversation, first.id, ApprovalAnswer("approve_for_session"))
            assert conversation.events.pending_requests.find(second.id) is not None
            resolve_request(conversation, second.id, ApprovalAnswer("reject", "no"))
        return None

    outcome = await run(conversation, "go", answer=answer)

    assert {call_id: result.is_error for call_id, result in results(outcome).items()} == {"c1": False, "c2": True}


@pytest.mark.spec("T-113")
async def test_conversation_end_rejects_pending_requests() -> None:
    patience_s = slowdown()  # a second on a quiet machine
    conversation = await conversation_with(FakeModel([[call("c1", "Write")]]), [FakeTool("Write", action="edit file")])

    def leave(conversation: Conversation, event: Event) -> None:
        if isinstance(event, ApprovalRequest) and conversation.turn:
            conversation.events.pending_requests.close()
            conversation.turn.scope.cancel()

    outcome = await run(conversation, "go", react=leave)

    assert outcome.status == TurnStatus("cancelled")
    assert conversation.events.pending_requests.list_requests() == []
    assert [event.response for event in outcome.events if isinstance(event, ApprovalResponse)] == ["reject"]
    with anyio.fail_after(patience_s):
        answer = await conversation.events.pending_requests.ask(asked(outcome)[0], conversation.events.emit)
    assert answer == ApprovalAnswer("reject")


async def test_call_after_client_disconnect_is_rejected_without_events() -> None:
    tool = FakeTool("Write", action="edit file")
    conversation = await conversation_with(FakeModel([[call("c1", "Write")]]), [tool])

    def leave(conversation: Conversation, event: Event) -> None:
        if isinstance(event, ToolCall):
            conversation.events.pending_requests.close()

    outcome = await run(conversation, "go", react=leave)

    assert tool.ran == []
    assert outcome.names == ["TurnBegin", "StepBegin", "ToolCall", "StatusUpdate", "ToolResult", "TurnEnd"]


async def test_concurrent_calls_see_their_own_call_context() -> None:
    seen: dict[str, tuple[str, int, str]] = {}
    both = anyio.Event()

    async def body(arguments: JsonObject, context: ToolCallContext) -> ToolReturnValue:
        seen[context.call_id] = (context.call_name, context.step, context.session_id)
        if len(seen) == 2:
            both.set()
        await both.wait()
        return tool_ok(context.call_id)

    calls = [call("c1", "A"), call("c2", "B")]
    conversation = await conversation_with(
        FakeModel([calls, [TextPart("ok")]]), [FakeTool("A", body), FakeTool("B", body)]
    )
    await run(conversation, "go")
    assert seen == {"c1": ("A", 1, "s1"), "c2": ("B", 1, "s1")}
