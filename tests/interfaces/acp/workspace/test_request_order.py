"""Requests of tools to the editor go out after the updates that announce their calls (acp spec 3.3, 3.10)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from tests.support.acp.client import AcpClient, acp_client, using
from tests.support.acp.editor import Editor
from tests.support.fakes import FakeModel, Script
from tests.support.program.wire_process import Json, Place

pytestmark = pytest.mark.anyio

EDITING = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
ROUNDS = 15
METHODS = {"fs/read_text_file": "ReadFile", "fs/write_text_file": "WriteFile", "terminal/create": "Shell"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path).script("text: unused")
    (found.work / "a.txt").write_text("one\n")
    return found


def a_call(call_id: str, name: str, **arguments: object) -> ToolCall:
    return ToolCall(call_id, Function(name, json.dumps(arguments)))


def working_calls(number: int) -> list[Script]:
    """Steps with a call to each kind of method of an editor: one call, then several at a time."""
    read, write = a_call(f"r{number}", "ReadFile", path="a.txt"), f"new{number}.txt"
    return [
        [read],
        [a_call(f"w{number}", "WriteFile", path=write, content="x\n")],
        [a_call(f"s{number}", "Shell", command="true")],
        [
            TextPart("All at once."),
            a_call(f"r{number}-2", "ReadFile", path="a.txt"),
            a_call(f"s{number}-2", "Shell", command="true"),
            a_call(f"w{number}-2", "WriteFile", path=f"more{number}.txt", content="y\n"),
        ],
    ]


@asynccontextmanager
async def served(client: AcpClient, editor: Editor) -> AsyncGenerator[None, None]:
    """Let the editor answer the agent, several calls at a time."""

    async def answer(line: Json) -> None:
        if line["method"] == "session/request_permission":
            result: Json = {"outcome": {"outcome": "selected", "optionId": "approve"}}
        else:
            result = dict(await editor(line["method"], line["params"]))
        await client.send({"jsonrpc": "2.0", "id": line["id"], "result": result})

    async def serve(line: Json) -> Json | None:
        tasks.start_soon(answer, line)
        return None

    async with anyio.create_task_group() as tasks:
        client.serve = serve
        yield
        tasks.cancel_scope.cancel()


async def play(place: Place, scripts: Sequence[Script], mode: str = "yolo") -> list[Json]:
    """One prompt in a session of this mode; returns every line of the agent in order."""
    async with acp_client(place, adapt=using(FakeModel(list(scripts)))) as client:
        async with served(client, Editor()):
            await client.shake_hands(**EDITING)
            session_id = await client.new_session(place)
            await client.result("session/set_mode", {"sessionId": session_id, "modeId": mode})
            answer = await client.say(session_id, "go")
        assert answer["result"]["stopReason"] == "end_turn"
        return client.lines


def early_requests(lines: Sequence[Json]) -> list[str]:
    """The requests that outnumber the calls of their tool that an update has said to be in progress.

    Each call of the scripts makes one request, and no two calls of one tool run at a time.
    """
    begun: dict[str, int] = {"ReadFile": 0, "WriteFile": 0, "Shell": 0}
    asked = dict.fromkeys(begun, 0)
    tools: dict[str, str] = {}
    found: list[str] = []
    for line in lines:
        update = line.get("params", {}).get("update", {})
        if update.get("sessionUpdate") == "tool_call":
            tools[update["toolCallId"]] = update["_meta"]["kimi"]["toolName"]
        if update.get("status") == "in_progress" and tools.get(update["toolCallId"]) in begun:
            begun[tools[update["toolCallId"]]] += 1
        tool = METHODS.get(line.get("method", ""))
        if tool is not None:
            asked[tool] += 1
            if asked[tool] > begun[tool]:
                found.append(f"{line['method']} {asked[tool]}")
    assert min(asked.values()) > 0
    return found


@pytest.mark.spec("A-76")
async def test_requests_of_a_call_follow_its_in_progress_update(place: Place) -> None:
    scripts = [script for number in range(ROUNDS) for script in working_calls(number)]
    assert early_requests(await play(place, [*scripts, [TextPart("done")]])) == []


@pytest.mark.spec("A-76")
async def test_requests_of_a_subagent_follow_their_in_progress_updates(place: Place) -> None:
    report = [TextPart("I looked at the file and ran what was to be run, and nothing was amiss. " * 5)]
    scripts: list[Script] = []
    for number in range(ROUNDS):
        agent = a_call(f"a{number}", "Agent", description="Look", prompt="Look.", subagent_type="coder")
        scripts += [[agent], *working_calls(number), report]
    assert early_requests(await play(place, [*scripts, [TextPart("done")]])) == []


@pytest.mark.spec("A-76", "A-100")
async def test_file_of_a_diff_is_read_after_its_call_is_announced(place: Place) -> None:
    edit = a_call("e1", "StrReplaceFile", path="a.txt", edit={"old": "one", "new": "two"})
    lines = await play(place, [[edit], [TextPart("done")]], mode="default")
    steps = list(filter(None, map(name_step, lines)))
    assert list(dict.fromkeys(steps)) == [
        "pending", "fs/read_text_file", "session/request_permission", "in_progress", "fs/write_text_file", "completed",
    ]  # fmt: skip


def name_step(line: Json) -> str | None:
    """The method of a request, or the status that a call got; None for any other line."""
    if line.get("method") != "session/update":
        return line.get("method")
    return line["params"]["update"].get("status")
