"""The public face for embedders."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

import kimi.interfaces.embed
from kimi.application.ports import ChatModel, SessionStore
from kimi.domain.content.message import user_message
from kimi.domain.content.parts import TextPart
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.store.memory import MemoryStore
from kimi.interfaces.embed import App, SessionSelector, Settings, open_conversation, providers, serve_wire
from tests.support.fakes import FakeModel

pytestmark = pytest.mark.anyio


async def test_the_wire_runs_in_process_over_any_streams_with_swapped_adapters(tmp_path: Path) -> None:
    model = FakeModel([[TextPart("from my own model")]])
    store: SessionStore = MemoryStore(str(tmp_path))
    settings = Settings(share_dir=str(tmp_path / "share"), work_dir=str(tmp_path))

    def open_model(session_id: str, client: Callable[[], str]) -> ChatModel:
        return model

    app = App(
        settings=providers.Object(settings), open_model=providers.Object(open_model), store=providers.Object(store)
    )
    calls = [
        {"id": "1", "method": "initialize", "params": {"protocol_version": "1.10"}},
        {"id": "2", "method": "prompt", "params": {"user_input": "hello"}},
    ]
    answered = anyio.Event()
    lines: list[dict[str, object]] = []
    blocks = [b"".join(json.dumps(call).encode() + b"\n" for call in calls)]

    async def read() -> bytes:
        if blocks:
            return blocks.pop()
        await answered.wait()
        return b""

    async def write(data: bytes) -> None:
        lines.extend(json.loads(line) for line in data.splitlines())
        if any(line.get("id") == "2" for line in lines):
            answered.set()

    with anyio.fail_after(10):
        await serve_wire(app, read, write)

    assert lines[-1] == {"jsonrpc": "2.0", "id": "2", "result": {"status": "finished"}}
    assert model.asked[0].history[0].role == "user"
    assert not (tmp_path / "share" / "sessions").exists()


class _SlowToClose(HttpClient):
    """An HTTP layer with connections that take a moment to close."""

    async def close(self) -> None:
        await anyio.sleep(0.01)


async def test_cancelled_conversation_releases_its_session(tmp_path: Path) -> None:
    store: SessionStore = MemoryStore(str(tmp_path))
    settings = Settings(share_dir=str(tmp_path / "share"), work_dir=str(tmp_path))
    http = _SlowToClose({})
    app = App(settings=providers.Object(settings), store=providers.Object(store), http=providers.Object(http))

    with anyio.CancelScope() as scope:
        async with open_conversation(app, SessionSelector("s")) as conversation:
            conversation.context.append(user_message("hello"))
            scope.cancel()
            await anyio.sleep_forever()

    async with open_conversation(app, SessionSelector("s")) as again:
        assert again.id == "s"


ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PUBLIC = {
    "kimi.application.ports",
    "kimi.interfaces.agent_sdk",
    "kimi.interfaces.embed",
    "kimi.interfaces.embed.models",
    "kimi.interfaces.embed.storing",
}
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs/embedding.md").read_text(encoding="utf-8"), re.DOTALL)


def test_examples_import_public_modules_only() -> None:
    blocks = [
        textwrap.dedent(block)
        for page in PAGES
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    ]
    assert set(EXAMPLES) <= set(blocks)
    nodes = [node for block in blocks for node in ast.walk(ast.parse(block))]
    ours = [node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kimi")]
    assert {node.module for node in ours} <= PUBLIC
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    assert not [name for name in plain if name.startswith("kimi")]
    named = {alias.name for node in ours if node.module == "kimi.interfaces.embed" for alias in node.names}
    assert named <= set(kimi.interfaces.embed.__all__)


def run_example(directory: Path, opening: str, more: str = "") -> str:
    """What the example of the page says that holds `opening`."""
    (code,) = [block for block in EXAMPLES if opening in block]
    return run_code(directory, code + more)


def run_code(directory: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env={**os.environ, "KIMI_SHARE_DIR": str(directory / "share")},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_of_the_readme_has_less_than_twenty_lines_and_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if "open_agent" in block]
    assert len(code.splitlines()) < 20
    assert run_code(tmp_path, code) == "It has four words.\n"


def test_the_first_example_runs(tmp_path: Path) -> None:
    assert run_example(tmp_path, "def count_words").splitlines() == ["the tool said 4", "It has four words."]


def test_the_example_with_functions_as_tools_runs(tmp_path: Path) -> None:
    assert run_example(tmp_path, "def send_mail").strip() == "The mail is out."


def test_the_import_line_for_programs_of_the_sdk_works(tmp_path: Path) -> None:
    assert run_example(tmp_path, "kimi_agent_sdk import", "\nprint(prompt, Session)").startswith("<function prompt")


def test_the_example_with_a_model_of_its_own_runs(tmp_path: Path) -> None:
    assert run_example(tmp_path, "class MyModel").splitlines() == ["Hello from my own model.", "finished"]


def test_the_example_with_a_tool_of_its_own_runs(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text('agent: {extend: default, tools: ["ReadFile", "my_pkg:Lookup"]}')
    assert run_example(tmp_path, "class Lookup").split() == ["ReadFile", "Lookup"]


def test_the_example_that_replaces_a_built_in_tool_runs(tmp_path: Path) -> None:
    more = "\nreplace_shell(object)\nprint(SessionContainer.tools.providers['kimi_cli.tools.shell:Shell']())"
    assert run_example(tmp_path, "def replace_shell", more).startswith("<object object")
