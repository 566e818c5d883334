"""The floor of `session/load`: what an editor needs of a stored session, and nothing else. Standard library only.

Its line of talk is that of `kimi acp`. A record is read once; a call becomes one update when its result comes, text one
update for each record. No checks, no ids that a live client has seen. Environment: FLOOR_DIR (where the session is).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
BLOCK = 65_536
CHUNKS = {"text": "agent_message_chunk", "think": "agent_thought_chunk"}


def serve() -> None:
    """Until the end of the input."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        params = message["params"]
        if message["method"] == "session/load":
            load(params["sessionId"])
        result = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
        write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n")


def load(session_id: str) -> None:
    """The stored session as updates, in blocks."""
    block = bytearray()
    head = '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"' + session_id + '","update":'
    for update in updates():
        block += (head + json.dumps(update, separators=(",", ":")) + "}}\n").encode()
        if len(block) > BLOCK:
            write(block)
            block.clear()
    write(block)


def updates() -> Iterator[Json]:
    """The update of each record that has one."""
    calls: dict[str, Json] = {}
    with open(os.path.join(os.environ["FLOOR_DIR"], "wire.jsonl"), "rb") as log:
        for line in log:
            message = json.loads(line).get("message")
            if message is None:
                continue
            payload = message["payload"]
            match message["type"]:
                case "TurnBegin":
                    yield chunk("user_message_chunk", payload["user_input"])
                case "ContentPart":
                    yield chunk(CHUNKS[payload["type"]], payload[payload["type"]])
                case "ToolCall":
                    calls[payload["id"]] = payload["function"]
                case "ToolResult":
                    yield call(payload, calls.pop(payload["tool_call_id"]))
                case _:
                    pass


def chunk(kind: str, text: str) -> Json:
    """A text of the user or of the agent."""
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def call(payload: Json, function: Json) -> Json:
    """A call in its last state."""
    value = payload["return_value"]
    return {
        "sessionUpdate": "tool_call", "toolCallId": payload["tool_call_id"], "title": function["name"],
        "status": "failed" if value["is_error"] else "completed", "rawInput": json.loads(function["arguments"]),
        "content": [{"type": "content", "content": {"type": "text", "text": value["output"]}}],
    }  # fmt: skip


def write(data: bytes | bytearray) -> None:
    """Write all of it."""
    view = memoryview(bytes(data))
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    serve()
