"""Scripts of the scripted model, line by line (runtime spec 3.8), and answers of clients to its requests."""

from __future__ import annotations

import json
from typing import Any

from tests.support.program.wire_process import Json, WireProcess

UNTIL_GO = "until [ -e go ]; do sleep 0.05; done"
"""A command that runs until there is a file `go` in the work directory, so that no test depends on its duration."""


def step(*lines: str) -> str:
    """Return the script of one model call."""
    return "\n".join(lines)


def call(call_id: str, name: str, arguments: object = None) -> str:
    """Return a tool call. `arguments` is text that is used unchanged, a value to encode, or None for no arguments."""
    fields: Json = {"id": call_id, "name": name}
    if arguments is not None:
        fields["arguments"] = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return "tool_call: " + json.dumps(fields)


def shell(call_id: str, command: str, **arguments: Any) -> str:
    """Return a call of Shell."""
    return call(call_id, "Shell", {"command": command, **arguments})


def tool(name: str, description: str = "Does it.", **parameters: Any) -> Json:
    """Return an external tool to offer in `initialize`; `parameters` are the members of its schema."""
    return {"name": name, "description": description, "parameters": {"type": "object", **parameters}}


def returned(output: object = "done", **more: Any) -> Json:
    """Return the value that an external tool returns."""
    return {"is_error": False, "output": output, "message": "", "display": [], **more}


def tool_answer(call_id: str, output: object = "done", **more: Any) -> Json:
    """Return the result of the answer to a ToolCallRequest."""
    return {"tool_call_id": call_id, "return_value": returned(output, **more)}


def answer(kimi: WireProcess, request_id: str, **members: object) -> None:
    """Answer a request with these members: `result`, `error`, both or none."""
    kimi.send({"jsonrpc": "2.0", "id": request_id, **members})


def error_of(line: Json) -> tuple[int, str]:
    """Check the shape of an error response; return its code and message."""
    assert "result" not in line
    assert set(line["error"]) == {"code", "message", "data"}
    assert line["error"]["data"] is None
    return line["error"]["code"], line["error"]["message"]


def stage_names(lines: list[Json]) -> list[str]:
    """Return a short name for each line: the type of an event or request, `response ID` for a response."""
    return [line["params"]["type"] if "method" in line else f"response {line['id']}" for line in lines]
