"""The files and terminals of an editor: buffers over the disk, and real processes (acp spec 3.10)."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from kimi.interfaces.conformance.acp.client import AcpPeer, RefusedByEditor, Serve
from kimi.interfaces.conformance.peer import Json

ALL_CAPABILITIES: Json = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}


@dataclass(slots=True)
class Editor:
    """Unsaved buffers by path, and the terminals that were made."""

    buffers: dict[str, str] = field(default_factory=dict[str, str])
    refuse_reads: bool = False
    refuse_writes: bool = False
    refuse_terminals: bool = False
    calls: list[str] = field(default_factory=list[str])
    created: list[Json] = field(default_factory=list[Json])
    running: dict[str, tuple[asyncio.subprocess.Process, asyncio.Task[bytes]]] = field(
        default_factory=dict[str, tuple[asyncio.subprocess.Process, asyncio.Task[bytes]]]
    )

    def serve(self, peer: AcpPeer) -> None:
        """Serve the methods for files and terminals at this peer."""
        handlers = {
            "fs/read_text_file": self._read,
            "fs/write_text_file": self._write,
            "terminal/create": self._create,
            "terminal/output": self._output,
            "terminal/wait_for_exit": self._wait,
            "terminal/kill": self._kill,
            "terminal/release": self._release,
        }
        for method, handler in handlers.items():
            peer.serve[method] = self._keep(method, handler)

    def _keep(self, method: str, handler: Serve) -> Serve:
        async def serve(params: Json) -> Json | None:
            self.calls.append(method)
            return await handler(params)

        return serve

    async def _read(self, params: Json) -> Json:
        if self.refuse_reads:
            raise RefusedByEditor("not mine")
        path = params["path"]
        if path in self.buffers:
            return {"content": self.buffers[path]}
        if not Path(path).is_file():
            raise RefusedByEditor("no such file")
        return {"content": Path(path).read_text(encoding="utf-8")}

    async def _write(self, params: Json) -> Json:
        if self.refuse_writes:
            raise RefusedByEditor("read only")
        Path(params["path"]).write_text(params["content"], encoding="utf-8")
        self.buffers[params["path"]] = params["content"]
        return {}

    async def _create(self, params: Json) -> Json:
        if self.refuse_terminals:
            raise RefusedByEditor("no terminals today")
        self.created.append(params)
        process = await asyncio.create_subprocess_exec(
            params["command"],
            *params.get("args", ()),
            cwd=params.get("cwd"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        name = f"term-{len(self.created)}"
        self.running[name] = (process, asyncio.ensure_future(process.stdout.read()))
        return {"terminalId": name}

    async def _output(self, params: Json) -> Json:
        process, reading = self.running[params["terminalId"]]
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(reading), 1)
        text = reading.result().decode("utf-8", "replace") if reading.done() else ""
        status = None if process.returncode is None else _exit_status(process.returncode)
        return {"output": text, "truncated": False, "exitStatus": status}

    async def _wait(self, params: Json) -> Json:
        return _exit_status(await self.running[params["terminalId"]][0].wait())

    async def _kill(self, params: Json) -> Json:
        with contextlib.suppress(ProcessLookupError):
            self.running[params["terminalId"]][0].kill()
        return {}

    async def _release(self, params: Json) -> Json:
        await self._kill(params)
        return {}


def _exit_status(code: int) -> Json:
    return {"exitCode": None, "signal": "SIGKILL"} if code < 0 else {"exitCode": code, "signal": None}
