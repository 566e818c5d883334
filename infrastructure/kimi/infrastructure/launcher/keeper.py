"""The keeper of one command: a fork of the helper that starts the command and ends whatever it left behind."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from kimi.infrastructure.launcher.containment import (
    ask_to_end,
    die_with_parent,
    end_children,
    find_children,
    keep_descendants,
    kill_trees,
    reap_children,
)
from kimi.infrastructure.launcher.protocol import (
    ENDED,
    GONE,
    KILL,
    NUMBER,
    REFUSED,
    RELEASE,
    STARTED,
    read_request,
    receive_descriptors,
)

LEAVING_GRACE_S: Final = 0.3
"""Seconds between asking and killing when the program is gone."""

_KILL_PAUSE_S: Final = 0.005
_PATIENCE_S: Final = 2.0
"""How long killed processes are awaited: those of another user cannot be killed."""

_DESCRIPTORS: Final = 4
"""The socket for the program, and the three streams of the command."""

_DEFAULT_SIGNALS: Final = [number for number in signal.Signals if number not in (signal.SIGKILL, signal.SIGSTOP)]


def listen_to_signals(on_term: Callable[[], None]) -> int:
    """Let SIGTERM call `on_term` and SIGCHLD nothing; return a descriptor that becomes readable with either."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda number, frame: on_term())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return reading


class Keeper:
    """Takes the next request of the program, starts the command, and looks after what becomes of it.

    It tells the helper over the pipe `take` that it has taken one.
    """

    def __init__(self, program: socket.socket, take: int) -> None:
        self._program = program
        self._take = take
        self._control = program
        self._streams: Sequence[int] = ()
        self._command = 0
        self._heard = b""
        self._is_released = False
        self._is_left = False
        """Whether the helper or the program is gone."""
        self._kill_at: float | None = None
        """The next time to kill everything, on the monotonic clock; None while nobody wants that."""
        self._give_up_at = 0.0

    def run(self, helper: int) -> NoReturn:
        """Keep the command to its end; ends this process."""
        try:
            os.setpgid(0, 0)  # so that no signal to a group reaches the helper too
            wake_up = listen_to_signals(self._leave)
            keep_descendants("kimi-keeper")
            die_with_parent(helper)
            if self._take_request(wake_up) and self._start():
                self._watch(wake_up)
        finally:
            # Also after an error, which there is nobody to tell: nothing may outlive its keeper.
            try:
                end_children()
            finally:
                os._exit(0)

    def _leave(self) -> None:
        self._is_left = True

    def _take_request(self, wake_up: int) -> bool:
        """Wait for the next request; return False if the program or the helper is gone before."""
        poll = select.poll()
        poll.register(wake_up, select.POLLIN)
        poll.register(self._program, select.POLLIN)
        while not self._is_left:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if wake_up in ready:
                os.read(wake_up, 4096)
            if self._program.fileno() in ready:
                break
        if self._is_left:
            return False
        descriptors = receive_descriptors(self._program)
        if len(descriptors) != _DESCRIPTORS:
            return False
        self._control, self._streams = socket.socket(fileno=descriptors[0]), descriptors[1:]
        os.write(self._take, b"t")
        os.close(self._take)
        self._program.close()
        return True

    def _start(self) -> bool:
        """Start the command that the program asks for; return whether it runs."""
        if (request := read_request(self._control)) is None:
            return False
        words, directory, environment = request
        try:
            os.chdir(directory)
        except OSError as error:
            self._report(REFUSED, error.errno or 0, 1)
            return False
        try:
            self._command = os.posix_spawn(
                words[0],
                words,
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, from_, to) for to, from_ in enumerate(self._streams)],
                setsid=True,
                setsigmask=(),
                setsigdef=_DEFAULT_SIGNALS,
            )
        except OSError as error:
            self._report(REFUSED, error.errno or 0, 0)
            return False
        for descriptor in self._streams:
            os.close(descriptor)  # so that a reader sees the end of the output
        self._report(STARTED, self._command, os.getpid())
        os.chdir("/")
        return True

    def _watch(self, wake_up: int) -> None:
        """Serve the program, and reap, until nothing is left of the command."""
        self._control.setblocking(False)
        poll = select.poll()
        poll.register(wake_up, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        while reap_children(self._note_end):
            if self._is_left and self._kill_at is None:
                self._want_end(LEAVING_GRACE_S)
            if self._kill_at is not None and not self._kill_when_due():
                return
            for descriptor, _ in poll.poll(self._poll_timeout_ms()):
                if descriptor == wake_up:
                    with suppress(BlockingIOError):
                        os.read(wake_up, 4096)
                elif not self._hear():
                    poll.unregister(self._control)
        self._report(GONE)

    def _note_end(self, pid: int, status: int) -> None:
        if pid == self._command:
            self._report(ENDED, status)

    def _poll_timeout_ms(self) -> float | None:
        return None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic()) * 1000 + 1

    def _kill_when_due(self) -> bool:
        """Kill everything if it is time to; return False when that has not helped for too long."""
        assert self._kill_at is not None
        now = time.monotonic()
        if now >= self._kill_at:
            kill_trees(find_children(os.getpid()))
            self._kill_at = now + _KILL_PAUSE_S
        return now < self._give_up_at

    def _want_end(self, grace_s: float) -> None:
        """Ask everything to end now, and kill it after `grace_s` seconds."""
        now = time.monotonic()
        self._kill_at = min(self._kill_at or now + grace_s, now + grace_s)
        self._give_up_at = self._kill_at + _PATIENCE_S
        ask_to_end(find_children(os.getpid()))

    def _hear(self) -> bool:
        """Read the wishes of the program; return False at their end."""
        try:
            block = self._control.recv(4096)
        except BlockingIOError:
            return True
        except OSError:
            block = b""
        if not block:
            self._is_left = self._is_left or not self._is_released
            return False
        self._heard += block
        while self._heard:
            if self._heard.startswith(KILL):
                if len(self._heard) < 1 + NUMBER.size:
                    return True
                self._want_end(NUMBER.unpack_from(self._heard, 1)[0] / 1000)
                self._heard = self._heard[1 + NUMBER.size :]
            else:
                self._is_released = self._is_released or self._heard.startswith(RELEASE)
                self._heard = self._heard[1:]
        return True

    def _report(self, event: str, *numbers: int) -> None:
        with suppress(OSError):
            self._control.send(" ".join([event, *map(str, numbers)]).encode() + b"\n")
