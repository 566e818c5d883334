"""Shell with a sandbox: what runs confined, what the model is told, and how it may leave (runtime spec 7.10)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kimi.application.settings.settings import ShellSettings
from kimi.domain.background import BackgroundTask, BackgroundTaskSpec
from kimi.domain.permissions.approval import Policy, check_policy, memory_key
from kimi.domain.tools.tool import ToolReturnValue
from kimi.infrastructure.sandbox.mechanisms import Mechanism
from kimi.infrastructure.tools.shell.confined_commands import ConfinedCommands
from kimi.infrastructure.tools.shell.shell import ShellTool
from kimi.infrastructure.workspace.local import LocalWorkspace
from tests.support.background_tasks import FakeTasks
from tests.support.sandboxes import SandboxPlace, find_any_mechanism
from tests.support.tool_calls import call, effect_of

pytestmark = pytest.mark.anyio


@dataclass
class Talk:
    """A Shell tool whose commands are confined, and what the conversation around it says."""

    place: SandboxPlace
    mode: str = "workspace"
    only_reads: bool = False
    is_asked: bool = True
    tasks: FakeTasks = field(default_factory=FakeTasks)
    started: list[BackgroundTaskSpec] = field(default_factory=list[BackgroundTaskSpec])

    def tool(self, **settings: Any) -> ShellTool:
        sandbox = self.place.sandbox(mode=self.mode, **settings)
        confined = ConfinedCommands(
            sandbox.settings,
            lambda: sandbox,
            must_only_read=lambda: self.only_reads,
            is_asked=lambda: self.is_asked,
        )
        workspace = LocalWorkspace(str(self.place.work), ShellSettings(), frozenset(), os.environ)
        return ShellTool(workspace, ShellSettings(), lambda name: None, self._start, confined)

    def _start(self, spec: BackgroundTaskSpec) -> BackgroundTask:
        self.started.append(spec)
        return self.tasks.start(spec)

    async def run(self, command: str, **arguments: Any) -> ToolReturnValue:
        return await call(self.tool(), {"command": command, **arguments})


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    with SandboxPlace(tmp_path.resolve(), find_any_mechanism()) as place:
        yield Talk(place)


async def test_a_confined_command_has_the_results_of_any_other(talk: Talk) -> None:
    assert await talk.run("echo hi") == ToolReturnValue(False, "hi\n", "Command executed successfully.")
    assert (await talk.run("exit 3")).message == "Command failed with exit code: 3."
    assert (await talk.run("echo x > sub/new.txt")).is_error is False
    assert (talk.place.work / "sub/new.txt").read_text() == "x\n"
    killed = await talk.run("echo so far; sleep 30", timeout=1)
    assert (killed.output, killed.message) == ("so far\n", "Command killed by timeout (1s)")


async def test_a_denial_says_how_to_leave_the_sandbox(talk: Talk) -> None:
    denied = await talk.run("echo x > .git/config")
    assert denied.is_error
    assert denied.message.startswith("Command failed with exit code: 1. It ran in a sandbox")
    assert "no network can be reached" in denied.message
    assert "`without_sandbox`" in denied.message
    assert (await talk.run("echo wrong; exit 1")).message == "Command failed with exit code: 1."


@pytest.mark.spec("R-186")
async def test_leaving_the_sandbox_is_an_action_that_is_always_asked_about(talk: Talk) -> None:
    tool = talk.tool()
    inside = await effect_of(tool, {"command": "make"})
    outside = await effect_of(tool, {"command": "make", "without_sandbox": True})
    background = {"command": "make", "without_sandbox": True, "run_in_background": True, "description": "d"}
    behind = await effect_of(tool, background)
    assert inside is not None
    assert outside is not None
    assert behind is not None
    assert (inside.action, inside.is_protected) == ("run command", False)
    assert (outside.action, outside.is_protected) == ("run command outside the sandbox", True)
    assert outside.description == "Run command `make` outside the sandbox"
    assert (behind.action, behind.is_protected) == ("run background command outside the sandbox", True)
    policy = Policy().remember(inside)
    assert check_policy(policy, "Shell", inside).decision == "allow"
    assert check_policy(policy, "Shell", outside).decision == "ask"
    assert [memory_key(action, "exact") for action in (outside, behind)] == [None, None]


@pytest.mark.spec("R-186")
async def test_a_command_that_may_leave_changes_what_it_likes(talk: Talk) -> None:
    result = await talk.run("echo x > .git/config", without_sandbox=True)
    assert not result.is_error
    assert (talk.place.work / ".git/config").read_text() == "x\n"


@pytest.mark.spec("R-186")
@pytest.mark.parametrize("state", ["only_reads", "nobody"])
@pytest.mark.parametrize("background", [True, False])
async def test_leaving_is_refused_to_readers_and_when_nobody_is_asked(talk: Talk, state: str, background: bool) -> None:
    talk.only_reads, talk.is_asked = state == "only_reads", state != "nobody"
    more = {"run_in_background": True, "description": "d"} if background else {}
    arguments = {"command": "echo x > sub/a.txt", "without_sandbox": True, **more}
    assert await effect_of(talk.tool(), arguments) is None
    assert "leave `without_sandbox` out" in (await call(talk.tool(), arguments)).message
    assert (talk.place.work / "sub/a.txt").read_text() == "a"
    assert talk.started == []
    assert "`without_sandbox`" not in (await talk.run("echo x > .git/config")).message


@pytest.mark.spec("R-188")
async def test_agents_that_only_read_are_confined_without_being_asked_for(talk: Talk) -> None:
    talk.mode, talk.only_reads = "off", True
    denied = await talk.run("echo x > sub/a.txt")
    assert denied.message.endswith("It ran in a sandbox, in which nothing can be changed.")
    assert (talk.place.work / "sub/a.txt").read_text() == "a"
    talk.only_reads = False
    assert not (await talk.run("echo x > sub/a.txt")).is_error


@pytest.mark.spec("R-188")
async def test_where_no_sandbox_works_readers_run_as_before(talk: Talk) -> None:
    talk.place.mechanism, talk.mode, talk.only_reads = None, "off", True
    assert not (await talk.run("echo x > sub/a.txt")).is_error


@pytest.mark.spec("R-185")
@pytest.mark.parametrize("background", [True, False])
async def test_a_command_never_runs_without_the_sandbox_that_was_asked_for(talk: Talk, background: bool) -> None:
    talk.place.mechanism = None
    more = {"run_in_background": True, "description": "d"} if background else {}
    refused = await talk.run("echo x > sub/a.txt", **more)
    assert refused.is_error
    assert "none works here" in refused.message
    assert (talk.place.work / "sub/a.txt").read_text() == "a"
    assert talk.started == []


@pytest.mark.spec("R-185")
async def test_a_failing_preparation_is_a_result_and_no_command(talk: Talk) -> None:
    def fail(*_: object) -> tuple[str, ...]:
        raise OSError("no room")

    talk.place.mechanism = Mechanism("broken", fail, ())
    assert (await talk.run("echo x > sub/a.txt")).message == "Command execution failed: no room"


@pytest.mark.spec("R-189")
async def test_background_tasks_run_in_the_same_sandbox(talk: Talk) -> None:
    command = "echo x > .git/config"
    assert not (await talk.run(command, run_in_background=True, description="d")).is_error
    foreground = await talk.place.sandbox().confine(("/bin/bash", "-c", command), read_only=False)
    assert foreground is not None
    [spec] = talk.started
    assert spec.command == command
    assert spec.argv[0] == foreground.argv[0]
    assert len(spec.argv) == len(foreground.argv)


def offers_leaving(tool: ShellTool) -> bool:
    return "without_sandbox" in tool.spec.parameters["properties"]


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("workspace", "only the workspace can be changed, and there neither `.git` nor `.kimi`; there is no network"),
        ("read-only", "nothing can be changed; there is no network"),
    ],
)
async def test_the_tool_says_what_it_is_confined_to(talk: Talk, mode: str, said: str) -> None:
    talk.mode = mode
    assert said in talk.tool().spec.description
    assert "the network can be used" in talk.tool(network=True).spec.description
    assert offers_leaving(talk.tool())


async def test_without_a_chosen_mode_the_tool_is_as_ever(talk: Talk) -> None:
    talk.mode = "off"
    workspace = LocalWorkspace(str(talk.place.work), ShellSettings(), frozenset(), os.environ)
    assert talk.tool().spec == ShellTool(workspace, ShellSettings(), lambda name: None).spec
    assert not offers_leaving(talk.tool())
