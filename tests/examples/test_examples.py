"""The programs of `examples/`: each runs as its first comment says, with a scripted model or a server of the test."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
import uvicorn
from aiohttp import web

from chat_bot import serve
from custom_model import OllamaModel
from kimi.domain.content.message import Function, Message, user_message
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.errors import APIConnectionError, APIEmptyResponseError, APIStatusError
from kimi.interfaces.embed import ResponseEnd, ToolCall, ToolResult, open_agent, scripted_call, scripted_model
from tests.support.postgres_server import open_schema
from web_app import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.spec("R-429")]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PUBLIC = ("kimi.interfaces.embed", "kimi.interfaces.agent_sdk", "kimi.application.ports")


@pytest.fixture(autouse=True)
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A share directory of the test's own, whose configuration names the model that plays scripts."""
    share = tmp_path / "share"
    share.mkdir()
    (share / "config.toml").write_text(
        'default_model = "m"\n[providers.p]\ntype = "_scripted_echo"\nbase_url = ""\napi_key = ""\n'
        '[models.m]\nprovider = "p"\nmodel = "m"\nmax_context_size = 100000\n'
    )
    monkeypatch.setenv("KIMI_SHARE_DIR", str(share))
    monkeypatch.setenv("KIMI_SCRIPTED_ECHO_SCRIPTS", str(tmp_path / "scripts.txt"))
    return share


def play(tmp_path: Path, *scripts: str) -> None:
    """Say what the configured model answers."""
    (tmp_path / "scripts.txt").write_text("\n---\n".join(scripts))


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example in a directory, as its user does."""
    command = [sys.executable, str(EXAMPLES / arguments[0]), *arguments[1:]]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=50, check=False)


# --- all of them --------------------------------------------------------------------------------------------------


def test_every_example_says_how_to_run_it_and_stands_in_the_list() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    names = sorted(path.name for path in EXAMPLES.glob("*.py"))
    assert sorted(re.findall(r"\]\((\w+\.py)\)", page)) == names
    for name in set(names) - {"sql_sessions.py"}:  # a part of two others
        first = ast.get_docstring(ast.parse((EXAMPLES / name).read_text(encoding="utf-8")))
        assert first is not None
        assert f"examples/{name}" in first, name


def test_examples_import_public_modules_only() -> None:
    nodes = [
        node
        for path in EXAMPLES.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kimi")
    ]
    assert len(nodes) >= 10
    assert [node.module for node in nodes if not (node.module or "").startswith(PUBLIC)] == []


# --- programs -----------------------------------------------------------------------------------------------------


def test_custom_tool_has_less_than_twenty_lines(tmp_path: Path) -> None:
    assert len((EXAMPLES / "custom_tool.py").read_text(encoding="utf-8").splitlines()) < 20
    done = run(tmp_path, "custom_tool.py")
    assert (done.stdout, done.stderr) == ("It has four words.\n", "")


def test_tested_agent_passes_its_tests(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, str(EXAMPLES / "tested_agent.py")], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_sqlite_store_goes_on_with_its_session(tmp_path: Path) -> None:
    done = run(tmp_path, "sqlite_store.py")
    assert done.returncode == 0, done.stderr
    assert "Hello again. 4 messages in" in done.stdout
    assert "['Hi!']" in done.stdout


def test_postgres_store_goes_on_with_its_session(tmp_path: Path) -> None:
    done = run(tmp_path, "postgres_store.py", open_schema())
    assert done.returncode == 0, done.stderr
    assert "Hello again. 4 messages in" in done.stdout


def test_plain_threads_summarise_files_side_by_side(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("text")
    done = run(tmp_path, "plain_threads.py", "a", "b", "none")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["a: I have read it.", "b: I have read it."]
    assert lines[2].startswith("none: ")
    assert "I have read it" not in lines[2]


@pytest.mark.parametrize(
    ("scripts", "status"),
    [
        (['text: {"summary": "fine", "findings": []}'], 0),
        (['text: {"summary": "x", "findings": [{"path": "a.py", "line": 3, "text": "no docstring"}]}'], 1),
        (["text: I like it.", 'text: {"summary": "fine", "findings": []}'], 0),
        (["text: I like it.", "text: Really."], 2),
        ([scripted_call("WriteFile", path="new", content="x"), 'text: {"summary": "fine", "findings": []}'], 0),
        (["error: 400 refused"], 2),
        (["error: connection gone"] * 3, 75),
    ],
)
def test_ci_job_prints_a_verdict_and_says_it_by_its_status(tmp_path: Path, scripts: Sequence[str], status: int) -> None:
    work = tmp_path / "work"
    work.mkdir()
    play(tmp_path, *scripts)
    done = run(work, "ci_job.py", ".", "Is it documented?")
    assert done.returncode == status, done.stderr
    if status in (2, 75):
        assert "no verdict: " in done.stderr
        assert not done.stdout
    else:
        assert bool(json.loads(done.stdout)["findings"]) == (status == 1)
    assert list(work.iterdir()) == []


# --- the model adapter --------------------------------------------------------------------------------------------


@asynccontextmanager
async def ollama(
    *answers: Sequence[Any], status: int = 200, gone: anyio.Event | None = None
) -> AsyncGenerator[tuple[str, list[Any]], None]:
    """A server that speaks Ollama's interface: one answer a request, each an object a line.

    None among them stalls until the client goes away, which sets `gone`.
    """
    asked: list[Any] = []
    pending = list(answers)

    async def chat(request: web.Request) -> web.StreamResponse:
        asked.append(await request.json())
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for piece in pending.pop(0) if pending else ():
            if piece is None:
                try:
                    await asyncio.sleep(60)
                finally:
                    if gone is not None:
                        gone.set()
            await response.write(json.dumps(piece).encode() + b"\n")
        return response

    app = web.Application()
    app.router.add_post("/api/chat", chat)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    finally:
        await runner.cleanup()


def say(text: str) -> Any:
    return {"message": {"role": "assistant", "content": text}, "done": False}


DONE = {"message": {"content": ""}, "done": True, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 2}


async def test_custom_model_drives_an_agent_with_its_tool_calls(tmp_path: Path) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    call = {"message": {"tool_calls": [{"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}]}, "done": False}
    thinking = {"message": {"thinking": "hm"}, "done": False}
    answers = ([thinking, call, DONE], [say("It "), say("is 3."), DONE])
    async with (
        ollama(*answers) as (url, asked),
        open_agent(tmp_path, OllamaModel("m", url), tools=[add]) as agent,
    ):
        turn = agent.prompt("1 + 2?")
        seen = [event async for event in turn]
        assert turn.text == "It is 3."
        assert agent.usage.turn.tokens.total == 18
    assert [one.return_value.output for one in seen if isinstance(one, ToolResult)] == ["3"]
    assert any(isinstance(one, ThinkPart) for one in seen)
    assert "add" in [tool["function"]["name"] for tool in asked[0]["tools"]]
    assert [message["role"] for message in asked[1]["messages"]][-2:] == ["assistant", "tool"]


async def read(model: OllamaModel, history: Sequence[Message] = ()) -> list[Any]:
    async with model.stream("be brief", history or [user_message("hi")], (), 0) as items:
        return [item async for item in items]


async def test_custom_model_keeps_the_promises_of_the_port() -> None:
    function: dict[str, Any] = {"name": "f", "arguments": {}}
    call = {"message": {"tool_calls": [{"function": function}] * 2}}
    async with ollama([say("a"), call, DONE]) as (url, _):
        items = await read(OllamaModel("m", url))
    calls = [item for item in items if isinstance(item, ToolCall)]
    assert [type(item) for item in items] == [TextPart, ToolCall, ToolCall, ResponseEnd]
    assert len({one.id for one in calls}) == 2
    assert items[-1].stop_reason == "tool_calls"


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        ([DONE], 200, APIEmptyResponseError),
        ([say("a")], 200, APIConnectionError),
        (["no object", DONE], 200, APIConnectionError),
        ([], 500, APIStatusError),
        ([say("a"), {"error": "out of memory"}], 200, APIStatusError),
    ],
)
async def test_custom_model_raises_errors_of_the_tree_only(answer: Any, status: int, error: type[Exception]) -> None:
    async with ollama(answer, status=status) as (url, _):
        with pytest.raises(error):
            await read(OllamaModel("m", url))
    with pytest.raises(APIConnectionError, match="cannot be reached"):
        await read(OllamaModel("m", url))


async def test_custom_model_takes_a_history_whose_arguments_are_no_object() -> None:
    calls = tuple(ToolCall(str(number), Function("f", text)) for number, text in enumerate(("{", "[1]", '{"a": 1}')))
    history = [user_message("hi"), Message("assistant", (), tool_calls=calls)]
    async with ollama([say("a"), DONE]) as (url, asked):
        await read(OllamaModel("m", url), history)
    sent = [call["function"]["arguments"] for call in asked[0]["messages"][-1]["tool_calls"]]
    assert sent == [{"arguments": "{"}, {"arguments": "[1]"}, {"a": 1}]


async def test_custom_model_closes_the_connection_when_the_turn_is_left(tmp_path: Path) -> None:
    gone = anyio.Event()
    async with ollama([say("a"), None], gone=gone) as (url, _):
        async with open_agent(tmp_path, OllamaModel("m", url)) as agent:
            async for event in agent.prompt("go"):
                if isinstance(event, TextPart):
                    break
        with anyio.fail_after(20):
            await gone.wait()


# --- the chat bot -------------------------------------------------------------------------------------------------


class User:
    """A user of the chat."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def say(self, *lines: str) -> None:
        self._writer.write("".join(f"{line}\n" for line in lines).encode())
        await self._writer.drain()

    async def hear(self, beginning: str) -> str:
        """Return the next line that begins so."""
        with anyio.fail_after(20):
            while line := (await self._reader.readline()).decode().rstrip("\n"):
                if line.startswith(beginning):
                    return line
        raise AssertionError(f"nothing begins with {beginning!r}")

    async def leave(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def chat(directory: Path, *scripts: str) -> AsyncGenerator[Callable[[], Any], None]:
    """The bot with a scripted model; gives what connects a user."""
    server = await serve(0, directory, scripted_model(*scripts))
    port = server.sockets[0].getsockname()[1]

    async def connect() -> User:
        return User(*await asyncio.open_connection("127.0.0.1", port))

    try:
        yield connect
    finally:
        server.close()


WRITE = scripted_call("WriteFile", path="new.txt", content="x")


@pytest.mark.parametrize(("answer", "is_written"), [("yes", True), ("always", True), ("not there", False)])
async def test_chat_bot_passes_on_approvals(tmp_path: Path, answer: str, is_written: bool) -> None:
    async with chat(tmp_path, WRITE, "text: as you wish") as connect:
        user = await connect()
        await user.say("ada", "write a file")
        assert "new.txt" in await user.hear("? ")
        await user.say(answer)
        assert await user.hear("as you")
        await user.leave()
    assert (tmp_path / "new.txt").exists() == is_written


async def test_chat_bot_goes_on_with_the_session_of_a_user(tmp_path: Path) -> None:
    async with chat(tmp_path, "text: first", WRITE, "text: second") as connect:
        user = await connect()
        await user.say("ada", "/clear")
        assert await user.hear("first")
        await user.leave()
        again = await connect()
        await again.say("ada", "write")
        await again.hear("? ")
        await again.say("/stop")
        assert await again.hear("(nothing")
        await again.say("and now?")
        assert await again.hear("second")
        await again.leave()
    async with open_agent(tmp_path, scripted_model(), session="chat:ada", must_exist=True) as agent:
        prompts = [message for message in agent.history if message.role == "user"]
        assert len(prompts) >= 3


async def test_chat_bot_answers_messages_that_come_at_once_one_after_the_other(tmp_path: Path) -> None:
    async with chat(tmp_path, "text: first", "text: second") as connect:
        user = await connect()
        await user.say("ada", "one", "two")
        assert await user.hear("first")
        assert await user.hear("second")
        await user.leave()


async def test_chat_bot_does_not_wait_for_a_user_who_has_gone(tmp_path: Path) -> None:
    async with chat(tmp_path, WRITE, "text: second") as connect:
        user = await connect()
        await user.say("ada", "write a file")
        await user.leave()
        with anyio.fail_after(20):
            while True:  # the session is free when the turn has ended
                again = await connect()
                await again.say("ada")
                if "Hello" in await again.hear(""):
                    break
                await again.leave()
        await again.leave()
    assert not (tmp_path / "new.txt").exists()


# --- the web application ------------------------------------------------------------------------------------------


@contextmanager
def served(directory: Path, *scripts: str) -> Generator[str, None, None]:
    """The application on a real server of the loopback interface, in a thread."""
    config = uvicorn.Config(create_app(directory, scripted_model(*scripts)), port=0, log_level="error", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


async def stream(client: aiohttp.ClientSession, url: str, text: str) -> AsyncGenerator[tuple[str, Any], None]:
    """The server-sent events of a prompt: their kind and data."""
    async with client.post(f"{url}/prompt", json={"text": text}) as response:
        assert response.content_type == "text/event-stream"
        kind = "message"
        async for line in response.content:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                yield kind, json.loads(value) if kind == "message" else value


async def test_web_application_streams_events_and_takes_approvals(tmp_path: Path) -> None:
    with served(tmp_path, WRITE, "text: done") as base:
        async with aiohttp.ClientSession() as client:
            async with client.post(f"{base}/sessions") as opened:
                session = f"{base}/sessions/{(await opened.json())['id']}"
            kinds: list[str] = []
            async for kind, data in stream(client, session, "write"):
                kinds.append(data["type"] if kind == "message" else f"{kind}: {data}")
                if kinds[-1] == "ApprovalRequest":
                    answer = f"{session}/approvals/{data['payload']['id']}"
                    for expected in (True, False):
                        async with client.post(answer, json={"response": "approve"}) as answered:
                            assert await answered.json() == {"resolved": expected}
            assert (kinds[0], kinds[-2], kinds[-1]) == ("TurnBegin", "TurnEnd", "end: finished")
            assert "ToolResult" in kinds
            failed = [one async for one in stream(client, session, "again")]
            assert failed[-1][0] == "error"
            async with client.delete(session) as closed:
                assert closed.status == 200
            async with client.delete(session) as closed:
                assert closed.status == 404
    assert (tmp_path / "new.txt").exists()


async def test_browser_that_goes_away_cancels_its_turn(tmp_path: Path) -> None:
    with served(tmp_path, scripted_call("Shell", command="sleep 50"), "text: again") as base:
        async with aiohttp.ClientSession() as client:
            async with client.post(f"{base}/sessions") as opened:
                session = f"{base}/sessions/{(await opened.json())['id']}"
            events = stream(client, session, "wait")
            async for _, data in events:
                if data["type"] == "ApprovalRequest":
                    break
            await events.aclose()
            with anyio.fail_after(20):
                while True:
                    ends = [one async for one in stream(client, session, "and now?")]
                    if ends[-1] == ("end", "finished"):
                        break
                    await anyio.sleep(0.02)
