"""Hooks of the client and of the configuration (wire spec 4.5)."""

from __future__ import annotations

import json
import sys

from kimi.interfaces.conformance.ledger import expect, expect_equal
from kimi.interfaces.conformance.model_server import say, tool_call, use
from kimi.interfaces.conformance.peer import Json
from kimi.interfaces.conformance.scenario import Stage, scenario
from kimi.interfaces.conformance.wire.client import Answer, check_status, start_ready

HOOKED = ("HookTriggered", "HookRequest", "HookResolved")
TODO_CALL = tool_call("SetTodoList", {"todos": []}, "c1")


def decide(action: str, reason: str = "") -> Answer:
    """Answer every hook in the same way."""

    def answer(params: Json) -> Json:
        return {"request_id": params["payload"]["id"], "action": action, "reason": reason}

    return answer


@scenario("wire", "W-113 W-114 W-115 W-116")
async def hooks_of_the_client(stage: Stage) -> None:
    """Allow, block, silence and errors; blocked prompts; the end of a turn."""
    peer = await start_ready(stage)
    with stage.check("W-113"):
        await peer.initialize(hooks=[{"id": "mine", "event": "PreToolUse", "timeout": 1}])
        for answer, blocked in ((decide("allow"), False), (decide("block", "not now"), True), (None, False)):
            stage.model.script(use(TODO_CALL), say("ok"))
            mark = peer.mark()
            check_status(await peer.prompt("go", answer))
            kinds = [one for one in peer.types(mark) if one in (*HOOKED, "ToolResult")]
            expect_equal(kinds, [*HOOKED, "ToolResult"], "the events around the hook")
            request = peer.payloads("HookRequest", mark)[0]
            found = (request["subscription_id"], request["event"], request["target"])
            expect_equal(found, ("mine", "PreToolUse", "SetTodoList"), "the request")
            resolved = peer.payloads("HookResolved", mark)[0]["action"]
            expect_equal(resolved, "block" if blocked else "allow", "the action of HookResolved")
            value = peer.payloads("ToolResult", mark)[0]["return_value"]
            expect_equal(value["is_error"], blocked, "`is_error`")
            if blocked:
                expect_equal(value["message"], "not now", "the message of the blocked call")
        stage.model.script(use(TODO_CALL), say("ok"))
        call_id = await peer.call("prompt", {"user_input": "go"})
        request = await peer.until("HookRequest")
        await peer.send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": 1, "message": "x"}})
        check_status(await peer.read_turn(call_id))
        expect_equal(peer.payloads("HookResolved")[-1]["action"], "allow", "the action after an error")
    with stage.check("W-114"):
        await peer.initialize(hooks=[{"id": "p", "event": "UserPromptSubmit", "matcher": "secret"}])
        stage.model.script()
        mark = peer.mark()
        check_status(await peer.prompt("tell the secret", decide("block", "not that")))
        expect_equal(peer.types(mark), ["TurnBegin", *HOOKED, "ContentPart", "TurnEnd"], "the events")
        expect_equal(peer.text(mark), "not that", "the text")
        expect_equal(len(stage.model.requests), 0, "how often the model was asked")
    with stage.check("W-115"):
        await peer.initialize(hooks=[{"id": "s", "event": "Stop"}])
        stage.model.script(say("one"), say("two"), say("never"))
        mark = peer.mark()
        check_status(await peer.prompt("go", decide("block", "once more")))
        active = [one["input_data"]["stop_hook_active"] for one in peer.payloads("HookRequest", mark)]
        expect_equal(active, [False, True], "`stop_hook_active` of the firings")
        expect_equal(peer.text(mark), "onetwo", "the text")
    with stage.check("W-116"):
        await peer.initialize(hooks=[{"id": "b", "event": "UserPromptSubmit", "matcher": "("}])
        stage.model.script()
        mark = peer.mark()
        check_status(await peer.prompt("hi"))
        expect("HookRequest" not in peer.types(mark), "an invalid matcher matched")


_WRITE = "import sys; open('hook.out', 'wb').write(sys.stdin.buffer.read())"
_COMMAND = f'"{sys.executable}" -c "{_WRITE}"'


@scenario("wire", "W-137", config=f'\n[[hooks]]\nevent = "UserPromptSubmit"\ncommand = {json.dumps(_COMMAND)}\n')
async def hooks_of_the_configuration(stage: Stage) -> None:
    """What a command reads from its input."""
    peer = await start_ready(stage)
    with stage.check("W-137"):
        check_status(await peer.prompt("grüße"))
        path = stage.home.work / "hook.out"
        expect(path.exists(), "the command did not run in the work directory")
        text = path.read_bytes().decode("utf-8").rstrip("\n")
        value = json.loads(text)
        expect_equal(text, json.dumps(value, ensure_ascii=False), "the input of the command")
        expect_equal(value["prompt"], "grüße", "the prompt")
