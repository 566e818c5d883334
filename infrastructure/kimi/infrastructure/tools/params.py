"""Arguments of built-in tools: a pydantic model defines the schema and parses the object (tools spec 1.1, 1.3).

The class may have any name; an error text for the model always says `Params`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from kimi.application.ports import PreparedCall
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import ToolReturnValue, tool_error

P = TypeVar("P", bound=BaseModel)

MAX_ERROR_CHARS = 2_000
"""The longest text of a validation error, its prefix included (T-09)."""

_LIBRARY_WORDS = re.compile(r"^  (?:Value error|Assertion failed), (.*) \[type=\w+, input_value=.*\]$", re.DOTALL)
_ERROR_PREFIX = "Error validating JSON arguments: "
_LOCAL_REF = "#/$defs/"
_SCHEMA_MAP_KEYWORDS = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords whose keys are freely chosen names, so that a property may be called `title`."""
_DATA_KEYWORDS = frozenset({"default", "const", "enum", "examples"})
"""Keywords whose values are data, not schemas."""


@cache
def build_schema(params: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of `params` for the model: by alias, without titles, references inlined.

    Where definitions refer to each other in a circle, the `$ref` that would close it stays, together with its entry in
    `$defs` (T-02). The docstring of `params` itself is left out; docstrings of nested models are descriptions for the
    model.
    """
    raw = params.model_json_schema(by_alias=True)
    definitions = cast("dict[str, Any]", raw.pop("$defs", {}))
    root = _inline_schema(raw, definitions, (), kept := dict[str, Any]())
    root.pop("description", None)
    return {**root, "$defs": kept} if kept else root


def build_schemas(*modules: ModuleType) -> None:
    """Build the schemas of the arguments that these modules define, so that no turn has to wait for them."""
    for module in modules:
        for value in list(vars(module).values()):
            if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == module.__name__:
                build_schema(value)


def parse_arguments(params: type[P], arguments: JsonObject) -> P | ToolReturnValue:
    """Parse `arguments` into an instance of `params`, or return the error result; unknown names are ignored (T-10)."""
    try:
        return params.model_validate(dict(arguments))
    except ValidationError as error:
        return tool_error(_format_validation_error(error), "Invalid arguments")


def prepare_call(
    params: type[P], arguments: JsonObject, prepare: Callable[[P], PreparedCall | ToolReturnValue]
) -> PreparedCall:
    """Prepare a call with parsed arguments.

    Invalid arguments, or a result that `prepare` returns instead of a call, become a finished call.
    """
    parsed = parse_arguments(params, arguments)
    outcome = parsed if isinstance(parsed, ToolReturnValue) else prepare(parsed)
    return outcome if isinstance(outcome, PreparedCall) else prepare_finished_call(outcome)


def prepare_finished_call(result: ToolReturnValue) -> PreparedCall:
    """Prepare a call whose result is known already: it has no proposed action."""

    async def run() -> ToolReturnValue:
        return result

    return PreparedCall(run)


def _format_validation_error(error: ValidationError) -> str:
    """Format pydantic's message headed `Params`, cut to the limit.

    Left out are the lines that link to its website, and what it puts around the sentences of this program.
    """
    count = error.error_count()
    heading = f"{count} validation error{'' if count == 1 else 's'} for Params"
    lines = [line for line in str(error).split("\n")[1:] if not line.startswith("    For further information visit ")]
    lines = [_LIBRARY_WORDS.sub(r"  \1", line) for line in lines]
    return (_ERROR_PREFIX + "\n".join([heading, *lines]))[:MAX_ERROR_CHARS]


def _inline_schema(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], path: tuple[str, ...], kept: dict[str, Any]
) -> dict[str, Any]:
    """Copy `schema` without titles and local references. `path` holds the definitions around it."""
    name = _local_definition_name(schema)
    if name is None:
        return {
            key: _inline_value(key, value, definitions, path, kept) for key, value in schema.items() if key != "title"
        }
    beside = {key: value for key, value in schema.items() if key not in ("$ref", "title")}
    if name in path:
        _keep_definition(name, definitions, kept)
        return {"$ref": f"{_LOCAL_REF}{name}", **beside}
    return {**_inline_schema(definitions[name], definitions, (*path, name), kept), **beside}


def _inline_value(
    key: str, value: Any, definitions: Mapping[str, Any], path: tuple[str, ...], kept: dict[str, Any]
) -> Any:
    if key in _DATA_KEYWORDS:
        return value
    if key in _SCHEMA_MAP_KEYWORDS:
        return {name: _inline_schema(schema, definitions, path, kept) for name, schema in value.items()}
    if isinstance(value, dict):
        return _inline_schema(cast("dict[str, Any]", value), definitions, path, kept)
    if isinstance(value, list):
        return [_inline_value("", item, definitions, path, kept) for item in cast("list[Any]", value)]
    return value


def _keep_definition(name: str, definitions: Mapping[str, Any], kept: dict[str, Any]) -> None:
    if name not in kept:
        kept[name] = {}
        kept[name] = _inline_schema(definitions[name], definitions, (name,), kept)


def _local_definition_name(schema: Mapping[str, Any]) -> str | None:
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith(_LOCAL_REF):
        return reference.removeprefix(_LOCAL_REF)
    return None
