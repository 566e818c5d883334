"""What the client of `kimi demo` shows of each event, and how it answers each request."""

from __future__ import annotations

import json
from difflib import unified_diff
from typing import Any

from kimi.interfaces.demo.client import DemoFailed, Json
from kimi.interfaces.demo.screen import Screen, Style
from kimi.interfaces.demo.story import EXTERNAL_RESULT, REFUSAL


class View:
    """One client's eyes and hands. `seen` keeps the type of every event and request, in order."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.seen: list[str] = []

    def take(self, kind: str, payload: Json) -> Json | None:
        """Show an event; show and answer a request (wire spec 4). What is not of interest here is left out."""
        self.seen.append(kind)
        match kind:
            case "ContentPart":
                self._part(payload)
            case "ToolCall":
                self._tool_call(payload["function"])
            case "ToolResult":
                self._tool_result(payload["return_value"])
            case "StatusUpdate":
                self._status(payload)
            case "ApprovalRequest":
                return self._approval(payload)
            case "ToolCallRequest":
                return self._external_call(payload)
            case "StepInterrupted":
                self._screen.line("  (the step was interrupted)", "faint")
            case _:
                pass
        return None

    def _part(self, payload: Json) -> None:
        if payload["type"] == "think":
            self._screen.piece(payload["think"], "faint", "  thinking: ")
        elif payload["type"] == "text":
            self._screen.piece(payload["text"], "plain", "  kimi: ")

    def _tool_call(self, function: Json) -> None:
        self._screen.line(f"  calls {function['name']} {function['arguments']}", "tool")

    def _status(self, payload: Json) -> None:
        if payload["context_tokens"] is not None:
            self._screen.line(
                f"  ({payload['context_tokens']} of {payload['max_context_tokens']} tokens of context in use)", "faint"
            )

    def _tool_result(self, value: Json) -> None:
        text = _brief(value) or value["message"] or _text(value["output"])
        self._screen.line(f"  {'no result' if value['is_error'] else 'result'}: {text}", "tool")

    def _approval(self, payload: Json) -> Json:
        """The user lets files be edited and commands not: one answer of each kind."""
        self._screen.line(f"  asks you: {payload['description']}?", "ask")
        for block in payload["display"]:
            if block["type"] == "diff":
                self._diff(block)
        if payload["sender"] == "Shell":
            self._screen.line(f"  you: no - {REFUSAL}", "user")
            return {"request_id": payload["id"], "response": "reject", "feedback": REFUSAL}
        self._screen.line("  you: yes, go ahead", "user")
        return {"request_id": payload["id"], "response": "approve", "feedback": ""}

    def _diff(self, block: Json) -> None:
        old, new = block["old_text"].splitlines(), block["new_text"].splitlines()
        _, _, *lines = unified_diff(old, new, lineterm="")
        styles: dict[str, Style] = {"+": "added", "-": "removed"}
        for line in lines:
            self._screen.line(f"    {line}", styles.get(line[:1], "faint"))

    def _external_call(self, payload: Json) -> Json:
        """The tool that this client brought along: its result is the client's business alone."""
        arguments: Any = json.loads(payload["arguments"])
        self._screen.line(f"  your own tool {payload['name']} is asked about {arguments['branch']!r}", "ask")
        self._screen.line(f"  it answers: {EXTERNAL_RESULT}", "user")
        value: Json = {"is_error": False, "output": EXTERNAL_RESULT, "message": "", "display": []}
        return {"tool_call_id": payload["id"], "return_value": value}


def _brief(value: Json) -> str:
    return next((block["text"] for block in value["display"] if block["type"] == "brief"), "")


def _text(output: Any) -> str:
    return output if isinstance(output, str) else " ".join(part.get("text", "") for part in output)


def check(condition: bool, what: str) -> None:
    """Raise DemoFailed unless `condition` holds: the demo claims nothing that did not happen."""
    if not condition:
        raise DemoFailed(f"The demo did not go as planned: {what}.")
