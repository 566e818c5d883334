"""Tool calls as editors see them, and the permissions for them (acp spec 3.3 to 3.7)."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

from kimi.interfaces.conformance.acp.client import AcpPeer, Serve, check_stop, choose, start_ready
from kimi.interfaces.conformance.acp.sessions import PICTURE
from kimi.interfaces.conformance.ledger import expect, expect_equal, first_of
from kimi.interfaces.conformance.model_server import Reply, say, tool_call, use
from kimi.interfaces.conformance.peer import Json
from kimi.interfaces.conformance.scenario import Stage, scenario
from kimi.interfaces.conformance.wire.handshake import question_arguments

REPORT = "I ran the command, read what it said and found nothing that is out of order. " * 4
KINDS: dict[str, tuple[str, Json, str]] = {
    "ReadFile": ("read", {"path": "a.txt"}, "ReadFile: a.txt"),
    "Glob": ("search", {"pattern": "*.txt"}, "Glob: *.txt"),
    "Grep": ("search", {"pattern": "one"}, "Grep: one"),
    "WriteFile": ("edit", {"path": "new.txt", "content": "one\n"}, "WriteFile: new.txt"),
    "StrReplaceFile": ("edit", {"path": "a.txt", "edit": {"old": "two", "new": "2"}}, "StrReplaceFile: a.txt"),
    "Shell": ("execute", {"command": "echo kit\n"}, "Shell: echo kit"),
    "SetTodoList": ("think", {"todos": []}, "SetTodoList"),
    "TaskList": ("read", {}, "TaskList: active"),
}


async def play(peer: AcpPeer, stage: Stage, session: str, *replies: Reply) -> tuple[int, Json]:
    """Run a turn with these answers of the model; return the position before it and its response."""
    stage.model.script(*replies)
    mark = peer.mark()
    return mark, await peer.prompt(session, "go")


@scenario("acp", "A-76 A-77 A-78 A-79 A-81 A-82 A-83 A-84 A-99 A-112")
async def calls_of_built_in_tools(stage: Stage) -> None:
    """Kinds, titles, order, arguments, diffs and plans."""
    (stage.home.work / "a.txt").write_bytes(b"one\r\ntwo\r\nthree\n")
    peer = await start_ready(stage)
    session = await peer.open_session()
    mark, response = await play(
        peer, stage, session, use(*[tool_call(name, row[1], f"c{name}") for name, row in KINDS.items()]), say("done")
    )
    check_stop(response)
    final = {one["_meta"]["kimi"]["toolName"]: one for one in peer.final(mark)}
    with stage.check("A-77"):
        for name, (kind, _arguments, title) in KINDS.items():
            found = (final[name].get("kind"), final[name]["title"])
            expect_equal(found, (kind, title), f"kind and title of {name}")
            expect("\n" not in found[1] and len(found[1]) <= 80, "a title is too long or has a line end")
    with stage.check("A-76"):
        for updates in peer.calls(mark).values():
            states = [one["status"] for one in updates if "status" in one]
            expect(states[0] == "pending" and states[-1] == "completed", f"the states are {states}")
            expect(states in (["pending", "in_progress", "completed"],), f"the states are {states}")
        for request in peer.asked("session/request_permission", mark):
            expect_equal(request["toolCall"].get("status"), "pending", "the status while it is asked for")
    with stage.check("A-79"):
        expect_equal(final["Glob"].get("rawInput"), {"pattern": "*.txt"}, "rawInput")
        broken, response = await play(peer, stage, session, use(tool_call("Glob", "{no", "b1")), say("done"))
        check_stop(response)
        expect_equal(peer.final(broken)[0]["status"], "failed", "the status after broken arguments")
    with stage.check("A-83"):
        new = diff_of(final["WriteFile"])
        expect_equal((new.get("oldText"), new["newText"]), (None, "one\n"), "the diff of a new file")
        edit = diff_of(final["StrReplaceFile"])
        expect_equal((edit["oldText"], edit["newText"]), ("one\r\ntwo\r\nthree\n", "one\r\n2\r\nthree\n"), "the diff")
    with stage.check("A-78"):
        long = tool_call("WriteFile", {"path": "long.txt", "content": "x" * 4000}, "l1", pieces=200)
        slow = Reply((), (long,), delay_s=0.002)
        at, response = await play(peer, stage, session, slow, say("done"))
        check_stop(response)
        updates = first_of(peer.calls(at).values(), "tool call")
        where = [{"path": str(stage.home.work / "long.txt")}]
        located = first_of((n for n, one in enumerate(updates) if one.get("locations") == where), "location")
        running = first_of(
            (n for n, one in enumerate(updates) if one.get("status") == "in_progress"), "call in progress"
        )
        expect(located < running, "the location is told only when the call runs")
    with stage.check("A-81"):
        calls = [tool_call("ReadFile", {"path": f"{name}.txt"}, name, pieces=6) for name in ("a", "b")]
        at, response = await play(peer, stage, session, use(*calls), say("done"))
        check_stop(response)
        titles = {one["title"] for one in peer.final(at)}
        expect_equal(titles, {"ReadFile: a.txt", "ReadFile: b.txt"}, "the titles")
    with stage.check("A-82"):
        ids: list[str] = []
        for _ in range(2):
            at, _response = await play(peer, stage, session, use(tool_call("TaskList", {}, "same")), say("done"))
            ids += list(peer.calls(at))
        expect_equal(len(set(ids)), 2, "the number of different ids")
    with stage.check("A-84"):
        todos = [{"title": "one", "status": "done"}, {"title": "two", "status": "in_progress"}]
        at, _ = await play(peer, stage, session, use(tool_call("SetTodoList", {"todos": todos}, "t1")), say("done"))
        entries = peer.of_kind("plan", at)[-1]["entries"]
        found = [(one["content"], one["status"]) for one in entries]
        expect_equal(found, [("one", "completed"), ("two", "in_progress")], "the plan")
        at, _ = await play(peer, stage, session, use(tool_call("SetTodoList", {"todos": []}, "t2")), say("done"))
        expect_equal(peer.of_kind("plan", at)[-1]["entries"], [], "the cleared plan")
    with stage.check("A-99"):
        asked = {one["method"] for one in peer.received if "method" in one and "id" in one}
        expect_equal(asked, {"session/request_permission"}, "the requests to an editor without capabilities")


def diff_of(call: Json) -> Json:
    """Return the diff of a finished call."""
    found = [one for one in call["content"] if one["type"] == "diff"]
    expect(found, f"there is no diff in {json.dumps(call['content'])[:200]}")
    return found[0]


def shell(call_id: str, command: str = "echo kit") -> Reply:
    """Return an answer that calls Shell."""
    return use(tool_call("Shell", {"command": command}, call_id))


@scenario("acp", "A-80 A-93 A-112", capabilities=("image_in",))
async def large_arguments_and_pictures(stage: Stage) -> None:
    """A long file in many small pieces, and a tool that returns a picture."""
    peer = await start_ready(stage)
    session = await peer.open_session()
    with stage.check("A-80"):
        content = "0123456789 and so on\n" * 10_000
        long = tool_call("WriteFile", {"path": "long.txt", "content": content}, "l1", pieces=6000)
        before, begin = len(peer.raw), time.monotonic()
        mark, response = await play(peer, stage, session, use(long), say("done"))
        check_stop(response)
        seconds = time.monotonic() - begin
        sent = sum(map(len, peer.raw[before:]))
        expect(sent < 2_000_000, f"{sent} bytes were sent for {len(content)} characters of arguments")
        updates = len(first_of(peer.calls(mark).values(), "tool call"))
        expect(updates <= 12 * seconds + 12, f"{updates} updates of one call in {seconds:.1f} s")
    with stage.check("A-93"):
        (stage.home.work / "dot.png").write_bytes(base64.b64decode(PICTURE["data"]))
        reading = tool_call("ReadMediaFile", {"path": "dot.png"}, "m1")
        mark, response = await play(peer, stage, session, use(reading), say("done"))
        check_stop(response)
        blocks = [one["content"]["type"] for one in peer.final(mark)[0]["content"] if one["type"] == "content"]
        expect("image" in blocks, f"the content has {blocks}")


@scenario("acp", "A-85 A-86 A-87 A-88 A-90 A-92 A-112", needs_process=True)
async def permissions(stage: Stage) -> None:
    """Rejected, approved for the session, broken answers, subagents, yolo, long output."""
    peer = await start_ready(stage)
    session = await peer.open_session()
    permission = "session/request_permission"
    with stage.check("A-85"):
        peer.serve[permission] = choose("reject")
        mark, response = await play(peer, stage, session, shell("c1"), say("never"))
        check_stop(response)
        expect_equal([one["status"] for one in peer.final(mark)], ["failed"], "the status")
        expect_equal(peer.text(mark), "", "the text after a rejection")
    with stage.check("A-87"):
        peer.serve[permission] = choose("nonsense")
        mark, response = await play(peer, stage, session, shell("c2", "touch kit"), say("never"))
        check_stop(response)
        del peer.serve[permission]
        mark, response = await play(peer, stage, session, shell("c3", "touch kit"), say("never"))
        check_stop(response)
        expect(not (stage.home.work / "kit").exists(), "a call ran that was not approved")
    with stage.check("A-88"):
        peer.serve[permission] = choose("approve")
        task = tool_call("Agent", {"description": "look", "prompt": "look"}, "a1")
        mark, response = await play(peer, stage, session, use(task), shell("s1"), say(REPORT), say("done"))
        check_stop(response)
        request = peer.asked(permission, mark)[0]
        announced = [one["toolCallId"] for one in peer.of_kind("tool_call", mark)]
        expect(request["toolCall"]["toolCallId"] in announced, "the call of the subagent was not announced")
        expect_equal({one["status"] for one in peer.final(mark)}, {"completed"}, "the states of both calls")
    with stage.check("A-92"):
        line = "i=0; while [ $i -lt 2000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done"
        mark, response = await play(peer, stage, session, shell("c6", line), say("done"))
        check_stop(response)
        shown = sum(len(one["content"].get("text", "")) for one in peer.final(mark)[0]["content"])
        told = len(stage.model.last_result)
        expect(shown <= 40_000, f"the content has {shown} characters")
        expect(told > shown, "the model got no more than the editor shows")
    with stage.check("A-86"):
        peer.serve[permission] = choose("approve_for_session")
        mark, _ = await play(peer, stage, session, shell("c4"), shell("c5"), say("done"))
        expect_equal(len(peer.asked(permission, mark)), 1, "how often was asked")
        other = await peer.open_session()
        mark, _ = await play(peer, stage, other, shell("c4"), say("done"))
        expect_equal(len(peer.asked(permission, mark)), 1, "how often was asked in another session")
    with stage.check("A-90"):
        peer.serve[permission] = choose("approve")
        fresh = await peer.open_session()
        await peer.result("session/set_mode", {"sessionId": fresh, "modeId": "yolo"})
        mark, _ = await play(peer, stage, fresh, shell("y1"), say("done"))
        expect_equal(len(peer.asked(permission, mark)), 0, "how often was asked under yolo")
        await peer.result("session/close", {"sessionId": fresh})
        place: Json = {"sessionId": fresh, "cwd": str(stage.home.work), "mcpServers": []}
        loaded = await peer.result("session/load", place)
        expect_equal(loaded["modes"]["currentModeId"], "default", "the mode after load")
        mark, _ = await play(peer, stage, fresh, shell("y2"), say("done"))
        expect_equal(len(peer.asked(permission, mark)), 1, "how often was asked after load")


@scenario("acp", "A-89 A-91 A-112")
async def questions_and_plans(stage: Stage) -> None:
    """Questions by permissions and by elicitation, and plan mode."""
    ask = use(tool_call("AskUserQuestion", question_arguments(), "q1"))
    peer = await start_ready(stage)
    session = await peer.open_session()
    with stage.check("A-89"):
        peer.serve["session/request_permission"] = choose("q0_opt_1")
        mark, response = await play(peer, stage, session, ask, say("done"))
        check_stop(response)
        expect('"B"' in stage.model.last_result, f"the model was told {stage.model.last_result}")
        other = await start_ready(stage, elicitation={"form": {}})
        session_2 = await other.open_session()
        for result, told in (
            ({"action": "accept", "content": {"q0": "A"}}, '"A"'),
            ({"action": "decline"}, "dismissed"),
        ):
            other.serve["elicitation/create"] = reply_with(result)
            mark, response = await play(other, stage, session_2, ask, say("done"))
            check_stop(response)
            expect(other.asked("elicitation/create", mark), "no elicitation was asked for")
            expect(
                told in stage.model.last_result,
                f"the model was told {stage.model.last_result}",
            )
    with stage.check("A-91"):
        peer.serve["session/request_permission"] = choose("approve")
        await peer.result("session/set_mode", {"sessionId": session, "modeId": "plan"})
        write = use(tool_call("WriteFile", {"path": "no.txt", "content": "x"}, "w1"))
        mark, response = await play(peer, stage, session, write, say("done"))
        check_stop(response)
        expect_equal(peer.final(mark)[0]["status"], "failed", "the status of a write")
        expect(not (stage.home.work / "no.txt").exists(), "a file was written in plan mode")
        await peer.result("session/set_mode", {"sessionId": session, "modeId": "default"})
        mark = peer.mark()
        check_stop(await peer.prompt(session, "/plan on"))
        plan = Path(peer.text(mark).partition("Plan file: ")[2].strip())
        plan.parent.mkdir(parents=True, exist_ok=True)
        plan.write_text("# The plan\n", encoding="utf-8")
        peer.serve["session/request_permission"] = choose("plan_approve")
        mark, response = await play(peer, stage, session, use(tool_call("ExitPlanMode", {}, "p1")), say("done"))
        check_stop(response)
        expect("# The plan" in json.dumps(peer.asked("session/request_permission", mark)), "the plan is not shown")
        modes = [one["currentModeId"] for one in peer.of_kind("current_mode_update", mark)]
        expect_equal(modes, ["default"], "the modes after the approval")
        expect(peer.of_kind("config_option_update", mark), "no config_option_update tells of it")


def reply_with(result: Json) -> Serve:
    """Return what answers every request with this result."""

    async def serve(params: Json) -> Json:
        del params
        return result

    return serve
