"""Elicitation: turn the request of an MCP server during a call into questions to the user (tools spec 4.9)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from math import isfinite
from typing import Any, Final, cast

from kimi.application.ports import Elicitation, ElicitationAnswer, NewId
from kimi.domain.content.message import JsonObject
from kimi.domain.events.request import Answer, Question, QuestionAnswer, QuestionOption, QuestionRequest, Request
from kimi.domain.tools.mcp_tool_names import show_hidden

logger = logging.getLogger(__name__)

MAX_QUESTIONS: Final = 4
MAX_OPTIONS: Final = 4
MAX_QUESTION_CHARS: Final = 20_000
DECLINED: Final = ElicitationAnswer("decline")
CANCELLED: Final = ElicitationAnswer("cancel")
MAX_HEADER_CHARS: Final = 12
_CHOICE_SEPARATOR: Final = ", "
_ACCEPT, _DECLINE, _CANCEL, _YES, _NO, _EMPTY = "Accept", "Decline", "Cancel", "Yes", "No", "Leave empty"


async def answer_elicitation(
    server: str,
    ask: Callable[[Request], Awaitable[Answer]],
    call_id: str,
    new_id: NewId,
    may_ask: Callable[[], bool],
    elicitation: Elicitation,
) -> ElicitationAnswer:
    """Ask the user on behalf of `server`, which is named in each question, and return the answer.

    The elicitation is declined when the user cannot be asked, or when it needs a URL, more than `MAX_QUESTIONS`
    questions or more than `MAX_QUESTION_CHARS` of text.
    """
    fields = _schema_fields(elicitation)
    if not may_ask() or elicitation.url is not None or len(fields) > MAX_QUESTIONS:
        logger.info("an elicitation was declined: %.200r", elicitation.message)
        return DECLINED
    questions = _build_questions(server, show_hidden(elicitation.message, "\n\t"), fields)
    if sum(map(_count_chars, questions)) > MAX_QUESTION_CHARS:
        logger.info("an elicitation of %s was declined: its text is too long", server)
        return DECLINED
    answer = await ask(QuestionRequest(new_id(), call_id, questions))
    if not isinstance(answer, QuestionAnswer) or not answer.answers:
        return CANCELLED
    texts = [_answer_text(answer.answers.get(question.question, "")) for question in questions]
    if _CANCEL in texts:
        return CANCELLED
    if not fields:
        return ElicitationAnswer("accept", {}) if texts == [_ACCEPT] else DECLINED
    return _decode_answers(fields, texts, (elicitation.schema or {}).get("required"))


def _answer_text(answer: Any) -> str:
    """Return an answer as text; clients send several choices as a list or joined already (wire spec 4.4)."""
    return _CHOICE_SEPARATOR.join(map(str, cast("list[Any]", answer))) if isinstance(answer, list) else str(answer)


def _decode_answers(fields: Mapping[str, JsonObject], texts: list[str], required: object) -> ElicitationAnswer:
    content: dict[str, Any] = {}
    for (name, field), text in zip(fields.items(), texts, strict=True):
        if text == _DECLINE and _DECLINE not in _field_choices(field):
            return DECLINED
        if text == _EMPTY or not text:
            continue
        try:
            content[name] = _convert_answer(field, text)
        except ValueError:
            logger.info("an elicitation was cancelled: the answer for %r is no %s", name, field.get("type"))
            return CANCELLED
    missing = [name for name in fields if isinstance(required, list) and name in required and name not in content]
    if missing:
        logger.info("an elicitation was cancelled: there is no answer for %s", missing)
        return CANCELLED
    return ElicitationAnswer("accept", content)


def _schema_fields(elicitation: Elicitation) -> dict[str, JsonObject]:
    properties = (elicitation.schema or {}).get("properties")
    if not isinstance(properties, Mapping):
        return {}
    found = cast("Mapping[str, Any]", properties)
    return {name: cast("JsonObject", field) if isinstance(field, Mapping) else {} for name, field in found.items()}


def _build_questions(server: str, message: str, fields: Mapping[str, JsonObject]) -> tuple[Question, ...]:
    """Return the questions. Each begins with the server's name, so that its text cannot pass for somebody else's."""
    asks, header = f"MCP server `{server}` asks: ", server[:MAX_HEADER_CHARS]
    if not fields:
        return (Question(asks + message, header, options=(QuestionOption(_ACCEPT), QuestionOption(_DECLINE))),)
    alone = bool(message) and len(fields) == 1
    texts = [message if alone else _field_label(name, field) for name, field in fields.items()]
    return tuple(
        Question(
            asks + (text if texts.count(text) == 1 else f"{text} ({show_hidden(name)})"),
            header,
            options=tuple(QuestionOption(choice) for choice in _question_options(field)),
            multi_select=field.get("type") == "array",
            body=_question_body(_field_label(name, field) if alone else message if len(fields) > 1 else "", field),
        )
        for text, (name, field) in zip(texts, fields.items(), strict=True)
    )


def _count_chars(question: Question) -> int:
    return len(question.question) + len(question.body) + sum(len(option.label) for option in question.options)


def _field_label(name: str, field: JsonObject) -> str:
    return show_hidden(str(field.get("description") or field.get("title") or name), "\n\t")


def _question_body(text: str, field: JsonObject) -> str:
    """Return the body of a question. It lists the choices that do not fit into the options, for the user to type."""
    choices = _field_choices(field)
    return "\n".join(
        filter(None, [text, f"Choices: {_CHOICE_SEPARATOR.join(choices)}" if len(choices) > MAX_OPTIONS else ""])
    )


def _question_options(field: JsonObject) -> list[str]:
    """Return two to four options; the user can type any other answer."""
    choices = list(_field_choices(field))[:MAX_OPTIONS]
    if not choices and field.get("default") is not None:
        choices = [show_hidden(_answer_text(field["default"]))]
    for more in (_DECLINE, _CANCEL):
        if len(choices) < 2:
            choices.append(more)
    return choices


def _field_choices(field: JsonObject) -> dict[str, Any]:
    """Return the choices of a field as a mapping from label to value; empty when any value is allowed."""
    if field.get("type") == "boolean":
        return {_YES: True, _NO: False}
    source: Any = field.get("items") if field.get("type") == "array" else field
    if not isinstance(source, Mapping):
        return {}
    limited = cast("JsonObject", source)
    titled = limited.get("oneOf") or limited.get("anyOf")
    if isinstance(titled, list):
        each = [cast("JsonObject", one) for one in cast("list[Any]", titled) if isinstance(one, Mapping)]
        return {show_hidden(str(one.get("title") or one["const"])): one["const"] for one in each if "const" in one}
    values, names = limited.get("enum"), limited.get("enumNames")
    if not isinstance(values, list):
        return {}
    known = cast("list[Any]", values)
    labels = cast("list[Any]", names) if isinstance(names, list) else known
    shown = [show_hidden(str(label)) for label in (labels if len(labels) == len(known) else known)]
    return dict(zip(shown, known, strict=True))


def _convert_answer(field: JsonObject, text: str) -> object:
    """Return the answer converted to the type of the field. Raises ValueError."""
    match field.get("type"):
        case "boolean":
            if text.lower() in ("yes", "true", "no", "false"):
                return text.lower() in ("yes", "true")
            raise ValueError(text)
        case "integer":
            return int(text)
        case "number":
            number = float(text)
            if not isfinite(number):
                raise ValueError(text)
            return number
        case "array":
            return [_resolve_choice(field, word) for word in text.split(_CHOICE_SEPARATOR)]
        case _:
            return _resolve_choice(field, text)


def _resolve_choice(field: JsonObject, word: str) -> object:
    """Return the choice with label or value `word`; `word` itself when any value is allowed. Raises ValueError."""
    choices = _field_choices(field)
    if word in choices:
        return choices[word]
    if choices and word not in choices.values():
        raise ValueError(word)
    return word
