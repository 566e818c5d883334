"""Python functions as tools: schema, arguments, results, approval."""

from __future__ import annotations

import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio.lowlevel
import pytest
from pydantic import BaseModel, Field

from kimi.application.ports import ToolCallContext
from kimi.domain.errors import ConfigError
from kimi.domain.events.event import ToolResult
from kimi.domain.events.request import ApprovalRequest
from kimi.domain.tools.tool import ToolReturnValue
from kimi.interfaces.embed import FunctionTool, open_agent, scripted_model, tool, tool_error
from tests.support.providers.scripted_calls import call as call_line
from tests.support.tool_calls import call, effect_of

pytestmark = pytest.mark.anyio


class Place(BaseModel):
    """Where something is."""

    title: str
    floor: int = 0


def find(
    word: str,
    place: Place,
    how: Literal["exact", "loose"] = "exact",
    limit: Annotated[int, Field(ge=1, description="At most so many.")] = 10,
) -> str:
    """Find a word.

    It looks everywhere.

    Args:
        word: What to look for,
            in any language.
        place (Place): Where to look.

    Returns:
        What was found.
    """
    return f"{word} {place.title} {how} {limit}"


@pytest.mark.spec("R-423")
def test_signature_is_the_schema_and_docstring_the_description() -> None:
    spec = FunctionTool(find).spec
    assert (spec.name, spec.description) == ("find", "Find a word.\n\nIt looks everywhere.")
    assert spec.parameters == {
        "type": "object",
        "required": ["word", "place"],
        "properties": {
            "word": {"type": "string", "description": "What to look for, in any language."},
            "place": {"$ref": "#/$defs/Place", "description": "Where to look."},
            "how": {"type": "string", "enum": ["exact", "loose"], "default": "exact"},
            "limit": {"type": "integer", "minimum": 1, "default": 10, "description": "At most so many."},
        },
        "$defs": {
            "Place": {
                "type": "object",
                "description": "Where something is.",
                "required": ["title"],
                "properties": {"title": {"type": "string"}, "floor": {"type": "integer", "default": 0}},
            }
        },
    }


async def test_arguments_arrive_as_the_types_of_the_signature() -> None:
    result = await call(FunctionTool(find), {"word": "x", "place": {"title": "attic"}, "limit": 2})
    assert (result.is_error, result.output) == (False, "x attic exact 2")


@pytest.mark.spec("R-423")
@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"place": {"title": "a"}}, "word: Field required"),
        ({"word": "x", "place": {}}, "place.title: Field required"),
        ({"word": "x", "place": {"title": "a"}, "limit": 0}, "limit: "),
    ],
)
async def test_wrong_arguments_are_told_to_the_model_and_nothing_runs(arguments: dict[str, Any], fault: str) -> None:
    result = await call(FunctionTool(find), arguments)
    assert result.is_error
    assert fault in result.message
    assert await effect_of(FunctionTool(find), arguments) is None


@dataclass
class Found:
    """A result."""

    count: int


@pytest.mark.parametrize(
    ("returned", "output"),
    [
        ("text", "text"),
        (7, "7"),
        ([1, "é"], '[1,"é"]'),
        (Found(3), '{"count":3}'),
        (Place(title="a"), '{"title":"a","floor":0}'),
        (None, ""),
        ("x" * 200_000, None),
    ],
)
async def test_what_a_function_returns_is_the_result(returned: object, output: str | None) -> None:
    def give() -> object:
        """Give it."""
        return returned

    result = await call(FunctionTool(give), {})
    assert not result.is_error
    if output is None:
        assert len(result.output) < 101_000
    else:
        assert result.output == output


@pytest.mark.spec("R-423")
async def test_exception_of_a_function_is_an_error_that_the_model_reads() -> None:
    def fail() -> None:
        """Fail."""
        raise LookupError("no such city")

    async def refuse() -> ToolReturnValue:
        """Refuse."""
        return tool_error("not today", "Refused")

    assert (await call(FunctionTool(fail), {})).message == "LookupError: no such city"
    assert (await call(FunctionTool(refuse), {})).message == "not today"


@pytest.mark.parametrize("result", [b"\xff", {"a": ["\ud800"]}])
async def test_result_that_cannot_be_json_is_an_error_that_the_model_reads(result: object) -> None:
    def give() -> object:
        """Give it."""
        return result

    assert "Error serializing to JSON" in (await call(FunctionTool(give), {})).message


@pytest.mark.spec("R-423")
async def test_parameters_may_have_any_name_and_any_kind_of_default() -> None:
    def odd(_id: int, schema: str, function: str, model_config: int = Field(7, ge=1), self: int | None = None) -> str:
        """Take them.

        Args:
            model_config: Any number.
        """
        return f"{_id} {schema} {function} {model_config} {self}"

    with warnings.catch_warnings(action="error"):
        made = FunctionTool(odd)
    assert made.spec.parameters["required"] == ["_id", "schema", "function"]
    assert made.spec.parameters["properties"]["model_config"] == {
        "type": "integer",
        "minimum": 1,
        "default": 7,
        "description": "Any number.",
    }
    assert (await call(made, {"_id": 1, "schema": "s", "function": "f"})).output == "1 s f 7 None"
    assert "model_config: " in (await call(made, {"_id": 1, "schema": "", "function": "", "model_config": 0})).message


async def test_plain_functions_run_in_a_thread_and_async_ones_on_the_loop() -> None:
    def plain() -> int:
        """Say where."""
        return threading.get_ident()

    async def later() -> int:
        """Say where."""
        await anyio.lowlevel.checkpoint()
        return threading.get_ident()

    here = str(threading.get_ident())
    assert (await call(FunctionTool(plain), {})).output != here
    assert (await call(FunctionTool(later), {})).output == here


async def test_context_of_the_call_is_passed_and_is_no_argument() -> None:
    def who(context: ToolCallContext, name: str) -> str:
        """Say who."""
        return f"{context.call_name} {name}"

    assert list(FunctionTool(who).spec.parameters["properties"]) == ["name"]
    assert (await call(FunctionTool(who), {"name": "n"})).output == "who n"


def no_description(word: str) -> None:
    pass


def no_type(word) -> None:  # pyright: ignore
    """Has no type."""


def many(*words: str) -> None:
    """Has any number."""


def strange(word: threading.Lock) -> None:
    """Has no schema."""


def unknown(word: Nowhere) -> None:  # noqa: F821  # pyright: ignore
    """Has a type that nobody defines."""


def pieces() -> Iterator[int]:
    """Yields."""
    yield 1


async def later_pieces() -> AsyncIterator[int]:
    """Yields, too."""
    yield 1


class Caller:
    """No function."""

    def __call__(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (unknown, "cannot be found: name 'Nowhere'"),
        (pieces, "return a list"),
        (later_pieces, "return a list"),
        (Caller, "is no tool"),
        (Caller(), "is no tool"),
        (partial(find, "x"), "is no tool"),
        (no_description, "no docstring"),
        (no_type, "annotate it"),  # pyright: ignore
        (many, "named arguments only"),
        (strange, "no JSON Schema"),
    ],
)
def test_function_that_cannot_be_a_tool_is_refused_with_what_to_do(function: Callable[..., object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        FunctionTool.of(function)


async def test_marked_function_has_another_name_and_asks_first(tmp_path: Path) -> None:
    @tool(name="send_mail", ask=True)
    def send(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return "sent"

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.action)
        return len(asked) == 1

    sent: list[str] = []
    asked: list[str] = []
    scripts = (call_line("c1", "send_mail", to="a"), call_line("c2", "send_mail", to="b"))
    model = scripted_model(*scripts)
    async with open_agent(tmp_path, model, share_dir=tmp_path / "share", tools=[send], approve=approve) as agent:
        seen = [event async for event in agent.prompt("send") if isinstance(event, ToolResult)]
    assert (asked, sent) == (["call send_mail"] * 2, ["a"])
    assert [one.return_value.is_error for one in seen] == [False, True]
    assert send("c") == "sent"


async def test_functions_ask_in_plan_mode_but_for_those_that_only_read(tmp_path: Path) -> None:
    @tool
    def change() -> str:
        """Change something."""
        return "changed"

    @tool(read_only=True)
    def look() -> str:
        """Look."""
        return "seen"

    model = scripted_model(call_line("c1", "look") + "\n" + call_line("c2", "change"), "text: ok")
    options: Any = {"share_dir": tmp_path / "share", "plan": True}
    async with open_agent(tmp_path, model, tools=[change, look], **options) as agent:
        seen = [event async for event in agent.prompt("go") if isinstance(event, ToolResult)]
    assert {one.tool_call_id: one.return_value.is_error for one in seen} == {"c1": False, "c2": True}
