"""A real `kimi --wire` process and a client for it.

`tests/support/program/program.py` starts the process.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any, TypeAlias

from tests.support.program import program

Json: TypeAlias = dict[str, Any]
"""A parsed message: the JSON edge of the tests."""

DEADLINE_S = 20.0
"""Seconds that a test waits for a line before it fails."""


@dataclass
class Place:
    """A temporary share directory, home and work directory, with a configuration for the scripted model."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict[str, str])
    capabilities: tuple[str, ...] = ()
    context_size: int = 100_000
    config: str = ""
    """More TOML for the configuration file, or a whole other file (see `write_config`)."""

    def __post_init__(self) -> None:
        for path in (self.share, self.work, self.home):
            path.mkdir(parents=True, exist_ok=True)

    @property
    def share(self) -> Path:
        return self.root / "share"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def home(self) -> Path:
        return self.root / "home"

    def script(self, *scripts: str) -> Place:
        """Set the scripts of the model, one per model call (runtime spec 3.8)."""
        (self.root / "scripts.json").write_text(json.dumps(scripts), encoding="utf-8")
        self.write_config("_scripted_echo", env={"KIMI_SCRIPTED_ECHO_SCRIPTS": str(self.root / "scripts.json")})
        return self

    def provider(self, base_url: str, kind: str = "openai_legacy") -> Place:
        """Configure a provider at this URL."""
        self.write_config(kind, base_url=base_url)
        return self

    def write_config(self, kind: str, *, base_url: str = "", env: Mapping[str, str] | None = None) -> None:
        """Write a configuration with one provider and one model."""
        lines = [
            'default_model = "m"',
            "[providers.p]",
            f"type = {json.dumps(kind)}",
            f"base_url = {json.dumps(base_url)}",
            'api_key = "sk-test-secret"',
            *(["env = {" + ", ".join(f"{k} = {json.dumps(v)}" for k, v in env.items()) + "}"] if env else []),
            "[models.m]",
            'provider = "p"',
            'model = "test-model"',
            f"max_context_size = {self.context_size}",
            f"capabilities = {json.dumps(list(self.capabilities))}",
        ]
        (self.share / "config.toml").write_text("\n".join(lines) + "\n" + self.config, encoding="utf-8")

    def full_environ(self) -> dict[str, str]:
        """Return the environment of a child: the test's without any variable that configures the program."""
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("KIMI_", "OPENAI_")) and not key.lower().endswith("_proxy")
        }
        mine = {"KIMI_SHARE_DIR": str(self.share), "HOME": str(self.home)}
        return kept | mine | self.environ

    def run(
        self, *arguments: str, stdin: bytes = b"", timeout: float = DEADLINE_S, cold: bool = False
    ) -> subprocess.CompletedProcess[bytes]:
        """Run the program to its end."""
        return program.run(arguments, self.work, self.full_environ(), stdin=stdin, timeout=timeout, cold=cold)

    @contextmanager
    def wire(self, *arguments: str, cold: bool = False) -> Generator[WireProcess, None, None]:
        """Run a `kimi --wire` process; kill it on leaving if it still runs."""
        process = WireProcess(program.start(["--wire", *arguments], self.work, self.full_environ(), cold=cold))
        try:
            yield process
        finally:
            process.close()

    def session_dirs(self) -> list[Path]:
        """Return the directories of all stored sessions, oldest first."""
        found = [path for path in self.share.glob("sessions/*/*") if path.is_dir()]
        return sorted(found, key=lambda path: path.stat().st_mtime)

    def context(self) -> list[Json]:
        """Return the context records of the only session."""
        return read_lines(self.session_dirs()[-1] / "context.jsonl")

    def recorded(self) -> list[Json]:
        """Return the lines of the only session's event log."""
        return read_lines(self.session_dirs()[-1] / "wire.jsonl")


def read_lines(path: Path) -> list[Json]:
    """Return the values of a JSON lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


Answer: TypeAlias = Callable[[Json], Json | None]


class OutputEnded(AssertionError):
    """The process has closed its output although a line was awaited."""


class WireProcess:
    """A running server. Lines are read by a thread into a queue; `lines` keeps all of them, raw ones in `raw`."""

    def __init__(self, process: program.Program) -> None:
        self.process = process
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._stdin = self.process.stdin
        self._stdout = self.process.stdout
        self._stderr = self.process.stderr
        self.lines: list[Json] = []
        self.raw: list[bytes] = []
        self._queue: Queue[bytes] = Queue()
        self._errors: list[bytes] = []
        self._readers = [
            threading.Thread(target=self._read_stdout, daemon=True),
            threading.Thread(target=self._read_stderr, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self._next_id = 0

    # --- raw ------------------------------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        """Write bytes as they are."""
        self._stdin.write(data)
        self._stdin.flush()

    def send(self, message: Json) -> None:
        """Write one line of JSON."""
        self.send_bytes(json.dumps(message).encode() + b"\n")

    def next_line(self, timeout: float = DEADLINE_S) -> Json:
        """Return the next line, parsed. Fails when none arrives in time or the output has ended."""
        try:
            line = self._queue.get(timeout=timeout)
        except Empty:
            raise AssertionError(f"no line within {timeout} s; stderr: {self.stderr!r}") from None
        if not line:
            raise OutputEnded(f"the output has ended; stderr: {self.stderr!r}")
        message: Json = json.loads(line)
        self.lines.append(message)
        return message

    def rest(self) -> list[Json]:
        """Return all lines until the end of the output."""
        found: list[Json] = []
        while line := self._queue.get(timeout=DEADLINE_S):
            found.append(json.loads(line))
        self.lines += found
        return found

    @property
    def idle(self) -> bool:
        """Whether no line is waiting to be read."""
        return self._queue.empty()

    def quiet(self, seconds: float = 0.3) -> bool:
        """Whether no line arrives for so many seconds."""
        try:
            line = self._queue.get(timeout=seconds)
        except Empty:
            return True
        self.lines.append(json.loads(line))
        return False

    # --- calls ----------------------------------------------------------------------------------------------------

    def call(self, method: str, params: Json | None = None) -> str:
        """Send a request; return its id."""
        self._next_id += 1
        call_id = str(self._next_id)
        message: Json = {"jsonrpc": "2.0", "id": call_id, "method": method}
        self.send(message if params is None else message | {"params": params})
        return call_id

    def response(self, call_id: object) -> Json:
        """Read until the response with this id; return it. Earlier lines are kept in `lines`."""
        while True:
            line = self.next_line()
            if "method" not in line and line.get("id") == call_id:
                return line

    def until(self, wanted: str) -> Json:
        """Read until an event or request of this type; return its payload."""
        while True:
            line = self.next_line()
            if "method" in line and line["params"]["type"] == wanted:
                return line["params"]["payload"]

    def until_request(self) -> Json:
        """Read until a request of any type; return its payload."""
        while True:
            line = self.next_line()
            if line.get("method") == "request":
                return line["params"]["payload"]

    def initialize(self, **params: Any) -> Json:
        """Send `initialize`; return the result."""
        return self.response(self.call("initialize", {"protocol_version": "1.10", **params}))["result"]

    def prompt(self, text: object, answer: Answer | None = None) -> Json:
        """Send a prompt and read to its response; `answer` returns the result for each request (None: no answer)."""
        call_id = self.call("prompt", {"user_input": text})
        while True:
            line = self.next_line()
            if "method" not in line and line.get("id") == call_id:
                return line
            if line.get("method") == "request" and answer is not None:
                result = answer(line["params"])
                if result is not None:
                    self.send({"jsonrpc": "2.0", "id": line["id"], "result": result})

    # --- received messages ----------------------------------------------------------------------------------------

    @property
    def types(self) -> list[str]:
        """The types of all events and requests so far, in order."""
        return [line["params"]["type"] for line in self.lines if "method" in line]

    def payloads(self, wanted: str) -> list[Json]:
        """Return the payloads of all events and requests of a type so far."""
        return [
            line["params"]["payload"] for line in self.lines if "method" in line and line["params"]["type"] == wanted
        ]

    @property
    def text(self) -> str:
        """All text of the assistant so far."""
        return "".join(part["text"] for part in self.payloads("ContentPart") if part["type"] == "text")

    # --- the end --------------------------------------------------------------------------------------------------

    def end_input(self) -> None:
        """Close stdin."""
        self._stdin.close()

    def wait(self, timeout: float = DEADLINE_S) -> int:
        """Wait for the exit status and return it; what the process wrote to stderr is there then."""
        status = self.process.wait(timeout)
        for reader in self._readers:
            reader.join(1)  # what the process left may still hold its streams
        return status

    def finish(self) -> int:
        """Close stdin, read the rest, return the exit status."""
        self.end_input()
        self.rest()
        return self.wait()

    @property
    def stderr(self) -> bytes:
        """Return what was written to stderr so far."""
        return b"".join(self._errors)

    def close(self) -> None:
        """Kill the process if it still runs, and close everything."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join(5)
        for stream in (self._stdin, self._stdout, self._stderr):
            with suppress(OSError):
                stream.close()

    def _read_stdout(self) -> None:
        for line in self._stdout:
            self.raw.append(line)
            self._queue.put(line)
        self._queue.put(b"")

    def _read_stderr(self) -> None:
        while block := os.read(self._stderr.fileno(), 65_536):
            self._errors.append(block)


def approve(params: Json) -> Json | None:
    """Return the answer of a client that approves everything."""
    return approval(params, "approve")


def approval(params: Json, response: str, feedback: str = "") -> Json:
    """Return an answer to an approval request."""
    return {"request_id": params["payload"]["id"], "response": response, "feedback": feedback}


def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether `condition` becomes true within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def alive(pid: int) -> bool:
    """Whether there is a process with this id that is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
