"""A real `kimi web` process behind the streams of a `kimi --wire`: what is tested over stdio runs over WebSocket."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import aiohttp

from tests.support.program import program
from tests.support.program.wire_process import Place, WireProcess

_LINK = re.compile(rb"(http://[^/]+)/\?token=(\S+)")


class WebProgram:
    """A `kimi web` process; `base` and `token` are those of the link that it has printed."""

    def __init__(self, arguments: list[str], cwd: Path, environ: Mapping[str, str], *, cold: bool = False) -> None:
        command = ["web", "--no-open", "--port", "0", *arguments]
        self.process = program.start(command, cwd, environ, cold=cold)
        assert self.process.stderr is not None
        self.printed = b""
        while (found := _LINK.search(self.printed)) is None:
            block = os.read(self.process.stderr.fileno(), 65_536)
            if not block:
                raise AssertionError(f"kimi web has ended: {self.printed!r}")
            self.printed += block
        self.base, self.token = found[1].decode(), found[2].decode()

    def stop(self) -> int:
        """Ask for the end with SIGTERM; return the exit status."""
        self.process.terminate()
        return self.process.wait(20)

    def close(self) -> None:
        """Kill the process if it still runs, and close its streams."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def web_program(place: Place, *arguments: str, cold: bool = False) -> Generator[WebProgram, None, None]:
    """Run `kimi web` in the work directory of a place; kill it on leaving if it still runs."""
    running = WebProgram(list(arguments), place.work, place.full_environ(), cold=cold)
    try:
        yield running
    finally:
        running.close()


class _Bridge:
    """Looks like a `kimi --wire` process: lines written to `stdin` go to a new session, its messages to `stdout`.

    What only a WebSocket has, the positions and the messages about the connection, is left out.
    """

    def __init__(self, web: WebProgram, work_dir: Path) -> None:
        self.args = ["kimi", "web"]
        self.pid = web.process.pid
        self.returncode: int | None = None
        self._web = web
        self._work_dir = work_dir
        from_client, stdin = os.pipe()
        stdout, to_client = os.pipe()
        errors, no_errors = os.pipe()
        os.close(no_errors)
        self.stdin: IO[bytes] = os.fdopen(stdin, "wb")
        self.stdout: IO[bytes] = os.fdopen(stdout, "rb")
        self.stderr: IO[bytes] = os.fdopen(errors, "rb")
        self._input, self._output = os.fdopen(from_client, "rb"), os.fdopen(to_client, "wb", buffering=0)
        self._was_signalled = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._thread.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        self._was_signalled = True
        self._web.process.send_signal(number)

    def kill(self) -> None:
        self._web.process.kill()
        with suppress(OSError):
            self.stdin.close()

    async def _run(self) -> None:
        headers = {"Authorization": f"Bearer {self._web.token}"}
        try:
            async with aiohttp.ClientSession(base_url=self._web.base, headers=headers) as http:
                async with http.post("/api/sessions", json={"work_dir": str(self._work_dir)}) as made:
                    session = (await made.json())["id"]
                async with http.ws_connect(f"/api/sessions/{session}/wire", max_msg_size=0) as opened:
                    sending = asyncio.create_task(self._send(opened))
                    async for received in opened:
                        if received.type is aiohttp.WSMsgType.TEXT:
                            self._write(cast("dict[str, Any]", json.loads(received.data)))
                    sending.cancel()
        finally:
            end = self._web.process.wait if self._was_signalled else self._web.stop
            self.returncode = await asyncio.to_thread(end)
            self._output.close()

    async def _send(self, opened: aiohttp.ClientWebSocketResponse) -> None:
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop, lines), daemon=True).start()
        while line := await lines.get():
            await opened.send_str(line.decode())
        await opened.close()

    def _read(self, loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes]) -> None:
        with self._input, suppress(RuntimeError):  # the loop has ended before the input
            for line in self._input:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, b"")

    def _write(self, message: dict[str, Any]) -> None:
        if message.get("method") != "connection":
            message.pop("position", None)
            self._output.write(json.dumps(message).encode() + b"\n")


@contextmanager
def wire_over_web(place: Place, *arguments: str) -> Generator[WireProcess, None, None]:
    """Serve a session by `kimi web`, and yield a client that talks as if to `kimi --wire`."""
    with web_program(place, *arguments) as web:
        client = WireProcess(cast("Any", _Bridge(web, place.work)))
        try:
            yield client
        finally:
            client.close()
