"""Programs that this machine runs for a conversation (tools spec 3.1)."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol, TypeAlias

import anyio

from kimi.infrastructure.workspace.environment import close_memory_to_programs
from kimi.infrastructure.workspace.pipes import OutputPipe, open_pipe
from kimi.infrastructure.workspace.process_tree import end_tree
from kimi.infrastructure.workspace.programs import find_program

DRAIN_S = 0.5
"""How long output is awaited after the command has ended, in seconds."""

LEAVING_GRACE_S = 0.05
"""Seconds between termination and killing when no result is awaited any more."""


class ChildProcess(Protocol):
    """A program that was started, with everything that it starts in turn."""

    def watch(self, on_ended: Callable[[int], None]) -> None:
        """Call `on_ended` on the event loop with the exit status of the program; a signal is a negative number."""
        ...

    async def end(self, grace_s: float) -> None:
        """Terminate the program and its descendants; kill them after `grace_s` seconds. Idempotent."""
        ...

    def close(self) -> None:
        """Free what this process needs for it; the program has ended or could not be ended. Idempotent."""
        ...


class GroupChild:
    """A child of this process that leads a process group of its own; implements `ChildProcess`.

    A descendant that has left the group and lost its parent is not found again, and none ends with this process: hence
    it is used only where there is no keeper (`kimi.infrastructure.launcher`).
    """

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._stop_watching: Callable[[], None] | None = None

    def watch(self, on_ended: Callable[[int], None]) -> None:
        """See `ChildProcess`."""
        self._stop_watching = watch_exit(self._child, on_ended)

    async def end(self, grace_s: float) -> None:
        """See `ChildProcess`."""
        await end_tree(self._child.pid, grace_s)

    def close(self) -> None:
        """See `ChildProcess`. Reaps the process."""
        if self._stop_watching is not None:
            self._stop_watching()
        self._child.poll()


class LocalProcess:
    """A running program and its output; implements the port `Process`."""

    def __init__(self, child: ChildProcess, pipe: OutputPipe) -> None:
        self._child = child
        self._pipe = pipe
        self._status: int | None = None
        self._ended = asyncio.Event()
        self._drain_timer: asyncio.TimerHandle | None = None
        self._closed = False
        child.watch(self._on_exit)

    async def output(self) -> AsyncIterator[bytes]:
        """See `Process`."""
        while block := await self._pipe.read():
            yield block

    async def wait(self) -> int:
        """See `Process`."""
        await self._ended.wait()
        assert self._status is not None
        return self._status

    async def kill(self, grace_s: float = 2.0) -> None:
        """See `Process`. Also kills what a program that ended by itself left behind."""
        if self._closed:
            return
        await self._child.end(grace_s)
        with anyio.move_on_after(DRAIN_S):
            await self._ended.wait()

    @property
    def is_running(self) -> bool:
        """Whether the program itself has not ended yet."""
        return self._status is None

    def close(self) -> None:
        """Close the pipe and let go of the process, which has ended or could not be ended."""
        # From here on `kill` does nothing: the number of the process may belong to another one.
        self._closed = True
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        self._pipe.close()
        self._child.close()

    def _on_exit(self, status: int) -> None:
        self._status = status
        self._ended.set()
        # A descendant may keep the pipe open: the output must end nevertheless.
        self._drain_timer = asyncio.get_running_loop().call_later(DRAIN_S, self._pipe.stop_waiting)


StartProgram: TypeAlias = Callable[
    [Sequence[str], str, Mapping[str, str], tuple[int, int, int]], Awaitable[ChildProcess]
]
"""Start a program: its words, directory, environment, and descriptors for its three streams, which the caller closes.

Raises OSError if it cannot be started, ValueError if its words cannot be passed on.
"""


async def start_program(
    words: Sequence[str], cwd: str, env: Mapping[str, str], streams: tuple[int, int, int]
) -> ChildProcess:
    """See `StartProgram`. A keeper starts it where there can be one, so that nothing of it is ever lost."""
    from kimi.infrastructure.launcher.launcher import LauncherUnavailable, launch  # start-up time

    close_memory_to_programs()
    try:
        return await launch(_find_words(words, env), cwd, env, streams)
    except LauncherUnavailable:
        return await start_in_group(words, cwd, env, streams)


async def start_in_group(
    words: Sequence[str], cwd: str, env: Mapping[str, str], streams: tuple[int, int, int]
) -> ChildProcess:
    """See `StartProgram`. The program becomes a child of this process, in a group of its own."""
    return GroupChild(_spawn(_find_words(words, env), cwd, env, streams))


def _spawn(
    words: Sequence[str], cwd: str, env: Mapping[str, str], streams: tuple[int, int, int]
) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        words,
        cwd=cwd,
        env=dict(env),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        creationflags=subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0,
    )


def _find_words(words: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return the command with the path of its program. Raises FileNotFoundError."""
    program, *arguments = words
    found = find_program(program, env)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    return [found, *arguments]


@asynccontextmanager
async def run_process(
    command: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    merge_stderr: bool,
    kill_orphans: bool,
    start: StartProgram = start_program,
) -> AsyncGenerator[LocalProcess, None]:
    """Start `command`; leaving the context kills its tree if it still runs or if orphans are not wanted.

    Raises:
        OSError: it cannot be started.
    """
    pipe, writing = open_pipe()
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            child = await start(command, cwd, env, (nothing, writing, writing if merge_stderr else nothing))
        finally:
            os.close(nothing)
    except BaseException:
        pipe.close()
        raise
    finally:
        # Also after a success: the pipe reaches its end only when no process holds this end.
        os.close(writing)
    process = LocalProcess(child, pipe)
    try:
        yield process
    finally:
        await leave_process(process, LEAVING_GRACE_S, kill_orphans=kill_orphans)


async def leave_process(process: LocalProcess, grace_s: float, *, kill_orphans: bool = False) -> None:
    """Kill the tree of a process if it still runs or if orphans are not wanted, and close it."""
    if process.is_running or kill_orphans:
        # Shielded: a cancelled call must not leave its process tree behind.
        with anyio.CancelScope(shield=True):
            await process.kill(grace_s)
    process.close()


def watch_exit(child: subprocess.Popen[bytes], on_ended: Callable[[int], None]) -> Callable[[], None]:
    """Call `on_ended` on the event loop with the exit status of the child; return a function that cancels this.

    Where the system can report the end without it, the child is not reaped: its number stays taken until the tree is
    gone.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            return _watch_descriptor(child, os.pidfd_open(child.pid), on_ended)
    return watch_in_thread(child, on_ended)


def _watch_descriptor(
    child: subprocess.Popen[bytes], descriptor: int, on_ended: Callable[[int], None]
) -> Callable[[], None]:
    loop = asyncio.get_running_loop()
    open_descriptors = [descriptor]

    def stop() -> None:
        while open_descriptors:
            loop.remove_reader(open_descriptors[0])
            os.close(open_descriptors.pop())

    def look() -> None:
        stop()
        on_ended(_read_exit_status(child))

    loop.add_reader(descriptor, look)
    return stop


def _read_exit_status(child: subprocess.Popen[bytes]) -> int:
    """Return the exit status of a child that has ended and stays a zombie; a signal is a negative number."""
    if sys.platform != "linux":
        return child.wait()
    try:
        found = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        # The child was reaped elsewhere, or the program was started with SIGCHLD ignored.
        return child.wait()
    assert found is not None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def watch_in_thread(child: subprocess.Popen[bytes], on_ended: Callable[[int], None]) -> Callable[[], None]:
    """Do the same with a thread that waits; the child is reaped as soon as it has ended."""
    loop = asyncio.get_running_loop()
    wanted = [True]

    def on_loop(status: int) -> None:
        if wanted:
            on_ended(status)

    def wait() -> None:
        status = child.wait()
        with suppress(RuntimeError):  # the loop may be closed already
            loop.call_soon_threadsafe(on_loop, status)

    threading.Thread(target=wait, name="command exit", daemon=True).start()
    return wanted.clear
