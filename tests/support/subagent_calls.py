"""Tool calls that start subagents, and readers of their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import (
    Event,
    SubagentEvent,
    ToolResult,
)
from kimi.domain.events.request import Answer, ApprovalAnswer, ApprovalRequest, Request
from kimi.domain.tools.tool import BriefBlock, ToolReturnValue
from tests.support.conversations import Run

REPORT = "I looked at everything that matters and wrote down what I found. " * 4


def agent(call_id: str = "p1", /, **arguments: object) -> ToolCall:
    """Return a call of Agent."""
    return starting("Agent", call_id, arguments)


def starting(tool: str, call_id: str, arguments: Mapping[str, object]) -> ToolCall:
    """Return a call that starts a subagent."""
    given = {"description": "look around", "prompt": "look", **arguments}
    return ToolCall(call_id, Function(tool, json.dumps(given)))


def command(call_id: str = "c1", line: str = "ls") -> ToolCall:
    """Return a call of the only tool that subagents have."""
    return ToolCall(call_id, Function("Run", json.dumps({"command": line})))


def always(response: ApprovalAnswer) -> Callable[[Request], Answer | None]:
    """Answer every request in the same way."""
    return lambda request: response


YES = always(ApprovalAnswer("approve"))
DONE = [TextPart("done")]


def result(outcome: Run, call_id: str = "p1") -> ToolReturnValue:
    """Return the result of a call of the parent."""
    (found,) = [one for one in outcome.events if isinstance(one, ToolResult) and one.tool_call_id == call_id]
    return found.return_value


def brief(value: ToolReturnValue) -> str:
    """Return the line for the user."""
    assert isinstance(value.display[0], BriefBlock)
    return value.display[0].text


def failure(outcome: Run, call_id: str = "p1") -> tuple[str, str]:
    """Return message and brief of a failed call."""
    value = result(outcome, call_id)
    assert value.is_error
    return value.message, brief(value)


def facts(value: ToolReturnValue) -> dict[str, str]:
    """Return the lines `key: value` of a successful result, and its summary."""
    assert not value.is_error, value.message
    assert isinstance(value.output, str)
    head, _, summary = value.output.partition("\n\n[summary]\n")
    return dict(line.split(": ", 1) for line in head.split("\n")) | {"summary": summary}


def inner(outcome: Run) -> list[Event]:
    """Return the events inside of the SubagentEvents."""
    return [event.event for event in outcome.events if isinstance(event, SubagentEvent)]


def asked(outcome: Run) -> list[ApprovalRequest]:
    """Return the approval requests at the top level."""
    return [event for event in outcome.events if isinstance(event, ApprovalRequest)]
