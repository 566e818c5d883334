"""The end of a process that serves a client: begun by its input, its output or a signal, and bounded."""

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
    """What has asked the process to end, and the watchdog that sees to it that it does.

    The end begins with the first signal, or with `begin`. The process is gone `timeout_s` seconds later: `on_timeout`,
    which runs in a thread of its own, must end it. Without `on_timeout` the deadline is only what `time_left` tells.
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
        """The signal by which the process is to end; none for an interrupt, after which it ends by itself."""
        return None if self.first_signal == signal.SIGINT else self.first_signal

    @property
    def has_begun(self) -> bool:
        """Whether the process is about to end."""
        return self._deadline is not None

    def begin(self) -> None:
        """Start the watchdog: whatever hangs from now on, the process is gone in time. Idempotent."""
        if self._deadline is not None:
            return
        self._deadline = time.monotonic() + self._timeout_s
        if self._on_timeout is not None:
            self._watchdog = threading.Timer(self._timeout_s, self._force_exit, (self._on_timeout,))
            self._watchdog.daemon = True
            self._watchdog.start()

    def time_left(self) -> float:
        """Seconds until the process is gone; the end begins with this call at the latest."""
        self.begin()
        assert self._deadline is not None
        return self._deadline - time.monotonic()

    def disarm_watchdog(self) -> None:
        """Stop the watchdog: everything has ended in time."""
        if self._watchdog is not None:
            self._watchdog.cancel()

    async def watch_signals(self, stop: Callable[[], None], on_interrupt: Callable[[], None] | None = None) -> None:
        """Call `stop` for each signal. A second one, of those that end the process at once, does so.

        With `on_interrupt` an interrupt asks for something else than the end, and that is called instead.
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
                self.begin()
                stop()

    def _force_exit(self, on_timeout: Callable[[], None]) -> None:
        logger.error("the end took longer than %s s; leaving at once", self._timeout_s)
        on_timeout()


async def watch_output(fd: int, on_gone: Callable[[], None]) -> None:
    """Call `on_gone` once nobody reads this output any more: that is the end as after a failed write (W-32)."""
    await wait_for_hangup(fd)
    logger.info("stdout was closed by the client")
    on_gone()


def exit_by_signal(signal_number: signal.Signals) -> None:
    """End the process by this signal, so that the parent sees it."""
    signal.signal(signal_number, signal.SIG_DFL)
    os.kill(os.getpid(), signal_number)
