"""A wire client that costs little: it looks at the head of each line and parses only what it must answer."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

Json: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[Json], Json]
"""From the parameters of a request to its result."""

_STREAMED = (b"ContentPart", b"ToolCallPart")
DEADLINE_S = 300.0


@dataclass(slots=True)
class Turn:
    """What a prompt came to; times in seconds since the prompt was written."""

    seconds: float = 0.0
    first_s: float = 0.0
    """When the first streamed part came."""
    parts: int = 0
    marks: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    """Events that are not streamed parts, and `answered` for each answer that was sent."""
    outputs: list[str] = field(default_factory=list[str])
    """The outputs of the tools, shortened."""

    def times(self, kind: str) -> list[float]:
        """When events of this kind came."""
        return [at for name, at in self.marks if name == kind]


class WireClient:
    """A server process and its line of talk. Use as a context manager: the process is killed on leaving."""

    def __init__(self, command: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> None:
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command, cwd=cwd, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self._rest = b""
        self._lines: list[bytes] = []
        self._next_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._stdin.close()
        self._stdout.close()

    def initialize(self, **params: Any) -> float:
        """Shake hands; seconds since the process was started."""
        wanted = self._call("initialize", {"protocol_version": "1.10", **params})
        while not self._lines_now()[-1].startswith(wanted):
            pass
        return time.perf_counter() - self.began

    def prompt(self, text: str, answer: Answer | None = None) -> Turn:
        """Run a turn. Raises RuntimeError when it fails."""
        turn = Turn()
        began = time.perf_counter()
        wanted = self._call("prompt", {"user_input": text})
        while True:
            lines = self._lines_now()
            now = time.perf_counter() - began
            for line in lines:
                if line.startswith(wanted):
                    if b'"finished"' not in line:
                        raise RuntimeError(f"the turn failed: {line[:500]!r}")
                    turn.seconds = now
                    return turn
                self._note(line, turn, now, answer, began)

    def replay(self) -> tuple[float, int]:
        """Replay the session; seconds, and how many lines came before the response."""
        began = time.perf_counter()
        wanted, count = self._call("replay", {}), 0
        while True:
            for line in self._lines_now():
                if line.startswith(wanted):
                    return time.perf_counter() - began, count
                count += 1

    def end(self) -> float:
        """Close stdin; seconds until the process has ended."""
        began = time.perf_counter()
        self._stdin.close()
        self.process.wait(30)
        return time.perf_counter() - began

    def memory_mb(self, peak: bool = False) -> float:
        """Resident memory now, or at its peak, in MB (10^6 bytes); 0 where the system does not tell (not Linux)."""
        wanted = "VmHWM:" if peak else "VmRSS:"
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        except OSError:
            return 0.0
        line = next((line for line in status.splitlines() if line.startswith(wanted)), ": 0")
        return int(line.split()[1]) * 1024 / 1e6

    def cpu_s(self) -> float:
        """Processor seconds that the process has used, in ticks of 10 ms; 0 where the system does not tell."""
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        except OSError:
            return 0.0
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _note(self, line: bytes, turn: Turn, now: float, answer: Answer | None, began: float) -> None:
        start = line.index(b'"type":"') + 8
        kind = line[start : line.index(b'"', start)]
        if kind in _STREAMED:
            turn.first_s = turn.first_s or now
            turn.parts += 1
            return
        turn.marks.append((kind.decode(), now))
        if kind == b"ToolResult":
            output = json.loads(line)["params"]["payload"]["return_value"]["output"]
            turn.outputs.append(str(output)[:200])
        if kind.endswith(b"Request") and answer is not None:
            message = json.loads(line)
            self._send({"jsonrpc": "2.0", "id": message["id"], "result": answer(message["params"])})
            turn.marks.append(("answered", time.perf_counter() - began))

    def _call(self, method: str, params: Json) -> bytes:
        """Send a request; gives how its response begins."""
        self._next_id += 1
        self._send({"jsonrpc": "2.0", "id": str(self._next_id), "method": method, "params": params})
        return b'{"jsonrpc":"2.0","id":"%d"' % self._next_id

    def _send(self, message: Json) -> None:
        self._stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        self._stdin.flush()

    def _lines_now(self) -> list[bytes]:
        """At least one whole line."""
        while True:
            block = os.read(self._stdout.fileno(), 1 << 18)
            if not block:
                raise RuntimeError("the server has ended")
            *lines, self._rest = (self._rest + block).split(b"\n")
            if lines:
                return lines
