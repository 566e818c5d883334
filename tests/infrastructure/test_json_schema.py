"""Arguments against schemas that come from elsewhere."""

from __future__ import annotations

import socket
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator

from kimi.domain.content.message import JsonObject
from kimi.infrastructure.json_schema import TOO_DEEP, TOO_MUCH_WORK, check_arguments, check_schema
from tests.support.patterns.bombs import (
    EXPLOSIVE_EXPRESSIONS,
    EXPLOSIVE_TEXTS,
    bounded_cpu_time,
    build_reference_bomb,
)


def test_remote_schema_references_are_not_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        fault = check_arguments({"properties": {"a": {"$ref": address}}}, {"a": 1})
        assert fault == f"the schema refers to {address}, which is not in it"
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_schema_may_refer_to_itself() -> None:
    schema = {"properties": {"child": {"$ref": "#"}, "n": {"type": "integer"}}}
    assert check_arguments(schema, {"child": {"child": {"n": 1}}}) is None
    assert "$.child.child.n" in str(check_arguments(schema, {"child": {"child": {"n": "x"}}}))
    assert check_arguments({"properties": {"a": {"$ref": "#/nowhere"}}}, {"a": 1}) is not None


def test_deeply_nested_arguments_are_reported() -> None:
    schema: JsonObject = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    deep: JsonObject = {}
    for _ in range(500):
        deep = {"child": deep}
    assert check_arguments(schema, {"child": {}}) is None
    told = "the arguments, or what their schema refers to, are nested too deeply to be checked"
    assert check_arguments(schema, deep) == told
    assert check_arguments({"$ref": "#"}, {}) == told


@pytest.mark.parametrize("pattern", [r"^\p{L}+$", r"^(?<year>\d{4})|x$", r"^[\w-\.]+$", r"^\u0078$"])
def test_patterns_use_javascript_syntax(pattern: str) -> None:
    for schema in ({"properties": {"a": {"pattern": pattern}}}, {"patternProperties": {pattern: {"type": "string"}}}):
        assert check_schema({"type": "object", **schema}) is None
        assert check_arguments({"type": "object", **schema}, {"a": "x"}) is None
    mixed = {"properties": {"a": {"pattern": pattern}, "b": {"pattern": "^x$"}}}
    assert check_arguments(mixed, {"a": "x", "b": "y"}) == "$.b: 'y' does not match '^x$' (value: \"y\")"
    assert "does not match" in str(check_arguments(mixed, {"a": "!"}))


@pytest.mark.parametrize("pattern", [r"^(?=.*\d)", r"(a)\1", r"\cA", "a{2000}", "(" * 6000, r"(?:\pL{30})+"])
def test_a_pattern_that_the_engine_does_not_know_is_left_to_the_tool(pattern: str) -> None:
    assert check_arguments({"properties": {"a": {"pattern": pattern}}}, {"a": "!"}) is None
    assert check_arguments({"patternProperties": {pattern: False}, "additionalProperties": False}, {"a": "!"}) is None
    mixed = {"properties": {"a": {"pattern": pattern}, "b": {"type": "integer"}}}
    assert check_arguments(mixed, {"a": "!", "b": "y"}) is not None


@pytest.mark.spec("R-211")
@pytest.mark.parametrize("draft", [{}, {"$schema": "http://json-schema.org/draft-07/schema#"}])
@pytest.mark.parametrize("pattern", EXPLOSIVE_EXPRESSIONS)
def test_a_pattern_takes_time_that_grows_with_the_text_only(pattern: str, draft: JsonObject) -> None:
    schemas: list[JsonObject] = [
        {"properties": {"a": {"pattern": pattern, **draft}}},
        {"properties": {"a": {"allOf": [{"pattern": pattern, **draft}]}}},
    ]
    named: list[JsonObject] = [
        {"patternProperties": {pattern: {}}, **draft},
        {"patternProperties": {pattern: {}}, "additionalProperties": False, **draft},
        {"patternProperties": {pattern: {}}, "unevaluatedProperties": False, **draft},
        {"propertyNames": {"pattern": pattern, **draft}},
    ]
    with bounded_cpu_time(2):
        for schema in (*schemas, *named):
            assert check_schema(schema) is None
        for text in EXPLOSIVE_TEXTS:
            for schema in schemas:
                check_arguments(schema, {"a": text})
            for schema in named:
                check_arguments(schema, {text: 1})
                check_arguments({"properties": {"x": schema}}, {"x": {text: 1}})


def nest_schema(levels: int) -> JsonObject:
    schema: JsonObject = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


DEFINITIONS = build_reference_bomb()["$defs"]
BOMBS: dict[str, JsonObject] = {
    "all of": {"$ref": "#/$defs/d0", "$defs": DEFINITIONS},
    "unevaluated": {"unevaluatedProperties": False, "$ref": "#/$defs/d0", "$defs": DEFINITIONS},
    "unevaluated items": {"unevaluatedItems": False, "$ref": "#/$defs/d0", "$defs": DEFINITIONS},
    "a circle": {"$ref": "#"},
    "two circles": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "a dynamic circle": {"$dynamicAnchor": "n", "allOf": [{"$dynamicRef": "#n"}] * 10},
    "dependent": {
        "dependentSchemas": {"a": {"$ref": "#/$defs/d0"}},
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": DEFINITIONS,
    },
    "names": {"propertyNames": {"$ref": "#/$defs/d0"}, "$defs": DEFINITIONS},
    "not": {"not": {"not": {"$ref": "#/$defs/d0"}}, "$defs": DEFINITIONS},
    "if": {"if": {"$ref": "#/$defs/d0"}, "then": {"$ref": "#/$defs/d0"}, "$defs": DEFINITIONS},
    "an anchor": {"allOf": [{"$ref": "#x"}] * 900, "$defs": {"x": {"$anchor": "x"}, "y": {"enum": list(range(5_000))}}},
    "another draft": {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/$defs/d0", "$defs": DEFINITIONS},
}  # fmt: skip


@pytest.mark.spec("R-212")
@pytest.mark.parametrize("name", BOMBS)
def test_a_schema_that_multiplies_its_work_is_given_up(name: str) -> None:
    bomb = BOMBS[name]
    below: JsonObject = {"properties": {"x": {k: v for k, v in bomb.items() if k != "$defs"}}, "$defs": DEFINITIONS}
    with bounded_cpu_time(1):
        told = {check_schema(bomb), check_schema(below), check_arguments(bomb, {"a": 1})}
        told.add(check_arguments(below, {"x": {"a": 1}}))
        told.add(check_arguments(below, {"x": [1, 2, 3]}))
    gave_up = {
        TOO_MUCH_WORK,
        TOO_DEEP,
        "the schema refers to itself without end, or checking against it takes too many steps",
    }
    assert told & gave_up


@pytest.mark.spec("R-212")
@pytest.mark.parametrize(
    ("schema", "limit"),
    [
        ({"properties": {"a": {"enum": list(range(30_000))}}}, "values"),
        ({"description": "x" * 600_000}, "characters"),
        ({"properties": {str(number): {"$ref": "#/$defs/a"} for number in range(1_100)}}, "references"),
        (nest_schema(5_000), "levels"),
    ],
    ids=["values", "characters", "references", "levels"],
)
def test_a_schema_beyond_a_limit_is_refused(schema: JsonObject, limit: str) -> None:
    assert limit in str(check_schema(schema))


@pytest.mark.spec("R-212")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"uniqueItems": True}, [{"x": number, "y": [1, 2]} for number in range(5_000)]),
        ({"uniqueItems": True}, [number if number % 2 else str(number) for number in range(20_000)]),
        ({"items": {"enum": [[0] * 50 + [number] for number in range(300)]}}, [[0] * 50 for _ in range(2_000)]),
        ({"anyOf": [{"type": "integer"}] * 500}, "x" * 1_000_000),
        ({"contains": {"$ref": "#/$defs/d30"}}, list(range(20_000))),
        ({"pattern": "(?:(?:a?){500}){2}b"}, "a" * 1_000_000),
    ],
    ids=["objects", "mixed", "enum", "message", "contains", "many states"],
)
def test_large_arguments_are_checked_within_a_bound(schema: JsonObject, value: object) -> None:
    with bounded_cpu_time(3):
        check_arguments({"properties": {"a": schema}, "$defs": DEFINITIONS}, {"a": value})


def test_large_arguments_of_a_usual_schema_are_checked_to_the_end() -> None:
    cell = {"anyOf": [{"type": "string", "minLength": 1, "pattern": "^[a-z]+$"}, {"type": "null"}]}
    row = {
        "type": "object",
        "required": ["a"],
        "additionalProperties": False,
        "properties": dict.fromkeys("abcde", cell),
    }
    schema = {"type": "object", "properties": {"rows": {"type": "array", "items": row}}}
    rows = [dict.fromkeys("abcde", "abc") for _ in range(2_000)]
    assert check_arguments(schema, {"rows": rows}) is None
    assert "$.rows[2000].a" in str(check_arguments(schema, {"rows": [*rows, {"a": 1}]}))


EQUAL: list[tuple[list[Any], bool]] = [
    ([1, 1.0], False),
    ([1, True], True),
    ([0, False, "0", None, [], {}], True),
    ([[1, True], [1, 1]], True),
    ([{"a": 1, "b": 2}, {"b": 2, "a": 1.0}], False),
    ([["a", "b"], ["ab"]], True),
    ([[], {}], True),
    (["list", ["list"]], True),
]


@pytest.mark.parametrize(("items", "unique"), EQUAL, ids=str)
def test_unique_items_compares_like_the_library(items: list[Any], unique: bool) -> None:
    assert (check_arguments({"uniqueItems": True}, items) is None) == unique


UNEVALUATED: list[tuple[JsonObject, Any, bool]] = [
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 1}, True),
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 1, "b": 1}, False),
    ({"allOf": [{"properties": {"b": {}}}], "unevaluatedProperties": False}, {"b": 1}, True),
    ({"anyOf": [{"required": ["c"], "properties": {"b": {}}}], "unevaluatedProperties": False}, {"b": 1}, False),
    ({"if": {"required": ["a"]}, "then": {"properties": {"a": {}}}, "unevaluatedProperties": False}, {"a": 1}, True),
    ({"if": {"required": ["a"]}, "else": {"properties": {"b": {}}}, "unevaluatedProperties": False}, {"b": 1}, True),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {}}}}, "unevaluatedProperties": False}, {"a": 1}, True),
    ({"patternProperties": {"^a": {}}, "unevaluatedProperties": {"type": "string"}}, {"ab": 1, "b": "x"}, True),
    ({"patternProperties": {"^a": {}}, "unevaluatedProperties": {"type": "string"}}, {"ab": 1, "b": 2}, False),
    ({"dependentSchemas": {"a": {"properties": {"b": {}, "a": {}}}}, "unevaluatedProperties": False}, {"a": 1}, True),
    ({"prefixItems": [{}], "unevaluatedItems": False}, [1], True),
    ({"prefixItems": [{}], "unevaluatedItems": False}, [1, 2], False),
    ({"contains": {"type": "string"}, "unevaluatedItems": {"type": "integer"}}, ["a", 1], True),
    ({"contains": {"type": "string"}, "unevaluatedItems": {"type": "integer"}}, ["a", None], False),
    ({"allOf": [{"items": {}}], "unevaluatedItems": False}, [1, 2], True),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "valid"), UNEVALUATED, ids=str)
def test_what_no_keyword_looked_at_is_found_as_the_library_does(schema: JsonObject, value: Any, valid: bool) -> None:
    assert (check_arguments(schema, value) is None) == valid
    assert cast("Any", Draft202012Validator)(schema).is_valid(value) == valid
