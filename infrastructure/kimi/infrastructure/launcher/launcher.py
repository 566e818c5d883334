"""The program's side of its helper: start it when the first program is started, and ask it for keepers.

The helper belongs to the process, not to a conversation: one serves all of them, and it ends with the process.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio

from kimi.infrastructure.launcher.kept_child import KeptChild
from kimi.infrastructure.launcher.protocol import NEW_KEEPER, READY, encode_request

logger = logging.getLogger(__name__)

_START_TIMEOUT_S: Final = 10.0
"""How long the helper may take to start, or to start a command: it may have been stopped."""

_START_PAUSE_S: Final = 0.002

_PACKAGES_ROOT: Final = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
_HELPER_PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv[1]); from kimi.infrastructure.launcher.helper import main; main()"
)
_KEPT_VARIABLES: Final = ("LD_LIBRARY_PATH", "LANG", "LC_ALL")
"""The only variables of the helper: what an interpreter may need to start."""


class LauncherUnavailable(Exception):
    """There can be no helper on this machine, so programs have to be started without it."""


class Launcher:
    """A running helper. Its methods may be called in any event loop of the process that has started it."""

    def __init__(self) -> None:
        """Start the helper. Raises OSError."""
        self.owner = os.getpid()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._helper_pid: int | None = None
        """Known when the helper is ready."""
        self._socket.setblocking(False)
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            # No `Popen`: the guard outlives the objects of this process.
            self._guard = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", _HELPER_PROGRAM, _PACKAGES_ROOT],
                {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                    (os.POSIX_SPAWN_DUP2, nothing, 1),
                    (os.POSIX_SPAWN_DUP2, nothing, 2),
                ],
                setsid=True,
            )
        except BaseException:
            self._socket.close()
            raise
        finally:
            os.close(nothing)
            theirs.close()
        atexit.register(self._socket.close)

    async def wait_until_ready(self) -> None:
        """Wait until the helper can be asked. Raises OSError if it cannot."""
        if self._helper_pid is not None:
            return
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                # A peek, because several tasks, perhaps of several loops, may wait for the same greeting.
                greeting = self._socket.recv(64, socket.MSG_PEEK)
            except BlockingIOError:
                await anyio.sleep(_START_PAUSE_S)
                continue
            if not greeting.startswith(READY):
                break
            self._helper_pid = int(greeting[len(READY) :])
            return
        raise OSError(errno.ECHILD, "The helper that starts programs did not start")

    def ask(self, descriptors: Sequence[int]) -> None:
        """Ask for a keeper with these descriptors. Raises OSError if the helper is gone or does not read."""
        socket.send_fds(self._socket, [NEW_KEEPER], descriptors)

    def end(self) -> None:
        """Kill the helper, whose keepers then end everything that they keep. Idempotent."""
        atexit.unregister(self._socket.close)
        self._socket.close()
        with suppress(ChildProcessError, ProcessLookupError):
            if os.waitpid(self._guard, os.WNOHANG)[0] == 0:
                for pid in filter(None, (self._guard, self._helper_pid)):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(self._guard, 0)


class _CurrentLauncher:
    """The helper of this process, if there is one. The state of the process, hence of the module."""

    launcher: Launcher | None = None
    has_worked = False
    is_unavailable = sys.platform != "linux"


async def launch(words: Sequence[str], cwd: str, env: Mapping[str, str], streams: tuple[int, int, int]) -> KeptChild:
    """Start a program under a keeper, with these descriptors as stdin, stdout and stderr, which stay the caller's.

    Raises:
        OSError: it cannot be started.
        ValueError: there is a NUL or half a surrogate pair in the command or in the environment.
        LauncherUnavailable: no program can be started in this way; none was.
    """
    if _CurrentLauncher.is_unavailable:
        raise LauncherUnavailable
    request = _encode(words, cwd, env)
    with suppress(TimeoutError):
        return await _start(request, words[0], cwd, streams)
    # A helper or a keeper that something has stopped is ended with all that is below it, so nothing runs twice.
    _forget_launcher()
    with suppress(TimeoutError):
        return await _start(request, words[0], cwd, streams)
    _forget_launcher()
    raise OSError(errno.ECHILD, "The helper that starts programs does not answer; try again")


async def _start(request: bytes, name: str, cwd: str, streams: tuple[int, int, int]) -> KeptChild:
    """Send a request to a keeper. Raises TimeoutError if there is no answer, and what `launch` raises."""
    control, theirs = socket.socketpair()
    try:
        control.setblocking(False)
        try:
            await _ask_for_keeper([theirs.fileno(), *streams])
        finally:
            theirs.close()
        child = KeptChild(control)
    except BaseException:
        control.close()
        raise
    try:
        with anyio.fail_after(_START_TIMEOUT_S):
            await asyncio.get_running_loop().sock_sendall(control, request)
            await child.wait_until_started(name, cwd)
    except BaseException:
        child.close()
        raise
    return child


def _encode(words: Sequence[str], cwd: str, env: Mapping[str, str]) -> bytes:
    coded = [os.fsencode(word) for word in words]
    variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    directory = os.fsencode(cwd)
    if any(b"\0" in text for text in (*coded, directory, *variables, *variables.values())):
        raise ValueError("embedded null byte")
    if any(b"=" in name or not name for name in variables):
        raise ValueError("illegal environment variable name")
    return encode_request(coded, directory, variables)


async def _ask_for_keeper(descriptors: Sequence[int]) -> None:
    """Ask the helper of this process, started if there is none. Raises LauncherUnavailable, OSError."""
    # A helper that was killed is noticed when it is asked; a second one is asked then.
    for _ in range(2):
        launcher = await _find_launcher()
        try:
            launcher.ask(descriptors)
        except OSError:
            _forget_launcher()
        else:
            return
    raise OSError(errno.ECHILD, "The helper that starts programs has ended; try again")


async def _find_launcher() -> Launcher:
    current = _CurrentLauncher
    if current.is_unavailable:
        raise LauncherUnavailable
    if current.launcher is not None and current.launcher.owner != os.getpid():
        current.launcher = None  # this process was forked: the helper is that of its parent
    try:
        launcher = current.launcher = current.launcher or Launcher()
        await launcher.wait_until_ready()
    except OSError as error:
        _forget_launcher()
        # One that has worked must work again: nobody may get rid of it by making it fail.
        if current.has_worked:
            raise
        logger.warning("programs are started without a helper: %s", error)
        current.is_unavailable = True
        raise LauncherUnavailable from error
    current.has_worked = True
    return launcher


def _forget_launcher() -> None:
    if _CurrentLauncher.launcher is not None:
        _CurrentLauncher.launcher.end()
        _CurrentLauncher.launcher = None
