"""AskUserQuestion: what a question may be (tools spec 3.15). What becomes of it is seen through the process."""

from __future__ import annotations

from typing import Any

import pytest

from kimi.domain.tools.tool import BriefBlock
from kimi.infrastructure.tools.dialog.ask_user_question import AskUserQuestionTool
from tests.support.tool_calls import call

pytestmark = pytest.mark.anyio


def question(text: str = "Which?", options: int = 2) -> dict[str, Any]:
    """A question with so many options."""
    return {"question": text, "options": [{"label": f"option {number}"} for number in range(options)]}


def labelled(*labels: str, **more: bool) -> dict[str, Any]:
    """A question with options of these labels."""
    return {"question": "Which?", "options": [{"label": label} for label in labels], **more}


@pytest.mark.spec("T-93")
@pytest.mark.parametrize(
    ("questions", "fits"),
    [
        ([], False),
        ([question("a"), question("b"), question("c"), question("d")], True),
        ([question(text) for text in "abcde"], False),
        ([question(options=1)], False),
        ([question(options=4)], True),
        ([question(options=5)], False),
        ([question("a"), question("a")], False),
        ([{**question(), "question": ""}], False),
        ([{"question": "Which?", "options": [{"label": ""}, {"label": "b"}]}], False),
        ([labelled("A", "a ")], False),
        ([labelled("A", "\uff21")], False),
        ([labelled("Other", "b")], False),
        ([labelled("b", "o\u200bTHER")], False),
        ([labelled("A", "A, B")], True),
        ([labelled("A", "A, B", multi_select=True)], False),
        ([labelled("A, C", "B", multi_select=True)], True),
        ([labelled("\U0001f44d", "\U0001f44e")], True),
    ],
)
async def test_questions_and_options_are_limited(questions: list[Any], fits: bool) -> None:
    absent = AskUserQuestionTool(lambda: True, lambda: True, lambda: "q1")
    result = await call(absent, {"questions": questions})
    assert result.is_error is not fits
    assert result.display == (BriefBlock("Auto-dismissed (afk)" if fits else "Invalid arguments"),)
