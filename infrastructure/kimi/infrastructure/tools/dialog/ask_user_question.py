"""AskUserQuestion: one to four questions to the user (tools spec 3.15)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Annotated, Any, cast

from pydantic import BaseModel, Field, model_validator

from kimi.application.ports import NewId, PreparedCall, ToolCallContext
from kimi.domain.content.message import JsonObject
from kimi.domain.events.request import Question, QuestionAnswer, QuestionOption, QuestionRequest
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.infrastructure.tools.params import build_schema, prepare_call

QUESTIONS_UNSUPPORTED_ERROR = tool_error(
    "The connected client does not support interactive questions. Do NOT call this tool again. "
    "Ask the user directly in your text response instead.",
    "Client unsupported",
)
_DISMISSED_MESSAGE = "User dismissed the question without answering."
_OTHER_LABEL = "other"
_NO_USER_NOTE = "Running in afk mode. No user is present. Make your own decision."

_DESCRIPTION = """\
Ask the person to decide between options, and wait for the answer. Use it when the work forks and only the person can \
say which way: a requirement that can be read in two ways, a choice with lasting consequences. Do not use it for what \
you can find out yourself, or to ask whether you may go on.

- 1 to 4 questions in one call, each with 2 to 4 options. The person can always answer in their own words: an \
"Other" choice is added for you, so do not offer one.
- Each question text must differ from the others: answers come back under it.
- `header` is a label of at most 12 characters. Set `multi_select` when several options may be right."""


class QuestionOptionParams(BaseModel):
    """One choice."""

    label: Annotated[str, Field(min_length=1, description="What the person picks, a few words.")]
    description: Annotated[str, Field(description="What the choice means.")] = ""


class QuestionParams(BaseModel):
    """One question."""

    question: Annotated[str, Field(min_length=1, description="The whole question.")]
    header: Annotated[str, Field(description="A label of at most 12 characters.")] = ""
    options: Annotated[
        list[QuestionOptionParams], Field(min_length=2, max_length=4, description="What there is to choose from.")
    ]
    multi_select: Annotated[bool, Field(description="May several options be chosen?")] = False

    @model_validator(mode="after")
    def _check_labels(self) -> QuestionParams:
        from kimi.domain.tools.visible_text import fold_label  # start-up time

        labels = [fold_label(option.label) for option in self.options]
        if len(set(labels)) < len(labels):
            raise ValueError("the labels of a question must differ from each other")
        if _OTHER_LABEL in labels:
            raise ValueError("the label 'Other' is reserved: the person can always answer in their own words")
        if self.multi_select:
            # The answer is the chosen labels with commas between them.
            pieces = {fold_label(piece) for one in self.options if "," in one.label for piece in one.label.split(",")}
            if pieces.intersection(labels):
                raise ValueError("where several options may be chosen, no label may list another one after a comma")
        return self


class AskUserQuestionParams(BaseModel):
    """The arguments of AskUserQuestion."""

    questions: Annotated[list[QuestionParams], Field(min_length=1, max_length=4, description="The questions.")]

    @model_validator(mode="after")
    def _check_distinct_questions(self) -> AskUserQuestionParams:
        if len({question.question for question in self.questions}) < len(self.questions):
            raise ValueError("the question texts must differ from each other")
        return self


@cache
def _spec() -> ToolSpec:
    return ToolSpec(
        "AskUserQuestion", _DESCRIPTION, build_schema(AskUserQuestionParams), find_title=_find_first_question
    )


def _find_first_question(arguments: JsonObject) -> str | None:
    """Arguments as the model sent them: nothing about them is certain."""
    questions: Any = arguments.get("questions")
    first: Any = cast("list[Any]", questions)[0] if isinstance(questions, list) and questions else None
    text: Any = cast("dict[str, Any]", first).get("question") if isinstance(first, dict) else None
    return text if isinstance(text, str) else None


class AskUserQuestionTool:
    """The AskUserQuestion tool.

    `is_supported` returns whether the client answers questions, `is_user_absent` whether no user is present.
    """

    def __init__(self, is_supported: Callable[[], bool], is_user_absent: Callable[[], bool], new_id: NewId) -> None:
        self._is_supported = is_supported
        self._new_id = new_id
        self._is_user_absent = is_user_absent

    @property
    def spec(self) -> ToolSpec:
        """The name, description and schema for the model."""
        return _spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`. Needs no approval: the user is asked anyway."""
        yield prepare_call(
            AskUserQuestionParams, arguments, lambda params: PreparedCall(lambda: self._ask(params, context))
        )

    async def _ask(self, params: AskUserQuestionParams, context: ToolCallContext) -> ToolReturnValue:
        if self._is_user_absent():
            return _format_answers({}, _NO_USER_NOTE, "Afk mode, auto-dismissed.", "Auto-dismissed (afk)")
        if not self._is_supported():
            return QUESTIONS_UNSUPPORTED_ERROR
        request = QuestionRequest(self._new_id(), context.call_id, tuple(_to_question(one) for one in params.questions))
        answer = await context.ask(request)
        if isinstance(answer, QuestionAnswer) and answer.answers:
            return _format_answers(answer.answers, None, "User has answered.", "User answered")
        return _format_answers({}, _DISMISSED_MESSAGE, _DISMISSED_MESSAGE, "User dismissed")


def _to_question(params: QuestionParams) -> Question:
    from kimi.domain.tools.visible_text import reveal_hidden  # start-up time

    options = tuple(
        QuestionOption(reveal_hidden(option.label), reveal_hidden(option.description)) for option in params.options
    )
    return Question(reveal_hidden(params.question), reveal_hidden(params.header), options, params.multi_select)


def _format_answers(answers: Mapping[str, object], note: str | None, message: str, brief: str) -> ToolReturnValue:
    body: dict[str, object] = {"answers": answers} if note is None else {"answers": answers, "note": note}
    return tool_ok(json.dumps(body, ensure_ascii=False), message, brief=brief)
