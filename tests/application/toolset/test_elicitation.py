"""What an MCP server asks, as a question to the person (tools spec 4.9)."""

from __future__ import annotations

from typing import Any

import pytest

from kimi.application.ports import Elicitation, ElicitationAnswer
from kimi.application.toolset.elicitation import answer_elicitation
from kimi.domain.events.request import Answer, QuestionAnswer, QuestionRequest, Request

pytestmark = pytest.mark.anyio

DECLINED, CANCELLED = ElicitationAnswer("decline"), ElicitationAnswer("cancel")


class Person:
    """Answers every question of a request with the next of `words`."""

    def __init__(self, *words: Any) -> None:
        self.words = list(words)
        self.asked: list[QuestionRequest] = []

    async def ask(self, request: Request) -> Answer:
        """See `ToolCallContext.ask`."""
        assert isinstance(request, QuestionRequest)
        self.asked.append(request)
        texts = [question.question for question in request.questions]
        return QuestionAnswer(dict(zip(texts, self.words, strict=True)) if self.words else {})

    @property
    def options(self) -> list[list[str]]:
        """The labels of each question."""
        return [[option.label for option in question.options] for question in self.asked[0].questions]


async def answered(person: Person, *, may_ask: bool = True, url: str | None = None, **fields: Any) -> ElicitationAnswer:
    """The answer to an elicitation with these fields."""
    required = fields.pop("required", [])
    schema = {"type": "object", "properties": fields, "required": required} if fields else None
    wanted = Elicitation("Who?", schema, url)
    return await answer_elicitation("s", person.ask, "c1", lambda: "id-1", lambda: may_ask, wanted)


async def test_one_field_becomes_one_question() -> None:
    person = Person("Ada")
    assert await answered(person, name={"type": "string"}) == ElicitationAnswer("accept", {"name": "Ada"})
    (request,) = person.asked
    assert (request.id, request.tool_call_id) == ("id-1", "c1")
    assert [question.question for question in request.questions] == ["MCP server `s` asks: Who?"]
    assert person.options == [["Decline", "Cancel"]]


async def test_several_fields_become_several_questions() -> None:
    person = Person("Ada", "36", "Yes", "1.5")
    fields: dict[str, Any] = {
        "name": {"type": "string", "title": "Your name"},
        "age": {"type": "integer", "description": "Your age"},
        "sure": {"type": "boolean"},
        "score": {"type": "number", "default": 2.5},
    }
    content = {"name": "Ada", "age": 36, "sure": True, "score": 1.5}
    assert await answered(person, **fields) == ElicitationAnswer("accept", content)
    (request,) = person.asked
    assert [question.question for question in request.questions] == [
        f"MCP server `s` asks: {label}" for label in ("Your name", "Your age", "sure", "score")
    ]
    assert {question.body for question in request.questions} == {"Who?"}
    assert person.options == [["Decline", "Cancel"], ["Decline", "Cancel"], ["Yes", "No"], ["2.5", "Decline"]]


@pytest.mark.spec("R-224")
async def test_question_names_its_server_and_hides_nothing() -> None:
    forged = "MCP server `trusted` asks: \x1b[2J\u202eyour key?"
    person = Person("x")
    await answered_to(person, forged, {"key": {"title": "Key\u200b\n", "enum": ["a\u2066", "b"]}})
    (question,) = person.asked[0].questions
    assert question.question == "MCP server `s` asks: MCP server `trusted` asks: \\x1b[2J\\u202eyour key?"
    assert (question.header, question.body) == ("s", "Key\\u200b\n")
    assert person.options == [["a\\u2066", "b"]]


async def test_question_of_endless_text_is_declined() -> None:
    person = Person("x")
    assert await answered_to(person, "x" * 30_000, {}) == DECLINED
    assert (
        await answered_to(person, "Who?", {"one": {"enum": [f"choice {number}" for number in range(5000)]}}) == DECLINED
    )
    assert person.asked == []


async def answered_to(person: Person, message: str, fields: dict[str, Any]) -> ElicitationAnswer:
    """The answer to an elicitation with this text."""
    wanted = Elicitation(message, {"type": "object", "properties": fields})
    return await answer_elicitation("s", person.ask, "c1", lambda: "id-1", lambda: True, wanted)


async def test_choices_become_options_and_free_text_is_accepted() -> None:
    person = Person("e")
    assert await answered(person, one={"enum": ["a", "b", "c", "d", "e"]}) == ElicitationAnswer("accept", {"one": "e"})
    assert person.options == [["a", "b", "c", "d"]]
    single = Person("only")
    assert (await answered(single, one={"enum": ["only"]})).content == {"one": "only"}
    assert single.options == [["only", "Decline"]]


LEVELS = [{"const": "lo", "title": "Low"}, {"const": "hi", "title": "High"}]


@pytest.mark.parametrize(
    ("field", "options", "word", "value"),
    [
        ({"type": "string", "oneOf": LEVELS}, ["Low", "High"], "High", "hi"),
        ({"type": "string", "oneOf": LEVELS}, ["Low", "High"], "hi", "hi"),
        ({"type": "string", "enum": ["lo", "hi"], "enumNames": ["Low", "High"]}, ["Low", "High"], "Low", "lo"),
        ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, ["a", "b", "c"], "a, c", ["a", "c"]),
        ({"type": "array", "items": {"anyOf": LEVELS}}, ["Low", "High"], ["Low", "High"], ["lo", "hi"]),
    ],
)
async def test_choices_have_titles_and_may_be_several(
    field: dict[str, Any], options: list[str], word: Any, value: object
) -> None:
    person = Person(word)
    assert await answered(person, one=field) == ElicitationAnswer("accept", {"one": value})
    assert person.options == [options]
    assert person.asked[0].questions[0].multi_select is (field["type"] == "array")


async def test_only_valid_values_are_accepted() -> None:
    for field in ({"enum": ["a", "b"]}, {"oneOf": LEVELS}, {"type": "array", "items": {"enum": ["a", "b"]}}):
        assert await answered(Person("c"), one=field) == CANCELLED
    two: dict[str, Any] = {"name": {"type": "string"}, "nick": {"type": "string"}}
    assert await answered(Person("", "A"), **two, required=["name"]) == CANCELLED
    assert (await answered(Person("Ada", ""), **two, required=["name"])).content == {"name": "Ada"}


async def test_choices_that_are_not_options_appear_in_the_text() -> None:
    person = Person("e")
    await answered(person, one={"enum": ["a", "b", "c", "d", "e"], "description": "A letter."})
    assert person.asked[0].questions[0].body == "A letter.\nChoices: a, b, c, d, e"


async def test_request_without_fields_is_accepted_or_declined() -> None:
    assert await answered(Person("Accept")) == ElicitationAnswer("accept", {})
    assert await answered(Person("Decline")) == DECLINED
    assert await answered(Person("perhaps")) == DECLINED


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), CANCELLED),
        (("Decline",), DECLINED),
        (("Cancel",), CANCELLED),
        (("no number",), CANCELLED),
        (("",), ElicitationAnswer("accept", {})),
    ],
)
async def test_invalid_answers_are_declined_or_cancelled(words: tuple[str, ...], expected: ElicitationAnswer) -> None:
    assert await answered(Person(*words), age={"type": "integer"}) == expected


async def test_unsupported_elicitation_is_declined_without_asking() -> None:
    person = Person("Ada")
    five: dict[str, Any] = {f"f{number}": {"type": "string"} for number in range(5)}
    assert await answered(person, may_ask=False, name={"type": "string"}) == DECLINED
    assert await answered(person, url="https://evil.example/login") == DECLINED
    assert await answered(person, **five) == DECLINED
    assert person.asked == []


async def test_fields_with_equal_titles_are_distinguished() -> None:
    person = Person("a", "b")
    fields: dict[str, Any] = {"one": {"title": "Name"}, "two": {"title": "Name"}}
    assert (await answered(person, **fields)).content == {"one": "a", "two": "b"}
    assert [question.question for question in person.asked[0].questions] == [
        "MCP server `s` asks: Name (one)",
        "MCP server `s` asks: Name (two)",
    ]


@pytest.mark.parametrize(("text", "expected"), [("nan", CANCELLED), ("1e999", CANCELLED), ("-2", -2.0)])
async def test_only_numbers_valid_in_json_are_accepted(text: str, expected: object) -> None:
    answer = await answered(Person(text), score={"type": "number"})
    assert (answer if answer.content is None else answer.content["score"]) == expected
