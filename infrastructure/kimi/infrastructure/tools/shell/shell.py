"""The Shell tool: one command line in a fresh process of the workspace's shell (tools spec 3.1)."""

from __future__ import annotations

import re
import secrets
import shlex
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias

import anyio
from pydantic import BaseModel, Field, create_model, model_validator

from kimi.application.ports import PreparedCall, Process, Shell, ToolCallContext, Workspace
from kimi.application.settings.settings import ShellSettings
from kimi.domain.background import BackgroundTask, BackgroundTaskSpec, task_fields
from kimi.domain.content.message import JsonObject
from kimi.domain.errors import KimiError
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.tools.tool import BackgroundTaskBlock, ShellBlock, ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.infrastructure.tools.output import (
    HEAD_CHARS,
    MAX_CHARS,
    MAX_LINE_CHARS,
    MAX_SPILL_BYTES,
    TAIL_CHARS,
    HeadTailBuffer,
    ToolOutput,
)
from kimi.infrastructure.tools.params import build_schema, prepare_call
from kimi.infrastructure.tools.shell.background_tasks import ROOT_ONLY_ERROR
from kimi.infrastructure.tools.shell.confined_commands import ConfinedCommands, describe_sandbox

if TYPE_CHECKING:
    from kimi.infrastructure.sandbox.sandbox import ConfinedCommand

MAX_BACKGROUND_S = 86_400
"""The longest time limit of a background task, in seconds."""

StartTask: TypeAlias = Callable[[BackgroundTaskSpec], BackgroundTask]
"""Start a command in the background. Raises TooManyTasks, OSError."""

MAX_BRIEF_LINES = 5
MAX_BRIEF_LINE_CHARS = 200
_FINAL_READ_S = 1.0
"""Seconds in which the output of a killed command must end; its drain takes half of that."""


class ShellParams(BaseModel):
    """Arguments of Shell; `timeout` is in seconds, its default and its limit come from the settings."""

    command: Annotated[str, Field(description="The command line to run.")]
    timeout: int
    run_in_background: Annotated[bool, Field(description="Start the command as a background task and go on.")] = False
    description: Annotated[str, Field(description="What a background task is for; required for one.")] = ""

    max_foreground_s: ClassVar[int] = 300

    @model_validator(mode="after")
    def _check_consistency(self) -> ShellParams:
        if self.run_in_background and not self.description.strip():
            raise ValueError("description is required when run_in_background is true")
        if not self.run_in_background and self.timeout > self.max_foreground_s:
            raise ValueError(
                f"timeout must be <= {self.max_foreground_s}s for foreground commands; use run_in_background=true for "
                f"longer timeouts (up to {MAX_BACKGROUND_S}s)"
            )
        return self


class ConfinedShellParams(ShellParams):
    """Arguments of Shell where the user wants commands to be confined."""

    without_sandbox: Annotated[
        bool, Field(description="Run the command outside the sandbox; the person is asked each time.")
    ] = False


class ShellTool:
    """Runs command lines; implements the port `Tool`.

    `spill_path` takes a fresh file name and returns the path for the full text of an output that is too long, or None.
    `start_task` starts background tasks; without it there are none. Without `confined` no command is confined.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: ShellSettings,
        spill_path: Callable[[str], str | None],
        start_task: StartTask | None = None,
        confined: ConfinedCommands | None = None,
    ) -> None:
        self._workspace = workspace
        self._spill_path = spill_path
        self._start_task = start_task
        self._confined = confined
        limits = (min(settings.default_timeout_s, settings.max_timeout_s), settings.max_timeout_s)
        sandbox_text = describe_sandbox(confined.settings) if confined else ""
        self._params = build_params_class(*limits, is_confined=bool(sandbox_text))
        self._spec = shell_spec(workspace.shell, *limits, sandbox_text)

    @property
    def spec(self) -> ToolSpec:
        """See `Tool`."""
        return self._spec

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`. The proposed action is the command line as it was given."""
        yield prepare_call(self._params, arguments, lambda params: self._prepare_command(params, context))

    def _prepare_command(self, params: ShellParams, context: ToolCallContext) -> PreparedCall | ToolReturnValue:
        if not params.command.strip():
            return tool_error("Command cannot be empty.", "Empty command")
        if params.run_in_background and context.agent_id is not None:
            return ROOT_ONLY_ERROR
        leaves_sandbox = isinstance(params, ConfinedShellParams) and params.without_sandbox
        if leaves_sandbox and self._confined and (refused := self._confined.check_leaving()) is not None:
            return refused
        confined = None if leaves_sandbox else self._confined
        if params.run_in_background:
            proposed = propose_background_command(params.command, self._workspace.shell)
            run = partial(self._start_background, params, confined)
        else:
            proposed = propose_command(params.command, self._workspace.shell)
            run = partial(self._run, params, confined, context)
        return PreparedCall(run, propose_leaving_sandbox(proposed) if leaves_sandbox else proposed)

    async def _start_background(self, params: ShellParams, confined: ConfinedCommands | None) -> ToolReturnValue:
        argv = self._build_argv(params.command)
        try:
            command = await confined.confine(argv) if confined else None
        except (KimiError, OSError) as error:
            return tool_error(f"Failed to start background task: {error}", "Start failed")
        task_spec = BackgroundTaskSpec(
            params.command, params.description.strip(), command.argv if command else argv, params.timeout
        )
        return start_background_task(self._start_task, task_spec)

    def _build_argv(self, command: str) -> tuple[str, ...]:
        shell = self._workspace.shell
        return (shell.path, *shell.arguments, adapt_command(command, shell))

    async def _run(
        self, params: ShellParams, confined: ConfinedCommands | None, context: ToolCallContext
    ) -> ToolReturnValue:
        argv = self._build_argv(params.command)
        spill = partial(self._spill_path, f"shell-{context.step}-{secrets.token_hex(4)}.txt")
        command: ConfinedCommand | None = None
        with closing(HeadTailBuffer(spill)) as output:
            try:
                command = await confined.confine(argv) if confined else None
                async with self._workspace.run(command.argv if command else argv, call=context) as process:
                    status = await collect_output(process, output, params.timeout)
            except (KimiError, OSError, ValueError) as error:
                # ValueError: a NUL or half a surrogate pair cannot be part of a command line.
                return output.build().error(f"Command execution failed: {error}", "Execution failed")
            shown = output.build()
            result = format_command_result(shown, status, params.timeout)
            return confined.explain_failure(result, shown.text, command) if confined and command else result


async def collect_output(process: Process, output: HeadTailBuffer, timeout_s: float) -> int | None:
    """Read all output and return the exit status; None if the command was killed by its timeout.

    Output that a command writes while it is being killed still counts.
    """
    timed_out = False
    finished = anyio.Event()

    async def end_in_time() -> None:
        nonlocal timed_out
        await anyio.sleep(timeout_s)
        # Before the kill: the reader may reach the end meanwhile, and must not cancel the task that kills.
        timed_out = True
        await process.kill()
        # A descendant may keep the output open: it is given up then.
        with anyio.move_on_after(_FINAL_READ_S):
            await finished.wait()
        tasks.cancel_scope.cancel()

    status = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end_in_time)
        async for block in process.output():
            output.write(block)
        status = await process.wait()
        finished.set()
        if not timed_out:
            tasks.cancel_scope.cancel()
    return None if timed_out else status


def format_command_result(output: ToolOutput, status: int | None, timeout_s: int) -> ToolReturnValue:
    """Format the result of a command that was started; `status` is None if it was killed by its timeout."""
    if status is None:
        return output.error(f"Command killed by timeout ({timeout_s}s)", f"Killed by timeout ({timeout_s}s)")
    if status == 0:
        return output.ok("Command executed successfully.")
    brief = "\n".join([f"Failed with exit code: {status}", *last_lines(output.text)])
    return output.error(f"Command failed with exit code: {status}.", brief)


def last_lines(text: str) -> list[str]:
    """Return the last lines of `text` that are not blank, shortened, for the user."""
    lines = [line for line in text.splitlines() if line.strip()][-MAX_BRIEF_LINES:]
    return [line if len(line) <= MAX_BRIEF_LINE_CHARS else line[:MAX_BRIEF_LINE_CHARS] + "..." for line in lines]


def propose_command(command: str, shell: Shell) -> ProposedAction:
    """Build the action of running `command`, for the policy and the user."""
    return ProposedAction(
        action="run command",
        description=f"Run command `{command}`",
        display=(ShellBlock(shell.language, command),),
        kind="command",
        subject=command,
    )


def propose_background_command(command: str, shell: Shell) -> ProposedAction:
    """Build the action of running `command` in the background: a key of its own, decided like any command."""
    return replace(
        propose_command(command, shell),
        action="run background command",
        description=f"Run background command `{command}`",
    )


def propose_leaving_sandbox(proposed_action: ProposedAction) -> ProposedAction:
    """Build the action of running the same command outside the sandbox, which is asked about each time."""
    return replace(
        proposed_action,
        action=f"{proposed_action.action} outside the sandbox",
        description=f"{proposed_action.description} outside the sandbox",
        is_protected=True,
    )


def start_background_task(start_task: StartTask | None, task_spec: BackgroundTaskSpec) -> ToolReturnValue:
    """Start a background task; the result names it and what can be done with it (tools spec 3.1)."""
    try:
        if start_task is None:
            raise OSError("background tasks are not available here")
        task = start_task(task_spec)
    except (KimiError, OSError, ValueError) as error:
        # ValueError: half a surrogate pair cannot be stored.
        return tool_error(f"Failed to start background task: {error}", "Start failed")
    lines = [f"{key}: {value}" for key, value in task_fields(task)] + [
        "automatic_notification: true",
        "next_step: Go on with other work; you will be notified when the task has ended.",
        "next_step: TaskOutput shows the state and the output so far, and can wait for the end.",
        "next_step: TaskStop ends the task with everything that it has started.",
        f"human_shell_hint: tail -f {shlex.quote(task.output_path)}",
    ]
    block = BackgroundTaskBlock(task.id, task.kind, task.status, task.description)
    return tool_ok("\n".join(lines), "Background task started.", brief=f"Started {task.id}", display=(block,))


def adapt_command(command: str, shell: Shell) -> str:
    """Return the command line for the shell: bash on Windows would create a file for the device `nul`."""
    return replace_nul_redirections(command) if sys.platform == "win32" and shell.language == "bash" else command


_NUL_REDIRECTION = re.compile(
    r"""'[^']*' | "(?:\\.|[^"\\])*" | (?P<redirection>(?:\d|&)?>>?\s*)nul(?=$|[\s;|&)])""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def replace_nul_redirections(command: str) -> str:
    """Return `command` with redirections to `nul` outside quotes changed to `/dev/null`."""
    return _NUL_REDIRECTION.sub(
        lambda found: f"{found['redirection']}/dev/null" if found["redirection"] else found[0], command
    )


@lru_cache(maxsize=8)
def build_params_class(default_timeout_s: int, max_timeout_s: int, *, is_confined: bool = False) -> type[ShellParams]:
    """Build the class `Params` with these time limits; one whose commands are confined may ask to leave the sandbox."""
    description = "Seconds after which the command is killed."
    timeout = Field(default_timeout_s, ge=1, le=max(max_timeout_s, MAX_BACKGROUND_S), description=description)
    arguments = ConfinedShellParams if is_confined else ShellParams
    params = create_model("Params", __base__=arguments, timeout=(int, timeout))
    params.max_foreground_s = max_timeout_s
    return params


@lru_cache(maxsize=8)
def shell_spec(shell: Shell, default_timeout_s: int, max_timeout_s: int, sandbox_text: str = "") -> ToolSpec:
    """Return the spec of Shell; all conversations with the same shell and settings share one object.

    `sandbox_text` describes the sandbox of its commands, if they are confined.
    """
    return ToolSpec(
        name="Shell",
        description=_format_description(shell, default_timeout_s, max_timeout_s) + sandbox_text,
        parameters=build_schema(build_params_class(default_timeout_s, max_timeout_s, is_confined=bool(sandbox_text))),
        kind="execute",
        key_argument="command",
    )


def _format_description(shell: Shell, default_timeout_s: int, max_timeout_s: int) -> str:
    return f"""\
Run a command line with {shell.name} (`{shell.path}`), syntax: {shell.language}.

Use it for builds, tests, version control and whatever has no tool of its own. To read, search, list or change \
files use ReadFile, Grep, Glob, StrReplaceFile and WriteFile instead of cat, grep, find and sed.

- Every call is a new process in the working directory: directory changes, variables and functions are gone \
afterwards. Join what belongs together with `&&` or `;` in one call.
- Standard input is empty, and nobody can answer a question: pass the options that avoid prompts, editors and pagers.
- After `timeout` seconds (default {default_timeout_s}, at most {max_timeout_s}) the command and everything it \
started is killed; what it had written until then is in the result.
- A process left behind with `&` keeps running, but its output is not read. For servers, watchers and long work set \
`run_in_background` and say in `description` what it is: you get a task id at once, a notification when it has ended, \
and TaskOutput and TaskStop work on it. Such a task may take up to {MAX_BACKGROUND_S} seconds; only a few may run at \
a time; what its command leaves behind is ended with it, and all tasks end with the program.
- Standard output and standard error come together, as UTF-8. Lines are cut at {MAX_LINE_CHARS:,} characters. Of more \
than {MAX_CHARS:,} characters you get the first {HEAD_CHARS:,} and the last {TAIL_CHARS:,}; the line between them \
names a file with the full output (at most {MAX_SPILL_BYTES // 1024 // 1024} MiB), if one could be kept.
- An exit code other than 0 is reported as an error, together with the output.
"""
