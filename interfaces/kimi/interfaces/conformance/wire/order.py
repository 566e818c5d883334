"""The order of events within turns and steps (W-88)."""

from __future__ import annotations

from typing import Final

from kimi.interfaces.conformance.peer import Json, dig

_OUTSIDE: Final = {"StatusUpdate", "ApprovalRequest", "ApprovalResponse", "HookRequest"}
"""What may come between turns."""

_IN_STEP: Final = {"ToolCall", "ToolCallPart", "StepRetry", "StepInterrupted"}


class OrderRules:
    """Follows the messages of the main agent; `violations` says what was out of order."""

    def __init__(self, *, has_turn_end: bool) -> None:
        self._has_turn_end = has_turn_end
        self.violations: list[str] = []
        self.usage_by_step: list[int] = []
        """How many figures of tokens each step had."""
        self._depth = 0
        self._in_step = False
        self._open_calls: dict[str, None] = {}
        self._done_calls: set[str] = set()
        self._approvals: dict[str, str] = {}

    def note(self, params: Json, *, is_request: bool) -> None:
        """Look at an event or request."""
        kind, payload = str(params.get("type")), params["payload"]
        if self._depth == 0 and kind != "TurnBegin" and kind not in _OUTSIDE:
            self._violate(f"{kind} outside of a turn")
        if kind in _IN_STEP and not self._in_step:
            self._violate(f"{kind} outside of a step")
        if is_request:
            self._note_request(kind, payload)
        else:
            self._note_event(kind, payload)

    def note_response(self, message: Json) -> None:
        """Look at a response: that to a prompt comes after the end of its turn."""
        status = dig(message, "result", "status")
        is_replay = dig(message, "result", "events") is not None
        if status in ("finished", "cancelled", "max_steps_reached") and not is_replay and self._depth:
            if self._has_turn_end:
                self._violate("the prompt was answered before TurnEnd")
            else:
                self._end_turn()

    def _note_event(self, kind: str, payload: Json) -> None:
        match kind:
            case "TurnBegin":
                self._begin_turn()
            case "TurnEnd":
                self._end_turn()
            case "StepBegin":
                self._begin_step()
            case "ToolCall":
                self._open_calls[payload["id"]] = None
            case "ToolResult":
                self._note_result(payload["tool_call_id"])
            case "ApprovalResponse":
                self._note_approval(payload["request_id"])
            case "StepRetry":
                self._open_calls.clear()
            case "StatusUpdate" if payload.get("token_usage") is not None and self.usage_by_step:
                self.usage_by_step[-1] += 1
            case _:
                pass

    def _begin_turn(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._in_step = False
            self._open_calls.clear()

    def _end_turn(self) -> None:
        if self._depth == 0:
            self._violate("TurnEnd without TurnBegin")
        if self._open_calls:
            self._violate(f"TurnEnd before the ToolResult of {', '.join(self._open_calls)}")
        self._depth = max(self._depth - 1, 0) if self._has_turn_end else 0
        self._in_step = False

    def _begin_step(self) -> None:
        if self._open_calls:
            self._violate(f"StepBegin before the ToolResult of {', '.join(self._open_calls)}")
        self._in_step = True
        self.usage_by_step.append(0)

    def _note_result(self, call_id: str) -> None:
        if call_id in self._done_calls:
            self._violate(f"two ToolResults of {call_id}")
        elif call_id not in self._open_calls:
            self._violate(f"ToolResult of {call_id} without its ToolCall")
        self._open_calls.pop(call_id, None)
        self._done_calls.add(call_id)

    def _note_approval(self, request_id: str) -> None:
        call_id = self._approvals.get(request_id)
        if call_id is None:
            self._violate("ApprovalResponse without its ApprovalRequest")
        elif call_id in self._done_calls:
            self._violate(f"ApprovalResponse after the ToolResult of {call_id}")

    def _note_request(self, kind: str, payload: Json) -> None:
        if kind == "ApprovalRequest":
            self._approvals[payload["id"]] = payload["tool_call_id"]
        elif kind in ("ToolCallRequest", "QuestionRequest"):
            call_id = payload.get("tool_call_id", payload["id"])
            if call_id not in self._open_calls:
                self._violate(f"{kind} before ToolCall {call_id}")

    def _violate(self, text: str) -> None:
        if text not in self.violations:
            self.violations.append(text)
