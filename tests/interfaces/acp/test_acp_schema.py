"""The checker itself: it lets pass what the protocol has, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from kimi.domain.content.message import JsonObject
from tests.support.acp.schema import AgentLines, check_agent_message

TEXT = {"type": "text", "text": "x"}


def update(**shape: Any) -> JsonObject:
    """A line with this update."""
    return {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": shape}}


FINE: list[JsonObject] = [
    update(sessionUpdate="agent_message_chunk", content=TEXT, messageId="m", _meta={"any": 1}),
    update(sessionUpdate="tool_call", toolCallId="c", title="t", kind="read", status="pending", name="Read"),
    update(sessionUpdate="tool_call_update", toolCallId="c", content=[{"type": "terminal", "terminalId": "t"}]),
    update(sessionUpdate="usage_update", used=1, size=2),
    update(sessionUpdate="session_info_update", title="t", updatedAt="2026-11-21T10:00:00+00:00"),
    update(sessionUpdate="compaction_update", compactionId="c", status="completed"),
    update(sessionUpdate="available_commands_update", availableCommands=[{"name": "a", "description": "b"}]),
    {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 3}},
    {"jsonrpc": "2.0", "id": 1, "method": "terminal/release", "params": {"sessionId": "s", "terminalId": "t"}},
    {"jsonrpc": "2.0", "id": "a", "result": {"anything": 1}},
    {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}},
]
WRONG: list[JsonObject] = [
    update(sessionUpdate="agent_message_chunk", content=TEXT, more=1),
    update(sessionUpdate="agent_message_chunk", content={**TEXT, "more": 1}),
    update(sessionUpdate="agent_message_chunk", content={"type": "poem", "text": "x"}),
    update(sessionUpdate="agent_message_chunk"),
    update(sessionUpdate="notice", text="x"),
    update(content=TEXT),
    update(sessionUpdate="tool_call", toolCallId="c", title="t", kind="shell", status="pending"),
    update(sessionUpdate="tool_call", toolCallId="c", title="t", kind="read", status="cancelled"),
    update(sessionUpdate="tool_call", toolCallId="c", title="t"),
    update(sessionUpdate="tool_call", toolCallId="c", title="a\nb", kind="read", status="pending"),
    update(sessionUpdate="tool_call_update", toolCallId="c", title="x" * 81),
    update(sessionUpdate="tool_call_update", toolCallId="c", locations=[{"path": "a.py"}]),
    update(sessionUpdate="tool_call_update", toolCallId="c", locations=[{"path": "/a.py", "line": -1}]),
    update(sessionUpdate="tool_call_update", toolCallId="c", content=[{"type": "diff", "path": "a", "newText": "x"}]),
    update(sessionUpdate="tool_call_update", toolCallId="c", content=[{"type": "content"}]),
    update(sessionUpdate="usage_update", used=-1, size=2),
    update(sessionUpdate="usage_update", used=1),
    update(sessionUpdate="current_mode_update", modeId="plan"),
    update(sessionUpdate="plan", entries=[{"content": "a", "priority": "medium", "status": "done"}]),
    {"jsonrpc": "2.0", "id": 1, **update(sessionUpdate="usage_update", used=1, size=2)},
    {"jsonrpc": "2.0", "method": "terminal/release", "params": {"sessionId": "s", "terminalId": "t"}},
    {"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {}},
    {"jsonrpc": "2.0", "id": 1},
    {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": -32603, "message": "x"}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "x"}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": ""}},
    {"id": 1, "result": {}},
    {"jsonrpc": "2.0", "result": {}},
]


@pytest.mark.parametrize("line", FINE, ids=range(len(FINE)))
def test_valid_lines_are_accepted(line: JsonObject) -> None:
    check_agent_message(line)


@pytest.mark.parametrize("line", WRONG, ids=range(len(WRONG)))
def test_invalid_lines_are_rejected(line: JsonObject) -> None:
    with pytest.raises(AssertionError):
        check_agent_message(line)


def test_results_are_checked_by_their_request_method() -> None:
    lines = AgentLines()
    lines.sent({"id": 1, "method": "session/new", "params": {}})
    lines.sent({"id": 2, "method": "session/prompt", "params": {}})
    legacy = {"currentModelId": "a", "availableModels": [{"modelId": "a", "name": "A"}]}
    lines.received({"jsonrpc": "2.0", "id": 1, "result": {"sessionId": "s", "models": legacy}})
    with pytest.raises(AssertionError, match="stopReason"):
        lines.received({"jsonrpc": "2.0", "id": 2, "result": {}})
