"""Lines, message classes and errors of the wire (wire spec 1)."""

from __future__ import annotations

import json

from kimi.interfaces.conformance.ledger import expect, expect_equal
from kimi.interfaces.conformance.model_server import say, stall, tool_call, use
from kimi.interfaces.conformance.peer import Json
from kimi.interfaces.conformance.scenario import Stage, scenario
from kimi.interfaces.conformance.wire.client import approve, check_error, check_status, start, start_ready

SEPARATORS = "a\u2028b\u2029c\u0085d"


@scenario("wire", "W-01 W-05 W-09 W-10 W-11 W-12 W-13 W-14 W-15 W-18 W-19 W-71")
async def messages_of_every_class(stage: Stage) -> None:
    """Broken and unusual messages: each gets its error, and the next one is served."""
    peer = await start_ready(stage)
    with stage.check("W-05"):
        await peer.send_bytes(b"{bad\n")
        answer = await peer.next()
        check_error(answer, -32700, "Invalid JSON format")
        expect_equal(answer["id"], None, "the id")
    with stage.check("W-09"):
        await peer.send_bytes(b'{"jsonrpc":"2.0","id":"n","method":"cancel","params":NaN}\n')
        check_error(await peer.next(), -32700)
    with stage.check("W-10"):
        await peer.send([peer.build_call("cancel"), peer.build_call("cancel")])
        answer = await peer.next()
        check_error(answer, -32600)
        expect_equal(answer["id"], None, "the id")
        expect(await peer.has_nothing_to_say("cancel"), "the array was answered more than once")
    with stage.check("W-11"):
        await peer.send({"jsonrpc": "2.1", "id": "v", "method": "cancel"})
        check_error(await peer.next(), -32600, "Invalid request")
        await peer.send({"id": "w", "method": "cancel"})
        expect_equal((await peer.next())["id"], "w", "the id of the call without jsonrpc")
    with stage.check("W-12"):
        await peer.send({"jsonrpc": "2.0"})
        answer = await peer.next()
        check_error(answer, -32600)
        expect_equal(answer["id"], None, "the id")
    with stage.check("W-13"):
        for call_id in ("x", "", 7, -1):
            await peer.send({"jsonrpc": "2.0", "id": call_id, "method": "cancel"})
            expect_equal(json.dumps((await peer.next())["id"]), json.dumps(call_id), "the id")
        for wrong in (1.5, {"a": 1}):
            await peer.send({"jsonrpc": "2.0", "id": wrong, "method": "cancel"})
            check_error(await peer.next(), -32600)
    with stage.check("W-14"):
        check_error(await peer.request("nope"), -32601, "Unexpected method received: nope")
        await peer.send({"jsonrpc": "2.0", "method": "nope"})
        expect(await peer.has_nothing_to_say("cancel"), "a notification was answered")
    with stage.check("W-15"):
        params: Json = {"type": "TurnEnd", "payload": {}}
        check_error(await peer.request("event", params), -32601)
    with stage.check("W-18"):
        parts: list[Json] = [{"type": "text", "text": "hi", "foreign": 1}]
        call: Json = {**peer.build_call("prompt", {"user_input": parts, "foreign": {}}), "foreign": []}
        await peer.send(call)
        check_status(await peer.read_turn(call["id"]))
    with stage.check("W-71"):
        await peer.send({**call, "params": {"user_input": "again"}})
        check_status(await peer.read_turn(call["id"]))


@scenario("wire", "W-03 W-06 W-07 W-08 W-58 W-59 W-60")
async def texts_of_every_kind(stage: Stage) -> None:
    """Characters that break readers, and inputs of every shape."""
    peer = await start_ready(stage)
    with stage.check("W-03"):
        await peer.send_bytes(b"\n  \n\r\n")
        expect(await peer.has_nothing_to_say("cancel"), "a blank line was answered")
    with stage.check("W-06"):
        stage.model.script(say(SEPARATORS))
        check_status(await peer.prompt(SEPARATORS))
        expect(SEPARATORS in peer.text(), "the text of the model did not arrive whole")
        raw = b"".join(peer.raw).decode("utf-8")
        expect(not any(one in raw for one in "\u2028\u2029\u0085"), "a separator of lines is written raw")
    with stage.check("W-07"):
        await peer.send_bytes(b'{"jsonrpc":"2.0","id":"s","method":"prompt","params":{"user_input":"a\\ud800b"}}\n')
        expect_equal((await peer.until("TurnBegin"))["params"]["payload"]["user_input"], "a\ufffdb", "the input")
        check_status(await peer.read_turn("s"))
    with stage.check("W-08"):
        await peer.send_bytes(b'{"jsonrpc":"2.0","id":"u","method":"prompt","params":{"user_input":"a\xffb"}}\n')
        check_status(await peer.read_turn("u"))
    with stage.check("W-58"):
        mark = peer.mark()
        check_status(await peer.prompt(" two\nlines "))
        await peer.prompt([{"type": "text", "text": "t"}, {"type": "think", "think": "x"}])
        inputs = [one["user_input"] for one in peer.payloads("TurnBegin", mark)]
        expect_equal(inputs[0], " two\nlines ", "the input of TurnBegin")
        expect_equal(inputs[1][0], {"type": "text", "text": "t"}, "the first part")
        expect_equal(inputs[1][1], {"type": "think", "think": "x", "encrypted": None}, "the second part")
    with stage.check("W-59"):
        check_status(await peer.prompt(""))
        check_status(await peer.prompt([]))
    with stage.check("W-60"):
        for params in ({}, {"user_input": 7}, {"user_input": [{"type": "text"}]}, {"user_input": [{"type": "x"}]}):
            check_error(await peer.request("prompt", params), -32602, "Invalid parameters for method `prompt`")
        check_status(await peer.prompt("still there"))


@scenario("wire", "W-16 W-20 W-24 W-77")
async def messages_without_a_pause(stage: Stage) -> None:
    """Many requests at once, notifications, and a cancel right after its prompt."""
    first = await start_ready(stage)
    with stage.check("W-24"):
        calls = [first.build_call("cancel") for _ in range(200)]
        await first.send(*calls)
        answers = [(await first.next())["id"] for _ in calls]
        expect_equal(answers, [call["id"] for call in calls], "the order of the answers")
    with stage.check("W-16"):
        await first.send({"jsonrpc": "2.0", "method": "prompt", "params": {"user_input": "x"}})
        expect(await first.has_nothing_to_say("cancel"), "a prompt without an id started something")
        stage.model.script(stall("first"))
        call_id = await first.call("prompt", {"user_input": "go"})
        await first.until("ContentPart")
        await first.send({"jsonrpc": "2.0", "method": "cancel"})
        check_status(await first.read_turn(call_id), "cancelled")
    with stage.check("W-20"):
        stage.model.script(use(tool_call("Shell", {"command": "echo out; echo err >&2"}, "c1")), say("done"))
        check_status(await first.prompt("run", approve))
        expect_equal([line for line in first.raw if not line.startswith(b"{")], [], "foreign lines on stdout")
    second = await start(stage)
    with stage.check("W-77"):
        calls = [
            second.build_call("initialize", {"protocol_version": "1.10"}),
            second.build_call("prompt", {"user_input": "x"}),
            second.build_call("cancel"),
        ]
        await second.send(*calls)
        check_status(await second.read_turn(calls[1]["id"]), "cancelled")


@scenario("wire", "W-02 W-04 W-23 W-25", needs_process=True)
async def the_stream_of_a_process(stage: Stage) -> None:
    """The start and the end of the input."""
    first = await start(stage)
    with stage.check("W-04", "W-02"):
        await first.send_bytes(b"\xef\xbb\xbf" + json.dumps(first.build_call("cancel")).encode() + b"\r\n")
        check_error(await first.next(), -32000)
    with stage.check("W-25"):
        expect_equal(await first.finish(), 0, "the exit status")
    second = await start(stage)
    with stage.check("W-23"):
        await second.send_bytes(b'{"jsonrpc":"2.0","id":"last","method":"cancel"}')
        await second.connection.end_input()
        expect("last" in [one.get("id") for one in await second.rest()], "the last line was not answered")
        await second.wait()
