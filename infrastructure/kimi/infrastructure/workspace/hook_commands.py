"""Runs hook commands of the configuration by the shell in the work directory (runtime spec 7.5)."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio

from kimi.application.codec.envelope import encode_spaced_json
from kimi.application.ports import RunHook, Shell
from kimi.application.settings.settings import ShellSettings
from kimi.domain.content.message import JsonObject
from kimi.domain.events.request import HookAnswer
from kimi.domain.hook import CommandHook, clamp_timeout_s, judge_failure, parse_hook_result
from kimi.infrastructure.workspace.environment import build_command_environment
from kimi.infrastructure.workspace.pipes import OutputPipe, open_pipes
from kimi.infrastructure.workspace.processes import (
    LEAVING_GRACE_S,
    ChildProcess,
    LocalProcess,
    leave_process,
    start_program,
)
from kimi.infrastructure.workspace.shells import choose_shell

logger = logging.getLogger(__name__)

MAX_KEPT_BYTES: Final = 256 * 1024
"""The limit of what is kept of stdout and of stderr; the rest is read and dropped, so that the command does not stall.
"""


def make_hook_runner(
    work_dir: str, settings: ShellSettings, secret_variables: frozenset[str], environ: Mapping[str, str]
) -> RunHook:
    """Return a runner of hook commands in `work_dir`.

    Commands get `environ` as those of the agent do: without the variables that hold keys, unless the settings allow
    them.
    """
    shell = choose_shell(settings.path, environ)
    hidden = frozenset[str]() if settings.inherit_secrets else secret_variables
    environment = build_command_environment(environ, hidden, shell)

    async def run(hook: CommandHook, payload: JsonObject) -> HookAnswer:
        try:
            with anyio.fail_after(clamp_timeout_s(hook)):
                return await _run_command(hook, encode_spaced_json(payload), shell, work_dir, environment)
        except TimeoutError:
            return _report_failure(hook, f"was killed after {clamp_timeout_s(hook)} s")
        except Exception:
            logger.debug("a hook command could not be run", exc_info=True)
            return _report_failure(hook, "could not be run")

    return run


async def _run_command(
    hook: CommandHook, payload: bytes, shell: Shell, work_dir: str, environment: Mapping[str, str]
) -> HookAnswer:
    words = [shell.path, *shell.arguments, hook.command]
    output, errors = bytearray(), bytearray()
    async with open_command(words, payload, work_dir, environment) as (process, streams):
        # Both pipes are read at the same time, so that the command never stalls on a full one.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_collect_output, streams.output, output)
            tasks.start_soon(_collect_output, streams.errors, errors)
        status = await process.wait()
    answer = parse_hook_result(status, bytes(output), bytes(errors))
    if answer is None:
        failure = f"ended with status {status}" if status else "answered with broken JSON"
        return _report_failure(hook, failure)
    return answer


def _report_failure(hook: CommandHook, failure: str) -> HookAnswer:
    """Log that a command has failed, and return what that means."""
    answer = judge_failure(hook, failure)
    logger.warning("hook command %s, so it %ss: %s", failure, answer.action, hook.command)
    return answer


class _CommandStreams:
    """Stdout and stderr of a command: its process drains and closes them as one pipe, the hook runner reads both."""

    def __init__(self) -> None:
        (self.output, self.output_end), (self.errors, self.errors_end) = open_pipes()

    async def read(self) -> bytes:
        """Read the next block of stdout."""
        return await self.output.read()

    def stop_waiting(self) -> None:
        """Stop waiting for both pipes; see `OutputPipe`."""
        self.output.stop_waiting()
        self.errors.stop_waiting()

    def close(self) -> None:
        """Close both pipes; see `OutputPipe`."""
        self.output.close()
        self.errors.close()

    def close_write_ends(self) -> None:
        """Close the ends that the command writes to, in this process."""
        os.close(self.output_end)
        os.close(self.errors_end)


@asynccontextmanager
async def open_command(
    words: list[str], payload: bytes, work_dir: str, environment: Mapping[str, str], *, kill_orphans: bool = False
) -> AsyncGenerator[tuple[LocalProcess, _CommandStreams], None]:
    """Start a command with `payload` on its stdin; leaving the context kills its process tree.

    What a command that has ended left behind is killed if `kill_orphans` is set. Raises OSError, ValueError.
    """
    streams = _CommandStreams()
    try:
        child = await _start_process(words, payload, work_dir, environment, streams)
    except BaseException:
        streams.close()
        raise
    finally:
        # Also after a success: the pipes reach their end only when no process holds these ends.
        streams.close_write_ends()
    process = LocalProcess(child, streams)
    try:
        yield process, streams
    finally:
        # The time limit and a cancelled turn arrive here as a cancellation.
        await leave_process(process, LEAVING_GRACE_S, kill_orphans=kill_orphans)


async def _start_process(
    words: list[str], payload: bytes, work_dir: str, environment: Mapping[str, str], streams: _CommandStreams
) -> ChildProcess:
    """Start the command with `payload` on stdin.

    The payload comes from an unnamed file, so that nothing waits for the command to read it.
    """
    with tempfile.TemporaryFile() as file:
        file.write(payload)
        file.seek(0)
        return await start_program(
            words, work_dir, environment, (file.fileno(), streams.output_end, streams.errors_end)
        )


async def _collect_output(pipe: OutputPipe, kept: bytearray) -> None:
    while block := await pipe.read():
        kept += block[: MAX_KEPT_BYTES - len(kept)]
