"""What subagents ask, and who answers it (runtime spec 6.5, tools spec 3.13)."""

from __future__ import annotations

import pytest

from kimi.application.control.resolve_request import resolve_request
from kimi.application.conversation.conversation import Conversation
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import (
    ApprovalResponse,
    Event,
    SubagentEvent,
    ToolResult,
)
from kimi.domain.events.request import Answer, ApprovalAnswer, ApprovalRequest, Request
from kimi.domain.permissions.approval import Policy, Rule
from tests.support.conversations import run
from tests.support.fakes import FakeModel, FakeTool
from tests.support.subagent_calls import DONE, REPORT, YES, agent, always, asked, brief, command, inner, result
from tests.support.subagents import CommandTool, crew_with

pytestmark = pytest.mark.anyio

REJECTED = (
    "The tool call is rejected by the user. Try a different approach to complete your task, or explain the limitation "
    "in your summary if no alternative is available. Do not retry the same tool call, and do not attempt to bypass "
    "this restriction through indirect means."
)


@pytest.mark.spec("T-111", "R-96")
async def test_rejection_without_feedback_does_not_end_the_subagent() -> None:
    model = FakeModel([[agent()], [command()], [TextPart(REPORT)], DONE])
    crew = await crew_with(model, [CommandTool("Run")])

    outcome = await run(crew.parent, "go", answer=always(ApprovalAnswer("reject")))

    (refused,) = [one for one in inner(outcome) if isinstance(one, ToolResult)]
    assert refused.return_value.message == REJECTED
    assert brief(refused.return_value) == "Rejected by user"
    assert not result(outcome).is_error
    assert len(model.asked) == 4

    # What is approved for the session in the child holds in the parent, and the other way round.
    remember = always(ApprovalAnswer("approve_for_session"))
    model.scripts += [[agent()], [command()], [TextPart(REPORT)], DONE]
    assert len(asked(await run(crew.parent, "again", answer=remember))) == 1
    model.scripts += [[command()], [agent()], [command()], [TextPart(REPORT)], DONE]
    assert asked(await run(crew.parent, "and again")) == []
    assert crew.parent.files.state.auto_approve_actions == {"run command"}


async def test_enabling_yolo_applies_to_running_subagent() -> None:
    def switch(conversation: Conversation, event: Event) -> None:
        if isinstance(event, SubagentEvent):
            conversation.permissions.switch_modes(yolo=True)

    crew = await crew_with(FakeModel([[agent()], [command()], [TextPart(REPORT)], DONE]), [CommandTool("Run")])
    assert asked(await run(crew.parent, "go", react=switch)) == []


async def test_an_explorer_asks_for_every_command_unless_in_yolo() -> None:
    scripts = [[agent(subagent_type="explore")], [command(), command("c2", "pwd")], [TextPart(REPORT)], DONE]
    standing = Policy(remembered=frozenset({"run command"}), rules=(Rule("allow", tool="Run"),))
    crew = await crew_with(FakeModel(list(scripts)), [CommandTool("Run")], policy=standing)
    assert len(asked(await run(crew.parent, "go", answer=YES))) == 2

    for free in (Policy(yolo=True), Policy(afk=True)):
        crew = await crew_with(FakeModel(list(scripts)), [CommandTool("Run")], policy=free)
        assert asked(await run(crew.parent, "go")) == []


@pytest.mark.parametrize("policy", [Policy(), Policy(plan=True)], ids=["explorer", "plan mode"])
async def test_session_approval_does_not_answer_requests_that_always_ask(
    policy: Policy,
) -> None:
    kind = "coder" if policy.plan else "explore"
    calls = [agent(subagent_type=kind), command("top", "make")]
    own = FakeModel([[command()], [TextPart(REPORT)]])
    crew = await crew_with(FakeModel([calls, DONE]), [CommandTool("Run")], policy=policy, by_type={kind: own})
    waiting: dict[str, str] = {}

    def answer(request: Request) -> Answer | None:
        assert isinstance(request, ApprovalRequest)
        waiting[request.tool_call_id] = request.id
        if len(waiting) == 2:
            assert resolve_request(crew.parent, waiting["top"], ApprovalAnswer("approve_for_session"))
            assert resolve_request(crew.parent, waiting["c1"], ApprovalAnswer("reject"))
        return None

    outcome = await run(crew.parent, "go", answer=answer)

    answered = {one.request_id: one.response for one in outcome.events if isinstance(one, ApprovalResponse)}
    assert answered == {waiting["top"]: "approve_for_session", waiting["c1"]: "reject"}


@pytest.mark.spec("R-195")
@pytest.mark.parametrize(
    ("subagent_type", "rules", "questions", "runs"),
    [
        ("explore", (), 0, 0),
        ("explore", (Rule("allow", match="*.example.com"),), 0, 1),
        ("explore", (Rule("allow", match="example.org"),), 0, 0),
        ("coder", (), 1, 1),
    ],
)
async def test_read_only_subagent_is_refused_the_web_unless_a_rule_allows_the_host(
    subagent_type: str, rules: tuple[Rule, ...], questions: int, runs: int
) -> None:
    fetch = FakeTool("Run", action="fetch url", kind="web", subject="docs.example.com")
    model = FakeModel([[agent(subagent_type=subagent_type)], [command()], [TextPart(REPORT)], DONE])
    crew = await crew_with(model, [fetch], policy=Policy(rules=rules))

    outcome = await run(crew.parent, "go", answer=YES)

    assert (len(asked(outcome)), len(fetch.ran)) == (questions, runs)
    (fetched,) = [one for one in inner(outcome) if isinstance(one, ToolResult)]
    assert fetched.return_value.is_error is (runs == 0)
    assert ("read-only subagent" in fetched.return_value.message) is (runs == 0)
