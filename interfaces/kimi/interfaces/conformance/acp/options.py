"""Options, modes, commands, steering, and the capabilities of the editor (acp spec 1.7 to 1.10, 1.15, 3.8 to 3.10)."""

from __future__ import annotations

import json

from kimi.interfaces.conformance.acp.client import AcpPeer, check_error, check_stop, choose, start_ready, text_block
from kimi.interfaces.conformance.acp.editor import ALL_CAPABILITIES, Editor
from kimi.interfaces.conformance.acp.tools import shell
from kimi.interfaces.conformance.ledger import expect, expect_equal
from kimi.interfaces.conformance.model_server import say, stall, tool_call, use
from kimi.interfaces.conformance.peer import Json
from kimi.interfaces.conformance.scenario import Stage, scenario
from kimi.interfaces.conformance.wire.prompts import is_gone, read_pid

OTHER = (
    '[models.other]\nprovider = "kit"\nmodel = "other-model"\nmax_context_size = 100000\ncapabilities = ["thinking"]\n'
)


def values(options: list[Json]) -> dict[str, object]:
    """Return the current values of options by id."""
    return {one["id"]: one["currentValue"] for one in options}


@scenario("acp", "A-94 A-95 A-96 A-97 A-98 A-110 A-112", config=OTHER)
async def options_and_commands(stage: Stage) -> None:
    """Model, thinking and mode, by options, methods and commands; steering."""
    peer = await start_ready(stage)
    session = await peer.open_session()
    with stage.check("A-94"):
        options = await set_option(peer, session, "model", "other")
        expect_equal(values(options)["model"], "other", "the model")
        expect({"model", "thinking", "mode"} <= set(values(options)), f"the options are {values(options)}")
        for value in ("off", "on"):
            found = values(await set_option(peer, session, "thinking", value))
            expect_equal(found["thinking"], value, "thinking")
        expect_equal(values(await set_option(peer, session, "mode", "plan"))["mode"], "plan", "the mode")
        await set_option(peer, session, "mode", "default")
        for config, value in (("nonsense", "x"), ("mode", "nonsense"), ("model", "nonsense")):
            params = {"sessionId": session, "configId": config, "value": value}
            check_error(await peer.request("session/set_config_option", params), -32602)
    with stage.check("A-95"):
        for params in ({"sessionId": "nobody", "modeId": "plan"}, {"sessionId": session, "modeId": "nonsense"}):
            check_error(await peer.request("session/set_mode", params), -32602)
    with stage.check("A-96"):
        for model, thinking in (("other,thinking", "on"), ("other", "off")):
            mark = peer.mark()
            expect_equal(
                await peer.result("session/set_model", {"sessionId": session, "modelId": model}), {}, "the result"
            )
            told = peer.of_kind("config_option_update", mark) or [await peer.until_update("config_option_update")]
            expect_equal(values(told[-1]["configOptions"])["thinking"], thinking, f"thinking after {model}")
    with stage.check("A-97"):
        for command, mode in (
            ("/plan on", "plan"),
            ("/plan off", "default"),
            ("/yolo on", "yolo"),
            ("/yolo off", "default"),
        ):
            mark = peer.mark()
            check_stop(await peer.prompt(session, command))
            modes = [one["currentModeId"] for one in peer.of_kind("current_mode_update", mark)]
            expect_equal(modes[-1:], [mode], f"the mode after {command}")
        mark = peer.mark()
        check_stop(await peer.prompt(session, "/model kit"))
        told = peer.of_kind("config_option_update", mark)
        expect(told and values(told[-1]["configOptions"])["model"] == "kit", "/model is not told")
        check_stop(await peer.prompt(session, "fill the context"))
        mark = peer.mark()
        check_stop(await peer.prompt(session, "/clear"))
        expect_equal(peer.of_kind("usage_update", mark)[-1]["used"], 0, "the usage after /clear")
    with stage.check("A-98"):
        mark = peer.mark()
        check_stop(await peer.prompt(session, "/nope"))
        expect_equal(peer.text(mark), 'Unknown slash command "/nope".', "the answer to /nope")
        stage.model.script()
        check_stop(await peer.prompt(session, "/home/u/a.py explain this"))
        expect("/home/u/a.py explain" in json.dumps(stage.model.requests), "the path did not reach the model")
    with stage.check("A-110"):
        await check_steering(peer, stage, session)


async def set_option(peer: AcpPeer, session: str, config: str, value: str) -> list[Json]:
    """Set an option; return all of them."""
    params = {"sessionId": session, "configId": config, "value": value}
    return (await peer.result("session/set_config_option", params))["configOptions"]


async def check_steering(peer: AcpPeer, stage: Stage, session: str) -> None:
    """Expect that a message goes into a running turn, and that an idle session refuses it."""
    params = {"sessionId": session, "prompt": [text_block("more")]}
    expect_equal(
        (await peer.result("_session/steering", params))["outcome"], "promptRequired", "the outcome while idle"
    )
    first = stall("first")
    stage.model.script(first, say("second"))
    prompt = await peer.start_prompt(session, "go")
    await peer.until_update("agent_message_chunk", content=text_block("first"))
    expect_equal((await peer.result("_session/steering", params))["outcome"], "injected", "the outcome in a turn")
    assert first.hold is not None
    first.hold.set()
    check_stop(await peer.response(prompt))
    expect("more" in json.dumps(stage.model.requests[-1]["messages"]), "the message did not reach the model")
    check_error(await peer.request("_nonsense", {}), -32601)


@scenario("acp", "A-68 A-100 A-101 A-102 A-103 A-104 A-112")
async def files_and_terminals_of_an_editor(stage: Stage) -> None:
    """Reads and writes through the editor's buffers, commands in its terminals."""
    peer = await start_ready(stage, **ALL_CAPABILITIES)
    peer.serve["session/request_permission"] = choose("approve")
    editor = Editor()
    editor.serve(peer)
    session = await peer.open_session()
    path = stage.home.work / "a.txt"
    path.write_text("on disk\n", encoding="utf-8")
    read = use(tool_call("ReadFile", {"path": "a.txt"}, "r1"))

    async def told_of(*replies: object) -> str:
        stage.model.script(*replies, say("done"))  # pyright: ignore
        check_stop(await peer.prompt(session, "go"))
        return stage.model.last_result

    with stage.check("A-100"):
        editor.buffers[str(path)] = "unsaved\n"
        expect("unsaved" in await told_of(read), "the unsaved buffer was not read")
        editor.refuse_reads = True
        expect("on disk" in await told_of(read), "a refused read did not fall back to the disk")
        editor.refuse_reads = False
        write = use(tool_call("WriteFile", {"path": "new.txt", "content": "x\n"}, "w1"))
        await told_of(write)
        expect("fs/write_text_file" in editor.calls, "the write did not go through the editor")
        editor.refuse_writes = True
        mark = peer.mark()
        await told_of(use(tool_call("WriteFile", {"path": "never.txt", "content": "x\n"}, "w2")))
        expect_equal(peer.final(mark)[0]["status"], "failed", "the status of a refused write")
        expect(not (stage.home.work / "never.txt").exists(), "a refused write went to the disk")
        editor.refuse_writes = False
    with stage.check("A-102"):
        outside = stage.home.root / "outside.txt"
        outside.write_text("far away\n", encoding="utf-8")
        before = len(editor.calls)
        expect("far away" in await told_of(use(tool_call("ReadFile", {"path": str(outside)}, "r2"))), "it was not read")
        expect("fs/read_text_file" not in editor.calls[before:], "a file outside of the roots was asked of the editor")
    with stage.check("A-103"):
        text = await told_of(shell("c1", "echo in the terminal; pwd"))
        expect("in the terminal" in text and str(stage.home.work) in text, f"the model was told {text!r}")
        made = editor.created[-1]
        expect_equal(made["args"], ["-c", "echo in the terminal; pwd"], "the arguments")
        expect_equal(made["cwd"], str(stage.home.work), "cwd")
        expect_equal(editor.calls[-1], "terminal/release", "the last call")
        await told_of(use(tool_call("Shell", {"command": "sleep 30", "timeout": 1}, "c2")))
        expect("terminal/kill" in editor.calls, "a command that takes too long is not killed")
        expect_equal(editor.calls[-1], "terminal/release", "the last call after a timeout")
    with stage.check("A-101"):
        editor.buffers[str(path)] = "on disk\n"
        await told_of(read)
        await told_of(shell("c3", "echo changed > a.txt"))
        expect("changed" in await told_of(read), "a stale buffer was used after a command")
    with stage.check("A-104"):
        editor.refuse_terminals = True
        expect("locally" in await told_of(shell("c4", "echo locally")), "the command did not run locally")
        editor.refuse_terminals = False
    with stage.check("A-68"):
        stage.model.script(shell("c5", "echo $$ > pid; sleep 60"), say("never"))
        before = len(editor.calls)
        prompt = await peer.start_prompt(session, "go")
        await peer.serve_message(await peer.until_call("terminal/wait_for_exit"))
        pid = await read_pid(stage)
        await peer.notify("session/cancel", {"sessionId": session})
        check_stop(await peer.response(prompt), "cancelled")
        sent = editor.calls[before:]
        expect("terminal/kill" in sent and "terminal/release" in sent, f"the editor was asked {sent}")
        expect(await is_gone(pid), "the command still runs")
