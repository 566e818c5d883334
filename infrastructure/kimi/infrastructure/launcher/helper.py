"""The helper of the program: a small process that forks a keeper for every command.

It is two processes: a guard, and its fork, the helper proper. Each ends everything below it when the one beside it is
gone: the helper when the program or the guard ends, the guard when the helper ends, a keeper when the helper ends. So a
command that kills one of them gains nothing.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Final, NoReturn

from kimi.infrastructure.launcher.containment import (
    die_with_parent,
    end_children,
    find_children,
    keep_descendants,
    kill_trees,
    reap_children,
    send,
)
from kimi.infrastructure.launcher.keeper import LEAVING_GRACE_S, Keeper, listen_to_signals
from kimi.infrastructure.launcher.protocol import READY

_KEEPERS_LEAVE_S: Final = LEAVING_GRACE_S + 0.2
"""How long the keepers may take to end their commands before they are killed."""
_PAUSE_MS: Final = 10
_SPARE_PAUSE_S: Final = 0.03
"""How long a command that has just begun is left alone before the keeper of the next one is forked beside it."""
_MOST_ATTEMPTS: Final = 100
"""How often strays are killed: those of another user cannot be."""

_IGNORED_SIGNALS: Final = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2)


def main() -> None:
    """Serve the program whose socket is standard input, until it is gone."""
    for name in os.listdir("/proc/self/fd"):  # what the program has inherited is not for the commands
        with suppress(OSError):
            if int(name) > 2:
                os.close(int(name))
    os.chdir("/")
    program = socket.socket(fileno=os.dup(0))
    os.dup2(1, 0)
    for number in _IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    try:
        keep_descendants("kimi-guard")
        guard = os.getpid()
        child = os.fork()
    except OSError:
        sys.exit(1)
    if child == 0:
        Helper(program).run(guard)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    program.close()
    with suppress(ChildProcessError):
        os.waitpid(child, 0)
    end_children()
    os._exit(0)


class Helper:
    """Forks keepers, and ends what falls to it when a keeper was killed.

    One keeper is forked ahead and takes the next request from the socket itself, so that no command waits for the fork.
    It is forked when a command has ended, or has run for a moment: the fork would slow down its start. A request that
    comes before that has it forked at once.
    """

    def __init__(self, program: socket.socket) -> None:
        self._program = program
        self._keepers: set[int] = set()
        self._spare: int | None = None
        """The keeper that has no command yet."""
        self._fork_at = 0.0
        """When the next spare keeper is to be forked, on the monotonic clock, if there is none."""
        self._guard = 0
        self._attempts = 0

    def run(self, guard: int) -> NoReturn:
        """Serve until the program or the guard is gone, then end everything; ends this process."""
        self._guard = guard
        try:
            os.setpgid(0, 0)  # so that no signal to a group reaches both the guard and this process
            wake_up = listen_to_signals(lambda: None)
            keep_descendants("kimi-launcher")
            die_with_parent(guard)
            gc.disable()  # a collection would write to every page that the keepers share with this process
            self._serve(wake_up)
        finally:
            # Also after an error, which the program sees as the end of the socket.
            try:
                self._end_keepers()
                end_children()
            finally:
                os._exit(0)

    def _serve(self, wake_up: int) -> None:
        taken, take = os.pipe()
        poll = select.poll()
        poll.register(wake_up, select.POLLIN)
        poll.register(taken, select.POLLIN)
        poll.register(self._program, 0)  # its end is always told
        self._program.send(READY + str(os.getpid()).encode())
        while os.getppid() == self._guard:
            reap_children(self._note_end)
            timeout = self._fork_spare(take)
            poll.modify(self._program, select.POLLIN if self._spare is None else 0)
            for descriptor, events in poll.poll(_PAUSE_MS if self._kill_strays() else timeout):
                if descriptor == wake_up:
                    with suppress(BlockingIOError):
                        os.read(wake_up, 4096)
                elif descriptor == taken:
                    os.read(taken, 1)
                    self._spare, self._fork_at = None, time.monotonic() + _SPARE_PAUSE_S
                elif events == select.POLLIN:
                    self._fork_at = 0.0
                else:
                    return

    def _note_end(self, pid: int, status: int) -> None:
        del status
        self._keepers.discard(pid)
        if pid == self._spare:
            self._spare = None
        self._fork_at = 0.0
        self._attempts = _MOST_ATTEMPTS

    def _kill_strays(self) -> bool:
        """Kill what a killed keeper has left; return whether it has to be looked at again."""
        strays = [pid for pid in find_children(os.getpid()) if pid not in self._keepers] if self._attempts else []
        if not strays:
            self._attempts = 0
            return False
        self._attempts -= 1
        kill_trees(strays)
        return True

    def _fork_spare(self, take: int) -> float | None:
        """Fork the keeper of the next command if it is time to.

        Return when to look again, in milliseconds; None if there is a spare keeper.
        """
        if self._spare is not None:
            return None
        if (pause := self._fork_at - time.monotonic()) > 0:
            return pause * 1000 + 1
        helper = os.getpid()
        try:
            child = os.fork()
        except OSError:  # the system has no room now; there will be when commands have ended
            time.sleep(_PAUSE_MS / 1000)
            return 0.0
        if child == 0:
            Keeper(self._program, take).run(helper)
        self._keepers.add(child)
        self._spare = child
        return None

    def _end_keepers(self) -> None:
        """Let the keepers end their commands; kill those that take too long."""
        for number in (signal.SIGTERM, signal.SIGCONT):
            for pid in self._keepers:
                send(pid, number)
        deadline = time.monotonic() + _KEEPERS_LEAVE_S
        while self._keepers and time.monotonic() < deadline:
            reap_children(self._note_end)
            time.sleep(_PAUSE_MS / 1000)
