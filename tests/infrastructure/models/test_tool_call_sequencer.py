"""Streamed tool calls: what was sent interleaved is given out in order, call by call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.content.message import Function, ToolCall, ToolCallPart
from kimi.domain.content.parts import TextPart
from kimi.domain.content.stream import MergedPart, PartMerger, StreamPart
from kimi.infrastructure.models.tool_call_sequencer import JsonEndDetector, ToolCallSequencer

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)


def delta(
    index: int | None, arguments: str | None, call_id: str | None = None, name: str | None = None
) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    full = {"index": index, "id": call_id, "function": function}
    return {key: value for key, value in full.items() if value is not None}


def merged(parts: Sequence[StreamPart]) -> list[MergedPart]:
    merger = PartMerger()
    return [whole for part in parts for whole in merger.push(part)] + merger.flush()


def run(deltas: Sequence[dict[str, Any]]) -> list[StreamPart]:
    order = ToolCallSequencer(iter(f"fresh{number}" for number in range(1000)).__next__)
    return [part for one in deltas for part in order.add_delta(one)] + order.flush()


@given(OBJECTS, st.data())
def test_json_object_end_is_found_in_any_chunking(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    cut = data.draw(st.integers(0, len(text)))
    extent = JsonEndDetector()
    extent.feed(text[:cut])
    assert extent.has_ended is (cut == len(text))
    extent.feed(text[cut:])
    assert extent.has_ended


@pytest.mark.spec("R-78")
@given(st.lists(OBJECTS, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_interleaved_calls_are_kept_apart(values: list[dict[str, Any]], random: Any) -> None:
    texts = [json.dumps(value) for value in values]
    waiting: list[list[str]] = [[text[start : start + 3] for start in range(0, len(text), 3)] for text in texts]
    deltas = [delta(index, "", f"tc{index}", "Shell") for index in range(len(texts))]
    while any(waiting):
        index: int = random.choice([index for index, pieces in enumerate(waiting) if pieces])
        deltas.append(delta(index, waiting[index].pop(0)))
    expected = [ToolCall(f"tc{index}", Function("Shell", text)) for index, text in enumerate(texts)]
    assert merged(run(deltas)) == expected


def test_first_call_is_streamed_live() -> None:
    order = ToolCallSequencer()
    assert order.add_delta(delta(0, "", "a", "F")) == [ToolCall("a", Function("F", ""))]
    assert order.add_delta(delta(0, '{"x":')) == [ToolCallPart('{"x":')]
    assert order.add_delta(delta(1, '{"y":', "b", "G")) == []
    assert order.add_delta(delta(0, "1}")) == [ToolCallPart("1}"), ToolCall("b", Function("G", '{"y":'))]
    assert order.add_delta(delta(1, "2}")) == [ToolCallPart("2}")]
    assert order.flush() == []


def test_the_next_call_starts_at_once_when_the_first_is_complete() -> None:
    order = ToolCallSequencer()
    order.add_delta(delta(0, '{"x":1}', "a", "F"))
    assert order.add_delta(delta(1, None, "b", "G")) == [ToolCall("b", Function("G", None))]


def test_text_waits_for_a_call_that_is_not_complete() -> None:
    order = ToolCallSequencer()
    order.add_delta(delta(0, '{"x":', "a", "F"))
    assert order.add_content(TextPart("meanwhile")) == []
    assert order.add_delta(delta(0, "1}")) == [ToolCallPart("1}"), TextPart("meanwhile")]
    assert order.add_content(TextPart("later")) == [TextPart("later")]


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([delta(0, "{}", "", "F"), delta(1, "{}", None, "F")], ["fresh0", "fresh1"]),
        ([delta(0, "{}", "a", "F"), delta(1, "{}", "a", "F")], ["a", "fresh0"]),
        ([delta(None, "{}", "a", "F"), delta(None, "{}", "b", "F")], ["a", "b"]),
        ([delta(None, "{}", None, "F"), delta(None, "{}", None, "F")], ["fresh0", "fresh1"]),
        ([delta(0, "{}", "a", "F"), delta(0, "{}", "b", "F")], ["a", "b"]),
        ([delta(0, "{}", "a", "F"), delta(0, "{}", "a", "F")], ["a", "fresh0"]),
        ([delta(0, "{", "a", "F"), delta(0, "}", "a", "F"), delta(0, "", "a", "F")], ["a"]),
        ([delta(0, "{", None, "F"), delta(0, "}", None, "F")], ["fresh0"]),
        ([delta(0, "orphan")], []),
    ],
)
def test_every_call_gets_a_unique_id(deltas: list[dict[str, Any]], expected: list[str]) -> None:
    whole = merged(run(deltas))
    assert [part.id for part in whole if isinstance(part, ToolCall)] == expected
    assert {part.function.arguments for part in whole if isinstance(part, ToolCall)} <= {"{}"}


def test_arguments_that_come_as_an_object_are_written_as_text() -> None:
    whole = merged(run([{"index": 0, "id": "a", "function": {"name": "F", "arguments": {"x": 1}}}]))
    assert whole == [ToolCall("a", Function("F", '{"x": 1}'))]


def test_numeric_id_is_converted_to_text() -> None:
    order = ToolCallSequencer()
    parts = order.add_delta({"index": 0, "id": 5, "function": {"name": "Shell", "arguments": "{}"}})
    assert [part.id for part in parts if isinstance(part, ToolCall)] == ["5"]
