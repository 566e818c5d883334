"""The program's own process is closed to what it starts; that of a program that embeds the agent is left as it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, os, sys
import anyio
from kimi.infrastructure.workspace.environment import claim_process
from kimi.infrastructure.workspace.processes import run_process
from kimi.infrastructure.launcher.launcher import launch
from kimi.infrastructure.launcher.containment import close_memory

if sys.argv[1] == "own":
    claim_process()

async def main():
    if os.getuid() == 0:
        os.setuid(65534)  # the administrator may look into everything
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # which the change of the user has forbidden
    for part in ("environ", "mem"):
        words = ["/usr/bin/head", "-c1", f"/proc/{os.getpid()}/{part}"]
        async with run_process(words, cwd="/", env={}, merge_stderr=True, kill_orphans=False) as process:
            text = b"".join([block async for block in process.output()])
            print(part, "Permission denied" in text.decode("utf-8", "replace"))

anyio.run(main)
"""


@pytest.mark.spec("R-174")
@pytest.mark.parametrize(("whose", "is_closed"), [("own", True), ("embedding", False)])
def test_commands_cannot_read_the_memory_of_the_program(whose: str, is_closed: bool) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, whose], cwd="/", stdout=subprocess.PIPE, check=True)
    lines = done.stdout.decode().splitlines()
    assert lines[0] == f"environ {is_closed}"
    # Some systems close the memory of every process.
    assert lines[1] == "mem True" or not is_closed
