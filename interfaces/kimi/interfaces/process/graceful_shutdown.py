"""The end of a process that serves a client: by the end of its input, a closed output or a signal, and bounded."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

import anyio

from kimi.interfaces.process.stdio import hung_up

logger = logging.getLogger(__name__)

STOP_SIGNALS: Final = [signal.SIGINT, signal.SIGTERM] + ([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])


EXIT_BOUND_S: Final = 2.0
"""From what asks for the end (of the input, a signal) to the end of the process at the latest."""

KILLING_S: Final = 0.9
"""What is kept of that for ending programs that are still running."""


class Stopping:
    """What asks a driver to end, and the watchdog that sees to it that it does.

    `bound_exit` is called when the end begins; the process is gone `bound_s` seconds later, by `give_up` if need be.
    `signal` is the first signal that came. A second one of `at_once` ends the process on the spot.
    """

    def __init__(
        self,
        bound_s: float,
        stop: Callable[[], None],
        give_up: Callable[[], None],
        at_once: frozenset[signal.Signals] = frozenset({signal.SIGINT}),
    ) -> None:
        self._bound_s = bound_s
        self._stop = stop
        self._give_up = give_up
        self._at_once = at_once
        self._watchdog: threading.Timer | None = None
        self._deadline = 0.0
        self.signal: signal.Signals | None = None

    @property
    def ended_by(self) -> signal.Signals | None:
        """The signal by which the process is to end; none for an interrupt, after which it ends by itself."""
        return None if self.signal == signal.SIGINT else self.signal

    @property
    def has_begun(self) -> bool:
        """Is the process about to end?"""
        return self._watchdog is not None

    def bound_exit(self) -> None:
        """Whatever hangs from now on, the process is gone in time. Idempotent."""
        if self._watchdog is None:
            self._deadline = time.monotonic() + self._bound_s
            self._watchdog = threading.Timer(self._bound_s, self._leave)
            self._watchdog.daemon = True
            self._watchdog.start()

    def time_left(self) -> float:
        """Seconds until the process is gone; the end begins with this call at the latest."""
        self.bound_exit()
        return self._deadline - time.monotonic()

    def release(self) -> None:
        """Everything has ended in time."""
        if self._watchdog is not None:
            self._watchdog.cancel()

    async def watch_signals(self) -> None:
        """The first signal ends the service in good order, a second one that is to end it at once does."""
        if sys.platform == "win32":
            return
        with anyio.open_signal_receiver(*STOP_SIGNALS) as received:
            async for number in received:
                if self.signal is not None and number in self._at_once:
                    os._exit(128 + number)
                logger.info("ending because of %s", number.name)
                self.signal = self.signal or number
                self.bound_exit()
                self._stop()

    def _leave(self) -> None:
        logger.error("the end took longer than %s s; leaving at once", self._bound_s)
        self._give_up()


async def watch_output(fd: int, on_gone: Callable[[], None]) -> None:
    """Call `on_gone` once nobody reads this output any more: that is the end as after a failed write (W-32)."""
    await hung_up(fd)
    logger.info("stdout was closed by the client")
    on_gone()


def end_by(number: signal.Signals) -> None:
    """End the process by this signal, so that the parent sees it."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
