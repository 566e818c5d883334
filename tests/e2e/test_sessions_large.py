"""Large sessions through the process: the log streams, whatever its size (R-163)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kimi.application.settings.settings import WireSettings
from tests.support.program.program import kimi_command
from tests.support.program.wire_process import Json, Place, eventually
from tests.support.stored_sessions import event, write_session

ID = "0b5ce6f2-2d1d-4c5e-9f7a-3c1f0e9d8b7a"
RECORDS = 50_000
LENGTH = 8_000
MIB = 1024 * 1024
QUEUED = WireSettings().max_queued_bytes
GROWTH = 16 * MIB
"""How much may wait for a client that does not read."""


def peak_memory(pid: int) -> int:
    """The most memory that a process has had so far, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def write_log(place: Place) -> int:
    """A log of 10,000 turns and 50,000 records; gives its size in bytes."""
    directory = write_session(place, ID, context=[{"role": "user", "content": "hi"}])
    text = event("ContentPart", {"type": "text", "text": "x" * LENGTH})
    turn: list[Json] = [event("TurnBegin", {"user_input": "hi"}), event("StepBegin", {"n": 1}), text, text]
    lines = "".join(json.dumps(record) + "\n" for record in [*turn, event("TurnEnd", {})])
    log = directory / "wire.jsonl"
    with log.open("w", encoding="utf-8") as file:
        file.write('{"type": "metadata", "protocol_version": "1.10"}\n')
        for _ in range(RECORDS // 5):
            file.write(lines)
    return log.stat().st_size


@pytest.mark.spec("R-163")
def test_replay_of_long_session_uses_bounded_memory(place: Place) -> None:
    place.script("text: x")
    assert write_log(place) > 150 * MIB
    command = [*kimi_command(), "--wire", "--session", ID]
    with subprocess.Popen(
        command, cwd=place.work, env=place.full_environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as kimi:
        assert kimi.stdin is not None
        assert kimi.stdout is not None
        kimi.stdin.write(b'{"jsonrpc":"2.0","id":"1","method":"prompt","params":{"user_input":"warm up"}}\n')
        kimi.stdin.flush()
        while b'"id":"1"' not in kimi.stdout.readline():
            pass
        before = peak_memory(kimi.pid)
        kimi.stdin.write(b'{"jsonrpc":"2.0","id":"2","method":"replay"}\n')
        kimi.stdin.flush()
        assert eventually(lambda: peak_memory(kimi.pid) - before > QUEUED, 20)  # how much waits is not left to chance
        events = 0
        while (line := kimi.stdout.readline()).startswith(b'{"jsonrpc":"2.0","method":"event"'):
            events += 1
        assert json.loads(line)["result"] == {"status": "finished", "events": events, "requests": 0}
        assert events >= RECORDS
        assert peak_memory(kimi.pid) - before < GROWTH  # with what is imported meanwhile
        kimi.stdin.close()
        assert kimi.wait(20) == 0
