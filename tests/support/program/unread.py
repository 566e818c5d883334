"""A `kimi --wire` process whose output is not read until the test reads it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.program.program import kimi_command
from tests.support.program.wire_process import Json, Place


@contextmanager
def unread(place: Place, *arguments: str) -> Generator[subprocess.Popen[bytes], None, None]:
    """Run `kimi --wire` with pipes; kill it on leaving if it still runs."""
    with subprocess.Popen(
        [*kimi_command(), "--wire", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=place.work,
        env=place.full_environ(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[bytes], **message: object) -> None:
    """Send one line."""
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


def read_until(process: subprocess.Popen[bytes], call_id: str) -> list[Json]:
    """Return the lines up to the response with this id."""
    assert process.stdout is not None
    found: list[Json] = []
    for raw in process.stdout:
        found.append(json.loads(raw))
        if "method" not in found[-1] and found[-1]["id"] == call_id:
            return found
    raise AssertionError("the output has ended")


def stalled(pid: int) -> bool:
    """Whether the process uses no processor time for a tenth of a second."""
    before = _used(pid)
    time.sleep(0.1)
    return _used(pid) == before


def _used(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
