"""What a client is shown of every kind of call that needs approval (tools spec 3, 5.1)."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.mcp.entries import config, raw_entry
from tests.support.program.wire_process import Json, Place, approve
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Recorded, Reply, call_reply, text_reply


def diff(path: str, old: str, new: str) -> Json:
    """The display block of one changed hunk at the beginning of a file."""
    return {
        "type": "diff", "path": path, "old_text": old, "new_text": new,
        "old_start": 1, "new_start": 1, "is_summary": False,
    }  # fmt: skip


@pytest.mark.spec("T-97")
def test_approval_requests_have_the_documented_fields_and_display(place: Place) -> None:
    (place.share / "mcp.json").write_text(config(s=raw_entry(tools=["echo"])))
    (place.work / "a.txt").write_text("one\ntwo\n")
    new, old = str(place.work / "new.txt"), str(place.work / "a.txt")
    calls: list[tuple[str, str, Json]] = [
        ("c1", "Shell", {"command": "echo hi"}),
        ("c2", "Shell", {"command": "sleep 60", "run_in_background": True, "description": "d"}),
        ("c3", "WriteFile", {"path": "new.txt", "content": "x\n"}),
        ("c4", "StrReplaceFile", {"path": "a.txt", "edit": {"old": "two", "new": "three"}}),
        ("c5", "echo", {"text": "ü"}),
    ]
    tasks: list[str] = []

    def reply(request: Recorded) -> Reply:
        answers = {one["tool_call_id"]: str(one) for one in request.json["messages"] if one["role"] == "tool"}
        if not answers:
            return call_reply(*((call_id, name, json.dumps(arguments)) for call_id, name, arguments in calls))
        if "c6" in answers:
            return text_reply("done")
        tasks.append(re.findall(r"task_id: (bash-\w+)", answers["c2"])[0])
        return call_reply(("c6", "TaskStop", json.dumps({"task_id": tasks[0]})))

    with loopback() as provider:
        provider.choose = reply
        place.provider(provider.base_url)
        with place.wire() as kimi:
            kimi.initialize(client={"name": "test", "version": "1"})
            assert kimi.prompt("go", approve)["result"] == {"status": "finished"}
            requests = {request["tool_call_id"]: request for request in kimi.payloads("ApprovalRequest")}
            assert kimi.finish() == 0
    (task,) = tasks
    expected: dict[str, tuple[str, str, str, list[Json]]] = {
        "c1": (
            "Shell", "run command", "Run command `echo hi`",
            [{"type": "shell", "language": "bash", "command": "echo hi"}],
        ),
        "c2": (
            "Shell", "run background command", "Run background command `sleep 60`",
            [{"type": "shell", "language": "bash", "command": "sleep 60"}],
        ),
        "c3": ("WriteFile", "edit file", f"Write file `{new}`", [diff(new, "", "x")]),
        "c4": ("StrReplaceFile", "edit file", f"Edit file `{old}`", [diff(old, "one\ntwo", "one\nthree")]),
        "c5": ("echo", "mcp:echo", "Call MCP tool `echo`.", [{"type": "brief", "text": 's: {"text": "ü"}'}]),
    }  # fmt: skip
    for call_id, (sender, action, description, display) in expected.items():
        request = requests[call_id]
        assert (request["sender"], request["action"]) == (sender, action)
        assert (request["description"], request["display"]) == (description, display)
    stop = requests["c6"]
    assert (stop["sender"], stop["action"]) == ("TaskStop", "stop background task")
    assert stop["description"] == f"Stop background task `{task}`"
    assert all(block["type"] in ("brief", "background_task") for block in stop["display"])
    for request in requests.values():
        assert list(request) == [
            "id", "tool_call_id", "sender", "action", "description", "source_kind", "source_id", "agent_id",
            "subagent_type", "source_description", "display",
        ]  # fmt: skip
        assert request["source_kind"] == "foreground_turn"
        assert request["source_id"]
        assert request["agent_id"] is request["subagent_type"] is request["source_description"] is None
