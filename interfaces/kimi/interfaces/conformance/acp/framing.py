"""Lines, errors and the end of an agent (acp spec 2.7, 4.8, 5.1)."""

from __future__ import annotations

import asyncio
import json
import signal
import time

from kimi.interfaces.conformance.acp.client import AcpPeer, check_error, check_stop, choose, start, start_ready
from kimi.interfaces.conformance.ledger import Mismatch, expect, expect_equal, first_of
from kimi.interfaces.conformance.model_server import say, stall, tool_call, use
from kimi.interfaces.conformance.peer import Json, dig, parse_object
from kimi.interfaces.conformance.scenario import Stage, scenario
from kimi.interfaces.conformance.wire.prompts import is_gone, read_pid

TEXT = "grüße 你好 \U0001f600"
SLEEP = tool_call("Shell", {"command": "echo $$ > pid; sleep 60"}, "c1")


@scenario("acp", "A-01 A-02 A-03 A-04 A-06 A-07 A-08 A-09 A-17 A-19 A-25 A-71 A-112")
async def messages_of_every_class(stage: Stage) -> None:
    """Broken and unusual lines: each gets its error, and the next one is served."""
    begin = time.monotonic()
    peer = await start(stage)
    with stage.check("A-25"):
        check_error(await peer.request("session/new", {"cwd": str(stage.home.work), "mcpServers": []}), -32600)
    await peer.initialize()
    with stage.check("A-01"):
        expect(time.monotonic() - begin < stage.allow(5), "the first answers took too long")
    with stage.check("A-03"):
        await peer.send_bytes(b"{bad\n")
        answer = await peer.next()
        check_error(answer, -32700)
        expect_equal(answer.get("id"), None, "the id")
    with stage.check("A-04"):
        for line in (b"[]\n", b"1\n", b'"x"\n', b"null\n"):
            await peer.send_bytes(line)
            check_error(await peer.next(), -32600)
    with stage.check("A-06"):
        call = peer.build_call("session/list", {})
        await peer.send_bytes(b"\n\r\n" + json.dumps(call).encode() + b"\r\n")
        expect("result" in await peer.response(call["id"]), "the call was not served")
    with stage.check("A-07"):
        for call_id in ("x", 7, 1.5, None):
            await peer.send({"jsonrpc": "2.0", "id": call_id, "method": "session/list", "params": {}})
            message = await peer.next()
            expect_equal(message.get("id"), call_id, "the id")
            expect("result" in message, "the call was not served")
    with stage.check("A-08"):
        call = peer.build_call("session/list")
        await peer.send(call)
        expect("result" in await peer.response(call["id"]), "a call without params was not served")
    with stage.check("A-09"):
        error = check_error(await peer.request("no/such"), -32601)
        expect_equal(dig(error, "data", "method"), "no/such", "data.method")
        await peer.notify("no/such", {})
    with stage.check("A-71"):
        await peer.notify("session/cancel", {"sessionId": "nobody"})
        expect(await peer.has_nothing_to_say("session/list"), "a notification was answered")
    session = await peer.open_session()
    with stage.check("A-17"):
        stage.model.script(say(TEXT))
        check_stop(await peer.prompt(session, TEXT))
        expect_equal(peer.text(), TEXT, "the text")
        expect(TEXT in json.dumps(stage.model.requests[-1], ensure_ascii=False), "the prompt reached the model changed")
        params = json.dumps({"sessionId": session, "prompt": [{"type": "text", "text": "X"}]}).replace("X", "a\\ud800")
        await peer.send_bytes(f'{{"jsonrpc":"2.0","id":"s","method":"session/prompt","params":{params}}}\n'.encode())
        check_stop(await peer.response("s"))
    with stage.check("A-19"):
        stage.model.script()
        meta: Json = {"session_id": "evil", "sessionId": "evil", "prompt": [], "cwd": "/"}
        call_id = await peer.call(
            "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "plain"}], "_meta": meta}
        )
        check_stop(await peer.response(call_id))
        expect("plain" in json.dumps(stage.model.requests[-1]), "the prompt did not reach the model")


@scenario("acp", "A-05")
async def a_very_long_line(stage: Stage) -> None:
    """A prompt of 60 MiB."""
    peer = await start_ready(stage)
    with stage.check("A-05"):
        params: Json = {"sessionId": "nobody", "prompt": [{"type": "text", "text": "a" * 60 * 1024 * 1024}]}
        check_error(await peer.request("session/prompt", params), -32602)


@scenario("acp", "A-10 A-11 A-12 A-13 A-14 A-49", needs_process=True)
async def the_end_of_an_agent(stage: Stage) -> None:
    """EOF while idle and while a command runs, a closed output, an unread one, signals."""
    first = await start_ready(stage)
    with stage.check("A-10"):
        expect_equal(await first.finish(), 0, "the exit status")
    second = await start_ready(stage)
    with stage.check("A-11"):
        pid = await run_sleep(second, stage)
        expect_equal(await second.finish(), 0, "the exit status")
        expect(await is_gone(pid), "the command outlived the agent")
    third = await start_ready(stage)
    with stage.check("A-12"):
        pid = await run_sleep(third, stage)
        third.stop_reading()
        await third.connection.close_output()
        await third.notify("session/cancel", {"sessionId": third.received[-1].get("params", {}).get("sessionId", "")})
        await third.call("session/list")
        await third.wait(10)
        expect(await is_gone(pid), "the command outlived the agent")
    fourth = await start_ready(stage)
    with stage.check("A-13"):
        session = await fourth.open_session()
        stage.model.script(stall(*["x" * 20_000] * 300))
        await fourth.start_prompt(session, "go")
        fourth.stop_reading()
        await asyncio.sleep(0.5)
        await fourth.connection.end_input()
        await fourth.wait(10)
    with stage.check("A-14"):
        for number in (signal.SIGINT, signal.SIGTERM):
            peer = await start_ready(stage)
            peer.connection.send_signal(number)
            status = await peer.wait()
            expect(status in (0, -number, 128 + number), f"the exit status after {number.name} is {status}")
    peer = await start_ready(stage)
    with stage.check("A-49"):
        pid = await run_sleep(peer, stage)
        session = peer.asked("session/request_permission")[-1]["sessionId"]
        prompt = first_of(peer.list_open("session/prompt"), "prompt")
        close = await peer.call("session/close", {"sessionId": session})
        answers = await peer.responses(prompt, close)
        check_stop(answers[prompt], "cancelled")
        expect_equal(answers[close].get("result"), {}, "the result of close")
        expect(await is_gone(pid), "the command outlived its session")


async def run_sleep(peer: AcpPeer, stage: Stage) -> int:
    """Start a turn with a command that sleeps; return its process id."""
    (stage.home.work / "pid").unlink(missing_ok=True)
    peer.serve["session/request_permission"] = choose("approve")
    session = await peer.open_session()
    stage.model.script(use(SLEEP), say("never"))
    await peer.start_prompt(session, "go")
    request = await peer.until_call("session/request_permission")
    await peer.serve_message(request)
    return await read_pid(stage)


@scenario("acp", "A-15", needs_process=True)
async def files_as_streams(stage: Stage) -> None:
    """A file as input and a file as output."""
    if stage.target.run_with_files is None:
        return
    with stage.check("A-15"):
        params: Json = {"protocolVersion": 1, "clientCapabilities": {}}
        calls: list[Json] = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
            {"jsonrpc": "2.0", "id": 2, "method": "session/list", "params": {}},
        ]
        data = b"".join(json.dumps(call).encode() + b"\n" for call in calls)
        run = stage.target.run_with_files((stage.home.work, stage.home.full_environ()), data)
        try:
            output, status = await asyncio.wait_for(run, stage.target.timeout_s)
        except TimeoutError:
            raise Mismatch("the process did not end") from None
        answered = [(parse_object(line) or {}).get("id") for line in output.splitlines()]
        expect_equal((answered, status), ([1, 2], 0), "the answered ids and the exit status")
