"""Subagents in the background of the real process: their approvals belong to no turn."""

from __future__ import annotations

import json

import pytest

from tests.support.program.wire_process import Json, Place, approval, eventually
from tests.support.providers.scripts import call, shell, step

REPORT = "text: " + "I ran the command, read what it said and found nothing that is out of order. " * 4
CLIENT = {"name": "test", "version": "1"}
AGENT = call("p1", "Agent", {"description": "look", "prompt": "look", "model": "helper", "run_in_background": True})


def with_helper(place: Place, main: list[str], helper: list[str]) -> Place:
    """The agent plays `main`; a second model, `helper`, has scripts of its own."""
    path = place.root / "helper.json"
    path.write_text(json.dumps(helper), encoding="utf-8")
    place.config = "\n".join(
        [
            "[providers.h]",
            'type = "_scripted_echo"',
            'base_url = ""',
            'api_key = ""',
            f"env = {{KIMI_SCRIPTED_ECHO_SCRIPTS = {json.dumps(str(path))}}}",
            "[models.helper]",
            'provider = "h"',
            'model = "helper"',
            "max_context_size = 100000",
        ]
    )
    return place.script(*main)


def states(place: Place) -> list[str]:
    """The states of the background tasks on disk."""
    (session,) = place.session_dirs()
    return [json.loads(path.read_text())["status"] for path in (session / "tasks").glob("*/runtime.json")]


@pytest.mark.spec("W-50", "W-117", "W-88")
def test_an_approval_between_turns_is_sent_again_after_initialize_and_answered(place: Place) -> None:
    with_helper(place, [AGENT, "text: started", "text: read"], [step(shell("c1", "echo found")), REPORT])
    with place.wire() as kimi:
        kimi.initialize(client=CLIENT)
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        asked = kimi.payloads("ApprovalRequest")
        request = asked[0] if asked else kimi.until("ApprovalRequest")
        assert request["source_kind"] == "background_agent"
        assert request["source_id"].startswith("agent-")
        assert eventually(lambda: states(place) == ["awaiting_approval"])

        before = len(kimi.lines)
        kimi.initialize(client=CLIENT)
        again = kimi.until_request()
        assert again == request
        new: list[Json] = kimi.lines[before:]
        assert [("result" in line, line.get("method")) for line in new] == [(True, None), (False, "request")]

        answer = approval({"payload": request}, "approve")
        kimi.send({"jsonrpc": "2.0", "id": new[-1]["id"], "result": answer})
        assert kimi.until("ApprovalResponse")["request_id"] == request["id"]
        assert eventually(lambda: states(place) == ["completed"])
        assert kimi.types.count("SubagentEvent") == 0
        assert kimi.prompt("and?")["result"] == {"status": "finished"}
        (note,) = kimi.payloads("Notification")
        assert (note["source_id"], note["type"]) == (request["source_id"], "task.completed")
        assert kimi.finish() == 0


@pytest.mark.spec("R-147")
def test_background_agent_ends_with_program_and_is_notified_on_resume(place: Place) -> None:
    with_helper(place, [AGENT, "text: started"], [step(shell("c1", "echo found")), REPORT])
    with place.wire() as kimi:
        kimi.initialize(client=CLIENT)
        kimi.prompt("go")
        if not kimi.payloads("ApprovalRequest"):
            kimi.until("ApprovalRequest")
        assert kimi.finish() == 0
    assert states(place) == ["killed"]
    place.script("text: I see")
    with place.wire("--continue") as kimi:
        kimi.initialize(client=CLIENT)
        kimi.prompt("and?")
        assert [note["type"] for note in kimi.payloads("Notification")] == ["task.killed"]
