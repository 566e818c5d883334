"""Arguments against schemas that come from elsewhere."""

from __future__ import annotations

import socket

import pytest

from kimi.domain.content.message import JsonObject
from kimi.infrastructure.json_schema import check_arguments, check_schema


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


@pytest.mark.parametrize("pattern", [r"^\p{L}+$", r"(?<year>\d{4})", r"^[\w-\.]+$"])
def test_patterns_use_javascript_syntax(pattern: str) -> None:
    for schema in ({"properties": {"a": {"pattern": pattern}}}, {"patternProperties": {pattern: {"type": "string"}}}):
        assert check_schema({"type": "object", **schema}) is None
        assert check_arguments({"type": "object", **schema}, {"a": "x"}) is None
    mixed = {"properties": {"a": {"pattern": pattern}, "b": {"pattern": "^x$"}}}
    assert check_arguments(mixed, {"a": "x", "b": "y"}) == "$.b: 'y' does not match '^x$' (value: \"y\")"


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(([a-z])+.?)*$", "^(a{1,9}){1,9}b$"])
def test_catastrophic_pattern_is_skipped(pattern: str) -> None:
    assert check_arguments({"properties": {"a": {"pattern": pattern}}}, {"a": "a" * 60 + "!"}) is None
