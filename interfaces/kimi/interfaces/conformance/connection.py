"""A connection to the server under test: its messages as lines, and its process where there is one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Protocol, TypeAlias

from kimi.interfaces.conformance.ledger import Mismatch

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
KEPT_ERROR_BYTES: Final = 64 * 1024

_LEFTOVERS_S: Final = 4.0


class Connection(Protocol):
    """Sends and receives lines. What needs a process raises Mismatch where there is none."""

    async def send(self, data: bytes) -> None:
        """Send bytes as they are; lines end in `\\n`."""
        ...

    async def receive(self) -> bytes:
        """Return the next line with its end; nothing when the server has closed its output."""
        ...

    async def end_input(self) -> None:
        """Close the server's input."""
        ...

    async def close_output(self) -> None:
        """Close our end of the server's output, so that it cannot write any more."""
        ...

    def send_signal(self, number: int) -> None:
        """Send a signal to the process."""
        ...

    async def wait(self) -> int:
        """Wait for the end of the process; return its exit status, negative for a signal."""
        ...

    async def read_errors(self) -> bytes:
        """Return the end of what the process wrote to stderr, once that is closed."""
        ...

    def latest_errors(self) -> bytes:
        """Return the end of what the process has written to stderr so far."""
        ...

    async def close(self) -> None:
        """End everything that is still open."""
        ...


Place: TypeAlias = tuple[Path, Mapping[str, str]]
"""The work directory and the environment of a start."""

OpenConnection: TypeAlias = Callable[[Place, Sequence[str]], Awaitable[Connection]]
"""Start the server, or connect to it; with more arguments for its command line."""


class StdioConnection:
    """A process with pipes for its three streams."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors = bytearray()
        self._reading = asyncio.ensure_future(self._read_errors())

    async def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        if self._process.stdin.is_closing():
            return
        with suppress(ConnectionError):
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    async def receive(self) -> bytes:
        assert self._process.stdout is not None
        try:
            return await self._process.stdout.readline()
        except ValueError:
            raise Mismatch(f"a line is longer than {MAX_LINE_BYTES} bytes") from None

    async def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(ConnectionError):
            await self._process.stdin.wait_closed()

    async def close_output(self) -> None:
        close_pipe(self._process, 1)

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        return await self._process.wait()

    async def read_errors(self) -> bytes:
        await self._reading
        return bytes(self._errors)

    def latest_errors(self) -> bytes:
        return bytes(self._errors)

    async def close(self) -> None:
        await kill(self._process)
        self._reading.cancel()

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(KEPT_ERROR_BYTES):
            self._errors += data
            del self._errors[:-KEPT_ERROR_BYTES]


def stdio_server(command: Sequence[str]) -> OpenConnection:
    """Return what starts a command; `{work_dir}` in an argument stands for the work directory."""

    async def start(place: Place, arguments: Sequence[str]) -> Connection:
        pipe = asyncio.subprocess.PIPE
        return StdioConnection(await start_process((*command, *arguments), place, pipe, pipe, pipe))

    return start


Stream: TypeAlias = "IO[bytes] | int | None"


async def start_process(
    command: Sequence[str], place: Place, stdin: Stream, stdout: Stream, stderr: Stream
) -> asyncio.subprocess.Process:
    """Start a command in a process group of its own. Raises Mismatch if that is not possible."""
    work_dir, environ = place
    words = [word.replace("{work_dir}", str(work_dir)) for word in command]
    try:
        return await asyncio.create_subprocess_exec(
            *words,
            cwd=work_dir,
            env=dict(environ),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            limit=MAX_LINE_BYTES,
            start_new_session=os.name == "posix",
        )
    except OSError as error:
        raise Mismatch(f"{words[0]} cannot be started: {error.strerror or error}") from None


async def kill(process: asyncio.subprocess.Process) -> None:
    """End a process that `start_process` has started, and what is left in its group.

    The pipes are closed as well: `wait` waits for their end, and what the process has started may hold them for long.
    """
    with suppress(ProcessLookupError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()
    for number in range(3):
        close_pipe(process, number)
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), 5)


def close_pipe(process: asyncio.subprocess.Process, number: int) -> None:
    """Close our end of a stream of a process; the library has no other way to close one that is read from."""
    pipe = getattr(process, "_transport").get_pipe_transport(number)  # noqa: B009
    if pipe is not None:
        pipe.close()


async def kill_leftovers(root: Path) -> None:
    """End the processes that work below a directory or have it in their environment, whatever group they are in.

    A server may start commands in sessions of their own. Elsewhere than on Linux they cannot be found. Returns when
    they have ended, which on a busy machine is not at once, or after four seconds.
    """
    for _ in range(int(_LEFTOVERS_S / 0.02)):
        is_found = False
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if _belongs_to(entry, root):
                    is_found = True
                    os.kill(int(entry.name), signal.SIGKILL)
        if not is_found:
            return
        await asyncio.sleep(0.02)


def _belongs_to(entry: Path, root: Path) -> bool:
    return (
        Path(os.readlink(entry / "cwd")).is_relative_to(root) or os.fsencode(root) in (entry / "environ").read_bytes()
    )


RunWithFiles: TypeAlias = Callable[[Place, bytes], Awaitable[tuple[bytes, int]]]
"""Run the server with a file as its input and another as its output; return the output and the exit status."""


def run_with_files(command: Sequence[str]) -> RunWithFiles:
    """Return what runs a command with regular files as its streams."""

    async def run(place: Place, data: bytes) -> tuple[bytes, int]:
        taken, given = place[0] / "kit.in", place[0] / "kit.out"
        taken.write_bytes(data)
        with taken.open("rb") as source, given.open("wb") as sink:
            process = await start_process(command, place, source, sink, asyncio.subprocess.DEVNULL)
            try:
                status = await process.wait()
            finally:
                await kill(process)
        return given.read_bytes(), status

    return run
