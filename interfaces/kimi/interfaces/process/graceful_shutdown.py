"""The bounded shutdown of a process, which its input, its output or a signal begins."""

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

_STOP_SIGNALS: Final = [signal.SIGINT, signal.SIGTERM] + ([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])


class GracefulShutdown:
    """Records what began the shutdown, and starts a watchdog that enforces its deadline.

    The shutdown begins with the first signal, or with `begin`. After `timeout_s` seconds `on_timeout` is called in a
    thread and must end the process. Without `on_timeout`, the deadline only determines `time_left`.
    """

    def __init__(
        self,
        timeout_s: float,
        on_timeout: Callable[[], None] | None,
        immediate_signals: frozenset[signal.Signals] = frozenset({signal.SIGINT}),
    ) -> None:
        self._timeout_s = timeout_s
        self._on_timeout = on_timeout
        self._immediate_signals = immediate_signals
        self._watchdog: threading.Timer | None = None
        self._deadline: float | None = None
        self.first_signal: signal.Signals | None = None

    @property
    def exit_signal(self) -> signal.Signals | None:
        """The signal by which the process must end; None for an interrupt, after which it exits with a status."""
        return None if self.first_signal == signal.SIGINT else self.first_signal

    @property
    def has_begun(self) -> bool:
        """Whether the shutdown has begun."""
        return self._deadline is not None

    def begin(self) -> None:
        """Begin the shutdown: start the watchdog, so that the process ends in time whatever hangs. Idempotent."""
        if self._deadline is not None:
            return
        self._deadline = time.monotonic() + self._timeout_s
        if self._on_timeout is not None:
            # A thread, because the event loop itself may hang.
            self._watchdog = threading.Timer(self._timeout_s, self._force_exit, (self._on_timeout,))
            self._watchdog.daemon = True
            self._watchdog.start()

    def time_left(self) -> float:
        """Return the seconds until the deadline; begin the shutdown if it has not begun."""
        self.begin()
        assert self._deadline is not None
        return self._deadline - time.monotonic()

    def disarm_watchdog(self) -> None:
        """Stop the watchdog, because everything has ended in time."""
        if self._watchdog is not None:
            self._watchdog.cancel()

    async def watch_signals(self, stop: Callable[[], None], on_interrupt: Callable[[], None] | None = None) -> None:
        """Call `stop` for each signal. A later signal that is one of `immediate_signals` ends the process at once.

        With `on_interrupt`, an interrupt calls that instead and does not begin the shutdown.
        """
        if sys.platform == "win32":
            return
        with anyio.open_signal_receiver(*_STOP_SIGNALS) as received:
            async for number in received:
                if number == signal.SIGINT and on_interrupt is not None:
                    on_interrupt()
                    continue
                if self.first_signal is not None and number in self._immediate_signals:
                    os._exit(128 + number)
                logger.info("ending because of %s", number.name)
                self.first_signal = self.first_signal or number
                self.begin()  # before `stop`, which must end the service within the deadline
                stop()

    def _force_exit(self, on_timeout: Callable[[], None]) -> None:
        logger.error("the end took longer than %s s; leaving at once", self._timeout_s)
        on_timeout()


async def watch_output(fd: int, on_gone: Callable[[], None]) -> None:
    """Call `on_gone` when the reader of this output is gone, which ends the process like a failed write (W-32)."""
    await wait_for_hangup(fd)
    logger.info("stdout was closed by the client")
    on_gone()


def exit_by_signal(signal_number: signal.Signals) -> None:
    """End the process by this signal, so that the parent sees it as the reason."""
    signal.signal(signal_number, signal.SIG_DFL)
    os.kill(os.getpid(), signal_number)
