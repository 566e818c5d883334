"""The whole program on its shortest path."""

from __future__ import annotations

from tests.support.program.wire_process import Place, approve


def test_text_turn_emits_the_expected_events(place: Place) -> None:
    place.script("id: m1\nthink: hm\ntext: hello\nusage: input_other=10 output=2")
    with place.wire() as kimi:
        kimi.initialize()
        assert kimi.prompt("hi")["result"] == {"status": "finished"}
        assert kimi.types == ["TurnBegin", "StepBegin", "ContentPart", "ContentPart", "StatusUpdate", "TurnEnd"]
        assert kimi.finish() == 0


def test_a_command_is_run_after_approval(place: Place) -> None:
    place.script(
        'tool_call: {"id":"c1","name":"Shell","arguments":"{\\"command\\":\\"echo out > made.txt; echo hello\\"}"}',
        "text: done",
    )
    with place.wire() as kimi:
        kimi.initialize()
        assert kimi.prompt("go", approve)["result"] == {"status": "finished"}
        result = kimi.payloads("ToolResult")[0]["return_value"]
        assert result["output"] == "hello\n"
        assert (place.work / "made.txt").read_text() == "out\n"
