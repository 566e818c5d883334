"""D-Mail through the process, with the built-in agent that has the tool (runtime spec 5.3)."""

from __future__ import annotations

import pytest

from tests.support.program.wire_process import Json, Place, read_lines
from tests.support.providers.scripts import call, step


def shown(records: list[Json]) -> list[str]:
    """A context in short: checkpoints as numbers, messages by role."""
    return [f"#{record['id']}" if record["role"] == "_checkpoint" else record["role"] for record in records]


@pytest.mark.spec("R-100")
def test_dmail_returns_the_conversation_to_a_checkpoint(place: Place) -> None:
    (place.work / "a.txt").write_text("nothing of use\n")
    place.script(
        call("c1", "ReadFile", {"path": "a.txt"}),
        step(
            call("c2", "SendDMail", {"message": "a.txt is of no use.", "checkpoint_id": 7}),
            call("c3", "SendDMail", {"message": "a.txt is of no use.", "checkpoint_id": -1}),
            call("c4", "SendDMail", {"message": "a.txt is of no use.", "checkpoint_id": 1}),
            call("c5", "SendDMail", {"message": "a.txt is of no use.", "checkpoint_id": 1}),
        ),
        "text: I know already.",
    )
    with place.wire("--agent", "okabe") as kimi:
        assert kimi.prompt("Look into a.txt.")["result"] == {"status": "finished"}
        assert [step["n"] for step in kimi.payloads("StepBegin")] == [1, 2, 3]
        results = {each["tool_call_id"]: each["return_value"] for each in kimi.payloads("ToolResult")}
        assert [results[key]["is_error"] for key in ("c2", "c3", "c4", "c5")] == [True, True, False, True]
        assert results["c2"]["message"].endswith("There is no checkpoint with the given ID")
        assert results["c3"]["message"].endswith("The checkpoint ID can not be negative")
        assert results["c5"]["message"].endswith("Only one D-Mail can be sent at a time")
        assert kimi.finish() == 0
    session = place.session_dirs()[-1]
    assert shown(read_lines(session / "context_1.jsonl")) == [
        "_system_prompt", "#0", "user", "user", "#1", "user", "assistant", "tool",
        "#2", "user", "assistant", "tool", "tool", "tool", "tool",
    ]  # fmt: skip
    context = place.context()
    assert shown(context) == [
        "_system_prompt", "#0", "user", "user", "#1", "user", "user", "#2", "user", "assistant",
    ]  # fmt: skip
    assert context[2]["content"] == "<system>CHECKPOINT 0</system>"
    assert context[3]["content"] == "Look into a.txt."
    assert context[5]["content"] == "<system>CHECKPOINT 1</system>"
    assert context[6]["content"].startswith("<system>")
    assert context[6]["content"].endswith("D-Mail content:\n\na.txt is of no use.</system>")
    assert context[9]["content"] == "I know already."
    assert not (session / "context_2.jsonl").exists()
