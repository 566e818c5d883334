"""Prompts, their content, their end, and cancelling (acp spec 1.9, 1.11, 3.11, 5.1)."""

from __future__ import annotations

import json
import sys
import time

from kimi.interfaces.conformance.acp.client import (
    AcpPeer,
    check_error,
    check_stop,
    choose,
    start_ready,
    stay_silent,
    text_block,
)
from kimi.interfaces.conformance.acp.sessions import PICTURE
from kimi.interfaces.conformance.ledger import expect, expect_equal
from kimi.interfaces.conformance.model_server import Reply, fail, say, stall, tool_call, use
from kimi.interfaces.conformance.peer import Json, dig
from kimi.interfaces.conformance.scenario import Stage, scenario
from kimi.interfaces.conformance.wire.prompts import is_gone, read_pid

DONE = {"completed", "failed"}


@scenario("acp", "A-55 A-56 A-57 A-58 A-59 A-60 A-61 A-62 A-63 A-64 A-112")
async def outcomes_of_prompts(stage: Stage) -> None:
    """Text, content of every kind, the ends of a turn, errors of the provider."""
    peer = await start_ready(stage)
    session = await peer.open_session()
    with stage.check("A-55", "A-56"):
        stage.model.script(Reply(("a", "b", "c"), think=("hm",), calls=(TODO_CALL,)), say("d"))
        response = await peer.prompt(session, "go")
        check_stop(response)
        expect_equal(peer.text(), "abcd", "the text")
        expect_equal(peer.received[-1], response, "the last message of the turn")
        chunks = [one for one in peer.updates() if one["sessionUpdate"].endswith("chunk")]
        ids = [(one["content"]["text"], one.get("messageId")) for one in chunks]
        by_text = dict(ids)
        expect(len({by_text.get(key) for key in ("hm", chunks[1]["content"]["text"], "d")}) == 3, f"messageIds: {ids}")
    with stage.check("A-63"):
        usage: Json = dig(response, "result", "usage") or {}
        expect(usage.get("inputTokens", 0) > 0 and usage.get("outputTokens", 0) > 0, f"the usage is {usage}")
        for update in peer.of_kind("usage_update"):
            expect(0 <= update["used"] <= update["size"], f"usage_update is {update}")
        expect(peer.of_kind("usage_update"), "there is no usage_update")
    with stage.check("A-64"):
        titles = [one.get("title") for one in peer.of_kind("session_info_update")]
        if not titles:
            titles = [(await peer.until_update("session_info_update")).get("title")]
        expect(any(titles), "no title is told")
    with stage.check("A-57"):
        stage.model.script()
        blocks: list[Json] = [
            {"type": "resource_link", "uri": "file:///tmp/link.txt", "name": "link.txt"},
            {"type": "resource", "resource": {"uri": "file:///tmp/text.txt", "text": "embedded words"}},
            {"type": "resource", "resource": {"uri": "file:///tmp/b.bin", "blob": "AAAA", "mimeType": "application/x"}},
        ]
        check_stop(await peer.prompt(session, blocks))
        sent = json.dumps(stage.model.requests[-1]["messages"])
        for word in ("link.txt", "embedded words", "text.txt", "b.bin"):
            expect(word in sent, f"{word!r} did not reach the model")
    with stage.check("A-58"):
        check_error(await peer.prompt(session, [PICTURE]), -32602)
        stage.model.script()
        check_stop(await peer.prompt(session, "hi"))
        expect("image" not in json.dumps(stage.model.requests[-1]["messages"]), "the refused picture was recorded")
    with stage.check("A-59"):
        for prompt in ([{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}], [{"type": "hologram"}], []):
            check_error(await peer.prompt(session, prompt), -32602)
    with stage.check("A-60"):
        stage.model.script(Reply(("cut",), finish="length"))
        check_stop(await peer.prompt(session, "long"), "max_tokens")
        stage.model.script(Reply(("no",), finish="content_filter"))
        check_stop(await peer.prompt(session, "something bad"), "refusal")
        stage.model.script()
        check_stop(await peer.prompt(session, "good"))
        expect("something bad" not in json.dumps(stage.model.requests[-1]["messages"]), "the refused prompt is kept")
    with stage.check("A-61"):
        stage.model.script(*[fail(503, "busy")] * 3)
        error = check_error(await peer.prompt(session, "hi"), -32603)
        expect(error["message"] and "Traceback" not in json.dumps(error), "the message cannot be read")
        check_stop(await peer.prompt(session, "again"))
    with stage.check("A-62"):
        stage.model.script(fail(401, "no key"))
        check_error(await peer.prompt(session, "hi"), -32000)


TODO_CALL = tool_call("SetTodoList", {"todos": [{"title": "one", "status": "pending"}]}, "t1")


@scenario("acp", "A-60", config="[loop_control]\nmax_steps_per_turn = 1\n")
async def the_limit_of_steps(stage: Stage) -> None:
    """A turn that uses up its steps."""
    peer = await start_ready(stage)
    session = await peer.open_session()
    with stage.check("A-60"):
        stage.model.script(use(TODO_CALL), say("never"))
        check_stop(await peer.prompt(session, "go"), "max_turn_requests")


@scenario("acp", "A-58", capabilities=("image_in",))
async def a_picture(stage: Stage) -> None:
    """A picture for a model that sees."""
    peer = await start_ready(stage)
    session = await peer.open_session()
    with stage.check("A-58"):
        check_stop(await peer.prompt(session, [text_block("see"), PICTURE]))
        expect(PICTURE["data"] in json.dumps(stage.model.requests[-1]["messages"]), "the picture did not arrive")


@scenario("acp", "A-65 A-66 A-67 A-70 A-71 A-72 A-73 A-74 A-75 A-112")
async def cancelled_prompts(stage: Stage) -> None:
    """A cancel in every state of a turn, and prompts that wait."""
    peer = await start_ready(stage)
    session = await peer.open_session()
    cancel = {"sessionId": session}

    async def cancel_now(prompt: str) -> None:
        begin = time.monotonic()
        await peer.notify("session/cancel", cancel)
        check_stop(await peer.response(prompt), "cancelled")
        expect(time.monotonic() - begin < stage.allow(3), "the cancel took too long")

    with stage.check("A-65"):
        stage.model.script(stall("a"))
        prompt = await peer.start_prompt(session, "go")
        await peer.until_update("agent_message_chunk")
        await cancel_now(prompt)
    with stage.check("A-66", "A-72", "A-75"):
        peer.serve["session/request_permission"] = stay_silent
        stage.model.script(use(tool_call("Shell", {"command": "echo kit"}, "c1")), say("never"))
        mark = peer.mark()
        prompt = await peer.start_prompt(session, "go")
        request = await peer.until_call("session/request_permission")
        await cancel_now(prompt)
        expect_equal([one["status"] for one in peer.final(mark)], ["failed"], "the status of the call")
        asked = [one.get("requestId") for one in peer.asked("$/cancel_request", mark)]
        expect_equal(asked, [request["id"]], "the cancelled requests")
        await peer.answer(request, {"outcome": {"outcome": "selected", "optionId": "approve"}})
        stage.model.script(say("fine"))
        check_stop(await peer.prompt(session, "next"))
    peer.serve["session/request_permission"] = choose("approve")
    with stage.check("A-67", "A-72"):
        stage.model.script(use(tool_call("Shell", {"command": "echo $$ > pid; sleep 60"}, "c2")), say("never"))
        mark = peer.mark()
        prompt = await peer.start_prompt(session, "go")
        await peer.serve_message(await peer.until_call("session/request_permission"))
        pid = await read_pid(stage)
        await cancel_now(prompt)
        expect(await is_gone(pid), "the command still runs")
        expect_equal([one["status"] for one in peer.final(mark)], ["failed"], "the status of the call")
    with stage.check("A-70"):
        call = peer.build_call("session/prompt", {"sessionId": session, "prompt": [text_block("x")]})
        stage.model.script(stall("a"))
        await peer.send(call, {"jsonrpc": "2.0", "method": "session/cancel", "params": cancel})
        check_stop(await peer.response(call["id"]), "cancelled")
    with stage.check("A-71"):
        await peer.notify("session/cancel", cancel)
        expect(await peer.has_nothing_to_say("session/list"), "a cancel without a turn was answered")
    with stage.check("A-73"):
        await peer.notify("$/cancel_request", {"requestId": "nothing"})
        stage.model.script(stall("a"))
        prompt = await peer.start_prompt(session, "go")
        await peer.until_update("agent_message_chunk")
        await peer.notify("$/cancel_request", {"requestId": prompt})
        check_stop(await peer.response(prompt), "cancelled")
    with stage.check("A-74"):
        await check_queue(peer, stage, session)


async def check_queue(peer: AcpPeer, stage: Stage, session: str) -> None:
    """Expect that a second prompt waits, runs, and is cleared by a cancel."""
    first = stall("first")
    stage.model.script(first, say("second"))
    one = await peer.start_prompt(session, "one")
    await peer.until_update("agent_message_chunk")
    two = await peer.start_prompt(session, "two")
    assert first.hold is not None
    first.hold.set()
    check_stop(await peer.response(one))
    check_stop(await peer.response(two))
    stage.model.script(stall("third"))
    calls = [await peer.start_prompt(session, "three")]
    await peer.until_update("agent_message_chunk")
    calls.append(await peer.start_prompt(session, "four"))
    await peer.notify("session/cancel", {"sessionId": session})
    for answer in (await peer.responses(*calls)).values():
        check_stop(answer, "cancelled")
    stage.model.script()
    check_stop(await peer.prompt(session, "five"))


@scenario("acp", "A-69 A-106 A-107 A-108")
async def servers_of_an_editor(stage: Stage) -> None:
    """MCP servers that the editor brings: dead, mute, wrong, of one session only."""
    peer = await start_ready(stage)
    place = {"cwd": str(stage.home.work)}
    with stage.check("A-107"):
        for entry in ({"name": "odd", "type": "carrier-pigeon"}, {"name": "odd", "command": "x"}, {"name": "odd"}):
            error = check_error(await peer.request("session/new", {**place, "mcpServers": [entry]}), -32602)
            expect("odd" in json.dumps(error), f"the error does not name the entry: {error}")
    with stage.check("A-106"):
        dead: Json = {"name": "dead", "command": "/no/such/program", "args": [], "env": []}
        session = (await peer.result("session/new", {**place, "mcpServers": [dead]}))["sessionId"]
        stage.model.script()
        mark = peer.mark()
        check_stop(await peer.prompt(session, "hi"))
        expect("dead" in json.dumps(peer.updates(mark)), "the user is not told of the dead server")
    with stage.check("A-69"):
        code = "import time; time.sleep(60)"
        mute = {"name": "mute", "command": sys.executable, "args": ["-c", code], "env": []}
        session = (await peer.result("session/new", {**place, "mcpServers": [mute]}))["sessionId"]
        prompt = await peer.start_prompt(session, "hi")
        begin = time.monotonic()
        await peer.notify("session/cancel", {"sessionId": session})
        check_stop(await peer.response(prompt), "cancelled")
        expect(time.monotonic() - begin < stage.allow(5), "the cancel took too long")
    with stage.check("A-108"):
        from kimi.interfaces.conformance import mcp_server

        entry = {"name": "mine", "command": sys.executable, "args": [str(mcp_server.__file__), "measure"], "env": []}
        with_it = (await peer.result("session/new", {**place, "mcpServers": [entry]}))["sessionId"]
        without = await peer.open_session()
        for session, offered in ((with_it, True), (without, False)):
            stage.model.script()
            check_stop(await peer.prompt(session, "hi"))
            expect_equal("measure" in stage.model.offered_tools, offered, "whether the tool is offered")
