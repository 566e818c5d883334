"""Answers that are objects: the model is told a schema, and may correct itself once."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from kimi.domain.content.parts import ContentPart, TextPart
from kimi.domain.errors import UsageError
from kimi.interfaces.embed.options import InvalidAnswer

if TYPE_CHECKING:
    from kimi.interfaces.embed.agent import Agent

_FENCED: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_FORM: Final = (
    "Your last message must be one JSON value and nothing else: no explanation, no code fence. "
    "It must fit this JSON Schema:\n{schema}"
)
_CORRECTION: Final = "Your answer does not fit the schema: {fault}\nAnswer again. {form}"


async def ask_for_object(agent: Agent, user_input: str | Sequence[ContentPart], answer_type: type[Any]) -> Any:
    """Run a turn whose answer is an object, and a second one to correct it if need be; see `Agent.ask`."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(answer_type)
        schema = json.dumps(adapter.json_schema(), ensure_ascii=False)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise UsageError(
            f"{answer_type!r} has no JSON Schema, so nobody can answer in it: {str(error).splitlines()[0]}"
        ) from error
    form = _FORM.format(schema=schema)
    text = await agent.prompt(_append_text(user_input, form)).answer()
    try:
        return parse_answer(adapter, text)
    except ValidationError as error:
        correction = _CORRECTION.format(fault=_describe(error), form=form)
    text = await agent.prompt(correction).answer()
    try:
        return parse_answer(adapter, text)
    except ValidationError as error:
        raise InvalidAnswer(f"The answer is no {_name(answer_type)}: {_describe(error)}", text) from error


def parse_answer(adapter: TypeAdapter[Any], text: str) -> Any:
    """Return the object in an answer: the whole text is JSON, or a fenced block in it. Raises ValidationError."""
    candidates = [text.strip(), *(block.strip() for block in _FENCED.findall(text))]
    for candidate in candidates[1:]:
        try:
            return adapter.validate_json(candidate)
        except ValidationError:
            continue
    return adapter.validate_json(candidates[0])


def _append_text(user_input: str | Sequence[ContentPart], form: str) -> str | Sequence[ContentPart]:
    return f"{user_input}\n\n{form}" if isinstance(user_input, str) else (*user_input, TextPart(form))


def _describe(error: ValidationError) -> str:
    """Return in one line what is wrong, without the answer itself."""
    faults = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}".lstrip(": ") for one in error.errors()[:5]]
    return "; ".join(faults)


def _name(answer_type: type[Any]) -> str:
    return getattr(answer_type, "__name__", str(answer_type))
