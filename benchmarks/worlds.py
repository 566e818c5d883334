"""Who is measured, and where: a candidate in a throw-away directory with a loopback provider."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.client import WireClient
from kimi.infrastructure.store.layout import sessions_directory
from tests.support.program.wire_process import Place

SESSION = "bench"
_FLOOR = Path(__file__).with_name("floor.py")
_MINIMAL = {"text": 5}


@dataclass(frozen=True, slots=True)
class Candidate:
    """Someone to measure. `command` is what starts the program, without options."""

    name: str
    command: Sequence[str]


OURS = Candidate("kimi", (sys.executable, "-m", "kimi"))
FLOOR = Candidate("floor", (sys.executable, str(_FLOOR)))


def reference(command: str) -> Candidate:
    """Another implementation of the same command line, to be measured beside ours."""
    return Candidate("reference", tuple(shlex.split(command)))


class World:
    """A place with a provider, for one candidate."""

    def __init__(self, candidate: Candidate, root: Path, base_url: str, kind: str) -> None:
        self._candidate = candidate
        self._place = Place(root, context_size=10_000_000).provider(base_url, kind)
        self.url = base_url
        self.work = self._place.work

    def configure(self, toml: str, **environ: str) -> None:
        """Add tables to the configuration file, and variables to the environment."""
        self._place.environ.update(environ)
        with (self._place.share / "config.toml").open("a", encoding="utf-8") as file:
            file.write(toml)

    @property
    def environ(self) -> dict[str, str]:
        """What the program sees. Byte code is written, or each start would compile everything anew."""
        environ = self._place.full_environ()
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        environ["PATH"] = os.pathsep.join(
            (os.path.dirname(sys.executable), environ.get("PATH", ""))
        )  # ripgrep is there
        return environ | {"FLOOR_URL": self.url, "FLOOR_DIR": str(self.session_dir)}

    @property
    def session_dir(self) -> Path:
        """Where the session named SESSION is stored."""
        return Path(sessions_directory(str(self._place.share), str(self.work))) / SESSION

    def put_history(self, messages: int) -> None:
        """Store a session with this many messages, of about 250 characters each."""
        self.session_dir.mkdir(parents=True)
        context = [{"role": "_system_prompt", "content": "You are an agent."}]
        for number in range(messages // 2):
            context.append({"role": "user", "content": f"Question {number}: " + "what about this one? " * 10})
            context.append({"role": "assistant", "content": f"Answer {number}: " + "it is like the others. " * 11})
        (self.session_dir / "context.jsonl").write_text("".join(map(_line, context)), encoding="utf-8")
        begin = {"type": "TurnBegin", "payload": {"user_input": "Question 0"}}
        log = [{"type": "metadata", "protocol_version": "1.10"}, {"timestamp": 1.0, "message": begin}]
        (self.session_dir / "wire.jsonl").write_text("".join(map(_line, log)), encoding="utf-8")

    def put_log(self, records: int) -> None:
        """Store a session whose event log has this many records, of about 150 bytes each."""
        self.put_history(2)
        event = {"type": "ContentPart", "payload": {"type": "text", "text": "what about this one? " * 3}}
        line = '{"timestamp": 1.0, "message": ' + json.dumps(event, separators=(",", ":")) + "}\n"
        with (self.session_dir / "wire.jsonl").open("a", encoding="utf-8") as log:
            log.write(line * records)

    def put_turns(self, records: int) -> None:
        """Store a session whose event log has this many records: turns of ten, with thoughts, a call and its result."""
        self.put_history(2)
        with (self.session_dir / "wire.jsonl").open("w", encoding="utf-8") as log:
            log.write(_line({"type": "metadata", "protocol_version": "1.10"}))
            for number in range(records // 10):
                log.writelines(map(_log_line, _turn(number)))

    def wire(self, *, resume: bool = False, ask: bool = False) -> WireClient:
        """Start the program. It approves everything itself unless it shall `ask`."""
        options = [*([] if ask else ["--yolo"]), *(["--session", SESSION] if resume else [])]
        return WireClient([*self._candidate.command, "--wire", *options], self.work, self.environ)


def _line(record: object) -> str:
    return json.dumps(record, separators=(",", ":")) + "\n"


def _log_line(event: tuple[str, object]) -> str:
    kind, payload = event
    return f'{{"timestamp": 1.0, "message": {_line({"type": kind, "payload": payload})[:-1]}}}\n'


def _turn(number: int) -> list[tuple[str, object]]:
    """The records of a turn in which the model thinks, calls a tool, and answers."""
    arguments = json.dumps({"path": f"file{number}.txt"})
    call = {"type": "function", "id": "call-0", "function": {"name": "ReadFile", "arguments": arguments}}
    value: dict[str, object] = {"is_error": False, "output": "a line of it\n" * 8, "message": "Read.", "display": []}
    return [
        ("TurnBegin", {"user_input": f"Question {number}: what about this one?"}),
        ("StepBegin", {"n": 1}),
        ("ContentPart", {"type": "think", "think": "It is like the others. " * 4, "encrypted": None}),
        ("ToolCall", call | {"extras": None}),
        ("ToolResult", {"tool_call_id": "call-0", "return_value": value | {"extras": None}}),
        ("StatusUpdate", {"context_usage": 0.25}),
        ("StepBegin", {"n": 2}),
        ("ContentPart", {"type": "text", "text": f"Answer {number}: it is like the others. " * 4}),
        ("StatusUpdate", {"context_usage": 0.26}),
        ("TurnEnd", {}),
    ]


@contextmanager
def world(
    candidate: Candidate,
    spec: dict[str, Any] | None = None,
    prepare: Callable[[Path], object] = lambda work: None,
    kind: str = "openai_legacy",
) -> Generator[World, None, None]:
    """A fresh world; `spec` says what the provider, of type `kind`, answers; `prepare` fills the work dir."""
    with TemporaryDirectory(prefix="kimi-bench-") as root, provider(spec or _MINIMAL) as base_url:
        made = World(candidate, Path(root), base_url, kind)
        prepare(made.work)
        yield made


@contextmanager
def provider(spec: dict[str, Any]) -> Generator[str, None, None]:
    """A provider process; gives its base URL."""
    command = [sys.executable, "-m", "benchmarks.provider"]
    here = Path(__file__).parent.parent
    with subprocess.Popen(command, cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(spec).encode())
            process.stdin.close()
            yield process.stdout.readline().decode().strip()
        finally:
            process.kill()
