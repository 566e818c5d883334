"""Schemas and validation errors of built-in tools (tools spec 1.1, 1.3)."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from kimi.domain.tools.tool import BriefBlock, ToolReturnValue, tool_ok
from kimi.infrastructure.tools.params import build_schema, parse_arguments, prepare_finished_call

pytestmark = pytest.mark.anyio


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    """One thing."""

    title: str
    colour: Colour = Colour.RED


class Arguments(BaseModel):
    """For readers of the code only."""

    path: Annotated[str, Field(description="Where to look.")]
    after: Annotated[int | None, Field(alias="-A", ge=0)] = None
    items: list[Item] = []
    main: Annotated[Item | None, Field(description="The first.")] = None


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Left(BaseModel):
    right: Right | None = None


class Right(BaseModel):
    left: Left | None = None
    node: Node | None = None


class Holder(BaseModel):
    left: Left


def test_the_schema_is_by_alias_inlined_and_without_titles() -> None:
    item = {
        "type": "object",
        "description": "One thing.",
        "properties": {
            "title": {"type": "string"},
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        },
        "required": ["title"],
    }
    assert build_schema(Arguments) == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where to look."},
            "-A": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": None},
            "items": {"type": "array", "items": item, "default": []},
            "main": {"anyOf": [item, {"type": "null"}], "default": None, "description": "The first."},
        },
        "required": ["path"],
    }


def references(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {name for item in schema for name in references(item)}  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return set()
    found = {name for value in schema.values() for name in references(value)}  # pyright: ignore[reportUnknownVariableType]
    return found | ({schema["$ref"]} if "$ref" in schema else set())


@pytest.mark.spec("T-02")
@pytest.mark.parametrize("model", [Node, Left, Right, Holder])
def test_recursive_definitions_keep_their_references(model: type[BaseModel]) -> None:
    schema = build_schema(model)
    assert schema["type"] == "object"
    assert schema["properties"]
    assert references(schema) == {f"#/$defs/{name}" for name in schema["$defs"]}
    assert all(entry["type"] == "object" for entry in schema["$defs"].values())


def failure(arguments: dict[str, Any]) -> ToolReturnValue:
    result = parse_arguments(Arguments, arguments)
    assert isinstance(result, ToolReturnValue)
    return result


@pytest.mark.spec("T-09")
def test_wrong_type_is_a_short_error_result() -> None:
    result = failure({"path": 5})
    assert result.is_error
    assert result.output == ""
    assert result.display == (BriefBlock("Invalid arguments"),)
    assert result.message == (
        "Error validating JSON arguments: 1 validation error for Params\n"
        "path\n"
        "  Input should be a valid string [type=string_type, input_value=5, input_type=int]"
    )


@pytest.mark.spec("T-09")
def test_the_text_of_an_error_is_short_and_without_links() -> None:
    message = failure({"path": "x", "items": [{"title": n} for n in range(200)]}).message
    assert message.startswith("Error validating JSON arguments: 200 validation errors for Params\nitems.0.title\n")
    assert len(message) == 2_000
    assert "http" not in message


def test_unknown_arguments_are_ignored() -> None:
    parsed = parse_arguments(Arguments, {"path": "x", "-A": 3, "bogus": 1})
    assert isinstance(parsed, Arguments)
    assert parsed.after == 3


async def test_immediate_result_has_no_proposed_action() -> None:
    prepared = prepare_finished_call(tool_ok("done"))
    assert prepared.proposed_action is None
    assert await prepared.run() == tool_ok("done")
