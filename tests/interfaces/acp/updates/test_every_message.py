"""One long visit that makes the agent send whatever it can send; the client checks every line of it (A-112)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.acp.client import AcpClient, acp_client, kind_of
from tests.support.program.wire_process import Json, Place
from tests.support.providers.scripts import call, shell, step

pytestmark = pytest.mark.anyio

QUESTION = {"question": "Which?", "header": "Pick", "options": [{"label": "A"}, {"label": "B", "description": "b"}]}
DONE = step("text: Done.")
ABLE: Json = {"elicitation": {"form": {}}, "session": {"compaction": {}, "plan": {}, "configOptions": {"boolean": {}}}}


async def approve(request: Json) -> Json:
    """A client that says yes, and picks the first choice."""
    if request["method"] == "elicitation/create":
        return {"result": {"action": "accept", "content": {"q0": "A"}}}
    return {"result": {"outcome": {"outcome": "selected", "optionId": request["params"]["options"][0]["optionId"]}}}


async def every_tool(client: AcpClient, place: Place) -> str:
    """A session whose turns use most of the tools; its id."""
    report = "text: " + "I looked at everything and found nothing that has to be done there. " * 5
    plan = call("p2", "WriteFile", {"path": "PLAN", "content": "# Plan"})
    place.script(
        step(
            "usage: " + json.dumps({"input_other": 10, "output": 5}),
            "think: I think.",
            "text: I look.",
            call("r1", "ReadFile", {"path": "a.txt"}),
            call("g1", "Grep", {"pattern": "one", "output_mode": "content"}),
            call("t1", "SetTodoList", {"todos": [{"title": "Do it", "status": "in_progress"}]}),
            call("q1", "AskUserQuestion", {"questions": [QUESTION]}),
            call("u1", "NoSuchTool", {"secret": 1}),
            call("b1", "Shell", "{bad"),
        ),
        step(
            call("e1", "StrReplaceFile", {"path": "a.txt", "edit": {"old": "one", "new": "1"}}),
            call("w1", "WriteFile", {"path": "b.txt", "content": "new\n"}),
            shell("s1", "echo hello; exit 3"),
            call("a1", "Agent", {"description": "Look", "prompt": "Look.", "subagent_type": "coder"}),
        ),
        step(report),
        DONE,
        step(call("p1", "EnterPlanMode")),
        step(plan),
        step(call("p3", "ExitPlanMode")),
        *[DONE] * 20,
    )
    session_id = await client.new_session(place)
    await client.say(session_id, "go")
    return session_id


@pytest.mark.spec("A-112")
@pytest.mark.parametrize("capabilities", [{}, ABLE], ids=["plain", "able"])
async def test_everything_that_is_sent_is_valid(tmp_path: Path, capabilities: Json) -> None:
    place = Place(tmp_path, capabilities=("image_in", "thinking"))
    (place.work / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    place.script(DONE)
    async with acp_client(place) as client:
        client.serve = approve
        await client.shake_hands(**capabilities)
        session_id = await every_tool(client, place)
        at = {"sessionId": session_id}
        opened: Json = {**at, "cwd": str(place.work), "mcpServers": []}
        for text in ("plan first", "/plan", "/plan off", "/yolo", "/compact", "/help", "/nonsense"):
            await client.say(session_id, text)
        await client.result("session/set_mode", {**at, "modeId": "plan"})
        await client.result("session/set_config_option", {**at, "configId": "mode", "value": "default"})
        await client.result("session/set_model", {**at, "modelId": "m,thinking"})
        await client.result("_session/steering", {**at, "prompt": [{"type": "text", "text": "more"}]})
        fork = await client.result("session/fork", opened)
        await client.result("session/close", at)
        await client.result("session/load", opened)
        await client.result("session/resume", opened)
        await client.result("session/list", {})
        for method in ("nonsense", "logout", "_x/y", "session/prompt", "session/load", "authenticate"):
            await client.error(method, {})
        await client.send_bytes(b"{bad\n[]\n")
        await client.until(lambda line: line.get("error", {}).get("code") == -32600)
        await client.result("session/delete", {"sessionId": fork["sessionId"]})
        await client.result("session/delete", at)
        lines = client.lines
    kinds = {kind_of(line) for line in lines if kind_of(line)}
    assert kinds >= {
        "user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan",
        "available_commands_update", "current_mode_update", "config_option_update", "session_info_update",
        "usage_update",
    }  # fmt: skip
    methods = {line["method"] for line in lines if "method" in line}
    assert methods == {"session/update", "session/request_permission"} | (
        {"elicitation/create"} if capabilities else set()
    )


@pytest.mark.spec("A-107")
@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume", "session/fork"])
@pytest.mark.parametrize(
    "entry",
    [
        {"name": "broken", "command": "x", "args": []},
        {"name": "broken", "type": "http", "url": "https://a.b"},
        {"name": "broken", "type": "acp", "id": "1"},
        {"name": "broken", "type": "riddle"},
    ],
    ids=["no env", "no headers", "acp", "unknown"],
)
async def test_an_mcp_entry_that_cannot_be_used_is_named(tmp_path: Path, method: str, entry: Json) -> None:
    place = Place(tmp_path).script(DONE)
    async with acp_client(place) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await client.say(session_id, "go")
        params = {"cwd": str(place.work), "mcpServers": [entry]}
        error = await client.error(method, params if method == "session/new" else {**params, "sessionId": session_id})
    assert error["code"] == -32602
    assert "broken" in error["data"]["details"]


@pytest.mark.spec("A-54")
@pytest.mark.parametrize("damage", [b"\x00\x00\x00", b'{"timestamp": 1, "message": {"type"', b"[1]", b'{"a": 1}'])
async def test_damaged_line_loses_only_itself(tmp_path: Path, damage: bytes) -> None:
    place = Place(tmp_path).script(step("text: one"), step("text: two"))
    async with acp_client(place) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await client.say(session_id, "first")
        await client.say(session_id, "second")
    log = place.session_dirs()[-1] / "wire.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if b'"one"' in line)
    log.write_bytes(b"".join([*lines[:at], damage + b"\n", *lines[at:]]))
    async with acp_client(place) as client:
        await client.shake_hands()
        await client.result("session/load", {"sessionId": session_id, "cwd": str(place.work), "mcpServers": []})
        shown = [update["content"]["text"] for update in client.updates() if "content" in update]
    assert shown == ["first", "one", "second", "two"]
