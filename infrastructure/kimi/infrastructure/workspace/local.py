"""The machine that the program itself runs on, as a workspace."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from anyio import to_thread

from kimi.application.ports import FileStat, Process, Shell, ToolCallContext
from kimi.application.settings.settings import ShellSettings
from kimi.infrastructure.workspace.environment import build_command_environment
from kimi.infrastructure.workspace.files import (
    BLOCK_BYTES,
    open_file,
    read_block,
    read_small_file,
    stat_file,
    write_file,
)
from kimi.infrastructure.workspace.shells import choose_shell

if TYPE_CHECKING:
    from kimi.infrastructure.workspace.processes import StartProgram


class LocalWorkspace:
    """Files and processes of this machine; implements the port `Workspace`.

    `work_dir` is absolute. Commands inherit `environ` without the variables named in `secret_variables`, unless the
    settings allow them. `start` starts them; None for the best way that this machine has.
    """

    def __init__(
        self,
        work_dir: str,
        settings: ShellSettings,
        secret_variables: frozenset[str],
        environ: Mapping[str, str],
        start: StartProgram | None = None,
    ) -> None:
        self._start = start
        self._work_dir = os.path.normpath(work_dir)
        self._shell = choose_shell(settings.path, environ)
        self._kill_orphans = settings.kill_orphans
        hidden = frozenset[str]() if settings.inherit_secrets else secret_variables
        self._environment = build_command_environment(environ, hidden, self._shell)

    @property
    def work_dir(self) -> str:
        """See `Workspace`."""
        return self._work_dir

    @property
    def shell(self) -> Shell:
        """See `Workspace`."""
        return self._shell

    async def stat(self, path: str) -> FileStat | None:
        """See `Workspace`."""
        return await to_thread.run_sync(stat_file, path)

    async def real_path(self, path: str) -> str:
        """See `Workspace`."""
        return await to_thread.run_sync(os.path.realpath, path)

    @asynccontextmanager
    async def read(self, path: str, offset: int = 0) -> AsyncGenerator[AsyncIterator[bytes], None]:
        """See `Workspace`. A small file costs one call in a worker thread."""
        # The thread is not abandoned on cancellation, so the descriptor always comes back and is closed.
        descriptor, first = await to_thread.run_sync(_open_and_read, path, offset)
        try:
            yield _read_blocks(descriptor, first)
        finally:
            os.close(descriptor)

    async def read_small(
        self, path: str, may_read: Callable[[str], bool] | None = None
    ) -> tuple[FileStat, bytes | None] | None:
        """See `Workspace`. Costs one call in a worker thread."""
        return await to_thread.run_sync(read_small_file, path, may_read)

    async def write(self, path: str, content: bytes, expected: FileStat | None) -> FileStat:
        """See `Workspace`. A write that has begun is finished, also if the task is cancelled meanwhile."""
        return await to_thread.run_sync(write_file, path, content, expected)

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        merge_stderr: bool = True,
        call: ToolCallContext | None = None,
    ) -> AbstractAsyncContextManager[Process]:
        """See `Workspace`. There is no terminal that somebody would watch."""
        from kimi.infrastructure.workspace.processes import run_process, start_program  # start-up time

        return run_process(
            command,
            cwd=self._work_dir,
            env={**self._environment, **(env or {})},
            merge_stderr=merge_stderr,
            kill_orphans=self._kill_orphans,
            start=self._start or start_program,
        )


def _open_and_read(path: str, offset: int) -> tuple[int, bytes]:
    """Open a file and read its first block from `offset`."""
    descriptor = open_file(path)
    try:
        if offset:
            os.lseek(descriptor, offset, os.SEEK_SET)
        return descriptor, read_block(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


async def _read_blocks(descriptor: int, block: bytes) -> AsyncIterator[bytes]:
    """Yield `block` and the blocks after it; only a full block can have another one after it."""
    while block:
        yield block
        if len(block) < BLOCK_BYTES:
            return
        block = await to_thread.run_sync(read_block, descriptor)
