"""The floor of an editor's turns: the wire floor's work, said in the words of the editors' protocol.

As `floor.py`, a program of its own: hard-coded answers, one blocking socket, one session. It announces a call, asks
for permission where the mode is not `yolo`, runs it, and says what came of it, as `kimi acp` does.

Environment: FLOOR_URL and FLOOR_DIR, as for `floor.py`.
"""

from __future__ import annotations

import json
import os
from typing import Any

from floor import Floor, read_file, shell

_OPTIONS: list[dict[str, str]] = [
    {"optionId": "allow-once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "allow-session", "name": "Allow for this session", "kind": "allow_always"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
]


class EditorFloor(Floor):
    """One session of one editor."""

    def __init__(self) -> None:
        super().__init__()
        self.asks = True
        self.requests = 0

    def serve(self) -> None:
        """Until the end of the input."""
        while line := self.line():
            message = json.loads(line)
            result: dict[str, Any] = {}
            match message["method"]:
                case "initialize":
                    result = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}
                case "session/new":
                    result = {"sessionId": "s"}
                case "session/list":
                    result = {"sessions": []}
                case "session/set_mode":
                    self.asks = message["params"]["modeId"] != "yolo"
                case _:
                    self.turn(message["params"]["prompt"][0]["text"])
                    result = {"stopReason": "end_turn"}
            os.write(1, b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (message["id"], _dumps(result)))

    def event_line(self, envelope: str) -> str:
        """An event of the stream as an update; what an editor is not told is no line."""
        event = json.loads(envelope)
        payload = event["payload"]
        match event["type"]:
            case "ContentPart":
                content = {"type": "text", "text": payload["text"]}
                return _update({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": content})
            case "ToolCall":
                head = {"title": payload["function"]["name"], "kind": "other", "status": "pending"}
                return _update({"sessionUpdate": "tool_call", "toolCallId": payload["id"], **head})
            case _:
                return ""

    def call(self, call_id: str, name: str, text: str) -> None:
        """Run a call, after a question if need be, and say what came of it."""
        arguments = json.loads(text)
        if name == "Shell" and self.asks:
            self.ask_permission(call_id, arguments["command"])
        started = {"status": "in_progress", "rawInput": arguments}
        os.write(1, _update({"sessionUpdate": "tool_call_update", "toolCallId": call_id, **started}).encode())
        output = shell(arguments["command"]) if name == "Shell" else read_file(arguments)
        value: dict[str, Any] = {"is_error": False, "output": output, "message": "", "display": []}
        self.log_line(b'{"type":"ToolResult","payload":%b}' % _dumps({"tool_call_id": call_id, "return_value": value}))
        content = [{"type": "content", "content": {"type": "text", "text": output}}]
        done = {"status": "completed", "content": content}
        os.write(1, _update({"sessionUpdate": "tool_call_update", "toolCallId": call_id, **done}).encode())
        self.store(_dumps({"role": "tool", "content": output, "tool_call_id": call_id}))

    def ask_permission(self, call_id: str, title: str) -> None:
        """Ask, and wait for the answer, whatever it is."""
        params = {"sessionId": "s", "toolCall": {"toolCallId": call_id, "title": title}, "options": _OPTIONS}
        head = b'{"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":' % self.requests
        self.requests += 1
        os.write(1, head + _dumps(params) + b"}\n")
        json.loads(self.line())

    def emit(self, kind: bytes, payload: bytes) -> None:
        """Log an event; the frame of a turn and its steps is not shown in an editor."""
        self.log_line(b'{"type":"%b","payload":%b}' % (kind, payload))


def _dumps(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _update(update: dict[str, Any]) -> str:
    return (
        '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":' + json.dumps(update) + "}}\n"
    )


if __name__ == "__main__":
    EditorFloor().serve()
