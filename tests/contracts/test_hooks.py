"""What every `RunHook` must do; and what the one that runs commands does beyond that (runtime spec 7.5)."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from kimi.application.ports import RunHook
from kimi.application.settings.settings import ShellSettings
from kimi.domain.content.message import JsonObject
from kimi.domain.events.request import HookAnswer
from kimi.domain.hook import ALLOW, CommandHook
from kimi.infrastructure.workspace.hook_commands import make_hook_runner
from tests.support.fakes import FakeHookRunner
from tests.support.program.processes import all_gone, comes_true, marked

pytestmark = pytest.mark.anyio

TOLD: JsonObject = {"hook_event_name": "Stop", "session_id": "s", "cwd": "/w", "stop_hook_active": False}
DENIAL = json.dumps({"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "not here"}})
ENVIRON = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nowhere"}


def runner(
    directory: Path,
    settings: ShellSettings | None = None,
    secrets: frozenset[str] = frozenset(),
    environ: Mapping[str, str] = ENVIRON,
) -> RunHook:
    """The adapter under test, working in `directory`."""
    return make_hook_runner(str(directory), settings or ShellSettings(), secrets, environ)


def hook(command: str, timeout_s: int = 30) -> CommandHook:
    """A hook on Stop."""
    return CommandHook("Stop", command, "", timeout_s)


def python(program: str) -> str:
    """A command line that runs a Python program."""
    return shlex.join([sys.executable, "-c", program])


async def to_its_end(run: RunHook, hook: CommandHook) -> None:
    """Run a hook whose verdict nobody wants."""
    await run(hook, TOLD)


COMMANDS: dict[str, HookAnswer] = {
    "true": ALLOW,
    "exit 2": HookAnswer("block", ""),
    "echo why >&2; exit 2": HookAnswer("block", "why"),
    f"echo {shlex.quote(DENIAL)}": HookAnswer("block", "not here"),
    f"echo {shlex.quote(DENIAL)}; exit 1": ALLOW,
    "echo why >&2": ALLOW,
    "no-such-command-anywhere": ALLOW,
    "kill -9 $$": ALLOW,
    "sleep 30": ALLOW,
}


@pytest.mark.parametrize("kind", ["commands", "fake"])
@pytest.mark.parametrize("command", COMMANDS)
async def test_exit_status_and_output_decide_the_hook_answer(tmp_path: Path, kind: str, command: str) -> None:
    run: RunHook = runner(tmp_path) if kind == "commands" else FakeHookRunner(COMMANDS)
    with anyio.fail_after(10):
        assert await run(hook(command, 1), TOLD) == COMMANDS[command]


@pytest.mark.spec("R-175")
@pytest.mark.parametrize(
    ("command", "failure"),
    [
        ("exit 3", "ended with status 3"),
        ("kill -9 $$", "ended with status -9"),
        ("no-such-command-anywhere", "ended with status 127"),
        ("echo '{'", "answered with broken JSON"),
        ("sleep 30", "was killed after 1 s"),
        ("a\0b", "could not be run"),
    ],
)
async def test_a_hook_may_block_when_it_fails(tmp_path: Path, command: str, failure: str) -> None:
    closed = replace(hook(command, 1), on_failure="block")
    reason = f"The hook `{command}` {failure}, and so it blocks."
    assert await runner(tmp_path)(closed, TOLD) == HookAnswer("block", reason)
    assert await runner(tmp_path)(hook(command, 1), TOLD) == ALLOW
    assert await runner(tmp_path)(replace(closed, command="true"), TOLD) == ALLOW


async def test_a_command_reads_the_object_in_the_work_dir(tmp_path: Path) -> None:
    told: dict[str, Any] = {**TOLD, "prompt": "ünï \ud800 \U0001f600", "tool_input": {"text": "x" * 1_000_000}}
    assert await runner(tmp_path)(hook("cat > told.json; pwd > where"), told) == ALLOW
    found = json.loads((tmp_path / "told.json").read_text(encoding="utf-8"))
    assert found == {**told, "prompt": "ünï \ufffd \U0001f600"}
    assert (tmp_path / "where").read_text().strip() == str(tmp_path)


async def test_hook_command_may_ignore_its_input(tmp_path: Path) -> None:
    assert await runner(tmp_path)(hook("exit 2"), {"x": "y" * 1_000_000}) == HookAnswer("block", "")


async def test_a_flood_does_not_stall_a_command(tmp_path: Path) -> None:
    program = "import sys; sys.stdout.write('o' * 3_000_000); sys.stderr.write('e' * 3_000_000); sys.exit(2)"
    answer = await runner(tmp_path)(hook(python(program)), TOLD)
    assert answer.action == "block"
    assert set(answer.reason) == {"e"}


@pytest.mark.parametrize("inherit", [False, True])
async def test_hook_commands_do_not_inherit_api_keys(tmp_path: Path, inherit: bool) -> None:
    environ = {**ENVIRON, "KIMI_API_KEY": "sk-secret", "OTHER": "kept"}
    settings = ShellSettings(inherit_secrets=inherit)
    run = runner(tmp_path, settings, frozenset({"KIMI_API_KEY"}), environ)
    assert await run(hook('echo "$KIMI_API_KEY,$OTHER" > seen'), TOLD) == ALLOW
    assert (tmp_path / "seen").read_text() == ("sk-secret,kept\n" if inherit else ",kept\n")


@pytest.mark.parametrize("end", ["timeout", "cancel"])
async def test_the_whole_tree_is_killed(tmp_path: Path, end: str) -> None:
    mark = f"hook-{tmp_path.name}-{end}"
    run = runner(tmp_path, environ={**ENVIRON, "KIMI_TEST_MARK": mark})
    stubborn = "trap '' TERM; sleep 60 & (trap '' TERM; setsid sleep 61) & sleep 62"
    answer: HookAnswer | None = None
    with anyio.move_on_after(10) as scope:
        async with anyio.create_task_group() as tasks:
            if end == "timeout":
                answer = await run(hook(stubborn, 1), TOLD)
            else:
                tasks.start_soon(to_its_end, run, hook(stubborn))
                assert await anyio.to_thread.run_sync(comes_true, lambda: len(marked(mark)) >= 4)
                tasks.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert answer == (ALLOW if end == "timeout" else None)
    assert all_gone(mark)


async def test_hook_answer_does_not_wait_for_left_over_children(tmp_path: Path) -> None:
    mark = f"left-{tmp_path.name}"
    run = runner(tmp_path, environ={**ENVIRON, "KIMI_TEST_MARK": mark})
    assert await run(hook("sleep 3 & echo no >&2; exit 2"), TOLD) == HookAnswer("block", "no")
    assert len(marked(mark)) == 1
    assert all_gone(mark)


@pytest.mark.parametrize("command", ["echo a\0b", "echo \ud800"])
async def test_hook_command_that_cannot_be_started_allows(
    tmp_path: Path, command: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await runner(tmp_path)(hook(command), TOLD) == ALLOW
    assert "it allows" in caplog.text


async def test_missing_work_dir_or_shell_allows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert await runner(tmp_path / "gone")(hook("exit 2"), TOLD) == ALLOW
    assert await runner(tmp_path, ShellSettings(path="/no/such/shell"))(hook("exit 2"), TOLD) == ALLOW
    assert caplog.text.count("it allows") == 2
