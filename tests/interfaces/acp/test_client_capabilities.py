"""Files and terminals of the client in a whole session: the agent's tools work with them (acp spec 3.10)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest

from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from tests.support.acp.client import AcpClient, acp_client, using
from tests.support.acp.editor import Editor, Refusal
from tests.support.fakes import FakeModel
from tests.support.program.wire_process import Json, Place

pytestmark = pytest.mark.anyio

FS = {"fs": {"readTextFile": True, "writeTextFile": True}}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path).script("text: unused")


def a_call(name: str, call_id: str = "c1", **arguments: object) -> ToolCall:
    return ToolCall(call_id, Function(name, json.dumps(arguments)))


After: TypeAlias = Callable[[str], Awaitable[None]]
"""What is done when a method has been answered."""


async def _nothing(method: str) -> None:
    """Go on."""


@asynccontextmanager
async def answered_by(client: AcpClient, editor: Editor, after: After = _nothing) -> AsyncGenerator[None, None]:
    """Let the editor answer the agent, several calls at a time; every permission is given."""

    async def members(method: str, params: Json) -> Json:
        if method == "session/request_permission":
            return {"result": {"outcome": {"outcome": "selected", "optionId": "approve"}}}
        try:
            return {"result": await editor(method, params)}
        except Refusal as error:
            return {"error": {"code": -32603, "message": str(error)}}

    async def answer(line: Json) -> None:
        answer = await members(line["method"], line["params"])
        await client.send({"jsonrpc": "2.0", "id": line["id"], **answer})
        await after(line["method"])

    async def serve(line: Json) -> Json | None:
        tasks.start_soon(answer, line)
        return None

    async with anyio.create_task_group() as tasks:
        client.serve = serve
        yield
        tasks.cancel_scope.cancel()


def outputs(model: FakeModel) -> list[str]:
    """What the model read of its calls."""
    last = model.asked[-1].history
    return ["".join(getattr(part, "text", "") for part in one.content) for one in last if one.role == "tool"]


@pytest.mark.spec("A-100")
async def test_client_files_are_used(place: Place) -> None:
    path = place.work / "a.txt"
    path.write_text("on disk\n")
    other = place.work / "b.txt"
    other.write_text("only on disk\n")
    model = FakeModel(
        [
            [a_call("ReadFile", path="a.txt")],
            [a_call("WriteFile", path="a.txt", content="written\n")],
            [a_call("ReadFile", path="b.txt")],
            [a_call("WriteFile", path="b.txt", content="never\n")],
            [TextPart("done")],
        ]
    )
    editor = Editor(buffers={str(path): "not saved\n"})
    async with acp_client(place, adapt=using(model)) as client:

        async def refuse_from_then_on(method: str) -> None:
            if method == "fs/write_text_file":
                editor.refuses = {"fs/read_text_file", "fs/write_text_file"}

        async with answered_by(client, editor, refuse_from_then_on):
            await client.shake_hands(**FS)
            answer = await client.say(await client.new_session(place), "go")
        assert answer["result"]["stopReason"] == "end_turn"
    read, written, fallen_back, refused = outputs(model)
    assert "not saved" in read
    assert editor.buffers[str(path)] == "written\n"
    assert path.read_text() == "written\n"
    assert "success" in written.lower() or "written" in written.lower()
    assert "only on disk" in fallen_back
    assert "the client refused" in refused
    assert other.read_text() == "only on disk\n"


async def test_a_command_is_shown_in_a_terminal_of_the_editor(place: Place) -> None:
    model = FakeModel([[a_call("Shell", command="echo hello from $PWD")], [TextPart("done")]])
    editor = Editor()
    async with acp_client(place, adapt=using(model)) as client:
        async with answered_by(client, editor):
            await client.shake_hands(terminal=True)
            answer = await client.say(await client.new_session(place), "go")
        assert answer["result"]["stopReason"] == "end_turn"
        embedded = [
            update for update in client.updates("tool_call_update") if update.get("content", [{}])[0].get("terminalId")
        ]
        assert embedded[0]["content"] == [{"type": "terminal", "terminalId": "t1"}]
        last = [update for update in client.updates("tool_call_update") if update.get("status") == "completed"][-1]
        assert last.get("content", embedded[0]["content"]) == embedded[0]["content"]
    assert f"hello from {place.work}" in outputs(model)[0]
    assert editor.terminals == {}


@pytest.mark.spec("A-68", "T-61")
async def test_cancel_kills_and_releases_the_terminal(place: Place) -> None:
    model = FakeModel([[a_call("Shell", command="sleep 60")]])
    editor = Editor()
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands(terminal=True)
        session_id = await client.new_session(place)

        async def cancel_when_it_runs(method: str) -> None:
            if method == "terminal/create":
                await client.notify("session/cancel", {"sessionId": session_id})

        async with answered_by(client, editor, cancel_when_it_runs):
            answer = await client.say(session_id, "go")
        assert answer["result"]["stopReason"] == "cancelled"
    assert [name for name in editor.methods() if name in ("terminal/kill", "terminal/release")] == [
        "terminal/kill", "terminal/release",
    ]  # fmt: skip
