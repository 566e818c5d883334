"""The JSON Schema of every message of the wire, made from the types that the server encodes and decodes.

Events are the dataclasses of the domain, which the codec writes as they are; parameters and results are the types of
`wire.shapes`. What older versions lack is left out of their schema (`versions`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, TypeAlias, cast

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import core_schema

from kimi.domain.content.parts import ContentPart
from kimi.domain.events.event import EVENT_TYPES, REQUEST_TYPES, SubagentEvent
from kimi.domain.tools.tool import DisplayBlock, UnknownBlock
from kimi.interfaces.rpc.wire_shapes import ANSWERS, CALLS, REQUIRED_WHEN_READ, UsageTotals
from kimi.interfaces.schema import versions

Schema: TypeAlias = dict[str, Any]
"""A JSON Schema: the JSON edge."""

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_NAMED_UNIONS: Final[Mapping[str, Any]] = {"ContentPart": ContentPart, "DisplayBlock": DisplayBlock}
_ID: Final[Schema] = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
_JSONRPC: Final[Schema] = {"const": "2.0", "type": "string"}


class _WireSchema(GenerateJsonSchema):
    """The server writes every member of a dataclass; a client may leave out those with a default, but for `type`."""

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> Schema:
        result = super().dataclass_schema(schema)
        for member in fields(schema["cls"]):
            _mark_required(result, member.name, self._is_required(schema["cls"], member.name, result))
        written = {member.name: result["properties"][member.name] for member in fields(schema["cls"])}
        return result | {"properties": written, "required": [name for name in written if name in result["required"]]}

    def _is_required(self, kind: type, name: str, schema: Schema) -> bool:
        if self.mode == "serialization" or name == "type":
            return True
        return REQUIRED_WHEN_READ.get((kind, name), name in schema.get("required", ()))


def build_messages_schema(version: int = versions.NEWEST) -> Schema:
    """Return the schema of any message of this version, with a definition for each message and each of its parts."""
    definitions = build_definitions(version)
    return {
        "$schema": DIALECT,
        "$id": f"urn:kimi-wire:1.{version}:messages",
        "title": f"Messages of the wire protocol 1.{version}",
        "description": "One message stands on each line. Readers ignore members that they do not know.",
        "anyOf": [_refer("ClientMessage"), _refer("ServerMessage")],
        "$defs": definitions,
    }


def build_definitions(version: int) -> dict[str, Schema]:
    """Return the definitions that the messages of this version need, in alphabetical order."""
    definitions = _define_types()
    definitions |= _define_events(definitions, version)
    client = _define_calls(version) | _define_answers(version)
    server = _define_server_messages(version)
    definitions |= client | server
    definitions["ClientMessage"] = {
        "description": "What a client sends.",
        "anyOf": [_refer(name) for name in client],
    }
    definitions["ServerMessage"] = {"description": "What the server sends.", "anyOf": [_refer(name) for name in server]}
    for (name, member), since in versions.MEMBERS.items():
        if since > version:
            _drop_member(definitions[name], member)
    return _keep_reachable(definitions, ["ClientMessage", "ServerMessage"])


def close_objects(schema: Any) -> Any:
    """Return a copy in which no object may have members that are not declared: for checks of what the server sends."""
    if isinstance(schema, list):
        return [close_objects(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    closed = {key: close_objects(value) for key, value in cast("Schema", schema).items()}
    if closed.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


def pascal_case(method: str) -> str:
    """Return the name of a method as the beginning of a type's name."""
    return "".join(word.capitalize() for word in method.split("_"))


# --- types --------------------------------------------------------------------------------------------------------


def _define_types() -> dict[str, Schema]:
    """Return the definitions of all payloads, parameters and results; those that a client writes end with `Input`."""
    payloads = {cls.__name__: cls for cls in EVENT_TYPES if cls is not SubagentEvent}
    results = {result.__name__: result for _, result in CALLS.values()} | {UsageTotals.__name__: UsageTotals}
    params = {kind.__name__: kind for kind, _ in CALLS.values() if kind is not None}
    answers = {kind.__name__: kind for kind in ANSWERS.values()}
    written = payloads | results | _NAMED_UNIONS
    read = params | answers | {f"{name}Input": kind for name, kind in _NAMED_UNIONS.items()}
    kinds_by_mode: dict[JsonSchemaMode, dict[str, Any]] = {"serialization": written, "validation": read}
    inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        (name, mode, TypeAdapter(kind)) for mode, kinds in kinds_by_mode.items() for name, kind in kinds.items()
    ]
    schemas, document = TypeAdapter.json_schemas(inputs, schema_generator=_WireSchema)
    definitions = cast("dict[str, Schema]", document["$defs"])
    definitions |= {name: schema for (name, _), schema in schemas.items() if "$ref" not in schema}
    definitions = {_plain_name(name): _rename_references(schema) for name, schema in definitions.items()}
    unions = {
        json.dumps(definitions[f"{name}{end}"]): f"{name}{end}" for name in _NAMED_UNIONS for end in ("", "Input")
    }
    _describe_unknown_blocks(definitions)
    named = {name: _name_unions(schema, unions) for name, schema in definitions.items() if name not in unions.values()}
    return named | {name: definitions[name] for name in unions.values()} | {"SubagentEvent": _define_subagent_event()}


def _define_subagent_event() -> Schema:
    """Return the payload of SubagentEvent: its members with the old name of the first one, and any event."""
    text: Schema = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    members = {member.name: text for member in fields(SubagentEvent) if member.name != "event"}
    properties = members | {"task_tool_call_id": text, "event": _refer("Event")}
    return _object(properties, description=SubagentEvent.__doc__ or "")


def _describe_unknown_blocks(definitions: dict[str, Schema]) -> None:
    """Let a block of an unknown type be one whose type is not known; a client may write any members."""
    known = sorted(
        block["properties"]["type"]["const"]
        for name, block in definitions.items()
        if name.endswith("Block") and "const" in block.get("properties", {}).get("type", {})
    )
    kind: Schema = {"type": "string", "not": {"enum": known}}
    definitions[UnknownBlock.__name__]["properties"]["type"] = kind
    description = "A display block of an unknown type, which is kept."
    name = f"{UnknownBlock.__name__}Input"
    definitions[name] = _object({"type": kind}, description=description) | {"additionalProperties": True}
    blocks = definitions["DisplayBlockInput"]["anyOf"]
    blocks[blocks.index(_refer(UnknownBlock.__name__))] = _refer(name)


# --- messages -----------------------------------------------------------------------------------------------------


def _define_events(definitions: Mapping[str, Schema], version: int) -> dict[str, Schema]:
    requests = {EVENT_TYPES[cls] for cls in REQUEST_TYPES}
    names = [name for name, since in versions.EVENTS.items() if since <= version]
    defined: dict[str, Schema] = {"StatusUpdate": _status_update(definitions["StatusUpdate"])}
    for title, wanted in (
        ("Event", [name for name in names if name not in requests]),
        ("Request", [name for name in names if name in requests]),
    ):
        envelopes = [_object({"type": _constant(_name_in(name, version)), "payload": _refer(name)}) for name in wanted]
        defined[title] = {"anyOf": envelopes}
    defined["Event"]["description"] = "The parameters of an `event`."
    defined["Request"]["description"] = "The parameters of a `request`, which wants an answer."
    return defined


def _status_update(schema: Schema) -> Schema:
    """Return the payload of StatusUpdate with `usage` as clients see it: present only where it was asked for."""
    properties = schema["properties"] | {"usage": {"anyOf": [_refer("UsageTotals"), {"type": "null"}]}}
    return schema | {"properties": properties, "required": [name for name in schema["required"] if name != "usage"]}


def _define_calls(version: int) -> dict[str, Schema]:
    """Return the requests of a client, and the one notification that it can send."""
    found: dict[str, Schema] = {}
    for method, since in versions.METHODS.items():
        params = CALLS[method][0]
        if since <= version:
            members = {"jsonrpc": _JSONRPC, "id": _ID, "method": _constant(method)}
            members |= {"params": {} if params is None else _refer(params.__name__)}
            optional = ("jsonrpc", "params") if params is None else ("jsonrpc",)
            found[f"{pascal_case(method)}Request"] = _object(members, optional)
    found["CancelNotification"] = _object(
        {"jsonrpc": _JSONRPC, "id": {"type": "null"}, "method": _constant("cancel"), "params": {}},
        {"jsonrpc", "id", "params"},
    )
    return found


def _define_answers(version: int) -> dict[str, Schema]:
    """Return the answers of a client to the requests of the server."""
    found: dict[str, Schema] = {}
    for name, kind in ANSWERS.items():
        if versions.EVENTS[name] <= version:
            members = {"jsonrpc": _JSONRPC, "id": {"type": "string"}, "result": _refer(kind.__name__)}
            found[f"{name}Answer"] = _object(members, {"jsonrpc"})
    error = _object({"code": {"type": "integer"}, "message": {"type": "string"}, "data": {}}, {"data"})
    found["ErrorAnswer"] = _object({"jsonrpc": _JSONRPC, "id": {"type": "string"}, "error": error}, {"jsonrpc"})
    return found


def _define_server_messages(version: int) -> dict[str, Schema]:
    """Return the notifications, requests and responses of the server."""
    found = {
        "EventNotification": _object({"jsonrpc": _JSONRPC, "method": _constant("event"), "params": _refer("Event")}),
        "RequestMessage": _object(
            {"jsonrpc": _JSONRPC, "method": _constant("request"), "id": {"type": "string"}, "params": _refer("Request")}
        ),
    }
    for method, since in versions.METHODS.items():
        if since <= version:
            result = _refer(CALLS[method][1].__name__)
            found[f"{pascal_case(method)}Response"] = _object({"jsonrpc": _JSONRPC, "id": _ID, "result": result})
    error = _object({"code": {"type": "integer"}, "message": {"type": "string"}, "data": {"type": "null"}})
    any_id: Schema = {"anyOf": [*_ID["anyOf"], {"type": "null"}]}
    found["ErrorResponse"] = _object({"jsonrpc": _JSONRPC, "id": any_id, "error": error})
    return found


# --- pieces -------------------------------------------------------------------------------------------------------


def _object(members: Mapping[str, Schema], optional: Iterable[str] = (), *, description: str = "") -> Schema:
    schema: Schema = {"description": description} if description else {}
    required = [name for name in members if name not in set(optional)]
    return schema | {"type": "object", "properties": dict(members), "required": required}


def _constant(text: str) -> Schema:
    return {"const": text, "type": "string"}


def _refer(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _name_in(name: str, version: int) -> str:
    old, last = versions.RENAMED.get(name, (name, -1))
    return old if version <= last else name


def _plain_name(name: str) -> str:
    return name.removesuffix("-Output").replace("-Input", "Input")


def _rename_references(value: Any) -> Any:
    """Return the schema with plain names, and without the titles that repeat them."""
    if isinstance(value, list):
        return [_rename_references(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    source = cast("Schema", value)
    if isinstance(source.get("$ref"), str):
        return _refer(_plain_name(source["$ref"].removeprefix("#/$defs/")))
    kept = {key: item for key, item in source.items() if not (key == "title" and isinstance(item, str))}
    return {key: _rename_references(item) for key, item in kept.items() if key not in ("default", "discriminator")}


def _name_unions(value: Any, unions: Mapping[str, str]) -> Any:
    """Return the schema in which a union that has a name is a reference to it, also within a larger union."""
    if isinstance(value, list):
        return [_name_unions(item, unions) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    source = cast("Schema", value)
    name = unions.get(json.dumps(source))
    return _refer(name) if name else {key: _name_unions(item, unions) for key, item in source.items()}


def _mark_required(schema: Schema, name: str, required: bool) -> None:
    names = [other for other in schema.get("required", ()) if other != name] + [name] * required
    schema["required"] = [other for other in schema["properties"] if other in names]


def _drop_member(schema: Schema, name: str) -> None:
    del schema["properties"][name]
    schema["required"] = [other for other in schema.get("required", ()) if other != name]


def _keep_reachable(definitions: Mapping[str, Schema], roots: Sequence[str]) -> dict[str, Schema]:
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _list_references(definitions[name])
    return {name: definitions[name] for name in sorted(found)}


def _list_references(value: Any) -> list[str]:
    if isinstance(value, dict):
        source = cast("Schema", value)
        if "$ref" in source:
            return [str(source["$ref"]).removeprefix("#/$defs/")]
        return [name for item in source.values() for name in _list_references(item)]
    if isinstance(value, list):
        return [name for item in cast("list[Any]", value) for name in _list_references(item)]
    return []
