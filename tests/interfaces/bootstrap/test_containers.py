"""The composition root: everything resolves, tools are a table, sessions and subagents share what they should."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from kimi.application.ports import PreparedCall, SessionFiles, Tool, ToolCallContext, Workspace
from kimi.application.settings.settings import Settings
from kimi.domain.content.message import Function, JsonObject, ToolCall
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import ConfigError
from kimi.domain.events.event import SubagentEvent, ToolResult
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec, tool_ok
from kimi.infrastructure.store.memory import MemoryStore
from kimi.interfaces.bootstrap.containers import KNOWN_TOOLS, App, SessionContainer
from kimi.interfaces.bootstrap.opening import create_session_container
from kimi.interfaces.embed import providers
from tests.support.conversations import run
from tests.support.fakes import FakeModel, FakeTool

pytestmark = pytest.mark.anyio

REPORT = "I looked at everything that matters and wrote down what I found. " * 4


def app_in(directory: Path, model: FakeModel | None = None, **settings: object) -> App:
    """The container of a process whose directories are below `directory`."""
    values = {"share_dir": str(directory / "share"), "work_dir": str(directory), **settings}

    def open_model(session_id: str, client: Callable[[], str]) -> FakeModel | None:
        return model

    return App(
        settings=providers.Object(Settings.model_validate(values)),
        open_model=providers.Object(open_model),
    )


def replaced(provider: object, replacement: object) -> None:
    """Put something in the place of a provider. The library leaves the types of this open."""
    cast("Any", provider).override(replacement)


async def session_in(directory: Path, app: App | None = None, session_id: str = "s1") -> SessionContainer:
    """A container over a session in memory."""
    files: SessionFiles = await MemoryStore(str(directory)).create(session_id)
    return create_session_container(app or app_in(directory), files)


DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.spec("T-142")
def test_documentation_names_every_built_in_tool() -> None:
    """The specification lists the ids, in the order of the table; a page for users says what each tool is for."""
    listed = (DOCS / "spec" / "tools.md").read_text(encoding="utf-8").partition("\n`kimi_cli.tools.` + ")[2]
    ids = re.findall(r"`([\w.]+:\w+)`", listed.partition("\n")[0])
    assert [f"kimi_cli.tools.{one}" for one in ids] == list(KNOWN_TOOLS)
    pages = [(DOCS / name).read_text(encoding="utf-8") for name in ("tools.md", "agents.md")]
    missing = [name for one in ids if f"`{(name := one.partition(':')[2])}`" not in "".join(pages)]
    assert missing == []


@pytest.mark.spec("T-142")
async def test_every_member_can_be_made(tmp_path: Path) -> None:
    app = app_in(tmp_path)
    app.check_dependencies()
    session = await session_in(tmp_path, app)
    session.check_dependencies()
    for container in (app, session):
        for name, provider in container.providers.items():
            if not isinstance(provider, providers.Aggregate):
                provider()
            assert name
    for tool_id in session.tools.providers:
        tool = session.tools(tool_id)
        assert tool is None or tool.spec.name == tool_id.rpartition(":")[2]


@pytest.mark.spec("T-142")
async def test_two_sessions_share_only_process_members(tmp_path: Path) -> None:
    app = app_in(tmp_path)
    one, two = await session_in(tmp_path, app), await session_in(tmp_path, app, "s2")
    shared = {"settings", "environ", "open_model", "store", "now", "new_id", "http", "ripgrep", "extra_tools", "agent"}
    for name in one.providers:
        if name in shared or name in ("tools", "availability"):
            continue
        first, second = getattr(one, name)(), getattr(two, name)()
        assert first is not second or isinstance(first, (tuple, frozenset, str, type(None))), name


@pytest.mark.spec("R-118")
async def test_embedder_can_add_a_tool(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("agent: {extend: default, tools: ['my_pkg:Lookup', Think]}")
    app = app_in(tmp_path, agent_file=str(tmp_path / "a.yaml"))
    with pytest.raises(ConfigError) as raised:
        app.agent()
    assert str(raised.value) == "Invalid tools: ['my_pkg:Lookup']"

    def lookup(workspace: Workspace) -> Tool:
        assert workspace.work_dir == str(tmp_path)
        return FakeTool("Find")

    replaced(app.extra_tools, {"my_pkg:Lookup": lookup})
    session = await session_in(tmp_path, app)
    toolset = session.toolset()
    assert [spec.name for spec in toolset.visible_specs()] == ["Find", "Think"]
    assert toolset.add_external(FakeTool("Find")) == "conflicts with builtin tool"


class Sandboxed:
    """A Shell that somebody put in the place of ours."""

    spec = ToolSpec("Shell", "Runs nothing.", {"type": "object"}, kind="execute")

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        async def nothing() -> ToolReturnValue:
            return tool_ok("sandboxed")

        yield PreparedCall(nothing)


def call(name: str, arguments: str) -> ToolCall:
    """A tool call with an id of its own."""
    return ToolCall(f"c{next(_NUMBERS)}", Function(name, arguments))


_NUMBERS = itertools.count(1)
ENTRIES = '{"todos": [{"title": "x", "status": "done"}]}'
START = '{"description": "look", "prompt": "look"}'


async def test_a_subagent_gets_the_adapters_of_its_parent(tmp_path: Path) -> None:
    model = FakeModel(
        [[call("Agent", START)], [call("Shell", '{"command": "ls"}')], [TextPart(REPORT)], [TextPart("done")]]
    )
    session = await session_in(tmp_path, app_in(tmp_path, model))
    replaced(session.tools.providers["kimi_cli.tools.shell:Shell"], providers.Factory(Sandboxed))

    outcome = await run(session.conversation(), "go")

    (ran,) = [
        one.event for one in outcome.events if isinstance(one, SubagentEvent) and isinstance(one.event, ToolResult)
    ]
    assert ran.return_value.output == "sandboxed"
    (final,) = [one for one in outcome.events if isinstance(one, ToolResult)]
    assert not final.return_value.is_error


async def test_subagent_uses_the_same_files_with_its_own_state(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    edit = '{"path": "a.txt", "edit": {"old": "old", "new": "new"}}'
    model = FakeModel(
        [
            [
                call("ReadFile", '{"path": "a.txt"}'),
                call("SetTodoList", '{"todos": [{"title": "x", "status": "done"}]}'),
            ],
            [call("Agent", START)],
            [call("ReadFile", '{"path": "a.txt"}')],
            [call("StrReplaceFile", edit)],
            [TextPart(REPORT)],
            [TextPart("done")],
        ]
    )
    session = await session_in(tmp_path, app_in(tmp_path, model, yolo=True))
    outcome = await run(session.conversation(), "go")
    assert outcome.error is None
    assert (tmp_path / "a.txt").read_text() == "new\n"
    assert "You are a subagent" in model.asked[2].system
    assert "You are a subagent" not in model.asked[0].system
    assert len(session.conversation().files.state.todos) == 1
    offered = {spec.name for spec in model.asked[2].tools}
    assert "Agent" not in offered
    assert offered <= {one.rpartition(":")[2] for one in KNOWN_TOOLS}


async def test_unsupported_tools_are_omitted(tmp_path: Path) -> None:
    session = await session_in(tmp_path)
    make = session.make_tool()
    for tool_id in KNOWN_TOOLS:
        tool = make(tool_id)
        assert tool is None or tool_id in session.tools.providers
    with pytest.raises(KeyError):
        make("os:system")
    names = session.toolset().builtin_names
    assert {"Agent", "Shell", "ReadFile"} <= names


async def test_tool_is_known_by_name_even_where_it_cannot_be_used(tmp_path: Path) -> None:
    """Of a subagent, or of an earlier part of the session, calls are shown as they are in any other."""
    session = await session_in(tmp_path)
    assert session.make_tool()("kimi_cli.tools.web:SearchWeb") is None
    toolset = session.toolset()
    assert "SearchWeb" not in {spec.name for spec in toolset.visible_specs()}
    found = [toolset.find_spec(name) for name in ("SearchWeb", "ReadMediaFile", "Think")]
    assert [(spec.kind, spec.key_argument) for spec in found if spec] == [
        ("fetch", "query"),
        ("read", "path"),
        ("think", "thought"),
    ]
    assert toolset.find_spec("Nobody") is None


class Misfit:
    """A tool from elsewhere that no provider would take."""

    def __init__(self, name: str, parameters: JsonObject) -> None:
        self.spec = ToolSpec(name, "Does not fit.", parameters)

    def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AbstractAsyncContextManager[PreparedCall]:
        raise AssertionError("nobody may call it")


@pytest.mark.spec("T-03")
@pytest.mark.parametrize(
    ("name", "parameters", "report"),
    [
        (
            "Measure",
            {"type": "objekt"},
            "The parameters of the tool 'Measure' are no valid JSON Schema: 'objekt' is not",
        ),
        ("Mea sure", {}, "The tool 'tests:Misfit' has the name 'Mea sure', which no provider takes"),
    ],
)
async def test_tool_no_provider_accepts_is_an_error_naming_it(
    tmp_path: Path, name: str, parameters: JsonObject, report: str
) -> None:
    app = app_in(tmp_path)

    def misfit(workspace: Workspace) -> Tool:
        return Misfit(name, parameters)

    replaced(app.extra_tools, providers.Object({"tests:Misfit": misfit}))
    session = await session_in(tmp_path, app)
    with pytest.raises(ConfigError, match=report):
        session.make_tool()("tests:Misfit")
