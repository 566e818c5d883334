"""The start and the end of a process (wire spec 1.1, 1.2, 1.5)."""

from __future__ import annotations

import asyncio
import json
import signal
import time

from kimi.interfaces.conformance.ledger import Mismatch, expect, expect_equal
from kimi.interfaces.conformance.model_server import say, stall, tool_call, use
from kimi.interfaces.conformance.peer import Json, parse_object
from kimi.interfaces.conformance.scenario import Stage, scenario
from kimi.interfaces.conformance.wire.client import (
    WirePeer,
    approve,
    check_error,
    check_status,
    start,
    start_ready,
)
from kimi.interfaces.conformance.wire.prompts import is_gone, read_pid

TOOL: Json = {"name": "ask_ci", "description": "Ask", "parameters": {"type": "object"}}
SLEEP = tool_call("Shell", {"command": "echo $$ > pid; sleep 60"}, "c1")
ENDED = "Wire connection closed before tool result was received."


async def open_approval(peer: WirePeer, stage: Stage) -> str:
    """Start a turn that waits for an approval; return the id of the prompt."""
    stage.model.script(use(tool_call("Shell", {"command": "echo kit"}, "c1")), say("never"))
    call_id = await peer.call("prompt", {"user_input": "go"})
    await peer.until("ApprovalRequest")
    return call_id


@scenario("wire", "W-26 W-27 W-31 W-35 W-37", needs_process=True)
async def the_end_of_the_input(stage: Stage) -> None:
    """EOF after the handshake, with an open approval, with an open external tool, with a running command."""
    first = await start_ready(stage)
    with stage.check("W-31"):
        expect_equal(await first.finish(), 0, "the exit status")
        expect_equal(stage.home.session_directories(), [], "the sessions after a handshake only")
    second = await start_ready(stage, "--prompt", "ignored")
    with stage.check("W-35"):
        expect(await second.has_nothing_to_say("cancel"), "something was sent without a prompt")
    with stage.check("W-26"):
        call_id = await open_approval(second, stage)
        begin = time.monotonic()
        await second.connection.end_input()
        answers = [one for one in await second.rest() if "method" not in one]
        expect_equal(
            [(one["id"], one.get("result")) for one in answers], [(call_id, {"status": "cancelled"})], "the answers"
        )
        expect_equal(await second.wait(), 0, "the exit status")
        expect(time.monotonic() - begin < stage.allow(5), "the end took too long")
    third = await start_ready(stage, external_tools=[TOOL])
    with stage.check("W-27"):
        stage.model.script(use(tool_call("ask_ci", {}, "c2")), say("never"))
        await third.call("prompt", {"user_input": "go"})
        await third.until("ToolCallRequest")
        await third.finish()
        results = [
            line["message"]["payload"] for line in stage.home.recorded()[1:] if line["message"]["type"] == "ToolResult"
        ]
        expect_equal([one["return_value"]["message"] for one in results], [ENDED], "the recorded result")
        expect_equal(len(stage.model.requests), 1, "how often the model was asked")
    fourth = await start_ready(stage)
    with stage.check("W-37"):
        pid = await run_sleep(fourth, stage)
        await fourth.finish()
        expect(await is_gone(pid), "the command outlived the process")


async def run_sleep(peer: WirePeer, stage: Stage) -> int:
    """Start a turn with a command that sleeps; return its process id."""
    stage.model.script(use(SLEEP), say("never"))
    await peer.call("prompt", {"user_input": "go"})
    request = await peer.until("ApprovalRequest")
    await peer.answer(request, approve(request["params"]))
    return await read_pid(stage)


@scenario("wire", "W-28 W-29 W-30 W-32", needs_process=True)
async def signals(stage: Stage) -> None:
    """SIGINT, SIGTERM, a closed output, and what `--continue` finds afterwards."""
    first = await start_ready(stage)
    with stage.check("W-28"):
        call_id = await open_approval(first, stage)
        first.connection.send_signal(signal.SIGINT)
        answers = [one.get("id") for one in await first.rest() if "method" not in one]
        expect_equal((await first.wait(), answers), (0, [call_id]), "the exit status and the answers")
    second = await start_ready(stage)
    with stage.check("W-29"):
        call_id = await open_approval(second, stage)
        second.connection.send_signal(signal.SIGTERM)
        answers = [one for one in await second.rest() if "method" not in one]
        expect_equal([one.get("id") for one in answers], [call_id], "the answers after SIGTERM")
        expect_equal(await second.wait(), -signal.SIGTERM, "the exit status")
        kinds = [line["message"]["type"] for line in stage.home.recorded()[1:]]
        expect_equal(kinds[0], "TurnBegin", "the first record")
        expect_equal(kinds[-1:], second.known("TurnEnd") or kinds[-1:], "the last record")
    with stage.check("W-30"):
        for number in (None, getattr(signal, "SIGKILL", signal.SIGTERM)):
            session = stage.home.event_logs()[-1].parent
            again = await start(stage, "--continue")
            await again.initialize()
            stage.model.script(say("ok"))
            check_status(await again.prompt("more"))
            expect_equal(stage.home.event_logs()[-1].parent, session, "the session that --continue found")
            if number is not None:
                again.connection.send_signal(number)
                await again.wait()
            else:
                await again.finish()
    third = await start_ready(stage)
    with stage.check("W-32"):
        pid = await run_sleep(third, stage)
        third.stop_reading()
        await third.connection.close_output()
        await third.send(third.build_call("set_plan_mode", {"enabled": False}))
        expect_equal(await third.wait(), 1, "the exit status")
        expect(await is_gone(pid), "the command outlived the process")


@scenario("wire", "W-33 W-34 W-141", needs_process=True)
async def refused_starts(stage: Stage) -> None:
    """Options that exclude `--wire`, and a broken configuration."""

    async def refuse(*arguments: str) -> tuple[int, str]:
        peer = await start(stage, *arguments)
        await peer.rest()
        expect_equal(peer.raw, [], "what is written on stdout")
        status = await peer.wait()
        return status, (await peer.connection.read_errors()).decode("utf-8", "replace")

    with stage.check("W-34"):
        for option in (["--print"], ["--acp"], ["--quiet"], ["--input-format", "text"]):
            status, text = await refuse(*option)
            expect_equal(status, 2, f"the exit status with {option[0]}")
            expect(text.strip(), "no message on stderr")
    with stage.check("W-33", "W-141"):
        stage.home.write_config('default_model = 7\n[models.x]\nprovider = "nobody"\n')
        status, text = await refuse()
        expect_equal(status, 1, "the exit status")
        expect(text.strip() and "Traceback" not in text, "there is no message, or a traceback")
        expect("Value error" not in text and "type=" not in text, "the message has a prefix of a library")


@scenario("wire", "W-17", config="[wire]\nmax_line_bytes = 6000000\n")
async def long_lines(stage: Stage) -> None:
    """A line of 5 MiB, and one above the limit of the configuration."""
    peer = await start_ready(stage)
    with stage.check("W-17"):
        call = peer.build_call("cancel", {"x": "a" * 5 * 1024 * 1024})
        await peer.send(call)
        check_error(await peer.response(call["id"]), -32000)
        await peer.send_bytes(b"{" + b"a" * 7_000_000 + b"\n")
        check_error(await peer.next(), -32600, "Message too large")
        check_error(await peer.request("cancel"), -32000)


@scenario("wire", "W-22")
async def a_client_that_does_not_read(stage: Stage) -> None:
    """A flood of text that nobody reads: the cancel is heard all the same, and nothing is lost."""
    peer = await start_ready(stage)
    with stage.check("W-22"):
        piece = "x" * 20_000
        stage.model.script(stall(*[piece] * 300))
        call = peer.build_call("prompt", {"user_input": "go"})
        peer.stop_reading()
        await peer.send(call)
        await asyncio.sleep(1)
        cancel = await peer.call("cancel")
        peer.read_again()
        response = await peer.read_turn(call["id"])
        check_status(response, "cancelled")
        expect(any(one.get("id") == cancel for one in peer.received), "the cancel was not answered")
        text = peer.text()
        expect(text and set(text) == {"x"}, "the text is damaged")


@scenario("wire", "W-21", needs_process=True)
async def files_as_streams(stage: Stage) -> None:
    """A file as input and a file as output."""
    if stage.target.run_with_files is None:
        return
    with stage.check("W-21"):
        calls: list[Json] = [
            {"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": {"protocol_version": "1.10"}},
            {"jsonrpc": "2.0", "id": "b", "method": "cancel"},
        ]
        data = b"".join(json.dumps(call).encode() + b"\n" for call in calls)
        run = stage.target.run_with_files((stage.home.work, stage.home.full_environ()), data)
        try:
            output, status = await asyncio.wait_for(run, stage.target.timeout_s)
        except TimeoutError:
            raise Mismatch("the process did not end") from None
        answered = [(parse_object(line) or {}).get("id") for line in output.splitlines()]
        expect_equal((answered, status), (["a", "b"], 0), "the answered ids and the exit status")
