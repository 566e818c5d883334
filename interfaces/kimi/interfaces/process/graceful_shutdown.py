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

from kimi.interfaces.process.stdio import wait_for_hangup

logger = logging.getLogger(__name__)

STOP_SIGNALS: Final = [signal.SIGINT, signal.SIGTERM] + ([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])


EXIT_TIMEOUT_S: Final = 2.0
"""From what asks for the end (of the input, a signal) to the end of the process at the latest."""

KILL_RESERVE_S: Final = 0.9
"""What is kept of that for ending programs that are still running."""


class GracefulShutdown:
    """What asks a driver to end, and the watchdog that sees to it that it does.

    `arm_watchdog` is called when the end begins; the process is gone `timeout_s` seconds later, by `give_up`.
    `signal` is the first signal that came. A second one of `at_once` ends the process on the spot.
    """

    def __init__(
        self,
        timeout_s: float,
        stop: Callable[[], None],
        on_timeout: Callable[[], None],
        immediate_signals: frozenset[signal.Signals] = frozenset({signal.SIGINT}),
    ) -> None:
        self._timeout_s = timeout_s
        self._stop = stop
        self._on_timeout = on_timeout
        self._immediate_signals = immediate_signals
        self._watchdog: threading.Timer | None = None
        self._deadline = 0.0
        self.first_signal: signal.Signals | None = None

    @property
    def exit_signal(self) -> signal.Signals | None:
        """The signal by which the process is to end; none for an interrupt, after which it ends by itself."""
        return None if self.first_signal == signal.SIGINT else self.first_signal

    @property
    def has_begun(self) -> bool:
        """Is the process about to end?"""
        return self._watchdog is not None

    def arm_watchdog(self) -> None:
        """Whatever hangs from now on, the process is gone in time. Idempotent."""
        if self._watchdog is None:
            self._deadline = time.monotonic() + self._timeout_s
            self._watchdog = threading.Timer(self._timeout_s, self._force_exit)
            self._watchdog.daemon = True
            self._watchdog.start()

    def time_left(self) -> float:
        """Seconds until the process is gone; the end begins with this call at the latest."""
        self.arm_watchdog()
        return self._deadline - time.monotonic()

    def disarm_watchdog(self) -> None:
        """Everything has ended in time."""
        if self._watchdog is not None:
            self._watchdog.cancel()

    async def watch_signals(self) -> None:
        """The first signal ends the service in good order, a second one that is to end it at once does."""
        if sys.platform == "win32":
            return
        with anyio.open_signal_receiver(*STOP_SIGNALS) as received:
            async for number in received:
                if self.first_signal is not None and number in self._immediate_signals:
                    os._exit(128 + number)
                logger.info("ending because of %s", number.name)
                self.first_signal = self.first_signal or number
                self.arm_watchdog()
                self._stop()

    def _force_exit(self) -> None:
        logger.error("the end took longer than %s s; leaving at once", self._timeout_s)
        self._on_timeout()


async def watch_output(fd: int, on_gone: Callable[[], None]) -> None:
    """Call `on_gone` once nobody reads this output any more: that is the end as after a failed write (W-32)."""
    await wait_for_hangup(fd)
    logger.info("stdout was closed by the client")
    on_gone()


def exit_by_signal(signal_number: signal.Signals) -> None:
    """End the process by this signal, so that the parent sees it."""
    signal.signal(signal_number, signal.SIG_DFL)
    os.kill(os.getpid(), signal_number)
