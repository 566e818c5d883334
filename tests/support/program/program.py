"""Starts the program under test: a `kimi` process with its own descriptors, directory and environment.

The suite starts it a thousand times, and imports take most of the time of a start. On Linux, therefore, a process that
has imported everything forks one that runs the command line (`warm_start`). `cold` starts an interpreter as on a
user's machine, and so does KIMI_COLD_STARTS=1 for all tests, or a start with variables that affect the interpreter.
`KIMI_E2E_COMMAND` names another implementation, which is started directly.
"""

from __future__ import annotations

import atexit
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, TypeAlias

Program: TypeAlias = "subprocess.Popen[bytes] | WarmProcess"
"""A started program: `pid`, its three pipes, `poll`, `wait`, `send_signal`, `terminate`, `kill`."""

_TAKE_TERMINAL = "import fcntl,os,sys,termios; fcntl.ioctl(0,termios.TIOCSCTTY,0); os.execvp(sys.argv[1],sys.argv[1:])"
"""A program that makes the terminal its controlling terminal, so that it gets its signals and size."""


def kimi_command() -> list[str]:
    """Return the command that starts the program: the installed script, which imports nothing from its directory."""
    if named := os.environ.get("KIMI_E2E_COMMAND"):
        return shlex.split(named)
    script = os.path.join(sysconfig.get_path("scripts"), "kimi")
    return [sys.executable, script] if os.path.exists(script) else [sys.executable, "-m", "kimi"]


def start(arguments: Sequence[str], cwd: Path | None, environ: Mapping[str, str], *, cold: bool = False) -> Program:
    """Start `kimi ARGUMENTS` with pipes for its three streams."""
    if not cold and _may_be_warm(environ):
        return WarmProcess(arguments, cwd, environ)
    pipe = subprocess.PIPE
    command = [*kimi_command(), *arguments]
    return subprocess.Popen(command, cwd=cwd, env=dict(environ), stdin=pipe, stdout=pipe, stderr=pipe)


def start_on_terminal(arguments: Sequence[str], cwd: Path, environ: Mapping[str, str], terminal: int) -> Program:
    """Start `kimi ARGUMENTS` in a new session, with this terminal as its streams and controlling terminal."""
    if _may_be_warm(environ):
        return WarmProcess(arguments, cwd, environ, terminal)
    return subprocess.Popen(
        [sys.executable, "-c", _TAKE_TERMINAL, *kimi_command(), *arguments],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=cwd,
        env=dict(environ),
        start_new_session=True,
    )


def run(
    arguments: Sequence[str],
    cwd: Path | None,
    environ: Mapping[str, str],
    *,
    stdin: bytes = b"",
    timeout: float = 30,
    cold: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """Run `kimi ARGUMENTS` to its end. After `timeout` seconds it is killed, and TimeoutExpired is raised."""
    return finished(start(arguments, cwd, environ, cold=cold), stdin, timeout)


def finished(program: Program, stdin: bytes = b"", timeout: float = 30) -> subprocess.CompletedProcess[bytes]:
    """Write and end the input, then wait for the end. After `timeout` it is killed, and TimeoutExpired is raised."""
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stderr is not None
    readers = [_Reader(program.stdout), _Reader(program.stderr)]
    writer = threading.Thread(target=_give, args=(program.stdin, stdin), daemon=True)
    writer.start()
    try:
        status = program.wait(timeout)
    finally:
        program.kill()
        program.wait()
    writer.join()
    stdout, stderr = [reader.text() for reader in readers]
    return subprocess.CompletedProcess(program.args, status, stdout, stderr)


class _Reader:
    """Reads a stream to its end in a thread."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._text = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self) -> bytes:
        self._thread.join()
        self._stream.close()
        return self._text

    def _read(self) -> None:
        self._text = self._stream.read()


def _give(stream: IO[bytes], text: bytes) -> None:
    with suppress(OSError):  # it ended without reading all of it
        stream.write(text)
    with suppress(OSError):
        stream.close()


class WarmProcess:
    """A program that the warm process forked; used like `subprocess.Popen`.

    With `terminal` its standard streams and controlling terminal are that terminal; otherwise they are pipes.
    """

    def __init__(
        self, arguments: Sequence[str], cwd: Path | None, environ: Mapping[str, str], terminal: int | None = None
    ) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        theirs = self._pipes() if terminal is None else [terminal] * 3
        self._answers, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mask = os.umask(0)
        os.umask(mask)
        order = [self.args, os.fspath(cwd or Path.cwd()), dict(environ), mask, terminal is not None]
        descriptors = array("i", [*theirs, far_end.fileno()])
        _warm().sendmsg([json.dumps(order).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        far_end.close()
        if terminal is None:
            for descriptor in theirs:
                os.close(descriptor)
        self.pid = int(self._answers.recv(32))

    def _pipes(self) -> list[int]:
        (stdin, to_it), (from_it, stdout), (errors, stderr) = os.pipe(), os.pipe(), os.pipe()
        self.stdin, self.stdout, self.stderr = os.fdopen(to_it, "wb"), os.fdopen(from_it, "rb"), os.fdopen(errors, "rb")
        return [stdin, stdout, stderr]

    def poll(self) -> int | None:
        """Return the exit status; None while the program runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status and return it. Raises TimeoutExpired."""
        if self.returncode is None:
            self._answers.settimeout(timeout)
            try:
                self.returncode = int(self._answers.recv(32))
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._answers.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if the program still runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _may_be_warm(environ: Mapping[str, str]) -> bool:
    """Whether the warm process can be used: it exists, and these variables do not change the interpreter."""
    if sys.platform != "linux" or os.environ.keys() & {"KIMI_E2E_COMMAND", "KIMI_COLD_STARTS"}:
        return False
    return _of_the_interpreter(environ) == _of_the_interpreter(os.environ)


def _of_the_interpreter(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(("PYTHON", "LC_", "LANG", "LD_"))}


@cache
def _warm() -> socket.socket:
    """Return the socket to the warm process, which is started at the first call and ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        warm = subprocess.Popen(
            [sys.executable, "-m", "tests.support.program.warm_start", str(theirs.fileno())],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # so that Ctrl-C does not end it before the tests
        )
    atexit.register(_end, warm, ours)
    return ours


def _end(warm: subprocess.Popen[bytes], line: socket.socket) -> None:
    line.close()
    warm.wait()
