"""Write the reference pages of the documentation from the types and specs of the program.

    uv run python -m scripts.reference configuration|tools|wire

prints one of them; the site has them all.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from kimi.infrastructure.config.schema import Configuration
from kimi.interfaces.schema.print_schema import format_schema
from tests.support.builtin_specs import builtin_specs

_LARGEST_DEFAULT = 60


def write_configuration_reference() -> str:
    """Return the page of all keys of the configuration file: type, limits, default."""
    lines = [
        "# All keys of the configuration",
        "",
        "Made from the types that read the file. What the keys are for: [configuration](../configuration.md).",
        "",
    ]
    for name, section in _list_sections("", Configuration):
        lines += [f"## `{name}`" if name else "## At the top", "", "| key | type | default |", "|---|---|---|"]
        for key, field in section.model_fields.items():
            if not _find_sections(field.annotation):
                limits = " and ".join(_format_limit(limit) for limit in field.metadata if _format_limit(limit))
                kind = _format_type(field.annotation) + (f", {limits}" if limits else "")
                lines.append(f"| `{field.alias or key}` | {kind} | {_format_default(field.get_default())} |")
        lines.append("")
    return "\n".join(lines)


def write_tools_reference() -> str:
    """Return the page of all built-in tools: what the model reads of each, and its parameters."""
    lines = [
        "# Built-in tools",
        "",
        "Made from the specs of the tools: the descriptions are those that the model reads. What they may do and what",
        "they ask about: [tools](../tools.md).",
        "",
    ]
    for tool_id, spec in sorted(builtin_specs().items(), key=lambda row: row[1].name):
        lines += [f"## {spec.name}", "", f"`{tool_id}`", "", "````text", spec.description.strip(), "````", ""]
        lines += ["```json", json.dumps(spec.parameters, indent=2, ensure_ascii=False), "```", ""]
    return "\n".join(lines)


def write_wire_reference() -> str:
    """Return the page of all messages of the wire and of the values in them, from the schema that the server keeps."""
    definitions: dict[str, dict[str, Any]] = json.loads(format_schema("messages", "1.10"))["$defs"]
    lines = [
        "# All messages of the wire",
        "",
        "Made from the types that the server encodes and decodes: protocol version 1.10. What they mean, and in which",
        "order they come: [the wire protocol](../wire.md) and [its specification](../spec/wire.md). For programs:",
        "`kimi schema messages|openrpc|typescript`.",
        "",
    ]
    for name, definition in sorted(definitions.items()):
        lines += [f"## {name}", "", *definition.get("description", "").splitlines(), ""]
        if "properties" not in definition:
            lines += [_format_schema(definition), ""]
            continue
        required = definition.get("required", ())
        lines += ["| member | type | |", "|---|---|---|"]
        for member, schema in definition["properties"].items():
            presence = "" if member in required else "may be missing"
            lines.append(f"| `{member}` | {_format_schema(schema)} | {presence} |")
        lines.append("")
    return "\n".join(lines)


def _format_schema(schema: dict[str, Any]) -> str:
    """Return the type that a JSON Schema describes, with links to the values that it names."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return " or ".join(_format_schema(one) for one in schema[choice])
    if schema.get("type") == "array":
        return f"list of {_format_schema(schema.get('items', {}))}"
    return str(schema.get("type", "any value"))


def _list_sections(name: str, section: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield a section and all below it, with the names of their tables."""
    yield name, section
    for key, field in section.model_fields.items():
        for mark, inner in _find_sections(field.annotation):
            yield from _list_sections(f"{name}.{key}{mark}".lstrip("."), inner)


def _find_sections(annotation: Any) -> list[tuple[str, type[BaseModel]]]:
    """Return the sections that a value of this type holds, each with what stands behind its key: `.<name>` or `[]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [("", annotation)]
    marks: dict[Any, str] = {dict: ".<name>", tuple: "[]", list: "[]"}
    mark = marks.get(get_origin(annotation), "")
    found = (pair for inner in get_args(annotation) if inner is not Ellipsis for pair in _find_sections(inner))
    return [(mark or inner_mark, section) for inner_mark, section in found]


def _format_type(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{json.dumps(value)}`" for value in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_format_type(one) for one in inner if one is not type(None))
    if origin in (tuple, list, frozenset):
        return f"list of {_format_type(inner[0])}"
    if origin is dict:
        return f"table of {_format_type(inner[1])}"
    if origin is not None and inner:  # Annotated
        return _format_type(inner[0])
    names = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    return names.get(annotation, "any value")


def _format_limit(limit: Any) -> str:
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    return " and ".join(f"{word} {getattr(limit, name)}" for name, word in words.items() if hasattr(limit, name))


def _format_default(value: Any) -> str:
    if value is None or value is PydanticUndefined:
        return ""
    text = json.dumps(value, default=list)  # sets of names are lists in the file
    return f"`{text}`" if len(text) <= _LARGEST_DEFAULT else ""


_PAGES: dict[str, Callable[[], str]] = {
    "configuration": write_configuration_reference,
    "tools": write_tools_reference,
    "wire": write_wire_reference,
}

if __name__ == "__main__":
    sys.stdout.write(_PAGES[sys.argv[1]]())
