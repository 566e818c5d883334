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
from typing import Annotated, ClassVar, TypeAlias

import anyio
from pydantic import BaseModel, Field, create_model, model_validator

from kimi.application.ports import PreparedCall, Process, Shell, ToolCallContext, Workspace
from kimi.application.settings.settings import ShellSettings
from kimi.domain.background import BackgroundTask, TaskOrder, task_facts
from kimi.domain.content.message import JsonObject
from kimi.domain.errors import KimiError
from kimi.domain.permissions.approval import Effect
from kimi.domain.tools.tool import BackgroundTaskBlock, ShellBlock, ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.infrastructure.tools.output import (
    HEAD_CHARS,
    MAX_CHARS,
    MAX_LINE_CHARS,
    SPILL_BYTES,
    TAIL_CHARS,
    HeadTail,
    Output,
)
from kimi.infrastructure.tools.params import prepared, schema_of
from kimi.infrastructure.tools.shell.background_tasks import ROOT_ONLY

MAX_BACKGROUND_S = 86_400
"""The longest time limit of a background task, in seconds."""

StartTask: TypeAlias = Callable[[TaskOrder], BackgroundTask]
"""Start a command in the background. Raises TooManyTasks, OSError."""

BRIEF_LINES = 5
BRIEF_LINE_CHARS = 200
_LAST_READ_S = 1.0
"""Seconds in which the output of a killed command has to end; its drain takes half of that."""


class Params(BaseModel):
    """Arguments of Shell; `timeout` is in seconds, its default and its bound come from the settings."""

    command: Annotated[str, Field(description="The command line to run.")]
    timeout: int
    run_in_background: Annotated[bool, Field(description="Start the command as a background task and go on.")] = False
    description: Annotated[str, Field(description="What a background task is for; required for one.")] = ""

    max_foreground_s: ClassVar[int] = 300

    @model_validator(mode="after")
    def _fits_together(self) -> Params:
        if self.run_in_background and not self.description.strip():
            raise ValueError("description is required when run_in_background is true")
        if not self.run_in_background and self.timeout > self.max_foreground_s:
            raise ValueError(
                f"timeout must be <= {self.max_foreground_s}s for foreground commands; use run_in_background=true for "
                f"longer timeouts (up to {MAX_BACKGROUND_S}s)"
            )
        return self


class ShellTool:
    """Runs command lines; implements `Tool` of the application's ports.

    `spill` is given a fresh file name and says where the full text of an output that is too long may go, or None.
    `start_task` starts background tasks; without it there are none.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: ShellSettings,
        spill: Callable[[str], str | None],
        start_task: StartTask | None = None,
    ) -> None:
        self._workspace = workspace
        self._spill = spill
        self._start_task = start_task
        limits = (min(settings.default_timeout_s, settings.max_timeout_s), settings.max_timeout_s)
        self._params = params_with(*limits)
        self._spec = shell_spec(workspace.shell, *limits)

    @property
    def spec(self) -> ToolSpec:
        """See `Tool`."""
        return self._spec

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`. The effect is the command line as it was given."""
        yield prepared(self._params, arguments, lambda params: self._ready(params, context))

    def _ready(self, params: Params, context: ToolCallContext) -> PreparedCall | ToolReturnValue:
        if not params.command.strip():
            return tool_error("Command cannot be empty.", "Empty command")
        if params.run_in_background and context.agent_id is not None:
            return ROOT_ONLY
        if params.run_in_background:
            return PreparedCall(partial(self._start, params), background_effect(params.command, self._workspace.shell))
        run = partial(self._run, params.command, params.timeout, context)
        return PreparedCall(run, command_effect(params.command, self._workspace.shell))

    async def _start(self, params: Params) -> ToolReturnValue:
        order = TaskOrder(params.command, params.description.strip(), self._words(params.command), params.timeout)
        return started(self._start_task, order)

    def _words(self, command: str) -> tuple[str, ...]:
        shell = self._workspace.shell
        return (shell.path, *shell.arguments, runnable(command, shell))

    async def _run(self, command: str, timeout_s: int, context: ToolCallContext) -> ToolReturnValue:
        words = self._words(command)
        spill = partial(self._spill, f"shell-{context.step}-{secrets.token_hex(4)}.txt")
        with closing(HeadTail(spill)) as output:
            try:
                async with self._workspace.run(words, call=context) as process:
                    status = await collect(process, output, timeout_s)
            except (OSError, ValueError) as error:
                # ValueError: a NUL or half a surrogate pair cannot be part of a command line.
                return output.build().error(f"Command execution failed: {error}", "Execution failed")
            return command_result(output.build(), status, timeout_s)


async def collect(process: Process, output: HeadTail, timeout_s: float) -> int | None:
    """Read all output and give the exit status; None when the command had to be killed for its time.

    What a command says while it is being ended still counts.
    """
    timed_out = False
    finished = anyio.Event()

    async def end_in_time() -> None:
        nonlocal timed_out
        await anyio.sleep(timeout_s)
        timed_out = True
        await process.kill()
        with anyio.move_on_after(_LAST_READ_S):
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


def command_result(output: Output, status: int | None, timeout_s: int) -> ToolReturnValue:
    """The result of a command that was started; no status means that it was killed for its time."""
    if status is None:
        return output.error(f"Command killed by timeout ({timeout_s}s)", f"Killed by timeout ({timeout_s}s)")
    if status == 0:
        return output.ok("Command executed successfully.")
    brief = "\n".join([f"Failed with exit code: {status}", *last_lines(output.text)])
    return output.error(f"Command failed with exit code: {status}.", brief)


def last_lines(text: str) -> list[str]:
    """The last lines of `text` that are not blank, shortened, for the one who watches."""
    lines = [line for line in text.splitlines() if line.strip()][-BRIEF_LINES:]
    return [line if len(line) <= BRIEF_LINE_CHARS else line[:BRIEF_LINE_CHARS] + "..." for line in lines]


def command_effect(command: str, shell: Shell) -> Effect:
    """What running `command` means for the policy and the person."""
    return Effect(
        action="run command",
        description=f"Run command `{command}`",
        display=(ShellBlock(shell.language, command),),
        kind="command",
        subject=command,
    )


def background_effect(command: str, shell: Shell) -> Effect:
    """What running `command` in the background means: an action of its own, judged like any command."""
    return replace(
        command_effect(command, shell),
        action="run background command",
        description=f"Run background command `{command}`",
    )


def started(start_task: StartTask | None, order: TaskOrder) -> ToolReturnValue:
    """Start a background task; the result says what it is called and what can be done with it (tools spec 3.1)."""
    try:
        if start_task is None:
            raise OSError("background tasks are not available here")
        task = start_task(order)
    except (KimiError, OSError, ValueError) as error:
        # ValueError: half a surrogate pair cannot be written down.
        return tool_error(f"Failed to start background task: {error}", "Start failed")
    lines = [f"{key}: {value}" for key, value in task_facts(task)] + [
        "automatic_notification: true",
        "next_step: Go on with other work; you will be notified when the task has ended.",
        "next_step: TaskOutput shows the state and the output so far, and can wait for the end.",
        "next_step: TaskStop ends the task with everything that it has started.",
        f"human_shell_hint: tail -f {shlex.quote(task.output_path)}",
    ]
    block = BackgroundTaskBlock(task.id, task.kind, task.status, task.description)
    return tool_ok("\n".join(lines), "Background task started.", brief=f"Started {task.id}", display=(block,))


def runnable(command: str, shell: Shell) -> str:
    """The command line as the shell gets it: bash on Windows would make a file of the device `nul`."""
    return without_nul(command) if sys.platform == "win32" and shell.language == "bash" else command


_NUL = re.compile(
    r"""'[^']*' | "(?:\\.|[^"\\])*" | (?P<redirection>(?:\d|&)?>>?\s*)nul(?=$|[\s;|&)])""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def without_nul(command: str) -> str:
    """`command` with redirections to `nul` outside quotes going to `/dev/null`."""
    return _NUL.sub(lambda found: f"{found['redirection']}/dev/null" if found["redirection"] else found[0], command)


@lru_cache(maxsize=8)
def params_with(default_timeout_s: int, max_timeout_s: int) -> type[Params]:
    """`Params` with these time limits."""
    about = "Seconds after which the command is killed."
    timeout = Field(default_timeout_s, ge=1, le=max(max_timeout_s, MAX_BACKGROUND_S), description=about)
    params = create_model("Params", __base__=Params, timeout=(int, timeout))
    params.max_foreground_s = max_timeout_s
    return params


@lru_cache(maxsize=8)
def shell_spec(shell: Shell, default_timeout_s: int, max_timeout_s: int) -> ToolSpec:
    """What the model is told; the same object for all conversations with the same shell and limits."""
    return ToolSpec(
        name="Shell",
        description=_description(shell, default_timeout_s, max_timeout_s),
        parameters=schema_of(params_with(default_timeout_s, max_timeout_s)),
        kind="execute",
        key_argument="command",
    )


def _description(shell: Shell, default_timeout_s: int, max_timeout_s: int) -> str:
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
names a file with the full output (at most {SPILL_BYTES // 1024 // 1024} MiB), if one could be kept.
- An exit code other than 0 is reported as an error, together with the output.
"""
