"""A connection to the server under test: its messages as lines, and its process where there is one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from kimi.interfaces.conformance.ledger import Mismatch

MAX_LINE_BYTES: Final = 64 * 1024 * 1024


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
        """Return what the process wrote to stderr until its end."""
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
        self._errors = asyncio.ensure_future(_read_all(process.stderr))

    async def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
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
        transport = getattr(self._process, "_transport", None)
        pipe = transport.get_pipe_transport(1) if transport is not None else None
        if pipe is not None:
            pipe.close()

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        return await self._process.wait()

    async def read_errors(self) -> bytes:
        return await self._errors

    async def close(self) -> None:
        with suppress(ProcessLookupError):
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
            elif self._process.returncode is None:
                self._process.kill()
        await self._process.wait()
        self._errors.cancel()


def stdio_server(command: Sequence[str]) -> OpenConnection:
    """Return what starts a command; `{work_dir}` in an argument stands for the work directory."""

    async def start(place: Place, arguments: Sequence[str]) -> Connection:
        work_dir, environ = place
        words = [word.replace("{work_dir}", str(work_dir)) for word in (*command, *arguments)]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=work_dir,
            env=dict(environ),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            limit=MAX_LINE_BYTES,
            start_new_session=os.name == "posix",
        )
        return StdioConnection(process)

    return start


RunWithFiles: TypeAlias = Callable[[Place, bytes], Awaitable[tuple[bytes, int]]]
"""Run the server with a file as its input and another as its output; return the output and the exit status."""


def run_with_files(command: Sequence[str]) -> RunWithFiles:
    """Return what runs a command with regular files as its streams."""

    async def run(place: Place, data: bytes) -> tuple[bytes, int]:
        work_dir, environ = place
        taken, given = work_dir / "kit.in", work_dir / "kit.out"
        taken.write_bytes(data)
        with taken.open("rb") as source, given.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                *command, cwd=work_dir, env=dict(environ), stdin=source, stdout=sink, stderr=asyncio.subprocess.DEVNULL
            )
            status = await process.wait()
        return given.read_bytes(), status

    return run


async def _read_all(stream: asyncio.StreamReader | None) -> bytes:
    return b"" if stream is None else await stream.read()
