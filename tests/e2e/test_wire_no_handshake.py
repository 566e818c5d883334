"""Clients that never shake hands: everything but what the handshake brings (wire spec 2.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.program.wire_process import Place, approval, approve
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import text_reply
from tests.support.providers.scripts import error_of, shell, step


@pytest.mark.spec("W-53", "W-54")
def test_turns_and_approvals_work_without_handshake(place: Place) -> None:
    place.script(
        step("think: hm", "text: hello", "usage: input_other=10 output=2"),
        shell("c1", "echo made > made.txt"),
        "text: done",
        shell("c2", "echo not > not.txt"),
    )
    with place.wire() as kimi:
        assert kimi.prompt("hi")["result"] == {"status": "finished"}
        assert kimi.types == ["TurnBegin", "StepBegin", "ContentPart", "ContentPart", "StatusUpdate", "TurnEnd"]
        assert kimi.prompt("go", approve)["result"] == {"status": "finished"}
        assert kimi.types[6:] == [
            "TurnBegin", "StepBegin", "ToolCall", "StatusUpdate", "ApprovalRequest", "ApprovalResponse", "ToolResult",
            "StepBegin", "ContentPart", "StatusUpdate", "TurnEnd",
        ]  # fmt: skip
        assert (place.work / "made.txt").exists()
        kimi.prompt("again", lambda params: approval(params, "reject"))
        assert not (place.work / "not.txt").exists()
        assert kimi.payloads("ApprovalResponse")[-1]["response"] == "reject"


def test_cancel_works_without_handshake(place: Place) -> None:
    place.script(shell("c1", "sleep 30"), "text: next")
    with place.wire() as kimi:
        assert error_of(kimi.response(kimi.call("cancel"))) == (-32000, "No agent turn is in progress")
        prompt = kimi.call("prompt", {"user_input": "go"})
        kimi.until("ApprovalRequest")
        assert kimi.response(kimi.call("cancel"))["result"] == {}
        assert kimi.response(prompt)["result"] == {"status": "cancelled"}
        assert kimi.prompt("next")["result"] == {"status": "finished"}


@pytest.mark.spec("W-55")
def test_tools_that_need_the_client_are_not_offered_before_a_handshake(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with loopback(text_reply("hi")) as provider:
        place.provider(provider.base_url)
        with place.wire() as kimi:
            kimi.prompt("hi")
    offered = {tool["function"]["name"] for tool in provider.requests[0].json["tools"]}
    assert "Shell" in offered
    assert not offered & {"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"}
