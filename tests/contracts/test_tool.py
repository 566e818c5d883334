"""The contract of `Tool`: for a tool of a plugin, functions of an embedding program, and every built-in one but those
of plan mode, whose calls change what the next call may do.

A new tool joins by one line in `CASES`: how it is made, arguments that work, arguments that do not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from kimi.application.agents.run_subagent import SubagentResult, SubagentTask
from kimi.application.ports import Tool
from kimi.application.settings.settings import ShellSettings
from kimi.domain.background import BackgroundTaskSpec
from kimi.domain.permissions.approval import Policy, ProposedAction, check_policy
from kimi.domain.tools.plugin import InstalledPlugins
from kimi.domain.tools.tool import TodoItem, ToolReturnValue
from kimi.infrastructure.json_schema import check_arguments
from kimi.infrastructure.plugins.plugin_files import load_plugin
from kimi.infrastructure.plugins.plugin_tool import PluginToolDeps, make_plugin_tools
from kimi.infrastructure.sandbox.sandbox import ConfinedCommand
from kimi.infrastructure.tools.dialog.ask_user_question import AskUserQuestionTool
from kimi.infrastructure.tools.dialog.send_dmail import SendDMailTool
from kimi.infrastructure.tools.dialog.set_todo_list import SetTodoListTool
from kimi.infrastructure.tools.dialog.subagents import AgentTool, CreateSubagentTool, TaskTool
from kimi.infrastructure.tools.dialog.think import ThinkTool
from kimi.infrastructure.tools.files.read_media_file import ReadMediaFileTool
from kimi.infrastructure.tools.shell.background_tasks import TaskListTool, TaskOutputTool, TaskStopTool
from kimi.infrastructure.tools.shell.shell import ShellTool
from kimi.infrastructure.tools.web.fetch_url import FetchUrlTool
from kimi.infrastructure.tools.web.search_web import SearchWebTool
from kimi.infrastructure.web.page_fetcher import FetchedPage
from kimi.infrastructure.web.vendor_service import SearchResult
from kimi.interfaces.embed import FunctionTool
from tests.support.background_tasks import FakeTasks
from tests.support.file_tools import CONTEXT, Files, brief
from tests.support.plugins.plugin_directories import write_plugin

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Case:
    """`asks`: does a call with the good arguments have an effect? `creates`: a file that only `run` makes."""

    make: Callable[[Files], Tool]
    good: dict[str, Any]
    bad: dict[str, Any]
    asks: bool = False
    creates: str | None = None
    files: dict[str, str | bytes] = field(default_factory=dict[str, str | bytes])


def _todo(files: Files) -> Tool:
    items: list[TodoItem] = []

    def write(changed: tuple[TodoItem, ...]) -> None:
        items[:] = changed

    return SetTodoListTool(lambda: items, write)


def _shell(files: Files) -> Tool:
    return ShellTool(files.workspace, ShellSettings(), lambda name: None)


def _plugin(files: Files) -> Tool:
    plugin = load_plugin(str(write_plugin(files.work_dir.parent / "plugins")))
    environment = {"PATH": os.environ["PATH"]}
    deps = PluginToolDeps(environment, check_arguments, _unconfined, lambda name: None)
    return make_plugin_tools(InstalledPlugins((plugin,)), frozenset(), deps)[0]


async def _unconfined(words: Sequence[str]) -> ConfinedCommand | None:
    return None


async def _nothing_found(query: str, limit: int, include_content: bool, call_id: str) -> list[SearchResult]:
    return []


async def _page(url: str) -> FetchedPage:
    return FetchedPage(200, "text/plain", None, b"text")


def _over_tasks(made: Callable[[FakeTasks], Tool]) -> Callable[[Files], Tool]:
    """The tool over tasks of which one runs."""

    def make(files: Files) -> Tool:
        tasks = FakeTasks()
        tasks.start(BackgroundTaskSpec("sleep 9", "a job", ("sleep", "9"), 60))
        return made(tasks)

    return make


async def _reported(order: SubagentTask, call_id: str) -> SubagentResult:
    return SubagentResult("completed", "done", "a1", order.type)


def _not_started(order: SubagentTask, call_id: str, failure_text: Callable[[SubagentResult], str]) -> SubagentResult:
    return SubagentResult("failed", "not here")


def _double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def _count(words: list[str]) -> int:
    """Count words."""
    return len(words)


TEXT: dict[str, str | bytes] = {"a.txt": "one\ntwo\n"}

CASES: dict[str, Case] = {
    "ReadFile": Case(lambda files: files.read, {"path": "a.txt"}, {"path": 1}, files=TEXT),
    "WriteFile": Case(
        lambda files: files.write, {"path": "new.txt", "content": "x"}, {"path": "new.txt"}, True, "new.txt"
    ),
    "StrReplaceFile": Case(
        lambda files: files.edit,
        {"path": "a.txt", "edit": {"old": "one", "new": "1"}},
        {"path": "a.txt", "edit": "one"},
        True,
        files=TEXT,
    ),
    "Glob": Case(lambda files: files.glob, {"pattern": "*.txt"}, {}, files=TEXT),
    "Grep": Case(lambda files: files.grep, {"pattern": "one"}, {"pattern": "x", "head_limit": -1}, files=TEXT),
    "Shell": Case(_shell, {"command": "echo x > new.txt"}, {"command": 1}, True, "new.txt"),
    "greet": Case(_plugin, {"name": "Ada"}, {"name": 1}, True),
    "_double": Case(lambda files: FunctionTool(_double, ask=True), {"number": 2}, {"number": "two"}, True),
    "_count": Case(lambda files: FunctionTool(_count, read_only=True), {"words": ["a"]}, {"words": "a"}),
    "ReadMediaFile": Case(
        lambda files: ReadMediaFileTool(files.workspace, files.policy, frozenset({"image_in"})),
        {"path": "a.gif"},
        {"path": 1},
        files={"a.gif": b"GIF89a\1\0\1\0\0\0\0;"},
    ),
    "TaskList": Case(_over_tasks(TaskListTool), {}, {"limit": 0}),
    "TaskOutput": Case(
        _over_tasks(lambda tasks: TaskOutputTool(tasks, 0.01)),
        {"task_id": "bash-00000001"},
        {"task_id": "x", "timeout": -1},
    ),
    "TaskStop": Case(
        _over_tasks(lambda tasks: TaskStopTool(tasks, lambda: False)),
        {"task_id": "bash-00000001"},
        {"reason": "x"},
        True,
    ),
    "Agent": Case(
        lambda _: AgentTool(_reported, _not_started, dict), {"description": "d", "prompt": "p"}, {"prompt": "p"}
    ),
    "Task": Case(
        lambda _: TaskTool(_reported, dict), {"description": "d", "subagent_name": "n", "prompt": "p"}, {"prompt": "p"}
    ),
    "CreateSubagent": Case(
        lambda _: CreateSubagentTool(lambda name, prompt: True, dict), {"name": "n", "system_prompt": "s"}, {"name": ""}
    ),
    "AskUserQuestion": Case(
        lambda _: AskUserQuestionTool(lambda: True, lambda: True, lambda: "q1"),
        {"questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]},
        {"questions": []},
    ),
    "SendDMail": Case(
        lambda _: SendDMailTool(lambda message, checkpoint: None),
        {"message": "m", "checkpoint_id": 0},
        {"message": "m", "checkpoint_id": "x"},
    ),
    "FetchURL": Case(
        lambda _: FetchUrlTool(_page, asks_each_address=True), {"url": "https://example.com"}, {"url": 1}, True
    ),
    "SearchWeb": Case(lambda _: SearchWebTool(_nothing_found), {"query": "x"}, {"query": "x", "limit": 21}),
    "Think": Case(lambda _: ThinkTool(), {"thought": "hm"}, {}),
    "SetTodoList": Case(_todo, {"todos": [{"title": "t", "status": "done"}]}, {"todos": [{"status": "no"}]}),
}

UNASKED = ("SetTodoList", "SendDMail", "Agent", "Task", "CreateSubagent", "AskUserQuestion")
"""They change the conversation, and nothing outside of it by themselves."""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture(params=CASES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def case(name: str, files: Files) -> Case:
    for path, content in CASES[name].files.items():
        files.put(path, content)
    return CASES[name]


@pytest.fixture
def tool(case: Case, files: Files) -> Tool:
    return case.make(files)


async def run(tool: Tool, arguments: dict[str, Any]) -> tuple[ProposedAction | None, ToolReturnValue]:
    async with tool.prepare(arguments, CONTEXT) as prepared:
        return prepared.proposed_action, await prepared.run()


def test_the_spec_is_constant_and_usable(name: str, tool: Tool) -> None:
    spec = tool.spec
    assert spec is tool.spec
    assert spec.name == name
    assert spec.description.strip()
    assert spec.parameters["type"] == "object"
    assert "$defs" not in spec.parameters
    assert "title" not in json.dumps({**spec.parameters, "properties": {}})
    assert {spec.key_argument, spec.path_argument} <= {None, *spec.parameters["properties"]}


async def test_valid_call_succeeds(case: Case, tool: Tool) -> None:
    effect, result = await run(tool, case.good)
    assert not result.is_error, result
    assert (effect is not None) == case.asks


async def test_unknown_arguments_are_ignored(case: Case, tool: Tool) -> None:
    _, result = await run(tool, {**case.good, "bogus": 1})
    assert not result.is_error


async def test_invalid_arguments_return_an_error_result(case: Case, tool: Tool) -> None:
    effect, result = await run(tool, case.bad)
    assert effect is None
    assert result.is_error
    assert result.message.startswith("Error validating JSON arguments: ")
    assert (result.output, brief(result)) == ("", "Invalid arguments")


async def test_preparing_does_nothing(case: Case, tool: Tool, files: Files) -> None:
    before = {path: path.stat().st_mtime_ns for path in files.work_dir.rglob("*")}
    for arguments in (case.good, case.bad):
        async with tool.prepare(arguments, CONTEXT):
            pass
    assert {path: path.stat().st_mtime_ns for path in files.work_dir.rglob("*")} == before
    if case.creates is not None:
        await run(tool, case.good)
        assert (files.work_dir / case.creates).exists()


async def test_a_read_only_tool_changes_nothing(case: Case, tool: Tool, files: Files) -> None:
    if not tool.spec.read_only:
        assert case.asks or tool.spec.name in UNASKED
        return
    before = {path: path.stat().st_mtime_ns for path in files.work_dir.rglob("*")}
    results = [await run(tool, case.good) for _ in range(2)]
    assert results[0] == results[1]
    assert {path: path.stat().st_mtime_ns for path in files.work_dir.rglob("*")} == before


async def test_proposed_action_can_be_decided_and_displayed(case: Case, tool: Tool) -> None:
    async with tool.prepare(case.good, CONTEXT) as prepared:
        effect = prepared.proposed_action
    if effect is None:
        return
    assert effect.action
    assert "\n" not in effect.description
    assert effect.subject
    assert check_policy(Policy(), tool.spec.name, effect).decision == "ask"
    assert check_policy(Policy().remember(effect), tool.spec.name, effect).decision == "allow"


async def test_cancelled_call_releases_its_resources(case: Case, tool: Tool) -> None:
    async def hold() -> None:
        async with tool.prepare(case.good, CONTEXT):
            await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(hold)
        await anyio.sleep(0.05)
        group.cancel_scope.cancel()
    with anyio.move_on_after(0) as scope:
        async with tool.prepare(case.good, CONTEXT) as prepared:
            await prepared.run()
    assert scope.cancel_called
    with anyio.fail_after(10):
        _, result = await run(tool, case.good)
    assert not result.is_error


async def test_calls_do_not_disturb_each_other(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    places = [Files(tmp_path / str(number)) for number in range(3)]
    results: list[ToolReturnValue] = []

    async def one(files: Files) -> None:
        for path, content in case.files.items():
            files.put(path, content)
        _, result = await run(case.make(files), case.good)
        results.append(result)

    async with anyio.create_task_group() as group:
        for files in places:
            group.start_soon(one, files)
    assert [result.is_error for result in results] == [False] * 3


async def test_two_calls_of_one_tool_can_be_prepared_together(case: Case, tool: Tool) -> None:
    """A call that waits for an answer must not keep others of the tool from being prepared elsewhere."""
    if tool.spec.name in ("WriteFile", "StrReplaceFile"):
        return
    async with AsyncExitStack() as stack:
        with anyio.fail_after(10):
            for _ in range(2):
                await stack.enter_async_context(tool.prepare(case.good, CONTEXT))
