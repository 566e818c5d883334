"""A small client of `kimi --wire`, as `kimi demo` plays one: a child process, lines of JSON, calls and answers.

It uses the standard library only and none of the server's modules, so it shows what any client has to do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias

from kimi.domain.errors import KimiError

Json: TypeAlias = dict[str, Any]
"""A parsed message."""

Direction: TypeAlias = Literal["out", "in"]
"""`out` is to the server, `in` is from it."""

Trace: TypeAlias = Callable[[Direction, str], None]
"""Called with the direction and text of every line."""

HandleMessage: TypeAlias = Callable[[str, Json], Json | None]
"""Called with type and payload of each event and request; returns the result for a request."""

SILENCE_S: Final = 30.0
"""Seconds that the server may be silent; a scripted model never needs one."""

END_S: Final = 5.0
"""Seconds that the server has to end after its input; it promises two (wire spec 1.5)."""


class DemoFailed(KimiError):
    """The demonstration cannot go on; the message says why in one sentence."""


class WireClient:
    """A running `kimi --wire` process and the client's end of the protocol. Leaving the context ends the process."""

    def __init__(
        self, options: Sequence[str], cwd: Path, environ: Mapping[str, str], stderr_path: Path, trace: Trace
    ) -> None:
        if not sys.executable:
            raise DemoFailed("This Python does not know its own executable, so the demo cannot start a second one.")
        self._trace = trace
        self._stderr_path = stderr_path
        self._calls = 0
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        with stderr_path.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kimi", "--wire", *options],
                cwd=cwd,
                env=dict(environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        self._reader = threading.Thread(target=self._read_stdout, daemon=True)
        self._reader.start()

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def call(self, method: str, params: Json, handle_message: HandleMessage) -> Json:
        """Send a request, serve events and requests until its response, and return the result.

        Raises:
            DemoFailed: the server refused, ended, was silent for too long, or wrote a line that is not JSON.
        """
        self._calls += 1
        call_id = str(self._calls)
        self._send({"jsonrpc": "2.0", "id": call_id, "method": method, "params": params})
        while True:
            message = self._receive()
            if "method" in message:
                self._serve_message(message, handle_message)
            elif message.get("id") == call_id:
                return _extract_result(method, message)

    def finish(self) -> str:
        """End the input, wait for the end of the server, and return what it wrote to its stderr.

        Raises:
            DemoFailed: it does not end, or not with status 0.
        """
        self._close_stdin()
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise DemoFailed("The kimi process did not end when its input did.") from None
        if status:
            raise self._build_early_end_error()
        return self._read_stderr()

    # --- lines --------------------------------------------------------------------------------------------------

    def _serve_message(self, message: Json, handle_message: HandleMessage) -> None:
        params = message["params"]
        result = handle_message(params["type"], params["payload"])
        if message["method"] == "request":
            self._send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _send(self, message: Json) -> None:
        assert self._process.stdin is not None
        line = json.dumps(message, ensure_ascii=False)
        self._trace("out", line)
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._build_early_end_error() from None

    def _receive(self) -> Json:
        try:
            line = self._lines.get(timeout=SILENCE_S)
        except Empty:
            raise DemoFailed(f"The kimi process said nothing for {SILENCE_S:.0f} seconds.") from None
        if not line:
            raise self._build_early_end_error()
        text = line.decode("utf-8", "replace").rstrip("\n")
        self._trace("in", text)
        try:
            return json.loads(text)
        except ValueError:
            raise DemoFailed(f"The kimi process wrote a line that is not JSON: {text[:200]}") from None

    def _read_stdout(self) -> None:
        assert self._process.stdout is not None
        with suppress(OSError, ValueError):  # `_stop` closes the pipe when it has waited for this thread long enough
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put(b"")

    # --- the end ------------------------------------------------------------------------------------------------

    def _build_early_end_error(self) -> DemoFailed:
        """Return the error for a server that has ended, with what it wrote to its stderr."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        error_text = " ".join(self._read_stderr().split())[:400]
        return DemoFailed(
            f"The kimi process ended early with status {self._process.poll()}: {error_text or 'no reason given'}"
        )

    def _read_stderr(self) -> str:
        return self._stderr_path.read_text("utf-8", "replace")

    def _close_stdin(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def _stop(self) -> None:
        """End the input, after which the server ends with its tools; kill it if it does not."""
        assert self._process.stdout is not None
        self._close_stdin()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        finally:  # also when a signal interrupts the wait
            self._process.kill()
            self._process.wait()
            self._reader.join(END_S)
            self._process.stdout.close()


def _extract_result(method: str, message: Json) -> Json:
    if "error" in message:
        raise DemoFailed(f"The kimi process refused '{method}': {message['error'].get('message')}")
    return message["result"]
