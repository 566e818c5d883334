"""The agent loop through the process: what runtime spec 3 and 5 promise of models and steps."""

from __future__ import annotations

import json

import pytest

from tests.support.program.wire_process import Place, approve
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import call_reply, error_reply, text_reply
from tests.support.providers.scripts import call, shell, step, tool, tool_answer
from tests.support.providers.strict import sent


@pytest.mark.spec("R-93")
def test_events_have_the_documented_order_for_each_turn_kind(place: Place) -> None:
    place.script(
        step("text: plain", "usage: input_other=1 output=1"),
        step("text: one", shell("c1", "true")),
        "text: end",
        step(call("c2", "ReadFile", {"path": "a"}), call("c3", "ReadFile", {"path": "b"})),
        "text: end",
        "error: 400 no",
        step(shell("c4", "sleep 60")),
    )
    last = ["StepBegin", "ContentPart", "StatusUpdate", "TurnEnd"]
    asked = ["ApprovalRequest", "ApprovalResponse", "ToolResult"]
    with place.wire() as kimi:
        kimi.initialize()

        def turn() -> list[str]:
            before = len(kimi.types)
            kimi.prompt("go", approve)
            return kimi.types[before:]

        assert turn() == ["TurnBegin", *last]
        assert turn() == ["TurnBegin", "StepBegin", "ContentPart", "ToolCall", "StatusUpdate", *asked, *last]
        results = ["ToolResult", "ToolResult"]
        assert turn() == ["TurnBegin", "StepBegin", "ToolCall", "ToolCall", "StatusUpdate", *results, *last]
        assert turn() == ["TurnBegin", "StepBegin", "StepInterrupted", "TurnEnd"]
        before = len(kimi.types)
        prompt = kimi.call("prompt", {"user_input": "go"})
        request = kimi.until("ApprovalRequest")
        kimi.send({"id": request["id"], "result": approve({"payload": request})})
        kimi.until("ApprovalResponse")
        kimi.call("cancel")
        assert kimi.response(prompt)["result"] == {"status": "cancelled"}
        head = ["TurnBegin", "StepBegin", "ToolCall", "StatusUpdate"]
        assert kimi.types[before:] == [*head, *asked, "StepInterrupted", "TurnEnd"]


@pytest.mark.spec("T-15")
def test_image_result_becomes_placeholder_for_text_only_model(place: Place) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "id": None}}
    requested: list[object] = []
    for capabilities in ((), ("image_in",)):
        place.capabilities = capabilities
        replies = (call_reply(("c1", "shot", "{}")), text_reply("I see"))
        with loopback(*replies) as server:
            place.provider(server.base_url)
            with place.wire() as kimi:
                kimi.initialize(external_tools=[tool("shot")])
                outcome = kimi.prompt("look", lambda params: tool_answer(params["payload"]["id"], [image]))
                assert outcome["result"] == {"status": "finished"}
                shown = kimi.payloads("ToolResult")[0]["return_value"]["output"]
                assert shown == [image]  # the event is unchanged
            requested.append(sent(server)[-1]["content"])
    blind, sighted = (json.dumps(content) for content in requested)
    assert "[image omitted: the current model cannot read images]" in blind
    assert "data:image/png" not in blind
    assert "data:image/png" in sighted


@pytest.mark.spec("R-82")
@pytest.mark.parametrize("status", [408, 409, 529])
def test_timeouts_conflicts_and_overload_are_tried_again(place: Place, status: int) -> None:
    with loopback(error_reply(status, "busy"), text_reply("now")) as server:
        place.provider(server.base_url)
        with place.wire() as kimi:
            assert kimi.prompt("go")["result"] == {"status": "finished"}
            assert kimi.payloads("StepRetry")[0]["status_code"] == status
            assert len(server.requests) == 2


@pytest.mark.spec("R-75")
@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        (None, "", None),
        ("KIMI_MODEL_MAX_COMPLETION_TOKENS", "500", 500),
        ("KIMI_MODEL_MAX_TOKENS", "600", 600),
        ("KIMI_MODEL_MAX_COMPLETION_TOKENS", "0", "absent"),
        ("KIMI_MODEL_MAX_COMPLETION_TOKENS", "many", None),
    ],
)
def test_completion_cap_comes_from_variables_or_the_window(
    place: Place, variable: str | None, value: str, expected: object
) -> None:
    if variable:
        place.environ[variable] = value
    place.context_size = 200_000
    with loopback(text_reply("ok")) as server:
        place.provider(server.base_url, "kimi")
        with place.wire() as kimi:
            assert kimi.prompt("go")["result"] == {"status": "finished"}
        body = server.requests[0].json
        if expected is None:  # the window less what is in use, with 1024 tokens to spare
            assert 150_000 < body["max_completion_tokens"] < 200_000 - 1024
        else:
            assert body.get("max_completion_tokens", "absent") == expected


@pytest.mark.spec("R-90")
def test_the_trace_of_the_scripted_model_goes_to_the_log(place: Place) -> None:
    place.environ["KIMI_SCRIPTED_ECHO_TRACE"] = "1"
    place.script("text: traced")
    with place.wire() as kimi:
        kimi.prompt("go")
        assert kimi.finish() == 0
        assert b"SCRIPTED_ECHO" not in b"".join(kimi.raw)
    log = (place.share / "logs" / "kimi.log").read_text(encoding="utf-8")
    assert 'SCRIPTED_ECHO TURN 1: "text: traced"' in log


@pytest.mark.spec("W-82")
def test_unsupported_steer_is_the_error_of_the_prompt(place: Place) -> None:
    place.script(shell("c1", "true"), "text: again")
    image = [{"type": "image_url", "image_url": {"url": "https://example.test/a.png"}}]
    with place.wire() as kimi:
        prompt = kimi.call("prompt", {"user_input": "go"})
        request = kimi.until("ApprovalRequest")
        assert kimi.response(kimi.call("steer", {"user_input": image}))["result"] == {"status": "steered"}
        kimi.send({"id": request["id"], "result": approve({"payload": request})})
        error = kimi.response(prompt)["error"]
        message = "LLM model 'scripted_echo' does not support required capability: image_in."
        assert (error["code"], error["message"]) == (-32002, message)
        assert kimi.prompt("again")["result"] == {"status": "finished"}


@pytest.mark.spec("W-56")
def test_without_a_handshake_replay_plan_mode_and_cancel_work(place: Place) -> None:
    place.script("text: hi", shell("c1", "sleep 60"))
    with place.wire() as kimi:
        kimi.prompt("hi")
        assert kimi.response(kimi.call("replay"))["result"]["events"] == 5
        mode = kimi.response(kimi.call("set_plan_mode", {"enabled": False}))
        assert mode["result"] == {"status": "ok", "plan_mode": False}
        prompt = kimi.call("prompt", {"user_input": "go"})
        kimi.until("ApprovalRequest")
        assert kimi.response(kimi.call("cancel"))["result"] == {}
        assert kimi.response(prompt)["result"] == {"status": "cancelled"}
