"""The file and terminal methods of an ACP editor: buffers over the disk, real processes."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from kimi.domain.content.message import JsonObject


class Refusal(Exception):
    """An error answer."""


@dataclass
class _Terminal:
    process: asyncio.subprocess.Process
    output: bytes = b""
    reading: asyncio.Task[None] | None = None


@dataclass
class Editor:
    """Answers the calls of an agent. `buffers` are files that are open and not saved; `autosave` writes go to disk.

    `refuses` names methods that are answered by an error, `silent` ones that are never answered.
    """

    buffers: dict[str, str] = field(default_factory=dict[str, str])
    autosave: bool = True
    refuses: set[str] = field(default_factory=set[str])
    silent: set[str] = field(default_factory=set[str])
    calls: list[tuple[str, JsonObject]] = field(default_factory=list[tuple[str, JsonObject]])
    terminals: dict[str, _Terminal] = field(default_factory=dict[str, _Terminal])

    async def __call__(self, method: str, params: JsonObject) -> JsonObject:
        """Answer one call."""
        self.calls.append((method, params))
        if method in self.silent:
            await anyio.sleep_forever()
        if method in self.refuses:
            raise Refusal(f"{method} is not possible")
        name = method.replace("/", "_")
        return await getattr(self, f"_{name}")(params)

    def methods(self) -> list[str]:
        """The methods that were called, in order."""
        return [method for method, _ in self.calls]

    async def _fs_read_text_file(self, params: JsonObject) -> JsonObject:
        path = params["path"]
        if path in self.buffers:
            return {"content": self.buffers[path]}
        try:
            return {"content": Path(path).read_bytes().decode()}
        except OSError as error:
            raise Refusal(str(error)) from error

    async def _fs_write_text_file(self, params: JsonObject) -> JsonObject:
        self.buffers[params["path"]] = params["content"]
        if self.autosave:
            Path(params["path"]).write_bytes(params["content"].encode())
        return {}

    async def _terminal_create(self, params: JsonObject) -> JsonObject:
        """Start the program directly, without a shell."""
        process = await asyncio.create_subprocess_exec(
            params["command"],
            *params.get("args", []),
            cwd=params.get("cwd"),
            env={**os.environ, **{one["name"]: one["value"] for one in params.get("env", [])}},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        terminal = _Terminal(process)
        terminal.reading = asyncio.create_task(self._collect(terminal))
        terminal_id = f"t{len(self.terminals) + 1}"
        self.terminals[terminal_id] = terminal
        return {"terminalId": terminal_id}

    async def _collect(self, terminal: _Terminal) -> None:
        assert terminal.process.stdout is not None
        while block := await terminal.process.stdout.read(65_536):
            terminal.output += block

    async def _terminal_wait_for_exit(self, params: JsonObject) -> JsonObject:
        terminal = self.terminals[params["terminalId"]]
        status = await terminal.process.wait()
        if terminal.reading is not None:
            await terminal.reading
        if status < 0:
            return {"exitCode": None, "signal": signal.Signals(-status).name}
        return {"exitCode": status, "signal": None}

    async def _terminal_output(self, params: JsonObject) -> JsonObject:
        output: Any = self.terminals[params["terminalId"]].output
        return {"output": output.decode("utf-8", "replace"), "truncated": False}

    async def _terminal_kill(self, params: JsonObject) -> JsonObject:
        self._kill(params["terminalId"])
        return {}

    async def _terminal_release(self, params: JsonObject) -> JsonObject:
        self._kill(params["terminalId"])
        terminal = self.terminals.pop(params["terminalId"])
        await terminal.process.wait()
        if terminal.reading is not None:
            await terminal.reading
        return {}

    def _kill(self, terminal_id: str) -> None:
        process = self.terminals[terminal_id].process
        if process.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and its status was not read yet
                os.killpg(process.pid, signal.SIGKILL)
