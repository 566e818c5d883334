"""The person's decision about a plan cannot be imitated by the model's options (tools spec 3.15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kimi.application.ports import CallRejected, ToolCallContext
from kimi.domain.content.message import JsonObject
from kimi.domain.events.event import Event, PlanDisplay
from kimi.domain.events.request import Answer, QuestionAnswer, QuestionRequest, Request
from kimi.domain.tools.tool import ToolReturnValue
from kimi.infrastructure.tools.dialog.plan_mode import MAX_PLAN_BYTES, ExitPlanModeTool, PlanModeControls
from tests.support.shown.attacks import APPROACH_LABELS, REFUSING_LABELS

pytestmark = pytest.mark.anyio

QUESTION = "Approve this plan"


@dataclass
class Talk:
    """A person who answers with `answer`, and what was asked and shown."""

    plan: Path
    answer: str = ""
    is_on: bool = True
    asked: list[QuestionRequest] = field(default_factory=list[QuestionRequest])
    shown: list[Event] = field(default_factory=list[Event])

    def set_enabled(self, enabled: bool) -> None:
        self.is_on = enabled

    async def exit(self, *labels: str) -> ToolReturnValue:
        """Call ExitPlanMode with approaches of these labels."""

        async def emit(event: Event) -> None:
            self.shown.append(event)

        async def ask(request: Request) -> Answer:
            assert isinstance(request, QuestionRequest)
            self.asked.append(request)
            return QuestionAnswer({QUESTION: self.answer} if self.answer else {})

        mode = PlanModeControls(
            is_on=lambda: self.is_on,
            set_enabled=self.set_enabled,
            plan_path=lambda: str(self.plan),
            is_supported=lambda: True,
            is_yolo=lambda: False,
            is_user_absent=lambda: False,
            new_id=lambda: "q1",
        )
        arguments: JsonObject = {"options": [{"label": label, "description": "quick"} for label in labels]}
        context = ToolCallContext("session", "turn", 1, "call", "ExitPlanMode", None, emit, ask)
        async with ExitPlanModeTool(mode).prepare(arguments, context) as prepared:
            return await prepared.run()

    def choices(self) -> Sequence[tuple[str, str]]:
        """What the person could choose from."""
        return [(option.label, option.description) for option in self.asked[0].questions[0].options]


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    plan = tmp_path / "plan.md"
    plan.write_text("1. do it")
    return Talk(plan)


@pytest.mark.spec("R-236")
@pytest.mark.parametrize("label", REFUSING_LABELS, ids=ascii)
async def test_an_approach_that_reads_like_a_refusal_is_not_offered(talk: Talk, label: str) -> None:
    talk.answer = label
    result = await talk.exit(label, "Small steps")
    assert result.is_error
    assert "is reserved" in result.message
    assert (talk.asked, talk.is_on) == ([], True)


@pytest.mark.spec("R-236")
@pytest.mark.parametrize("label", APPROACH_LABELS, ids=ascii)
async def test_an_approach_says_that_it_approves_the_plan(talk: Talk, label: str) -> None:
    talk.answer = label
    result = await talk.exit(label, "Another way")
    assert talk.choices()[0] == (label, "Approves the plan. quick")
    assert [name for name, _ in talk.choices()[2:]] == ["Reject", "Reject and Exit"]
    assert result.message == f"The user approved the plan with: {label}. Plan mode is off: carry it out."
    assert not talk.is_on


@pytest.mark.parametrize("answer", ["Reject, keep planning", "approve", "No", "Small", "small steps", "Another way "])
async def test_other_words_of_the_person_send_the_plan_back(talk: Talk, answer: str) -> None:
    talk.answer = answer
    result = await talk.exit("Small steps", "Another way")
    assert result.message == f"The user wants the plan revised: {answer}"
    assert talk.is_on


async def test_a_rejection_keeps_plan_mode_on(talk: Talk) -> None:
    talk.answer = "Reject"
    with pytest.raises(CallRejected):
        await talk.exit("Small steps", "One go")
    assert talk.is_on


@pytest.mark.spec("R-236")
@pytest.mark.parametrize(
    "labels", [("Small steps", "small  steps"), ("One go", "One\u200b go"), (" ", "One go")], ids=ascii
)
async def test_labels_that_a_person_cannot_tell_apart_are_refused(talk: Talk, labels: tuple[str, str]) -> None:
    assert (await talk.exit(*labels)).is_error
    assert talk.asked == []


@pytest.mark.spec("R-233")
async def test_a_plan_is_shown_with_its_hidden_characters(talk: Talk) -> None:
    talk.plan.write_text("1. do \u202eit\x1b[2J")
    await talk.exit()
    assert talk.shown == [PlanDisplay("1. do \\u202eit\\x1b[2J", str(talk.plan))]


@pytest.mark.spec("R-234")
async def test_a_plan_that_is_not_shown_whole_says_so(talk: Talk) -> None:
    talk.plan.write_text("x" * (MAX_PLAN_BYTES + 7))
    await talk.exit()
    [shown] = talk.shown
    assert isinstance(shown, PlanDisplay)
    assert shown.content.endswith(f"x\n\n[7 more bytes of the plan are not shown; they are in {talk.plan}]")
