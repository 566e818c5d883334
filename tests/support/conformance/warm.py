"""A connection of the conformance kit to a warm process of the program, and one that breaks what passes through."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from kimi.interfaces.conformance.connection import MAX_LINE_BYTES, Connection, OpenConnection, Place
from tests.support.program import program

Mutate = Callable[[bytes], list[bytes]]
"""Return the lines that take the place of a line."""


class ProgramConnection:
    """A process that `program.start` has started."""

    def __init__(self, process: program.Program) -> None:
        self._process = process
        self._reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        self._errors = asyncio.StreamReader()
        self._transports: list[asyncio.BaseTransport] = []

    async def connect(self) -> ProgramConnection:
        """Attach to the pipes of the process."""
        loop = asyncio.get_running_loop()
        for stream, pipe in ((self._reader, self._process.stdout), (self._errors, self._process.stderr)):
            assert pipe is not None
            made = await loop.connect_read_pipe(_protocol_of(stream), pipe)
            self._transports.append(made[0])
        return self

    async def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    async def receive(self) -> bytes:
        return await self._reader.readline()

    async def end_input(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    async def close_output(self) -> None:
        self._transports[0].close()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def wait(self) -> int:
        while (status := self._process.poll()) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return status

    async def read_errors(self) -> bytes:
        return await self._errors.read()

    def latest_errors(self) -> bytes:
        return b""

    async def close(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        await self.wait()
        for transport in self._transports:
            transport.close()
        await self.end_input()
        await asyncio.sleep(0)  # the transports close their pipes in the next round


def _protocol_of(reader: asyncio.StreamReader) -> Callable[[], asyncio.StreamReaderProtocol]:
    return lambda: asyncio.StreamReaderProtocol(reader)


def warm_server(*arguments: str) -> OpenConnection:
    """Return what starts `kimi ARGUMENTS`, from the warm process where there is one."""

    async def start(place: Place, more: Sequence[str]) -> Connection:
        work_dir, environ = place
        process = await asyncio.to_thread(program.start, [*arguments, *more], work_dir, environ)
        return await ProgramConnection(process).connect()

    return start


class BrokenConnection:
    """A connection in which lines of one or both directions are changed, and perhaps the exit status."""

    def __init__(self, inner: Connection, outbound: Mutate, inbound: Mutate, status: Callable[[int], int]) -> None:
        self._inner = inner
        self._outbound = outbound
        self._inbound = inbound
        self._status = status
        self._waiting: deque[bytes] = deque()

    async def send(self, data: bytes) -> None:
        lines = [changed for line in data.splitlines(keepends=True) for changed in self._inbound(line)]
        await self._inner.send(b"".join(lines))

    async def receive(self) -> bytes:
        while not self._waiting:
            line = await self._inner.receive()
            self._waiting.extend(self._outbound(line) if line else [b""])
        return self._waiting.popleft()

    async def end_input(self) -> None:
        await self._inner.end_input()

    async def close_output(self) -> None:
        await self._inner.close_output()

    def send_signal(self, number: int) -> None:
        self._inner.send_signal(number)

    async def wait(self) -> int:
        return self._status(await self._inner.wait())

    async def read_errors(self) -> bytes:
        return await self._inner.read_errors()

    def latest_errors(self) -> bytes:
        return self._inner.latest_errors()

    async def close(self) -> None:
        await self._inner.close()
