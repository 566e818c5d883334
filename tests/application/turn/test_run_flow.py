"""Skills, flows and the repetition of prompts over fakes."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from kimi.application.control.steer import steer
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.skill_registry import SkillRegistry
from kimi.domain.content.message import Function, Message, ToolCall, message_text
from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart
from kimi.domain.errors import APIStatusError, CapabilityMissing, ModelNotSet
from kimi.domain.events.event import (
    Event,
    SteerInput,
    StepBegin,
    StepInterrupted,
    ToolResult,
    TurnBegin,
    TurnEnd,
)
from kimi.domain.events.request import ApprovalAnswer
from kimi.domain.skills.flow_d2 import parse_d2
from kimi.domain.skills.skill import Skill
from kimi.domain.turn import TurnLimits, TurnStatus
from tests.support.conversations import Run, conversation_with, run, with_resources
from tests.support.fakes import FakeModel, FakeTool, Script, forever

pytestmark = pytest.mark.anyio

LOOP = "BEGIN -> work -> check\nwork: Do a piece\ncheck: All done?\ncheck -> END: yes\ncheck -> work: no"


def skill(name: str, flow: str | None = None, fault: str | None = None) -> Skill:
    """A skill whose file is `/s/<name>`."""
    return Skill(name, f"About {name}", f"/s/{name}", "User", parse_d2(flow) if flow else None, fault)


async def with_flow(
    model: FakeModel | None, flow: str = LOOP, *, tools: Sequence[FakeTool] = (), limits: TurnLimits | None = None
) -> Conversation:
    """A conversation with the flow `x`."""
    conversation = await conversation_with(model, tools, limits=limits)
    return with_resources(conversation, skills=SkillRegistry(lambda: [skill("x", flow)]))


def said(text: str) -> Script:
    """A plain answer of the model."""
    return [TextPart(text)]


def prompts(outcome: Run) -> list[str]:
    """The first line of what began each turn."""
    return [str(event.user_input).split("\n")[0] for event in outcome.events if isinstance(event, TurnBegin)]


def balanced(events: list[Event]) -> bool:
    """Does every turn end, and are they at most two deep?"""
    depth = 0
    for event in events:
        depth += isinstance(event, TurnBegin) - isinstance(event, TurnEnd)
        if depth not in (0, 1, 2):
            return False
    return depth == 0


# --- flows ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-136")
async def test_a_flow_runs_a_turn_for_each_node_in_one_history() -> None:
    first = "Let me see. <choice>yes</choice> or rather <choice>\n no </choice>"
    model = FakeModel([said("did 1"), said(first), said("did 2"), said("Well: <choice>yes</choice>")])
    conversation = await with_flow(model)

    outcome = await run(conversation, "/flow:x")

    assert outcome.status == TurnStatus("finished", stop_reason="unknown")
    assert prompts(outcome) == ["/flow:x", "Do a piece", "All done?", "Do a piece", "All done?"]
    turn = ["TurnBegin", "StepBegin", "TextPart", "StatusUpdate", "TurnEnd"]
    assert outcome.names == ["TurnBegin", *turn * 4, "TurnEnd"]
    assert all(event.n == 1 for event in outcome.events if isinstance(event, StepBegin))
    messages = [record for record in conversation.files.load_context() if isinstance(record, Message)]
    assert [message.role for message in messages] == ["user", "assistant"] * 4
    decision = message_text(messages[2])
    assert decision.startswith("All done?\n")
    assert "\n- yes\n- no\n" in decision
    assert "<choice>LABEL</choice>" in decision
    assert [len(asked.history) for asked in model.asked] == [1, 3, 5, 7]


@pytest.mark.spec("R-136")
@pytest.mark.parametrize("answer", ["yes", "<choice>YES</choice>", "<choice>yes.</choice>", "<choice></choice>"])
async def test_a_choice_must_be_a_label_exactly(answer: str) -> None:
    model = FakeModel([said("did"), said(answer), said("<choice>yes</choice>")])
    outcome = await run(await with_flow(model), "/flow:x")
    assert prompts(outcome) == ["/flow:x", "Do a piece", "All done?", "All done?"]
    again = message_text(model.asked[-1].history[-1])
    assert "no valid choice" in again
    assert "\n- yes\n- no\n" in again


@pytest.mark.spec("R-137")
async def test_an_invalid_choice_is_asked_for_again_three_times_and_ends_the_flow() -> None:
    model = FakeModel([said("did"), *(said("who knows") for _ in range(5))])
    outcome = await run(await with_flow(model), "/flow:x")
    assert prompts(outcome) == ["/flow:x", "Do a piece", *["All done?"] * 4]
    assert outcome.status == TurnStatus("finished")
    assert outcome.events[-2:] == [
        TextPart("The flow ends: none of its branches was chosen in 4 answers."),
        TurnEnd(),
    ]
    assert balanced(outcome.events)


@pytest.mark.spec("R-138")
async def test_a_flow_that_does_not_end_is_stopped_after_a_thousand_moves() -> None:
    model = FakeModel([said("<choice>no</choice>") for _ in range(1001)])
    outcome = await run(await with_flow(model), "/flow:x")
    assert outcome.status == TurnStatus("max_steps_reached", steps=1000)
    assert len(model.scripts) == 1
    assert balanced(outcome.events)


async def test_node_without_outgoing_edge_ends_the_flow() -> None:
    flow = "BEGIN -> a\na -> END: out\na -> b: in\nb: Last"
    model = FakeModel([said("<choice>in</choice>"), said("did")])
    outcome = await run(await with_flow(model, flow), "/flow:x")
    assert outcome.events[-2] == TextPart("The flow ends: nothing follows this node.")
    assert outcome.status == TurnStatus("finished")


async def test_edge_back_to_begin_restarts_the_flow() -> None:
    flow = "BEGIN -> a\na -> END: out\na -> BEGIN: again"
    model = FakeModel([said("<choice>again</choice>"), said("<choice>out</choice>")])
    assert prompts(await run(await with_flow(model, flow), "/flow:x")) == ["/flow:x", "a", "a"]


async def test_rejection_without_feedback_stops_flow_and_with_feedback_does_not() -> None:
    calling: Script = [ToolCall("c1", Function("Change", "{}"))]
    tool = FakeTool("Change", action="change")
    stopped = await with_flow(FakeModel([calling]), tools=[tool])
    outcome = await run(stopped, "/flow:x", answer=lambda request: ApprovalAnswer("reject"))
    assert prompts(outcome) == ["/flow:x", "Do a piece"]
    assert outcome.status == TurnStatus("finished", stop_reason="unknown")
    assert balanced(outcome.events)

    going_on = await with_flow(FakeModel([calling, said("did"), said("<choice>yes</choice>")]), tools=[tool])
    outcome = await run(going_on, "/flow:x", answer=lambda request: ApprovalAnswer("reject", "not so"))
    assert prompts(outcome) == ["/flow:x", "Do a piece", "All done?"]


async def test_a_node_at_the_step_limit_ends_the_flow() -> None:
    calls: list[Script] = [[ToolCall(f"c{n}", Function("Look", "{}"))] for n in range(2)]
    conversation = await with_flow(FakeModel(list(calls)), tools=[FakeTool("Look")], limits=TurnLimits(max_steps=2))
    outcome = await run(conversation, "/flow:x")
    assert outcome.status == TurnStatus("max_steps_reached", steps=2)
    assert balanced(outcome.events)


async def test_failing_node_closes_both_turns_once() -> None:
    error = APIStatusError(400, "no")
    model = FakeModel([said("did"), [TextPart("par"), error]])
    outcome = await run(await with_flow(model), "/flow:x")
    assert outcome.error is error
    assert outcome.events[-4:] == [TextPart("par"), StepInterrupted(), TurnEnd(), TurnEnd()]
    assert outcome.events.count(StepInterrupted()) == 1
    assert balanced(outcome.events)


async def test_without_a_model_a_flow_has_two_empty_turns() -> None:
    outcome = await run(await with_flow(None), "/flow:x")
    assert isinstance(outcome.error, ModelNotSet)
    assert outcome.names == ["TurnBegin", "TurnBegin", "TurnEnd", "TurnEnd"]


async def test_cancel_inside_node_resolves_calls_once_and_ends_both_turns() -> None:
    script: Script = [ToolCall("c1", Function("Look", "{}")), forever]

    def cancel(conversation: Conversation, event: Event) -> None:
        if isinstance(event, ToolCall) and conversation.turn:
            conversation.turn.scope.cancel()

    conversation = await with_flow(FakeModel([script, said("ok")]), tools=[FakeTool("Look")])
    outcome = await run(conversation, "/flow:x", react=cancel)
    assert outcome.status == TurnStatus("cancelled")
    results = [event for event in outcome.events if isinstance(event, ToolResult)]
    assert [result.tool_call_id for result in results] == ["c1"]
    assert outcome.events[-3:] == [StepInterrupted(), TurnEnd(), TurnEnd()]
    assert prompts(await run(conversation, "hi")) == ["hi"]


async def test_steers_go_to_the_node_that_runs() -> None:
    async def while_it_speaks() -> None:
        steer(conversation, "inside")

    script: Script = [TextPart("did"), while_it_speaks]
    model = FakeModel([script, said("steered"), said("<choice>yes</choice>")])
    conversation = await with_flow(model)

    outcome = await run(conversation, "/flow:x")
    assert [event.user_input for event in outcome.events if isinstance(event, SteerInput)] == ["inside"]
    assert prompts(outcome) == ["/flow:x", "Do a piece", "All done?"]
    assert balanced(outcome.events)


@pytest.mark.spec("R-129")
async def test_neither_commands_nor_skills_nor_flows_name_the_session() -> None:
    model = FakeModel([said("did"), said("<choice>yes</choice>"), said("did"), said("analysed"), said("ok")])
    conversation = await conversation_with(model)
    conversation = with_resources(
        conversation, skills=SkillRegistry(lambda: [skill("x", LOOP), skill("bad", None, "No.")], lambda path: "Do it.")
    )
    for command in (
        "/nope",
        "/clear",
        "/yolo",
        "/skill:nope",
        "/flow:x",
        "/flow:x more",
        "/skill:x words",
        "/flow:bad",
        "/init",
        "/compact",
        "/afk",
        "/plan",
        "/add-dir",
        "/export",
        "/import",
    ):
        await run(conversation, command)
        assert conversation.files.state.custom_title is None, command
    await run(conversation, "hello")
    assert conversation.files.state.custom_title == "hello"
    assert model.scripts == []


async def test_flow_with_arguments_only_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    conversation = await with_flow(FakeModel([]))
    outcome = await run(conversation, "/flow:x now")
    assert outcome.names == ["TurnBegin", "TurnEnd"]
    assert "/flow:x does nothing" in caplog.text
    assert [level for name, level, _ in caplog.record_tuples if name.endswith("run_turn")] == [logging.WARNING]


# --- skills -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-133")
async def test_skill_command_sends_skill_text_with_user_request() -> None:
    model = FakeModel([said("ok"), said("ok")])
    conversation = await conversation_with(model)
    texts = {"/s/x": "---\nname: x\n---\n\nDo it.\n", "/s/f": "Steps"}
    conversation = with_resources(
        conversation, skills=SkillRegistry(lambda: [skill("x"), skill("f", LOOP), skill("gone")], texts.pop)
    )
    outcome = await run(conversation, "/skill:x  with\n care ")
    assert message_text(model.asked[0].history[-1]) == "---\nname: x\n---\n\nDo it.\n\nUser request:\nwith\n care"
    assert outcome.events[0] == TurnBegin("/skill:x  with\n care ")
    assert outcome.names == ["TurnBegin", "StepBegin", "TextPart", "StatusUpdate", "TurnEnd"]
    await run(conversation, "/skill:f")
    assert message_text(model.asked[1].history[-1]) == "Steps"

    conversation = with_resources(
        conversation, skills=SkillRegistry(lambda: [skill("gone"), skill("bytes")], unreadable)
    )
    for name in ("gone", "bytes"):
        outcome = await run(conversation, f"/skill:{name}")
        assert outcome.events[1:] == [TextPart(f'Failed to load skill "/skill:{name}".'), TurnEnd()]
    assert len(model.asked) == 2


async def test_image_sent_with_a_skill_reaches_the_model() -> None:
    picture = ImagePart(MediaUrl("https://example.test/a.png"))
    model = FakeModel([said("ok")], capabilities=frozenset({"image_in"}))
    conversation = await conversation_with(model)
    conversation = with_resources(conversation, skills=SkillRegistry(lambda: [skill("x")], lambda path: "Do it."))
    await run(conversation, (TextPart("/skill:x"), picture, TextPart("like this")))
    assert model.asked[0].history[-1].content == (TextPart("Do it.\n\nUser request:\nlike this"), picture)


def unreadable(path: str) -> str:
    """A file that is gone, or is no text."""
    if path == "/s/gone":
        raise FileNotFoundError(path)
    return b"\xff".decode()


@pytest.mark.spec("R-127")
@pytest.mark.parametrize("name", ["x", "skill:x", "flow:x", "flow:plain", "skill:Plain", "skill:plain:x", "flow"])
async def test_unknown_command_is_reported_without_the_model(name: str) -> None:
    conversation = await conversation_with(FakeModel([]))
    conversation = with_resources(conversation, skills=SkillRegistry(lambda: [skill("plain")]))
    outcome = await run(conversation, f"/{name} words")
    assert outcome.events[1:] == [TextPart(f'Unknown slash command "/{name}".'), TurnEnd()]
    assert outcome.status == TurnStatus("finished")


@pytest.mark.spec("R-139")
async def test_broken_diagram_keeps_skill_and_reports_why_flow_is_missing() -> None:
    model = FakeModel([said("ok")])
    conversation = await conversation_with(model)
    broken = skill("x", None, 'Line 2: Node "a" has an unlabeled edge')
    conversation = with_resources(conversation, skills=SkillRegistry(lambda: [broken], lambda path: "Do it."))
    assert [info.name for info in conversation.resources.skills.list_commands()] == ["skill:x"]

    outcome = await run(conversation, "/flow:x")
    assert outcome.events[1:-1] == [
        TextPart('The flow "/flow:x" cannot be run. Line 2: Node "a" has an unlabeled edge')
    ]
    await run(conversation, "/skill:x")
    assert message_text(model.asked[0].history[-1]) == "Do it."


def test_commands_are_listed_by_name_and_only_if_they_can_be_typed() -> None:
    book = SkillRegistry(lambda: [skill("b", LOOP), skill("two words"), skill("C"), skill("a:1"), skill("é")])
    assert [info.name for info in book.list_commands()] == ["skill:a:1", "skill:b", "skill:C", "flow:b"]
    assert book.list_commands()[1].description == "About b"


def test_skill_files_are_loaded_once() -> None:
    found: list[int] = []

    def load() -> list[Skill]:
        found.append(1)
        return [skill("a")]

    book = SkillRegistry(load)
    assert found == []
    assert [one.name for one in book.skills] == ["a"]
    assert book.find("skill:", "skill:a") is book.skills[0]
    assert found == [1]


# --- the loop ---------------------------------------------------------------------------------------------------


def going_on(count: int) -> list[Script]:
    """Answers that go on this often."""
    return [said("more <choice>CONTINUE</choice>") for _ in range(count)]


async def test_the_loop_repeats_the_prompt_until_the_model_stops() -> None:
    model = FakeModel([said("begun"), *going_on(2), said("<choice>STOP</choice>")])
    conversation = await conversation_with(model, limits=TurnLimits(ralph_iterations=5))
    outcome = await run(conversation, "mend it")
    assert prompts(outcome) == ["mend it", "mend it", "mend it", "mend it", "mend it"]
    assert outcome.status == TurnStatus("finished", stop_reason="unknown")
    assert message_text(model.asked[0].history[0]) == "mend it"
    assert "repeated to you automatically" in message_text(model.asked[1].history[-1])
    assert conversation.files.state.custom_title == "mend it"
    assert balanced(outcome.events)


async def test_the_loop_ends_with_a_notice_when_its_iterations_are_used_up() -> None:
    model = FakeModel([said("begun"), *going_on(5)])
    conversation = await conversation_with(model, limits=TurnLimits(ralph_iterations=2))
    outcome = await run(conversation, "mend it")
    assert prompts(outcome) == ["mend it"] * 4
    assert outcome.status == TurnStatus("finished")
    assert outcome.events[-2:] == [TextPart("The loop ends: the prompt was repeated 2 times, its limit."), TurnEnd()]


async def test_ralph_loop_without_limit_runs_until_the_model_stops() -> None:
    model = FakeModel([said("begun"), *going_on(1200), said("<choice>STOP</choice>")])
    conversation = await conversation_with(model, limits=TurnLimits(ralph_iterations=-1))
    outcome = await run(conversation, "mend it")
    assert outcome.status == TurnStatus("finished", stop_reason="unknown")
    assert model.scripts == []


async def test_the_loop_keeps_media_and_leaves_commands_and_skills_alone() -> None:
    parts = (TextPart("like this"), ImagePart(MediaUrl("u")))
    model = FakeModel([said("a"), said("<choice>STOP</choice>"), said("b")], capabilities=frozenset({"image_in"}))
    conversation = await conversation_with(model, limits=TurnLimits(ralph_iterations=1))
    conversation = with_resources(conversation, skills=SkillRegistry(lambda: [skill("x")], lambda path: "Do it."))
    outcome = await run(conversation, parts)
    assert outcome.events[0] == outcome.events[1] == TurnBegin(parts)
    assert model.asked[1].history[-1].content[:2] == parts
    assert prompts(await run(conversation, "/skill:x")) == ["/skill:x"]
    assert prompts(await run(conversation, "/yolo")) == ["/yolo"]


async def test_ralph_loop_refuses_unsupported_input_like_any_turn() -> None:
    conversation = await conversation_with(FakeModel([]), limits=TurnLimits(ralph_iterations=1))
    outcome = await run(conversation, (ImagePart(MediaUrl("u")),))
    assert isinstance(outcome.error, CapabilityMissing)
    assert outcome.names == ["TurnBegin", "TurnBegin", "TurnEnd", "TurnEnd"]
    assert conversation.files.load_context() == []
