"""A tool of a plugin: a command that gets its arguments on stdin and answers on stdout (tools spec 3.18)."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import anyio

from kimi.application.codec.envelope import encode_json
from kimi.application.ports import CheckArguments, PreparedCall, ToolCallContext
from kimi.application.toolset.foreign_schema import find_argument_fault
from kimi.application.toolset.mcp_tool import MAX_DESCRIPTION, NO_DESCRIPTION, escape_texts, format_arguments
from kimi.domain.content.message import JsonObject
from kimi.domain.errors import KimiError
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.tools.mcp_tool_names import show_name
from kimi.domain.tools.plugin import InstalledPlugins, PluginCommand, name_tools
from kimi.domain.tools.tool import BriefBlock, ToolReturnValue, ToolSpec, escape_host_tags, tool_error
from kimi.infrastructure.tools.output import HeadTailBuffer, ToolOutput
from kimi.infrastructure.workspace.hook_commands import open_command
from kimi.infrastructure.workspace.programs import find_program

if TYPE_CHECKING:
    from kimi.infrastructure.sandbox.sandbox import ConfinedCommand
    from kimi.infrastructure.workspace.pipes import OutputPipe

TIME_LIMIT_S: Final = 120.0
MAX_ERROR_CHARS: Final = 2_000
"""So much of the end of stderr is in the message of a call that failed."""

_PYTHON_NAMES: Final = ("python3", "python")

Confine: TypeAlias = Callable[[Sequence[str]], Awaitable["ConfinedCommand | None"]]
"""Return the confined form of a command line; None if it runs as it is. Raises ConfigError, OSError."""


@dataclass(frozen=True, slots=True)
class PluginToolDeps:
    """What all tools of plugins share: the environment of their commands, and how these are confined and limited.

    `spill_path` takes a fresh file name and returns the path for an output that is too long, or None.
    """

    environment: Mapping[str, str]
    check_arguments: CheckArguments
    confine: Confine
    spill_path: Callable[[str], str | None]
    time_limit_s: float = TIME_LIMIT_S


class PluginTool:
    """Runs one command of a plugin; implements the port `Tool`. Every call needs approval."""

    def __init__(self, name: str, command: PluginCommand, directory: str, deps: PluginToolDeps) -> None:
        self._command = command
        self._directory = directory
        self._deps = deps
        described = command.description.strip()[:MAX_DESCRIPTION] or NO_DESCRIPTION
        head = f"This is a tool of the plugin `{command.plugin}`."
        parameters = cast("JsonObject", escape_texts(command.parameters))
        self._spec = ToolSpec(name, escape_host_tags(f"{head}\n\n{described}"), parameters, kind="other")

    @property
    def spec(self) -> ToolSpec:
        """See `Tool`."""
        return self._spec

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`. The arguments are checked against the schema of the plugin."""
        check, schema = self._deps.check_arguments, self._command.parameters
        fault = await find_argument_fault(check, schema, arguments, context.raw_arguments)
        if fault is None:
            yield PreparedCall(partial(self._run, arguments), self._propose_action(arguments))
        else:
            error = tool_error(f"Error validating JSON arguments: {fault}", "Invalid arguments")

            async def refuse() -> ToolReturnValue:
                return error

            yield PreparedCall(refuse)

    def _propose_action(self, arguments: JsonObject) -> ProposedAction:
        command = self._command
        name = show_name(command.name)
        return ProposedAction(
            f"plugin:{name}",
            f"Run plugin tool `{name}`.",
            (BriefBlock(f"{command.plugin}: {format_arguments(arguments)}"),),
            kind="plugin",
            subject=f"{command.plugin}/{command.name}",
            remember_as=command.approval_key,
        )

    async def _run(self, arguments: JsonObject) -> ToolReturnValue:
        spill = partial(self._deps.spill_path, f"plugin-{secrets.token_hex(8)}.txt")
        status: int | None = None
        errors = bytearray()
        with closing(HeadTailBuffer(spill)) as output:
            try:
                words = await self._confine_words()
                with anyio.move_on_after(self._deps.time_limit_s):
                    status = await self._run_command(words, encode_json(arguments), output, errors)
            except (KimiError, OSError, ValueError) as error:
                # ValueError: half a surrogate pair cannot be encoded.
                return self._report_failure(output.build(), self._explain(error))
            return self._format_result(status, output.build(), errors.decode("utf-8", "replace").strip())

    async def _confine_words(self) -> Sequence[str]:
        """Return the command line to start; a confined one would begin in the work directory."""
        words = _resolve_program(self._command.words, self._directory, self._deps.environment)
        moved = ("/bin/sh", "-c", 'cd -- "$0" && exec "$@"', self._directory, *words)
        confined = await self._deps.confine(moved)
        return words if confined is None else confined.argv

    async def _run_command(
        self, words: Sequence[str], payload: bytes, output: HeadTailBuffer, errors: bytearray
    ) -> int:
        environment = self._deps.environment
        opened = open_command([*words], payload, self._directory, environment, kill_orphans=True)
        async with opened as (process, streams):
            # Both pipes are read at the same time, so that the command never stalls on a full one.
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_collect, streams.output, output)
                tasks.start_soon(_collect_end, streams.errors, errors)
            return await process.wait()

    def _format_result(self, status: int | None, output: ToolOutput, errors: str) -> ToolReturnValue:
        name = show_name(self._command.name)
        if status is None:
            text = f"Plugin tool '{name}' timed out after {self._deps.time_limit_s:g}s."
            return output.error(text, "Timeout")
        if status:
            shown = errors[-MAX_ERROR_CHARS:] or "it wrote nothing on stderr"
            return self._report_failure(output, f"exit code {status}: {shown}")
        return output.ok("" if output.text.strip() else "The tool has ended well and written nothing.")

    def _report_failure(self, output: ToolOutput, reason: str) -> ToolReturnValue:
        return output.error(f"Plugin tool '{show_name(self._command.name)}' failed: {reason}", "Plugin tool failed")

    def _explain(self, error: Exception) -> str:
        if isinstance(error, FileNotFoundError):
            program = show_name(self._command.words[0])
            return f"its program `{program}` was not found; install it, or remove the plugin `{self._command.plugin}`"
        return str(error)


def _resolve_program(words: Sequence[str], directory: str, environment: Mapping[str, str]) -> Sequence[str]:
    """Return the command line with a program of the plugin as an absolute path.

    Where Python has another name than plugins expect, as on Windows, it is the one that this program runs in.
    """
    program, *arguments = words
    if os.path.dirname(program):
        return (os.path.normpath(os.path.join(directory, program)), *arguments)
    if program in _PYTHON_NAMES and find_program(program, environment) is None:
        return (sys.executable, *arguments)
    return words


async def _collect(pipe: OutputPipe, kept: HeadTailBuffer) -> None:
    while block := await pipe.read():
        kept.write(block)


async def _collect_end(pipe: OutputPipe, kept: bytearray) -> None:
    while block := await pipe.read():
        kept += block
        del kept[: -4 * MAX_ERROR_CHARS]  # a character has at most four bytes


def make_plugin_tools(installed: InstalledPlugins, reserved: frozenset[str], deps: PluginToolDeps) -> list[PluginTool]:
    """Return the tools of all plugins, none of which has a `reserved` name."""
    names = name_tools(installed.plugins, reserved)
    return [
        PluginTool(names[command.origin], command, plugin.directory, deps)
        for plugin in installed.plugins
        for command in plugin.commands
    ]
