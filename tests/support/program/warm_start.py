"""The warm process of `tests/support/program/program.py`: it has imported the program and forks one for each order.

An order is one packet: arguments, directory, variables, umask, and whether stdin becomes the controlling terminal. It
carries the descriptors of the three streams and of a socket that gets the process id and at the end the status.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import signal
import socket
import sys
import termios
import time
from array import array
from collections.abc import Sequence
from typing import TextIO, TypeAlias

import kimi
from tests.support.program import disk_faults, jumping_clock

LIBRARIES = ("acp", "aiohttp", "anyio._backends._asyncio", "prompt_toolkit.shortcuts", "tomllib", "typer._adapters")
"""The libraries that many starts import, some of them late."""

Order: TypeAlias = tuple[list[str], str, dict[str, str], int, bool]


def import_all() -> None:
    """Import the large libraries and all modules of the program."""
    ours = [module.name for module in pkgutil.walk_packages(kimi.__path__, "kimi.")]
    for name in (*LIBRARIES, *ours):
        if name != "kimi.__main__":
            importlib.import_module(name)


def forked_program(line: socket.socket) -> list[str] | None:
    """Serve orders until the line ends, then return None. In each forked program this returns its arguments."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no call waits for the watching processes
    while True:
        packet, ancillary, _, _ = line.recvmsg(1 << 20, socket.CMSG_SPACE(4 * 4))
        if not packet:
            return None
        descriptors = array("i")
        descriptors.frombytes(ancillary[0][2])
        if os.fork() == 0:
            line.close()
            return _watched(json.loads(packet), descriptors.tolist())
        for descriptor in descriptors:
            os.close(descriptor)


def _watched(order: Order, descriptors: Sequence[int]) -> list[str]:
    """Fork once more: the parent reports how the program ends, the child returns and becomes the program."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, teller = descriptors
    if program := os.fork():
        for descriptor in streams:
            os.close(descriptor)
        os.write(teller, str(program).encode())
        _, status = os.waitpid(program, 0)
        os.write(teller, str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.close(teller)
    return _become(order, streams)


def _become(order: Order, streams: Sequence[int]) -> list[str]:
    """Set up this process as `python -m kimi` is after its imports; return the arguments."""
    arguments, directory, environ, mask, takes_terminal = order
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if takes_terminal:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environ)
    os.umask(mask)
    time.tzset()
    sys.path[0] = directory
    sys.stdin = sys.__stdin__ = _text(0, sys.stdin)
    sys.stdout = sys.__stdout__ = _text(1, sys.stdout)
    sys.stderr = sys.__stderr__ = _text(2, sys.stderr)
    return arguments


def _text(descriptor: int, like: TextIO) -> io.TextIOWrapper:
    """Return a standard stream on this descriptor, as the interpreter makes it."""
    raw = io.FileIO(descriptor, "rb" if descriptor == 0 else "wb", closefd=False)
    binary = io.BufferedReader(raw) if descriptor == 0 else io.BufferedWriter(raw)
    on_terminal = descriptor == 2 or os.isatty(descriptor)
    return io.TextIOWrapper(binary, like.encoding, like.errors, line_buffering=on_terminal)


class _End:
    """Ends the process after all threads and exit functions. Finalizing the imported modules object by object would
    copy the memory that the forked programs share."""

    status: int | None = None

    def __call__(self) -> None:
        if self.status is not None:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            except OSError:
                self.status = 120  # as the interpreter does
            os._exit(self.status)


if __name__ == "__main__":
    end = _End()
    atexit.register(end)  # the first to be registered is the last to be called
    import_all()
    gc.freeze()  # the collector must not write to shared memory
    asked = forked_program(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        if fault := os.environ.pop(disk_faults.VARIABLE, None):
            disk_faults.install(fault)
        if jump := os.environ.pop(jumping_clock.VARIABLE, None):
            jumping_clock.install(float(jump))
        from kimi.interfaces.main import main

        sys.argv = ["kimi", *asked]
        end.status = main()
        sys.exit(end.status)
