"""Sessions: made, listed, loaded, forked, closed (acp spec 1.5, 1.6, 4)."""

from __future__ import annotations

import json
import signal

from kimi.interfaces.conformance.acp.client import AcpPeer, check_error, check_stop, start_ready, stay_silent
from kimi.interfaces.conformance.ledger import expect, expect_equal, first_of
from kimi.interfaces.conformance.model_server import Reply, say, stall, tool_call, use
from kimi.interfaces.conformance.peer import Json
from kimi.interfaces.conformance.scenario import Stage, scenario

PICTURE: Json = {
    "type": "image",
    "mimeType": "image/png",
    "data": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
}


def at(stage: Stage, session: str) -> Json:
    """Return parameters that open a session again."""
    return {"sessionId": session, "cwd": str(stage.home.work), "mcpServers": []}


@scenario("acp", "A-33 A-34 A-35 A-36 A-37 A-38 A-39 A-40 A-41 A-50 A-51 A-52 A-112")
async def many_sessions(stage: Stage) -> None:
    """New sessions, two at a time, their list, and their end."""
    peer = await start_ready(stage)
    made = await peer.result("session/new", {"cwd": str(stage.home.work), "mcpServers": []})
    first = made["sessionId"]
    with stage.check("A-33"):
        expect(isinstance(first, str) and first, "there is no sessionId")
        modes = [mode["id"] for mode in made["modes"]["availableModes"]]
        expect(made["modes"]["currentModeId"] in modes, "the current mode is not among the available ones")
        options = {option["id"] for option in made["configOptions"]}
        expect({"model", "mode"} <= options, f"the options are {sorted(options)}")
        known = [one["modelId"] for one in made["models"]["availableModels"]]
        expect(made["models"]["currentModelId"] in known, "the current model is not among the available ones")
    with stage.check("A-36"):
        await peer.until_update("available_commands_update")
        before = [one for one in peer.received if one.get("method") == "session/update"]
        response = first_of((n for n, one in enumerate(peer.received) if one.get("result") == made), "response")
        expect(peer.received.index(before[0]) > response, "an update precedes the response that names its session")
    with stage.check("A-34"):
        await peer.result("session/new", {"cwd": str(stage.home.work)})
    other = stage.home.work / "sp ace ü"
    other.mkdir()
    with stage.check("A-35"):
        second = await peer.open_session(other)
        for cwd in ("relative", str(stage.home.work / "missing"), str(stage.home.share / "config.toml"), None):
            params: Json = {"mcpServers": []} if cwd is None else {"cwd": cwd, "mcpServers": []}
            check_error(await peer.request("session/new", params), -32602)
    with stage.check("A-38"):
        for session, place in ((first, stage.home.work), (second, other)):
            stage.model.script(use(tool_call("Shell", {"command": "pwd"}, "c1")), say("ok"))
            check_stop(await peer.prompt(session, "where?"))
            told = "".join(stage.model.tool_results().values())
            expect(f"{place}\n" in told, f"the command ran in {told!r}")
    with stage.check("A-37"):
        stage.model.script(stall("slow"))
        slow = await peer.start_prompt(first, "slow one")
        await peer.until_update("agent_message_chunk")
        stage.model.script(say("fast"))
        mark = peer.mark()
        check_stop(await peer.prompt(second, "fast one"))
        expect_equal(peer.text(mark, second), "fast", "the text of the second session")
        expect_equal(peer.text(mark, first), "", "what the first session got meanwhile")
        await peer.notify("session/cancel", {"sessionId": first})
        check_stop(await peer.response(slow), "cancelled")
    with stage.check("A-39"):
        config = (stage.home.share / "config.toml").read_text(encoding="utf-8")
        await peer.result("session/set_mode", {"sessionId": first, "modeId": "yolo"})
        stage.model.script(use(tool_call("Shell", {"command": "echo kit"}, "c2")), say("ok"))
        mark = peer.mark()
        check_stop(await peer.prompt(second, "run"))
        expect(peer.asked("session/request_permission", mark), "the mode of one session holds in another")
        expect_equal((stage.home.share / "config.toml").read_text(encoding="utf-8"), config, "the configuration file")
    with stage.check("A-40"):
        everywhere = await list_all(peer, {})
        missing = {first, second} - {one["sessionId"] for one in everywhere}
        expect(not missing, f"the list lacks {sorted(missing)}")
        expect_equal(len({one["sessionId"] for one in everywhere}), len(everywhere), "the listed sessions")
        here = await list_all(peer, {"cwd": str(other)})
        expect_equal([one["sessionId"] for one in here], [second], "the sessions of a directory")
    with stage.check("A-41"):
        check_error(await peer.request("session/list", {"cursor": "nonsense"}), -32602)
    with stage.check("A-50"):
        for method in ("close", "delete"):
            response = await peer.request(f"session/{method}", {"sessionId": "nobody"})
            expect_equal(response.get("result"), {}, f"the result of {method} for an unknown session")
    with stage.check("A-52"):
        await peer.result("session/close", {"sessionId": first})
        check_error(await peer.prompt(first, "hi"), -32602)
        await peer.result("session/load", at(stage, first))
    with stage.check("A-51"):
        await peer.result("session/delete", {"sessionId": first})
        listed = [one["sessionId"] for one in await list_all(peer, {})]
        expect(first not in listed, "the deleted session is listed")


async def list_all(peer: AcpPeer, params: Json) -> list[Json]:
    """Return the sessions of all pages."""
    found: list[Json] = []
    cursor: str | None = None
    for _ in range(100):
        page = await peer.result("session/list", {**params, **({"cursor": cursor} if cursor else {})})
        found += page["sessions"]
        cursor = page.get("nextCursor")
        if not cursor:
            break
    return found


@scenario(
    "acp",
    "A-42 A-43 A-45 A-46 A-47 A-48 A-36 A-44 A-54 A-112",
    needs_process=True,
    capabilities=("image_in", "thinking"),
)
async def stored_sessions(stage: Stage) -> None:
    """Load, resume and fork, in another process and in the same one."""
    peer = await start_ready(stage)
    session = await peer.open_session()
    stage.model.script(
        Reply(("hello",), think=("hm",), calls=(tool_call("Shell", {"command": "echo kit"}, "c1"),)), say("done")
    )
    check_stop(await peer.prompt(session, [{"type": "text", "text": "look"}, PICTURE]))
    live = peer.final()
    await peer.finish()
    again = await start_ready(stage)
    with stage.check("A-42"):
        call_id = await again.call("session/load", at(stage, session))
        response = await again.response(call_id)
        expect("result" in response, f"load was answered {json.dumps(response)[:300]}")
        kinds = [one for one in again.kinds() if one.endswith("chunk") or one == "tool_call"]
        wanted = ["user_message_chunk"] * 2 + ["agent_thought_chunk", "agent_message_chunk", "tool_call"]
        expect_equal(kinds, [*wanted, "agent_message_chunk"], "the replayed updates")
        expect_equal(again.of_kind("user_message_chunk")[1]["content"]["type"], "image", "the second block")
        expect_equal(again.text(), "hellodone", "the text")
        expect_equal(again.final()[0]["status"], "completed", "the status of the call")
    with stage.check("A-43"):
        expect_equal([one["toolCallId"] for one in again.final()], [one["toolCallId"] for one in live], "the ids")
    with stage.check("A-36"):
        expect("available_commands_update" not in again.kinds(), "the commands precede the response")
        await again.until_update("available_commands_update")
    with stage.check("A-45"):
        check_error(await again.request("session/load", at(stage, "00000000-0000-4000-8000-000000000000")), -32002)
        elsewhere = stage.home.work / "elsewhere"
        elsewhere.mkdir()
        check_error(await again.request("session/load", {**at(stage, session), "cwd": str(elsewhere)}), -32602)
    with stage.check("A-46"):
        mark = again.mark()
        await again.result("session/load", at(stage, session))
        expect_equal(again.text(mark), "hellodone", "what a second load replays")
        stage.model.script(stall("busy"))
        prompt = await again.start_prompt(session, "more")
        await again.until_update("agent_message_chunk", content={"type": "text", "text": "busy"})
        await again.result("session/load", at(stage, session))
        await again.notify("session/cancel", {"sessionId": session})
        check_stop(await again.response(prompt), "cancelled")
    with stage.check("A-48"):
        copy = (await again.result("session/fork", at(stage, session)))["sessionId"]
        expect(copy != session, "the fork has the id of its source")
        stage.model.script()
        check_stop(await again.prompt(copy, "only in the fork"))
        expect("hello" in json.dumps(stage.model.requests[-1]["messages"]), "the fork has no history")
        check_stop(await again.prompt(session, "in the source"))
        sent = json.dumps(stage.model.requests[-1]["messages"])
        expect("only in the fork" not in sent, "the source has the prompt of the fork")
    await again.finish()
    await resume_and_crash(stage, session)


async def resume_and_crash(stage: Stage, session: str) -> None:
    """Resume without a replay, then load what a kill and a damaged line have left."""
    peer = await start_ready(stage)
    with stage.check("A-47"):
        await peer.result("session/resume", at(stage, session))
        chunks = [one for one in peer.kinds() if one.endswith("chunk")]
        expect_equal(chunks, [], "what resume replays")
        stage.model.script()
        check_stop(await peer.prompt(session, "more"))
        expect("hello" in json.dumps(stage.model.requests[-1]["messages"]), "the old context is gone")
    peer.serve["session/request_permission"] = stay_silent
    stage.model.script(use(tool_call("Shell", {"command": "echo kit"}, "cut")), say("never"))
    await peer.start_prompt(session, "go")
    await peer.until_call("session/request_permission")
    peer.connection.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
    await peer.wait()
    again = await start_ready(stage)
    with stage.check("A-44"):
        await again.result("session/load", at(stage, session))
        expect_equal(again.final()[-1]["status"], "failed", "the status of the call that was cut")
    await again.finish()
    with stage.check("A-54"):
        for log in stage.home.share.glob(f"sessions/*/{session}/*.jsonl"):
            lines = log.read_text(encoding="utf-8").splitlines()
            log.write_text("\n".join([*lines[:2], "{broken", *lines[2:]]) + "\n", encoding="utf-8")
        last = await start_ready(stage)
        await last.result("session/load", at(stage, session))
        expect("hellodone" in last.text(), f"the rest is not replayed, but {last.text()[:200]!r}")


@scenario("acp", "A-53")
async def more_sessions_than_stay_open(stage: Stage) -> None:
    """The 65th session, and a prompt to the first one."""
    peer = await start_ready(stage)
    with stage.check("A-53"):
        sessions = [await peer.open_session() for _ in range(65)]
        check_stop(await peer.prompt(sessions[0], "still there?"))
        check_stop(await peer.prompt(sessions[-1], "and you?"))
