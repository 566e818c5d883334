"""Lines with tool calls for scripts of the scripted model."""

from __future__ import annotations

import json


def call(call_id: str, name: str, **arguments: object) -> str:
    """Return the line of a tool call."""
    return "tool_call: " + json.dumps({"id": call_id, "name": name, "arguments": json.dumps(arguments)})
