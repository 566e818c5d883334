"""The Shell tool (tools spec 3.1), over the local workspace."""

from __future__ import annotations

import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from kimi.application.ports import Shell
from kimi.application.settings.settings import ShellSettings
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.tools.tool import BriefBlock, ShellBlock, ToolReturnValue
from kimi.infrastructure.tools.output import ToolOutput
from kimi.infrastructure.tools.shell.shell import (
    ShellTool,
    adapt_command,
    format_command_result,
    replace_nul_redirections,
    shell_spec,
)
from kimi.infrastructure.workspace.local import LocalWorkspace
from tests.support.program.processes import all_gone, children, marked
from tests.support.tool_calls import call, call_context, effect_of

pytestmark = pytest.mark.anyio

MakeTool = Callable[..., ShellTool]


@pytest.fixture
def shell(tmp_path: Path) -> MakeTool:
    """Makes the tool; keywords are settings, `environ` adds to what commands inherit."""

    def make(
        environ: dict[str, str] | None = None, secrets: frozenset[str] = frozenset(), **settings: Any
    ) -> ShellTool:
        chosen = ShellSettings(**settings)
        work_dir = tmp_path / "work"
        work_dir.mkdir(exist_ok=True)
        workspace = LocalWorkspace(str(work_dir), chosen, secrets, {**os.environ, **(environ or {})})
        return ShellTool(workspace, chosen, lambda name: str(tmp_path / "spill" / name))

    return make


async def run(tool: ShellTool, command: str, **arguments: Any) -> ToolReturnValue:
    return await call(tool, {"command": command, **arguments})


def failure(message: str, brief: str, output: str = "") -> ToolReturnValue:
    return ToolReturnValue(True, output, message, (BriefBlock(brief),))


# --- results --------------------------------------------------------------------------------------------------


@pytest.mark.spec("T-47")
async def test_every_outcome_has_its_documented_result(shell: MakeTool) -> None:
    tool = shell()
    assert await run(tool, "echo hi") == ToolReturnValue(False, "hi\n", "Command executed successfully.")
    assert await run(tool, "echo no; echo why >&2; exit 3") == failure(
        "Command failed with exit code: 3.", "Failed with exit code: 3\nno\nwhy", "no\nwhy\n"
    )
    assert await run(tool, "") == failure("Command cannot be empty.", "Empty command")
    assert await run(tool, "echo so far; sleep 30", timeout=1) == failure(
        "Command killed by timeout (1s)", "Killed by timeout (1s)", "so far\n"
    )
    assert await run(shell(path="/no/such/shell"), "true") == failure(
        "Command execution failed: [Errno 2] No such file or directory: '/no/such/shell'", "Execution failed"
    )


async def test_an_exit_by_signal_is_a_negative_code(shell: MakeTool) -> None:
    result = await run(shell(), "kill -KILL $$")
    assert result == failure("Command failed with exit code: -9.", "Failed with exit code: -9")


async def test_the_brief_shows_the_last_lines_shortened(shell: MakeTool) -> None:
    command = f"for i in 1 2 3 4 5 6; do echo line $i; echo; done; echo {'x' * 300}; exit 1"
    [brief] = (await run(shell(), command)).display
    lines = ["Failed with exit code: 1", "line 3", "line 4", "line 5", "line 6", "x" * 200 + "..."]
    assert brief == BriefBlock("\n".join(lines))


async def test_invalid_command_line_is_an_error_result(shell: MakeTool) -> None:
    for command in ("echo \0", "echo \ud800", "x" * 3_000_000):
        result = await run(shell(), command)
        assert result.message.startswith("Command execution failed: ")


async def test_missing_work_dir_is_an_error_result(shell: MakeTool, tmp_path: Path) -> None:
    tool = shell()
    shutil.rmtree(tmp_path / "work")
    assert (await run(tool, "true")).display == (BriefBlock("Execution failed"),)


def test_message_states_that_output_was_cut() -> None:
    cut = ToolOutput("x", truncated=True)
    sentence = "Output is truncated to fit in the message."
    assert format_command_result(cut, 0, 9).message == f"Command executed successfully. {sentence}"
    assert format_command_result(cut, 1, 9).message == f"Command failed with exit code: 1. {sentence}"
    assert format_command_result(cut, None, 9).message == f"Command killed by timeout (9s) {sentence}"


# --- output ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("T-48")
async def test_both_streams_interleave_and_invalid_bytes_are_replaced(shell: MakeTool) -> None:
    result = await run(shell(), r"echo a; echo b >&2; echo c; printf 'd\377\n' >&2; printf '\342\202'")
    assert result.output == "a\nb\nc\nd\ufffd\n\ufffd"


@pytest.mark.spec("T-49")
async def test_long_lines_and_binary_output_do_not_fail(shell: MakeTool) -> None:
    long = await run(shell(), "head -c 70000 /dev/zero | tr '\\0' x")
    assert not long.is_error
    assert str(long.output).startswith("x" * 1_986 + "[...truncated]\n[...truncated 20000 chars; full output: ")
    binary = await run(shell(), "head -c 5000 /dev/urandom; printf '\\0\\1\\2'")
    assert not binary.is_error
    assert str(binary.output).endswith("\0\1\2")


@pytest.mark.spec("T-21")
async def test_a_long_output_keeps_both_ends_and_names_a_private_file(shell: MakeTool, tmp_path: Path) -> None:
    result = await run(shell(), "for ((i = 0; i < 20000; i++)); do printf '%09d\\n' $i; done")
    full = "".join(f"{number:09}\n" for number in range(20_000))
    [path] = (tmp_path / "spill").iterdir()
    middle = f"[...truncated 150000 chars; full output: {path}]\n"
    assert result.output == full[:30_000] + middle + full[-20_000:]
    assert result.message == "Command executed successfully. Output is truncated to fit in the message."
    assert path.read_text() == full
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_output_during_termination_is_kept(shell: MakeTool) -> None:
    result = await run(shell(), "trap 'echo cleaning up; exit 0' TERM; sleep 30 & wait", timeout=1)
    assert result.output == "cleaning up\n"
    assert result.message == "Command killed by timeout (1s)"


async def test_a_flood_ends_in_time(shell: MakeTool) -> None:
    result = await run(shell(), "yes", timeout=1)
    assert result.message.startswith("Command killed by timeout (1s)")
    assert len(result.output) < 51_000


# --- processes ------------------------------------------------------------------------------------------------


@pytest.fixture
def word() -> str:
    """A word that marks the processes of one test."""
    return f"KIMI_TEST_{uuid.uuid4().hex}"


STUBBORN = "trap '' TERM; echo on; sleep 60; sleep 60"


@pytest.mark.spec("T-50")
async def test_a_grandchild_that_ignores_the_request_is_killed_in_time(shell: MakeTool, word: str) -> None:
    tool = shell(environ={word: "1"})
    started = time.monotonic()
    result = await run(tool, f'bash -c "{STUBBORN}" & wait', timeout=1)
    assert time.monotonic() - started < 1 + 3
    assert result.message == "Command killed by timeout (1s)"
    assert result.output == "on\n"
    assert all_gone(word)


async def test_a_grandchild_in_a_session_of_its_own_is_killed_at_the_timeout(shell: MakeTool, word: str) -> None:
    await run(shell(environ={word: "1"}), f'setsid --wait bash -c "{STUBBORN}"; true', timeout=1)
    assert all_gone(word)


@pytest.mark.spec("T-51")
async def test_a_background_child_does_not_delay_the_result(shell: MakeTool, word: str) -> None:
    tool = shell(environ={word: "1"}, kill_orphans=True)
    started = time.monotonic()
    result = await run(tool, "sleep 60 & echo started")
    assert time.monotonic() - started < 1
    assert (result.is_error, result.output) == (False, "started\n")
    assert all_gone(word)


async def test_a_deliberate_background_child_lives_on(shell: MakeTool, word: str) -> None:
    await run(shell(environ={word: "1"}), "sleep 60 > /dev/null 2>&1 &")
    [pid] = marked(word)
    os.kill(pid, 9)
    assert all_gone(word)


@pytest.mark.spec("T-52")
async def test_detached_child_holding_the_pipe_does_not_delay_the_result(shell: MakeTool, word: str) -> None:
    started = time.monotonic()
    result = await run(shell(environ={word: "1"}), "setsid sleep 60 & echo started")
    assert time.monotonic() - started < 1
    assert result.output == "started\n"
    for pid in marked(word):
        os.kill(pid, 9)
    assert all_gone(word)


async def test_cancel_kills_all_processes(shell: MakeTool, word: str) -> None:
    tool = shell(environ={word: "1"})
    started = time.monotonic()
    with anyio.move_on_after(0.5) as scope:
        await run(tool, f'bash -c "{STUBBORN}" & sleep 60 & setsid --wait sleep 60; true')
    assert scope.cancelled_caught
    assert time.monotonic() - started < 3
    assert all_gone(word)


async def test_no_descriptor_and_no_zombie_is_left(shell: MakeTool) -> None:
    tool = shell()
    await run(tool, "true")
    before, others = sorted(os.listdir("/proc/self/fd")), children()
    await run(tool, "seq 100000")
    await run(tool, "sleep 5", timeout=1)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert children() <= others


async def test_many_commands_run_at_once(shell: MakeTool) -> None:
    tool = shell()
    outputs: list[str] = []

    async def one(number: int) -> None:
        outputs.append(str((await run(tool, f"sleep 0.05; echo {number}")).output))

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(one, number)
    assert sorted(outputs, key=int) == [f"{number}\n" for number in range(20)]


# --- environment ----------------------------------------------------------------------------------------------


@pytest.mark.spec("T-53")
async def test_input_is_empty_and_git_does_not_ask(shell: MakeTool) -> None:
    environ = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_ASKPASS": "", "SSH_ASKPASS": ""}
    ask = "git credential fill <<< $'protocol=https\\nhost=example.invalid'"
    result = await run(shell(environ), f"cat; echo $?; {ask}")
    assert str(result.output).startswith("0\n")
    assert "terminal prompts disabled" in str(result.output)
    assert result.is_error


@pytest.mark.spec("T-54")
async def test_api_keys_are_not_inherited_unless_configured(shell: MakeTool) -> None:
    environ = {"MY_PROVIDER_KEY": "sk-secret-1", "ANOTHER": "kept"}
    secrets = frozenset({"MY_PROVIDER_KEY"})
    output = str((await run(shell(environ, secrets), "env")).output)
    assert "MY_PROVIDER_KEY" not in output
    assert "sk-secret-1" not in output
    assert "ANOTHER=kept" in output
    wanted = await run(shell(environ, secrets, inherit_secrets=True), "env")
    assert "MY_PROVIDER_KEY=sk-secret-1" in str(wanted.output)


@pytest.mark.spec("T-55")
async def test_shell_prompts_and_pagers_are_set(shell: MakeTool) -> None:
    command = "readlink /proc/$$/exe; printenv SHELL GIT_TERMINAL_PROMPT PAGER GIT_PAGER"
    unset = str((await run(shell({"SHELL": "/bin/zsh"}), command)).output).split()
    assert unset == [os.path.realpath("/bin/bash"), "/bin/bash", "0", "cat", "cat"]
    mine = {"GIT_TERMINAL_PROMPT": "1", "PAGER": "more", "GIT_PAGER": "most"}
    assert str((await run(shell(mine), command)).output).split()[1:] == ["/bin/bash", "1", "more", "most"]
    other = str((await run(shell(path="/bin/sh"), command)).output).split()
    assert other[1] == "/bin/sh"


async def test_calls_share_no_shell_state(shell: MakeTool, tmp_path: Path) -> None:
    tool = shell()
    await run(tool, "cd /; export X=1")
    assert (await run(tool, "pwd; echo x${X}")).output == f"{tmp_path.resolve() / 'work'}\nx\n"


# --- arguments, effect, spec ----------------------------------------------------------------------------------


@pytest.mark.spec("T-56")
async def test_foreground_commands_have_their_own_limit(shell: MakeTool) -> None:
    result = await run(shell(), "true", timeout=301)
    head, _, rest = result.message.partition("\n  ")
    assert head == "Error validating JSON arguments: 1 validation error for Params"
    assert rest == (
        "timeout must be <= 300s for foreground commands; use run_in_background=true for longer timeouts (up to 86400s)"
    )
    assert not (await run(shell(), "true", timeout=300)).is_error


async def test_background_is_unavailable_without_tasks(shell: MakeTool) -> None:
    result = await run(shell(), "true", timeout=301, run_in_background=True, description="a job")
    text = "Failed to start background task: background tasks are not available here"
    assert result == failure(text, "Start failed")


async def test_the_time_limit_has_bounds(shell: MakeTool) -> None:
    tool = shell()
    assert not (await run(tool, "true", timeout=300)).is_error
    for timeout in (0, 86_401, "soon"):
        result = await run(tool, "true", timeout=timeout)
        assert result.message.startswith("Error validating JSON arguments: 1 validation error for Params\ntimeout\n")
    assert not (await run(shell(max_timeout_s=1_000), "true", timeout=1_000)).is_error


async def test_proposed_action_is_the_command_line(shell: MakeTool) -> None:
    assert await effect_of(shell(), {"command": "make all"}) == ProposedAction(
        action="run command",
        description="Run command `make all`",
        display=(ShellBlock("bash", "make all"),),
        kind="command",
        subject="make all",
    )
    assert await effect_of(shell(), {"command": " "}) is None
    assert await effect_of(shell(), {}) is None


async def test_preparing_runs_nothing(shell: MakeTool, tmp_path: Path) -> None:
    tool = shell()
    async with tool.prepare({"command": "touch made"}, call_context("Shell")) as prepared:
        assert list((tmp_path / "work").iterdir()) == []
        await prepared.run()
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["made"]


def test_description_states_every_limit() -> None:
    spec = shell_spec(Shell("bash", "/bin/bash", "bash"), 60, 300)
    assert spec is shell_spec(Shell("bash", "/bin/bash", "bash"), 60, 300)
    for word in ("bash", "/bin/bash", "60", "300", "50,000", "30,000", "20,000", "2,000", "10 MiB"):
        assert word in spec.description
    assert spec.parameters["properties"]["timeout"] == {
        "type": "integer",
        "default": 60,
        "minimum": 1,
        "maximum": 86_400,
        "description": "Seconds after which the command is killed.",
    }
    assert spec.parameters["required"] == ["command"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("dir >nul", "dir >/dev/null"),
        ("a 2> NUL && b >>nul; c &>nul", "a 2> /dev/null && b >>/dev/null; c &>/dev/null"),
        ("echo '>nul' \">nul\" >nul", "echo '>nul' \">nul\" >/dev/null"),
        ("a >nul.txt >null", "a >nul.txt >null"),
        ("grep nul file", "grep nul file"),
    ],
)
def test_the_windows_null_device_is_understood(command: str, expected: str) -> None:
    assert replace_nul_redirections(command) == expected


def test_elsewhere_a_file_may_be_called_nul() -> None:
    assert adapt_command("x >nul", Shell("bash", "/bin/bash", "bash")) == "x >nul"
