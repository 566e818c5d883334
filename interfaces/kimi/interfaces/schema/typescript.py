"""TypeScript declarations of every message of the wire, made from its JSON Schema."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, cast

from kimi.interfaces.schema import versions
from kimi.interfaces.schema.messages import Schema, build_definitions

_PRIMITIVES: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][\w$]*")
_RESERVED: Final = {"Request": "RequestParams", "Event": "EventParams", "Function": "CalledFunction"}
"""Names that TypeScript declares already: a file that forgets an import would use those."""


def build_typescript(version: int = versions.NEWEST) -> str:
    """Return a declaration file with one exported type for each definition."""
    definitions = build_definitions(version)
    head = f"// The messages of the wire protocol 1.{version}, one on each line. Written by `kimi schema typescript`.\n"
    return head + "".join(f"\n{_declare(name, schema)}\n" for name, schema in definitions.items())


def _declare(name: str, schema: Schema) -> str:
    comment = _comment(schema.get("description", ""))
    shown = _RESERVED.get(name, name)
    if schema.get("type") == "object" and "additionalProperties" not in schema and schema["properties"]:
        return f"{comment}export interface {shown} {_members(schema, '')}"
    return f"{comment}export type {shown} = {_type_of(schema, '')};"


def _comment(text: str, indent: str = "") -> str:
    lines = [line.rstrip().replace("*/", "* /") for line in text.split("\n")]
    if not text:
        return ""
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */\n"
    return f"{indent}/**\n" + "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines) + f"{indent} */\n"


def _members(schema: Schema, indent: str) -> str:
    required, inner = schema.get("required", ()), indent + "  "
    lines = [
        f"{inner}{_key(name)}{'' if name in required else '?'}: {_type_of(part, inner)};\n"
        for name, part in schema["properties"].items()
    ]
    if schema.get("additionalProperties"):
        lines.append(f"{inner}[member: string]: unknown;\n")
    return "{\n" + "".join(lines) + indent + "}"


def _type_of(schema: Schema, indent: str) -> str:
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix("#/$defs/")
        return _RESERVED.get(name, name)
    if "anyOf" in schema:
        return _union([_type_of(option, indent) for option in schema["anyOf"]])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return _union([json.dumps(option) for option in schema["enum"]])
    return _plain_type(schema, indent)


def _plain_type(schema: Schema, indent: str) -> str:
    kind = schema.get("type")
    if kind == "array":
        item = _type_of(cast("dict[str, Any]", schema["items"]), indent)
        return f"({item})[]" if " | " in item else f"{item}[]"
    if kind == "object":
        return _object_type(schema, indent)
    return "unknown" if kind is None else _PRIMITIVES[kind]


def _object_type(schema: Schema, indent: str) -> str:
    if schema.get("properties"):
        return _members(schema, indent)
    values = schema.get("additionalProperties")
    if not values:
        return "Record<string, never>"
    return "Record<string, unknown>" if values is True else f"Record<string, {_type_of(values, indent)}>"


def _union(options: Sequence[str]) -> str:
    return " | ".join(dict.fromkeys(options)) or "never"


def _key(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else json.dumps(name)
