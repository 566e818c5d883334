"""An MCP server as a child process: lines of JSON on its stdin and stdout (tools spec 4.9, 6.2). Loads the library.

The library's own transport leaves a server four seconds to end, cannot bound the file for its stderr, and copies a long
line again with each of its pieces; hence this one. The session is the library's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sys
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from fastmcp.client.transports import ClientTransport
from fastmcp.client.transports.base import TransportOptions
from mcp import ClientSession
from mcp.shared.message import SessionMessage

from kimi.infrastructure.mcp.transport.message_guard import MessageGuard, MessageRefused
from kimi.infrastructure.mcp.transport.message_parsing import parse_message
from kimi.infrastructure.mcp.transport.server_log import ServerLog
from kimi.infrastructure.workspace.pipes import OutputPipe, open_pipes
from kimi.infrastructure.workspace.processes import ChildProcess, LocalProcess, leave_process, start_program

logger = logging.getLogger(__name__)

END_PHASE_S: Final = 1.0
"""The time that a server has to end after the end of its input, and again after the termination signal, in seconds."""

MAX_UNREAD_BYTES: Final = 64 * 1024 * 1024
"""The limit of what a server has not read of what it was sent."""

MAX_LOGGED_LINE_BYTES: Final = 64 * 1024
"""How much of a line that is no message gets into the log."""

_INHERITED_VARIABLES: Final = (
    (
        *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE"),
    )
    if sys.platform == "win32"
    else ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
)
"""The only variables that a server inherits: what it needs to run, nothing that could be a key."""


_SAFE_PATH: Final = "PYTHONSAFEPATH"
"""A variable that keeps Python from looking for modules in the directory that it runs in."""
_SCRIPT_ENDINGS: Final = (".py", ".pyw")


def protect_module_path(command: Sequence[str], env: Mapping[str, str], cwd: str, work_dir: str) -> Mapping[str, str]:
    """Return the variables of a server, with one that keeps `python -m server` from running a file of the project.

    It is left out where it would only break servers: outside of the work directory, for a script that lies outside of
    it, whose own modules lie beside it, and where the configuration has its own value.
    """

    def is_project(path: str) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(work_dir))

    if _SAFE_PATH in env or not is_project(cwd):
        return env
    if any(os.path.isabs(word) and word.endswith(_SCRIPT_ENDINGS) and not is_project(word) for word in command):
        return env
    return {_SAFE_PATH: "1", **env}


class ProcessTransport(ClientTransport):
    """Starts the command for each session, and ends it with its process tree when the session ends.

    `running_processes` holds the processes of all transports that share it, so that they can be killed from outside.
    `output_ended` is set when the output of the newest session's process has ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        log: ServerLog,
        running_processes: set[LocalProcess],
        environ: Mapping[str, str],
        guard: MessageGuard | None = None,
    ) -> None:
        self._guard = guard or MessageGuard()
        self.output_ended = asyncio.Event()
        self._command = command
        self._env = {name: environ[name] for name in _INHERITED_VARIABLES if name in environ} | dict(env)
        self._cwd = cwd
        self._log = log
        self._running_processes = running_processes

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncGenerator[ClientSession, None]:
        """See `ClientTransport`. Raises OSError if the command cannot be started."""
        options = transport_options or TransportOptions()
        self.output_ended = asyncio.Event()
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        with incoming, read, write, outgoing:
            async with self._run_process() as (process, stdin, errors), anyio.create_task_group() as tasks:
                tasks.start_soon(self._read_messages, process, incoming)
                tasks.start_soon(self._write_messages, outgoing, stdin)
                tasks.start_soon(self._read_errors, errors)
                try:
                    async with options.session_class(read, write, **session_kwargs) as session:
                        yield session
                finally:
                    # The pipes are still read while the process ends: on a full pipe it could not.
                    with anyio.CancelScope(shield=True):
                        await _end_process(process, stdin)
                    tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def _run_process(self) -> AsyncGenerator[tuple[LocalProcess, _StdinWriter, OutputPipe], None]:
        (output, output_end), (errors, errors_end) = open_pipes()
        ours = [output_end, errors_end]
        try:
            input_end, stdin = os.pipe()
            ours.append(input_end)
            child = await self._start((input_end, output_end, errors_end), stdin)
        except BaseException:
            output.close()
            errors.close()
            raise
        finally:
            for descriptor in ours:
                os.close(descriptor)
        process = LocalProcess(child, output)
        self._running_processes.add(process)
        try:
            yield process, _StdinWriter(stdin), errors
        finally:
            self._running_processes.discard(process)
            await leave_process(process, 0)  # it runs if this was cancelled once more while it was ending
            errors.close()
            self._log.close()

    async def _start(self, streams: tuple[int, int, int], stdin: int) -> ChildProcess:
        """Start the server; `stdin` is the end of its input that is ours, closed after an error."""
        try:
            return await start_program(self._command, self._cwd, self._env, streams)
        except BaseException:
            os.close(stdin)
            raise

    async def _read_messages(
        self, process: LocalProcess, incoming: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        """Parse lines into messages; other lines go to the log. A message that exceeds a limit ends the connection.

        It goes on reading when the session is closed, so that the process can end.
        """
        line = bytearray()  # grows in place: pieces that are joined would be in memory twice
        with incoming:
            try:
                async for block in process.output():
                    *ends, rest = block.split(b"\n")
                    for end in ends:
                        line += end
                        whole, line = line, bytearray()
                        await self._deliver_line(whole, incoming)
                    line += rest
                    self._guard.check_size(len(line))
                await self._deliver_line(line, incoming)
            except MessageRefused as refusal:
                logger.warning("the connection to an MCP server is given up: %s", refusal)
        self.output_ended.set()

    async def _deliver_line(
        self, line: bytearray, incoming: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        """Pass a line on as a message. Raises MessageRefused."""
        if not line or line.isspace():
            return
        try:
            message = await parse_message(line, self._guard)
        except ValueError:
            self._log.write(bytes(line[:MAX_LOGGED_LINE_BYTES]) + b"\n")
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await incoming.send(SessionMessage(message))

    async def _write_messages(self, outgoing: MemoryObjectReceiveStream[SessionMessage], stdin: _StdinWriter) -> None:
        """Send messages until a server has left too much unread; then the connection is given up."""
        async for message in outgoing:
            if stdin.unread_bytes > MAX_UNREAD_BYTES:
                self._guard.refuse("It does not read what it is sent.")
                self.output_ended.set()
                return
            stdin.send(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    async def _read_errors(self, errors: OutputPipe) -> None:
        while block := await errors.read():
            self._log.write(block)


class _StdinWriter:
    """Writes to a server's stdin in a thread, so that a server that does not read blocks nothing."""

    def __init__(self, descriptor: int) -> None:
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._sent_bytes = self._written_bytes = 0
        threading.Thread(target=self._pump, args=(descriptor,), name="mcp stdin", daemon=True).start()

    def send(self, line: bytes) -> None:
        """Queue `line` to be written after all that was sent before."""
        self._sent_bytes += len(line)
        self._lines.put(line)

    @property
    def unread_bytes(self) -> int:
        """The bytes that are queued."""
        return self._sent_bytes - self._written_bytes

    def close(self) -> None:
        """End the input after all that was sent. Idempotent."""
        self._lines.put(None)

    def _pump(self, descriptor: int) -> None:
        with suppress(OSError), open(descriptor, "wb", buffering=0) as stdin:
            while (line := self._lines.get()) is not None:
                rest = memoryview(line)
                while rest:
                    rest = rest[stdin.write(rest) or 0 :]
                self._written_bytes += len(line)


async def _end_process(process: LocalProcess, stdin: _StdinWriter) -> None:
    """End the server and its process tree: end of input, a pause, termination, a pause, kill."""
    stdin.close()
    with anyio.move_on_after(END_PHASE_S):
        await process.wait()
    await process.kill(END_PHASE_S)
