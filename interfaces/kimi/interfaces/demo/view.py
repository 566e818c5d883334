"""How the client of `kimi demo` shows each event and answers each request."""

from __future__ import annotations

import json
from difflib import unified_diff
from typing import Any

from kimi.interfaces.demo.client import DemoFailed, Json
from kimi.interfaces.demo.screen import DemoScreen, Style
from kimi.interfaces.demo.story import EXTERNAL_RESULT, REFUSAL


class DemoView:
    """Shows events and answers requests for one client. `seen` keeps the type of each, in order."""

    def __init__(self, screen: DemoScreen) -> None:
        self._screen = screen
        self.seen: list[str] = []

    def handle_message(self, kind: str, payload: Json) -> Json | None:
        """Show an event; show and answer a request (wire spec 4). Other types are left out."""
        self.seen.append(kind)
        match kind:
            case "ContentPart":
                self._show_part(payload)
            case "ToolCall":
                self._show_tool_call(payload["function"])
            case "ToolResult":
                self._show_tool_result(payload["return_value"])
            case "StatusUpdate":
                self._show_status(payload)
            case "ApprovalRequest":
                return self._answer_approval(payload)
            case "ToolCallRequest":
                return self._answer_external_call(payload)
            case "StepInterrupted":
                self._screen.write_line("  (the step was interrupted)", "faint")
            case _:
                pass
        return None

    def _show_part(self, payload: Json) -> None:
        if payload["type"] == "think":
            self._screen.write_piece(payload["think"], "faint", "  thinking: ")
        elif payload["type"] == "text":
            self._screen.write_piece(payload["text"], "plain", "  kimi: ")

    def _show_tool_call(self, function: Json) -> None:
        self._screen.write_line(f"  calls {function['name']} {function['arguments']}", "tool")

    def _show_status(self, payload: Json) -> None:
        if payload["context_tokens"] is not None:
            self._screen.write_line(
                f"  ({payload['context_tokens']} of {payload['max_context_tokens']} tokens of context in use)", "faint"
            )

    def _show_tool_result(self, value: Json) -> None:
        text = _find_brief(value) or value["message"] or _join_output(value["output"])
        self._screen.write_line(f"  {'no result' if value['is_error'] else 'result'}: {text}", "tool")

    def _answer_approval(self, payload: Json) -> Json:
        """Approve edits of files and reject commands, so that both answers are shown."""
        self._screen.write_line(f"  asks you: {payload['description']}?", "ask")
        for block in payload["display"]:
            if block["type"] == "diff":
                self._show_diff(block)
        if payload["sender"] == "Shell":
            self._screen.write_line(f"  you: no - {REFUSAL}", "user")
            return {"request_id": payload["id"], "response": "reject", "feedback": REFUSAL}
        self._screen.write_line("  you: yes, go ahead", "user")
        return {"request_id": payload["id"], "response": "approve", "feedback": ""}

    def _show_diff(self, block: Json) -> None:
        old, new = block["old_text"].splitlines(), block["new_text"].splitlines()
        _, _, *lines = unified_diff(old, new, lineterm="")
        styles: dict[str, Style] = {"+": "added", "-": "removed"}
        for line in lines:
            self._screen.write_line(f"    {line}", styles.get(line[:1], "faint"))

    def _answer_external_call(self, payload: Json) -> Json:
        """Run the external tool: its result is the client's own."""
        arguments: Any = json.loads(payload["arguments"])
        self._screen.write_line(f"  your own tool {payload['name']} is asked about {arguments['branch']!r}", "ask")
        self._screen.write_line(f"  it answers: {EXTERNAL_RESULT}", "user")
        value: Json = {"is_error": False, "output": EXTERNAL_RESULT, "message": "", "display": []}
        return {"tool_call_id": payload["id"], "return_value": value}


def _find_brief(value: Json) -> str:
    return next((block["text"] for block in value["display"] if block["type"] == "brief"), "")


def _join_output(output: Any) -> str:
    return output if isinstance(output, str) else " ".join(part.get("text", "") for part in output)


def check(condition: bool, what: str) -> None:
    """Raise DemoFailed unless `condition` holds, so that the demo claims nothing that did not happen."""
    if not condition:
        raise DemoFailed(f"The demo did not go as planned: {what}.")
