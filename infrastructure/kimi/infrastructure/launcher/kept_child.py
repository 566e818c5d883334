"""A program that runs under a keeper, as the program sees it: events on a socket."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio

from kimi.infrastructure.launcher.protocol import ENDED, GONE, REFUSED, RELEASE, STARTED, encode_kill

_ANSWER_S: Final = 1.0
"""How much longer than the grace the keeper may take to end everything before it is killed itself."""
_AFTER_KILL_S: Final = 0.5
"""How long a killed keeper is awaited."""


class KeptChild:
    """Implements `ChildProcess` over the socket of a keeper."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._text = b""
        self._keeper: int | None = None
        self._status: int | None = None
        self._on_ended: Callable[[int], None] | None = None
        self._refusal: tuple[int, bool] | None = None
        self._answered = asyncio.Event()
        self._gone = asyncio.Event()
        self._is_closed = False
        self._loop.add_reader(control, self._read)

    async def wait_until_started(self, program: str, directory: str) -> None:
        """Wait until the command runs. Raises OSError: it cannot be started."""
        await self._answered.wait()
        if self._refusal is not None:
            number, in_directory = self._refusal
            raise OSError(number, os.strerror(number), directory if in_directory else program)
        if self._keeper is None:
            raise OSError(errno.ECHILD, "The helper that starts programs was ended", program)

    def watch(self, on_ended: Callable[[int], None]) -> None:
        """See `ChildProcess`."""
        self._on_ended = on_ended
        if self._status is not None:
            self._loop.call_soon(on_ended, self._status)

    async def end(self, grace_s: float) -> None:
        """See `ChildProcess`."""
        if self._gone.is_set():
            return
        with suppress(OSError):
            self._control.send(encode_kill(grace_s))
        with anyio.move_on_after(grace_s + _ANSWER_S):
            await self._gone.wait()
            return
        # The command may have stopped its keeper. A killed one leaves everything to the helper, which kills it.
        if self._keeper is not None:
            with suppress(OSError):
                os.kill(self._keeper, signal.SIGKILL)
        with anyio.move_on_after(_AFTER_KILL_S):
            await self._gone.wait()

    def close(self) -> None:
        """See `ChildProcess`. What a command that has ended left behind goes on until the program ends."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._status is not None:
            with suppress(OSError):
                self._control.send(RELEASE)
        self._loop.remove_reader(self._control)
        self._control.close()

    def _read(self) -> None:
        try:
            block = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            block = b""
        if not block:
            self._loop.remove_reader(self._control)
            self._hear(f"{GONE}")
            return
        self._text += block
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            self._hear(line.decode())

    def _hear(self, line: str) -> None:
        event, *words = line.split()
        numbers = [int(word) for word in words]
        if event == STARTED:
            self._keeper = numbers[1]
        elif event == REFUSED:
            self._refusal = numbers[0], bool(numbers[1])
        elif event == ENDED:
            self._end_with(numbers[0])
        elif event == GONE:
            # A keeper that was killed has not told how the command ended: the helper kills it.
            self._end_with(-signal.SIGKILL)
            self._gone.set()
        self._answered.set()

    def _end_with(self, status: int) -> None:
        if self._status is None:
            self._status = status
            if self._on_ended is not None:
                self._on_ended(status)
