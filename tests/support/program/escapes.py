"""Commands that try to outlive what has started them, and a search for what they leave."""

from __future__ import annotations

import os
import random
import shlex
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.support.program.processes import is_alive

_DAEMON = """
import os, sys
for _ in range({depth}):
    if os.fork():
        os._exit(0)
    os.setsid()
os.closerange(0, 64)
os.execvp("sleep", ["sleep", "{number}"])
"""
_THREAD = """
import os, subprocess, threading
def run():
    subprocess.Popen(["sleep", "{number}"], start_new_session=True)
thread = threading.Thread(target=run)
thread.start()
thread.join()
os._exit(0)
"""
_CROWD = """
import os
for _ in range(40):
    if os.fork() == 0:
        os.setsid()
        os.execvp("sleep", ["sleep", "{number}"])
"""
_HOPPER = """
import os
number = "{number}"
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
"""
"""No process of it lives longer than it takes to start the next one, each in a session of its own."""


def _python(program: str) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(program)}"


ESCAPES = {
    "background": "sleep {number} &",
    "nohup": "nohup sleep {number} >/dev/null 2>&1 &",
    "disown": "sleep {number} & disown",
    "job control": "set -m; sleep {number} & disown",
    "setsid": "setsid sleep {number} &",
    "setsid that forks": "setsid -f sleep {number}",
    "double fork": "( ( sleep {number} & ) & )",
    "all of them": "(nohup setsid -f sleep {number} >/dev/null 2>&1 & disown)",
    "another name": "(exec -a innocent sleep {number}) & disown",
    "no environment": "env -i setsid -f sleep {number}",
    "no streams": "setsid -f sleep {number} <&- >&- 2>&-",
    "coprocess": "coproc sleep {number}; disown -a",
    "deaf to signals": "setsid -f bash -c 'trap \"\" TERM HUP INT; sleep {number}; sleep {number}'",
    "stopped": "setsid -f bash -c 'kill -STOP $$; sleep 1' {number}",
    "starts again": "setsid -f bash -c 'trap : TERM; while :; do sleep {number}; done'",
    "forks when it is asked to end": (
        "setsid -f bash -c 'trap \"setsid -f sleep {number}\" TERM; while :; do sleep {number} & wait; done'"
    ),
    "daemon": _python(_DAEMON.replace("{depth}", "2")),
    "deep daemon": _python(_DAEMON.replace("{depth}", "12")),
    "child of a thread": _python(_THREAD),
    "crowd": _python(_CROWD),
    "hopper": _python(_HOPPER),
    "pipeline": "sleep {number} | sleep {number} | setsid sleep {number} & disown",
    "time-out program": "setsid -f timeout {number} sleep {number}",
}
"""Lines for bash that leave a `sleep` behind, by what they do."""


class Fugitives:
    """Command lines with a number each, by which their processes are found whatever their environment is."""

    def __init__(self, escapes: Iterable[str] = ESCAPES) -> None:
        draw = random.SystemRandom()
        self._numbers = {name: str(draw.randrange(10**8, 10**9)) for name in escapes}

    def lines(self, *, then_wait: bool) -> list[str]:
        """Return the command lines; with `then_wait`, each goes on after its attempt."""
        end = "\nsleep {number}" if then_wait else ""
        return [(ESCAPES[name] + end).replace("{number}", number) for name, number in self._numbers.items()]

    def alive(self) -> set[str]:
        """Return the names of the attempts of which a process is alive."""
        lines = list(_living_commands().values())
        return {name for name, number in self._numbers.items() if any(number.encode() in line for line in lines)}

    def kill(self) -> None:
        """Kill all processes of the attempts."""
        for pid, line in _living_commands().items():
            if any(number.encode() in line for number in self._numbers.values()):
                os.kill(pid, signal.SIGKILL)

    def all_ran(self, patience_s: float = 20) -> bool:
        """Whether all attempts have a process within `patience_s` seconds."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if self.alive() == set(self._numbers):
                return True
            time.sleep(0.05)
        return False

    def left_after(self, patience_s: float) -> set[str]:
        """Return what is alive after so many seconds, or as soon as nothing is."""
        deadline = time.monotonic() + patience_s
        # One look may miss a process that ends and has begun another one.
        while (left := self.alive() | self.alive() | self.alive()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left


def _living_commands() -> dict[int, bytes]:
    """Return the words of all processes that are alive, but for this one."""
    found: dict[int, bytes] = {}
    for place in Path("/proc").iterdir():
        with suppress(OSError):
            if place.name.isdecimal() and int(place.name) != os.getpid() and is_alive(int(place.name)):
                found[int(place.name)] = (place / "cmdline").read_bytes()
    return found
