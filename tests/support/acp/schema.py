"""A strict check of what an agent sends over the Agent Client Protocol, version 1.

The shapes are the JSON schemas of the protocol library's models without the library's leniency: an unknown key is an
error except below `_meta`, and so is a value that the models would correct silently. Shapes that the library does not
know yet, or no longer knows, are added by hand (acp spec 1.1, 1.10).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeAlias, cast

import acp.schema as models
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from kimi.domain.content.message import JsonObject

Schema: TypeAlias = dict[str, Any]

_UPDATES: dict[str, Any] = {
    "user_message_chunk": models.UserMessageChunk,
    "agent_message_chunk": models.AgentMessageChunk,
    "agent_thought_chunk": models.AgentThoughtChunk,
    "tool_call": models.ToolCallStart,
    "tool_call_update": models.ToolCallProgress,
    "plan": models.AgentPlanUpdate,
    "plan_update": models.AgentPlanContentUpdate,
    "available_commands_update": models.AvailableCommandsUpdate,
    "current_mode_update": models.CurrentModeUpdate,
    "config_option_update": models.ConfigOptionUpdate,
    "session_info_update": models.SessionInfoUpdate,
    "usage_update": models.UsageUpdate,
}
_REQUESTS: dict[str, Any] = {
    "session/request_permission": models.RequestPermissionRequest,
    "fs/read_text_file": models.ReadTextFileRequest,
    "fs/write_text_file": models.WriteTextFileRequest,
    "terminal/create": models.CreateTerminalRequest,
    "terminal/output": models.TerminalOutputRequest,
    "terminal/wait_for_exit": models.WaitForTerminalExitRequest,
    "terminal/kill": models.KillTerminalRequest,
    "terminal/release": models.ReleaseTerminalRequest,
    "elicitation/create": models.CreateElicitationRequest,
}
_RESULTS: dict[str, Any] = {
    "initialize": models.InitializeResponse,
    "authenticate": models.AuthenticateResponse,
    "session/new": models.NewSessionResponse,
    "session/load": models.LoadSessionResponse,
    "session/resume": models.ResumeSessionResponse,
    "session/fork": models.ForkSessionResponse,
    "session/list": models.ListSessionsResponse,
    "session/close": models.CloseSessionResponse,
    "session/delete": models.DeleteSessionResponse,
    "session/set_mode": models.SetSessionModeResponse,
    "session/set_config_option": models.SetSessionConfigOptionResponse,
    "session/prompt": models.PromptResponse,
}
_SESSION_RESULTS = ("session/new", "session/load", "session/resume", "session/fork")

_TEXT: Schema = {"type": "string"}
_META: Schema = {"type": "object"}


def _closed(required: Schema, **optional: Schema) -> Schema:
    """Return the schema of an object with exactly these members."""
    properties = {**required, **optional, "_meta": _META}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_MODELS = _closed(
    {
        "availableModels": {"type": "array", "items": _closed({"modelId": _TEXT, "name": _TEXT}, description=_TEXT)},
        "currentModelId": _TEXT,
    }
)
_COMPACTION = _closed(
    {
        "sessionUpdate": {"const": "compaction_update"},
        "compactionId": _TEXT,
        "status": {"enum": ["in_progress", "completed", "failed", "cancelled"]},
    }
)
_BY_HAND: dict[str, Schema] = {
    "compaction_update": _COMPACTION,
    "session/set_model": _closed({}),
    "_session/steering": _closed(
        {"outcome": {"enum": ["injected", "promptRequired"]}}, reason={"const": "noRunningTurn"}
    ),
    "$/cancel_request": _closed({"requestId": {"type": ["string", "integer"]}}),
    "elicitation/complete": _closed({"elicitationId": _TEXT}),
}
_ERROR: Schema = {
    "type": "object",
    "properties": {"code": {"type": "integer"}, "message": {"type": "string", "minLength": 1}, "data": {}},
    "required": ["code", "message"],
    "additionalProperties": False,
}
_CODES = {-32700, -32600, -32601, -32602, -32603, -32800, -32000, -32002}


class AgentLines:
    """Checks a whole conversation. Call `sent` for each line of the client, `received` for each line of the agent."""

    def __init__(self) -> None:
        self._methods: dict[object, str] = {}

    def sent(self, line: JsonObject) -> None:
        """Record a line of the client; its requests decide the shape of the answers."""
        if "id" in line and isinstance(line.get("method"), str):
            self._methods[line["id"]] = line["method"]

    def received(self, line: JsonObject) -> None:
        """Check a line of the agent. Raises AssertionError."""
        answers = None if "method" in line else self._methods.pop(line.get("id"), None)
        check_agent_message(line, answers=answers)


def check_agent_message(line: JsonObject, *, answers: str | None = None) -> None:
    """Check that an agent may send this notification, request or response. Raises AssertionError with the reason.

    The result of a response is checked only when `answers` names its method.
    """
    assert line.get("jsonrpc") == "2.0", f"no JSON-RPC: {line}"
    if "method" not in line:
        _check_response(line, answers)
        return
    assert set(line) <= {"jsonrpc", "id", "method", "params"}, f"unknown keys: {sorted(line)}"
    method, params = line["method"], cast("Schema", line.get("params") or {})
    if method == "session/update":
        assert "id" not in line, "a notification has no id"
        _validate(_closed({"sessionId": _TEXT, "update": {"type": "object"}}), params)
        check_update(params["update"])
    elif method in ("$/cancel_request", "elicitation/complete"):
        assert "id" not in line, "a notification has no id"
        _validate(_BY_HAND[method], params)
    else:
        assert method in _REQUESTS, f"an agent does not call {method}"
        assert isinstance(line.get("id"), (int, str)), "a request has an id"
        _validate(_strict(method), params)
        _check_places(params)


def check_update(update: JsonObject) -> None:
    """Check an `update` of `session/update`. Raises AssertionError."""
    kind = update.get("sessionUpdate")
    assert kind in _UPDATES or kind in _BY_HAND, f"unknown update: {kind}"
    _validate(_strict(cast("str", kind)), update)
    _check_places(update)
    if kind == "tool_call":
        assert {"kind", "status"} <= update.keys(), "our calls say of which kind they are and how they stand"
    if (title := update.get("title")) is not None and kind in ("tool_call", "tool_call_update"):
        assert re.fullmatch(r"[^\x00-\x1f\x7f]{1,80}", title), f"a bad title: {title!r}"


def check_result(method: str, result: object) -> None:
    """Check the result of `method`. Raises AssertionError."""
    _validate(_strict(method), result)


def _check_response(line: JsonObject, answers: str | None) -> None:
    assert "id" in line, f"neither a method nor an id: {line}"
    assert ("result" in line) != ("error" in line), "a response has a result or an error"
    assert set(line) <= {"jsonrpc", "id", "result", "error"}, f"unknown keys: {sorted(line)}"
    if "error" in line:
        _validate(_ERROR, line["error"])
        assert line["error"]["code"] in _CODES, f"unknown code: {line['error']['code']}"
    elif answers is not None:
        check_result(answers, line["result"])


def _check_places(shape: JsonObject) -> None:
    """Check that every path is absolute."""
    for path in _paths(shape):
        assert os.path.isabs(path) or re.match(r"[A-Za-z]:[\\/]|\\\\", path), f"not absolute: {path}"


def _paths(shape: JsonObject) -> Iterator[str]:
    places = [shape, *(shape.get("locations") or ()), *(shape.get("content") or () if _is_list(shape) else ())]
    if isinstance(call := shape.get("toolCall"), dict):
        yield from _paths(cast("Schema", call))
    yield from (place["path"] for place in places if "path" in place)


def _is_list(shape: JsonObject) -> bool:
    return isinstance(shape.get("content"), list)


def _validate(schema: Schema, value: object) -> None:
    validator: Any = Draft202012Validator(schema)
    errors = [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(value)]
    assert not errors, "; ".join(errors)


@cache
def _strict(name: str) -> Schema:
    """Return the strict schema of an update, of params or of a result."""
    if name in _BY_HAND:
        return _BY_HAND[name]
    model = _UPDATES.get(name) or _REQUESTS.get(name) or _RESULTS[name]
    schema = TypeAdapter[Any](model).json_schema(by_alias=True)
    _tighten(schema, cast("Schema", schema.get("$defs", {})))
    if name in ("tool_call", "tool_call_update"):
        schema["properties"]["name"] = _TEXT
    if name in _SESSION_RESULTS:
        schema["properties"]["models"] = _MODELS
    return schema


def _tighten(schema: Any, definitions: Schema) -> None:
    """Forbid unknown keys everywhere and drop the variants that accept anything."""
    if isinstance(schema, list):
        for item in cast("list[Any]", schema):
            _tighten(item, definitions)
    if not isinstance(schema, dict):
        return
    found = cast("Schema", schema)
    for key in ("anyOf", "oneOf"):
        if isinstance(found.get(key), list):
            found[key] = [choice for choice in found[key] if not _takes_anything(choice, definitions)]
    found.pop("discriminator", None)
    if "properties" in found and found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    for value in list(found.values()):
        _tighten(value, definitions)


def _takes_anything(choice: Schema, definitions: Schema) -> bool:
    name = str(choice.get("$ref", "")).rpartition("/")[2]
    return definitions.get(name, {}).get("additionalProperties") is True
