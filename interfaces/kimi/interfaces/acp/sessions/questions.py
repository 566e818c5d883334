"""Ask the user questions: in a form if the client has forms, else one permission request each (acp spec 3.6, 3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from kimi.domain.content.message import JsonObject
from kimi.domain.events.request import Question, QuestionAnswer, QuestionRequest
from kimi.interfaces.acp.sessions.permissions import find_selected_option
from kimi.interfaces.acp.updates.result_content import JsonDict, text_content

DISMISSED_ANSWER: Final = QuestionAnswer({})

_APPROVE, _REJECT, _REJECT_AND_EXIT = "Approve", "Reject", "Reject and Exit"
"""The choices of ExitPlanMode that are not approaches of the plan (tools spec 3.15)."""


def build_form(request: QuestionRequest, call_id: str | None) -> JsonDict:
    """Return the params of `elicitation/create`, without the session: `q0` to `q3`, each with `_other` for free text.

    No field is required: a user who answers in free text leaves the choice open.
    """
    properties: JsonDict = {}
    for number, question in enumerate(request.questions):
        properties[f"q{number}"] = _build_property(question)
        properties[f"q{number}_other"] = {"type": "string", "title": question.other_label or "Other"} | (
            {"description": question.other_description} if question.other_description else {}
        )
    return {
        **({"toolCallId": call_id} if call_id else {}),
        "mode": "form",
        "message": _format_message(request.questions),
        "requestedSchema": {"type": "object", "properties": properties},
    }


def _format_message(questions: Sequence[Question]) -> str:
    """Return the text above the form: explanations before questions, each once."""
    lines = [*(question.body for question in questions), *(question.question for question in questions)]
    return "\n".join(dict.fromkeys(line for line in lines if line))


def _build_property(question: Question) -> JsonDict:
    choices = [
        {"const": option.label, "title": option.label}
        | ({"description": option.description} if option.description else {})
        for option in question.options
    ]
    head: JsonDict = {"title": question.header or question.question}
    if question.header:
        head["description"] = question.question
    if question.multi_select:
        return {"type": "array", **head, "items": {"anyOf": choices}}
    return {"type": "string", **head, "oneOf": choices}


def parse_form_answer(request: QuestionRequest, result: JsonObject | None) -> QuestionAnswer:
    """Return the answers in a form; decline, cancel, an error (`result` is None) and an empty form dismiss them."""
    content: Any = None if result is None or result.get("action") != "accept" else result.get("content")
    if not isinstance(content, dict):
        return DISMISSED_ANSWER
    fields = cast("JsonObject", content)
    answers: JsonDict = {}
    for number, question in enumerate(request.questions):
        answer = _parse_form_choice(question, fields.get(f"q{number}"), fields.get(f"q{number}_other"))
        if answer:
            answers[question.question] = answer
    return QuestionAnswer(answers)


def _parse_form_choice(question: Question, chosen: Any, other: Any) -> str | list[str] | None:
    words = other.strip() if isinstance(other, str) else ""
    if question.multi_select:
        listed = cast("list[Any]", chosen) if isinstance(chosen, list) else []
        return [label for label in listed if isinstance(label, str) and label] + ([words] if words else [])
    return words or (chosen if isinstance(chosen, str) else None)


def build_permission_params(request: QuestionRequest, tool_call: JsonDict) -> list[JsonDict]:
    """Return the params of one permission request for each question, without the session."""
    found: list[JsonDict] = []
    for number, question in enumerate(request.questions):
        options = [
            {"optionId": f"q{number}_opt_{index}", "name": option.label, "kind": "allow_once"}
            for index, option in enumerate(question.options)
        ]
        options.append({"optionId": f"q{number}_skip", "name": "Skip", "kind": "reject_once"})
        found.append({"toolCall": _add_question_text(tool_call, question), "options": options})
    return found


def _add_question_text(tool_call: JsonDict, question: Question) -> JsonDict:
    lines = [question.question, *(f"- {one.label}: {one.description}" for one in question.options if one.description)]
    content = [*tool_call.get("content", ()), text_content("\n".join(filter(None, [question.body, *lines])))]
    return tool_call | {"content": content}


def parse_permission_answers(request: QuestionRequest, results: Sequence[JsonObject | None]) -> QuestionAnswer:
    """Return the choices in the answers to `build_permission_params`; skipped and missing answers are left out."""
    answers: JsonDict = {}
    for number, (question, result) in enumerate(zip(request.questions, results, strict=False)):
        choices = {f"q{number}_opt_{index}": option.label for index, option in enumerate(question.options)}
        if (label := choices.get(find_selected_option(result) or "")) is not None:
            answers[question.question] = [label] if question.multi_select else label
    return QuestionAnswer(answers)


def build_plan_permission(request: QuestionRequest, tool_call: JsonDict) -> JsonDict:
    """Return the params of the permission request for a finished plan, without the session."""
    options = [
        {"optionId": f"plan_approach_{index}", "name": f"{_APPROVE}: {label}", "kind": "allow_once"}
        for index, label in enumerate(_list_approaches(request))
    ] or [{"optionId": "plan_approve", "name": "Approve plan", "kind": "allow_once"}]
    options += [
        {"optionId": "plan_revise", "name": "Keep planning", "kind": "reject_once"},
        {"optionId": "plan_reject_and_exit", "name": "Reject and leave plan mode", "kind": "reject_once"},
    ]
    return {"toolCall": tool_call, "options": options}


def parse_plan_answer(request: QuestionRequest, result: JsonObject | None) -> QuestionAnswer:
    """Return the decision about a plan. Anything but an approval rejects it, and plan mode stays on."""
    choices = {f"plan_approach_{index}": label for index, label in enumerate(_list_approaches(request))}
    choices |= {"plan_approve": _APPROVE, "plan_reject_and_exit": _REJECT_AND_EXIT}
    label = choices.get(find_selected_option(result) or "", _REJECT)
    return QuestionAnswer({request.questions[0].question: label} if request.questions else {})


def _list_approaches(request: QuestionRequest) -> list[str]:
    options = request.questions[0].options if request.questions else ()
    return [option.label for option in options if option.label not in (_APPROVE, _REJECT, _REJECT_AND_EXIT)]
