"""The workspace over the files and terminals of the client (acp spec 3.10).

It implements a port of the application here, among the drivers, because it needs the client's connection. Everything
else - directories, searches, binary and large files, other programs - is done by the local workspace that it wraps.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import anyio
import anyio.to_thread

from kimi.application.ports import FileChanged, FileStat, Process, Shell, ToolCallContext, Workspace
from kimi.domain.content.message import JsonObject
from kimi.interfaces.acp.client_capabilities import ClientCapabilities
from kimi.interfaces.acp.workspace.client_terminal import ClientTerminal

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S: Final = 10.0
"""How long a call of the client for a file may take, in seconds."""

BOM: Final = "\ufeff"

CallClient: TypeAlias = Callable[[str, JsonObject], Awaitable[JsonObject]]
"""Call a method of the client with parameters; return the result. Raises if the client refuses, fails or is gone."""

ShowTerminal: TypeAlias = Callable[[ToolCallContext, str], Awaitable[None]]
"""Show a terminal of the client, by its id, in this tool call."""

JoinEvents: TypeAlias = Callable[[], Awaitable[None]]
"""Wait until every event of the conversation so far has become an update to the client."""


@dataclass(slots=True)
class _SeenText:
    """A text that the client sent or received, with the identity of the file then and how the bytes on disk differ."""

    identity: tuple[int, ...]
    text: str
    has_bom: bool = False
    has_crlf: bool = False

    def to_disk(self, text: str) -> str:
        """Return the client's text as it is in the file."""
        with_breaks = text.replace("\n", "\r\n") if self.has_crlf else text
        return BOM + with_breaks if self.has_bom else with_breaks

    def to_client(self, text: str) -> str:
        """Return the file's text as the client has it."""
        without = text.removeprefix(BOM) if self.has_bom else text
        return without.replace("\r\n", "\n") if self.has_crlf else without


@dataclass
class ClientWorkspace:
    """The workspace of one session over its client; implements the port `Workspace`.

    Only text files below `roots` (real paths, called each time) are read and written through the client, as far as its
    capabilities go.
    """

    local: Workspace
    session_id: str
    capabilities: ClientCapabilities
    roots: Callable[[], Sequence[str]]
    call_client: CallClient
    show_terminal: ShowTerminal
    join_events: JoinEvents
    timeout_s: float = CALL_TIMEOUT_S
    _seen_texts: dict[str, _SeenText] = field(default_factory=dict[str, _SeenText])

    @property
    def work_dir(self) -> str:
        """See `Workspace`."""
        return self.local.work_dir

    @property
    def shell(self) -> Shell:
        """See `Workspace`."""
        return self.local.shell

    async def stat(self, path: str) -> FileStat | None:
        """See `Workspace`. Always uses the local file."""
        return await self.local.stat(path)

    async def real_path(self, path: str) -> str:
        """See `Workspace`."""
        return await self.local.real_path(path)

    @asynccontextmanager
    async def read(self, path: str, offset: int = 0) -> AsyncGenerator[AsyncIterator[bytes], None]:
        """See `Workspace`. Reads a text file below 1 MiB from the client, with its unsaved changes."""
        found = await self.read_small(path) if self._is_client_file(path) else None
        if found is not None and found[1] is not None:
            yield _yield_block(found[1][offset:])
            return
        async with self.local.read(path, offset) as blocks:
            yield blocks

    async def read_small(
        self, path: str, may_read: Callable[[str], bool] | None = None
    ) -> tuple[FileStat, bytes | None] | None:
        """See `Workspace`. Returns the client's content if it has one; if it refuses, that of the disk."""
        if may_read is not None:  # the client is not asked ahead of the call
            wanted = may_read
            return await self.local.read_small(path, lambda real: not self._is_client_file(real) and wanted(real))
        found = await self.local.read_small(path)
        if found is None or found[1] is None or not self._is_client_file(path):
            return found
        stat, content = found
        disk = _decode_text(content or b"")
        if disk is None:
            return found
        text = await self._read_client_text(stat.real_path)
        if text is None or self._is_stale(stat, text, disk):
            return found
        seen = self._seen_texts[stat.real_path] = _compare_with_disk(stat, text, disk)
        return stat, seen.to_disk(text).encode()

    async def write(self, path: str, content: bytes, expected: FileStat | None) -> FileStat:
        """See `Workspace`. Writes a text through the client; raises FileChanged also for a change in the editor.

        Raises OSError if the client refuses; then the file is not written locally either.
        """
        text = _decode_text(content)
        if text is None or not self.capabilities.fs_write or not self._is_inside_roots(path):
            return await self.local.write(path, content, expected)
        await self._check_unchanged(path, expected)
        seen = self._seen_texts.get(path) or _SeenText((), "")
        await anyio.to_thread.run_sync(lambda: os.makedirs(os.path.dirname(path), exist_ok=True))
        await self._call_file_method("fs/write_text_file", path, content=seen.to_client(text))
        stat = await self.local.stat(path) or FileStat(path, "file", len(content), 0o644, ())
        self._seen_texts[path] = _SeenText(stat.identity, seen.to_client(text), seen.has_bom, seen.has_crlf)
        return stat

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        merge_stderr: bool = True,
        call: ToolCallContext | None = None,
    ) -> AbstractAsyncContextManager[Process]:
        """See `Workspace`. Runs the command of a tool call in a terminal of the client, if it supports terminals."""
        if call is None or not self.capabilities.terminal:
            return self.local.run(command, env=env, merge_stderr=merge_stderr, call=call)
        return self._run_in_terminal(command, env or {}, call)

    # --- files ----------------------------------------------------------------------------------------------------

    def _is_client_file(self, path: str) -> bool:
        return self.capabilities.fs_read and self._is_inside_roots(path)

    def _is_inside_roots(self, path: str) -> bool:
        real = os.path.realpath(path)
        return any(real == root or real.startswith(root.rstrip(os.sep) + os.sep) for root in self.roots())

    async def _read_client_text(self, path: str) -> str | None:
        """Return the client's text of a file; None if it refuses or returns none."""
        try:
            result = await self._call_file_method("fs/read_text_file", path)
        except OSError as error:
            logger.info("the client did not give a file, it is read from the disk: %s", error)
            return None
        text = result.get("content")
        return text if isinstance(text, str) else None

    def _is_stale(self, stat: FileStat, text: str, disk: str) -> bool:
        """Whether the file has changed on disk since the client was last asked, and the client has not noticed it."""
        before = self._seen_texts.get(stat.real_path)
        if before is None or before.identity == stat.identity:
            return False
        return text == before.text and _compare_with_disk(stat, text, disk).to_disk(text) != disk

    async def _check_unchanged(self, path: str, expected: FileStat | None) -> None:
        """Raise FileChanged if the file is not what the caller has seen, on disk or with the client."""
        now = await self.local.stat(path)
        if now is not None and now.kind == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if (now and now.identity) != (expected and expected.identity) or await self.local.real_path(path) != path:
            raise FileChanged(f"{path} has changed")
        before = self._seen_texts.get(path)
        if before is None or expected is None or not self.capabilities.fs_read or before.identity != expected.identity:
            return
        text = await self._read_client_text(path)
        if text is not None and text != before.text:
            raise FileChanged(f"{path} has changed in the editor")

    async def _call_file_method(self, method: str, path: str, **more: str) -> JsonObject:
        """Call a file method. Raises OSError if the client refuses, fails, is gone, or takes too long."""
        try:
            with anyio.fail_after(self.timeout_s):
                await self.join_events()  # the client must know of the call that asks (acp spec 3.3)
                return await self.call_client(method, {"sessionId": self.session_id, "path": path, **more})
        except TimeoutError:
            raise OSError(f"the client did not answer within {self.timeout_s:g} seconds") from None
        except Exception as error:
            raise OSError(f"the client refused: {error}") from error

    # --- terminals ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _run_in_terminal(
        self, command: Sequence[str], env: Mapping[str, str], call: ToolCallContext
    ) -> AsyncGenerator[Process, None]:
        terminal = ClientTerminal(self.session_id, self.call_client)
        try:
            if await self._create_terminal(terminal, command, env):
                await self.show_terminal(call, terminal.id)
                yield terminal
                return
        finally:
            if terminal.id:
                await terminal.release()
        async with self.local.run(command, env=env, call=call) as process:
            yield process

    async def _create_terminal(self, terminal: ClientTerminal, command: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether the client made the terminal."""
        try:
            await self._join_events_in_time()
            await terminal.create(command, self.work_dir, env)
        except OSError as error:
            logger.warning("the client made no terminal, the command runs without one: %s", error)
            return False
        return True

    async def _join_events_in_time(self) -> None:
        """Raises OSError when the client reads too slowly.

        Not part of `ClientTerminal.create`, which is shielded: as long as nothing is made, a cancellation ends the wait
        at once. Kill and release do not wait either: they must go out, and follow what was announced anyway.
        """
        try:
            with anyio.fail_after(self.timeout_s):
                await self.join_events()
        except TimeoutError:
            raise OSError(f"the client did not read its updates within {self.timeout_s:g} seconds") from None


def _decode_text(content: bytes) -> str | None:
    """Return the text of a file; None if it is not text in UTF-8, which an editor does not handle."""
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _compare_with_disk(stat: FileStat, text: str, disk: str) -> _SeenText:
    """Record what the file on disk has and an editor may hide: a byte order mark, DOS line ends."""
    bom = disk.startswith(BOM) and not text.startswith(BOM)
    crlf = "\r\n" in disk and "\r" not in text and "\n" not in disk.replace("\r\n", "")
    return _SeenText(stat.identity, text, bom, crlf)


async def _yield_block(content: bytes) -> AsyncIterator[bytes]:
    if content:
        yield content
