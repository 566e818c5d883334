"""Programs that this machine runs for a conversation (tools spec 3.1)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio

from kimi.infrastructure.workspace.pipes import OutputPipe, open_pipe
from kimi.infrastructure.workspace.process_tree import end_tree

DRAIN_S = 0.5
"""How long output is awaited after the command has ended, in seconds."""

LEAVING_GRACE_S = 0.5
"""Seconds between termination and killing when no result is awaited any more."""


class LocalProcess:
    """A running program and its output; implements the port `Process`."""

    def __init__(self, child: subprocess.Popen[bytes], pipe: OutputPipe) -> None:
        self._child = child
        self._pipe = pipe
        self._status: int | None = None
        self._ended = asyncio.Event()
        self._drain_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._stop_watching = watch_exit(child, self._on_exit)

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
        await end_tree(self._child.pid, grace_s)
        with anyio.move_on_after(DRAIN_S):
            await self._ended.wait()

    @property
    def is_running(self) -> bool:
        """Whether the program itself has not ended yet."""
        return self._status is None

    def close(self) -> None:
        """Close the pipe and reap the process, which has ended or could not be ended."""
        # From here on `kill` does nothing: after the reaping, the number may belong to another process.
        self._closed = True
        self._stop_watching()
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        self._pipe.close()
        self._child.poll()

    def _on_exit(self, status: int) -> None:
        self._status = status
        self._ended.set()
        # A descendant may keep the pipe open: the output must end nevertheless.
        self._drain_timer = asyncio.get_running_loop().call_later(DRAIN_S, self._pipe.stop_waiting)


@asynccontextmanager
async def run_process(
    command: Sequence[str], *, cwd: str, env: Mapping[str, str], merge_stderr: bool, kill_orphans: bool
) -> AsyncGenerator[LocalProcess, None]:
    """Start `command`; leaving the context kills its tree if it still runs or if orphans are not wanted.

    Raises:
        OSError: it cannot be started.
    """
    pipe, writing = open_pipe()
    try:
        child = _spawn(command, cwd, env, writing, merge_stderr)
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
        if process.is_running or kill_orphans:
            # Shielded: a cancelled call must not leave its process tree behind.
            with anyio.CancelScope(shield=True):
                await process.kill(LEAVING_GRACE_S)
        process.close()


def _spawn(
    command: Sequence[str], cwd: str, env: Mapping[str, str], writing: int, merge_stderr: bool
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(command),
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.STDOUT if merge_stderr else subprocess.DEVNULL,
        start_new_session=True,
        creationflags=subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0,
    )


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
