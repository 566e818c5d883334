"""The scripted model through the process (runtime spec 3.8)."""

from __future__ import annotations

import pytest

from tests.support.program.wire_process import Place
from tests.support.providers.scripts import call


@pytest.mark.spec("R-89")
def test_every_model_call_uses_up_a_script_retries_and_compaction_too(place: Place) -> None:
    place.script(
        "error: 429 slow down",
        "text: after a retry",
        "text: the second answer",
        "text: what was said",
    )
    with place.wire() as kimi:
        kimi.prompt("one")
        assert kimi.payloads("ContentPart")[-1]["text"] == "after a retry"
        kimi.prompt("two")
        assert kimi.prompt("/compact")["result"] == {"status": "finished"}
        assert "what was said" in str(place.context()[2])
        error = kimi.prompt("three")["error"]
        assert error == {"code": -32003, "message": "ScriptedEchoChatProvider exhausted at turn 5.", "data": None}


HELPER = """
version: 1
agent:
  extend: default
  name: helper
  tools: ["SetTodoList"]
"""
AGENT = """
version: 1
agent:
  extend: default
  subagents:
    helper: {path: ./helper.yaml, description: "Keeps a list"}
"""


@pytest.mark.spec("T-84")
def test_the_todo_list_is_kept_shown_cleared_and_separate_for_a_subagent(place: Place) -> None:
    (place.root / "helper.yaml").write_text(HELPER)
    agent = place.root / "agent.yaml"
    agent.write_text(AGENT)
    todos = [{"title": "look", "status": "done"}, {"title": "write", "status": "in_progress"}]
    place.script(
        call("c1", "SetTodoList", {"todos": todos}),
        call("c2", "Agent", {"description": "try", "prompt": "look at your list", "subagent_type": "helper"}),
        call("s1", "SetTodoList", {}),
        call("s2", "SetTodoList", {"todos": [{"title": "mine", "status": "pending"}]}),
        "text: " + "The list of the subagent is a list of its own, and it was empty when it was asked for. " * 3,
        "text: ok",
    )
    with place.wire("--yolo", "--agent-file", str(agent)) as kimi:
        kimi.prompt("go")
        assert kimi.payloads("ToolResult")[0]["return_value"] == {
            "is_error": False,
            "output": "Todo list updated",
            "message": "Todo list updated",
            "display": [{"type": "todo", "items": todos}],
            "extras": None,
        }
        inner = [event["event"] for event in kimi.payloads("SubagentEvent")]
        shown = [event["payload"]["return_value"]["output"] for event in inner if event["type"] == "ToolResult"]
        assert shown == ["Todo list is empty.", "Todo list updated"]
        session = place.session_dirs()[-1].name
        assert kimi.finish() == 0
    calls = [
        call("c3", "SetTodoList", {}),
        call("c4", "SetTodoList", {"todos": []}),
        call("c5", "SetTodoList"),
    ]
    place.script(*calls, "text: ok")
    with place.wire("--session", session) as kimi:
        kimi.prompt("go on")
        outputs = [result["return_value"]["output"] for result in kimi.payloads("ToolResult")]
        assert outputs == [
            "Current todo list:\n- [done] look\n- [in_progress] write",
            "Todo list updated",
            "Todo list is empty.",
        ]
