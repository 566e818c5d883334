"""The OpenRPC document of each version of the wire protocol."""

from __future__ import annotations

from typing import Any, Final, cast

from kimi.interfaces.rpc.wire_shapes import CALLS
from kimi.interfaces.schema import versions
from kimi.interfaces.schema.messages import Schema, build_definitions, pascal_case

_SUMMARIES: Final = {
    "initialize": "Say who the client is and what it can do, and offer tools.",
    "prompt": "Run a turn with this input; answered when it has ended.",
    "cancel": "Cancel the running turn or replay; may also be sent as a notification.",
    "replay": "Send all that was recorded of the session, as events and requests.",
    "steer": "Put a message into the running turn.",
    "set_plan_mode": "Switch plan mode on or off.",
    "event": "Something happened in the conversation.",
    "request": "The client must answer, under the id of the message.",
}

_ERRORS: Final = {
    "ParseError": (-32700, "Invalid JSON format", 0),
    "InvalidRequest": (-32600, "Invalid request", 0),
    "MethodNotFound": (-32601, "Unexpected method received: <method>", 0),
    "InvalidParams": (-32602, "Invalid parameters for method `<method>`", 0),
    "InternalError": (-32603, "<class>: <text>", 0),
    "InvalidState": (-32000, "An agent turn is already in progress", 0),
    "ModelNotSet": (-32001, "LLM is not set", 0),
    "ModelNotSupported": (-32002, "LLM model '<model>' does not support required capability: <capability>.", 0),
    "ProviderError": (-32003, "<the provider's text>", 0),
    "AuthExpired": (-32004, "Authentication failed.", 7),
}
"""The errors: code, text, and since which version."""

_TURN_ERRORS: Final = ("InvalidState", "ModelNotSet", "ModelNotSupported", "ProviderError", "AuthExpired")
_METHOD_ERRORS: Final = {"prompt": _TURN_ERRORS, "replay": ("InvalidState", "InternalError")}


def build_openrpc(version: int = versions.NEWEST) -> Schema:
    """Return the OpenRPC document of this version; the server's own methods have `x-direction`: `server-to-client`."""
    definitions = build_definitions(version)
    known = {name: value for name, value in _ERRORS.items() if value[2] <= version}
    methods = [_describe_call(method, definitions, known) for method, since in versions.METHODS.items()
               if since <= version]  # fmt: skip
    document: Schema = {
        "openrpc": "1.3.2",
        "info": {
            "title": "The wire protocol of kimi --wire",
            "version": f"1.{version}",
            "description": "JSON-RPC 2.0, one message on each line; parameters are always given by name.",
        },
        "methods": [*methods, *_describe_server_calls(definitions)],
        "components": {
            "schemas": definitions,
            "errors": {name: {"code": code, "message": text} for name, (code, text, _) in known.items()},
        },
    }
    return _move_references(document)


def _describe_call(method: str, definitions: dict[str, Schema], errors: dict[str, Any]) -> Schema:
    params, result = CALLS[method]
    described: Schema = {
        "name": method,
        "summary": _SUMMARIES[method],
        "x-direction": "client-to-server",
        "x-since": f"1.{versions.METHODS[method]}",
        "paramStructure": "by-name",
        "params": [] if params is None else _describe_members(definitions[params.__name__]),
        "result": {"name": f"{pascal_case(method)}Result", "schema": {"$ref": f"#/$defs/{result.__name__}"}},
    }
    names = [*(["InvalidParams"] if params else []), *_METHOD_ERRORS.get(method, ("InvalidState",))]
    described["errors"] = [{"$ref": f"#/components/errors/{name}"} for name in names if name in errors]
    return described


def _describe_members(schema: Schema) -> list[Schema]:
    required = schema.get("required", ())
    members = [
        {"name": name, "required": name in required, "schema": part} for name, part in schema["properties"].items()
    ]
    return sorted(members, key=lambda member: not member["required"])  # OpenRPC: the optional ones stand last


def _describe_server_calls(definitions: dict[str, Schema]) -> list[Schema]:
    """Return the notification `event`, which has no result, and the method `request`."""
    found: list[Schema] = []
    for name, envelope in (("event", "Event"), ("request", "Request")):
        kinds = [option["properties"]["type"]["const"] for option in definitions[envelope]["anyOf"]]
        params: list[Schema] = [
            {"name": "type", "required": True, "schema": {"type": "string", "enum": kinds}},
            {"name": "payload", "required": True, "schema": {"type": "object"}},
        ]
        found.append(
            {
                "name": name,
                "summary": _SUMMARIES[name],
                "x-direction": "server-to-client",
                "x-params": {"$ref": f"#/$defs/{envelope}"},
                "paramStructure": "by-name",
                "params": params,
            }
        )
    answers = [name for name in definitions if name.endswith("Answer") and name != "ErrorAnswer"]
    results = [definitions[name]["properties"]["result"] for name in answers]
    found[1]["result"] = {"name": "Answer", "schema": {"anyOf": results}}
    return found


def _move_references(value: Any) -> Any:
    """Return the document with references to where OpenRPC keeps its definitions."""
    if isinstance(value, list):
        return [_move_references(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _move_references(item) for key, item in cast("Schema", value).items()}
    is_reference = isinstance(value, str) and value.startswith("#/$defs/")
    return value.replace("#/$defs/", "#/components/schemas/") if is_reference else value
