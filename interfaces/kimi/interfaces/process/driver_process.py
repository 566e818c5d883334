"""The life of a driver's process: signals, the bound on its end, the hint at resuming, the exit status.

A driver brings what it serves, and by `ExitRules` how its process ends (wire spec 1.5, acp spec 4.8, runtime spec 1.4).
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from kimi.application.conversation.conversation import Conversation
from kimi.interfaces.process import startup_tuning
from kimi.interfaces.process.graceful_shutdown import GracefulShutdown, exit_by_signal, watch_output
from kimi.interfaces.process.log import set_session_id
from kimi.interfaces.process.stdio import BlockReader
from kimi.interfaces.process.streams import Streams


@dataclass(frozen=True, slots=True)
class ExitRules:
    """How the process of a driver ends."""

    timeout_s: float = 2.0
    """From what asks for the end (of the input, a signal) to the end of the process at the latest."""
    timeout_status: int | None = 0
    """The exit status when that is over and no signal is to be seen; None: the process is left to end by itself."""
    kill_reserve_s: float = 0.9
    """What is kept of `timeout_s` for ending programs that are still running."""
    close_timeout_s: float | None = math.inf
    """What the end of a session may take while nothing asks for that of the process; None: it asks for it."""
    immediate_signals: frozenset[signal.Signals] = frozenset({signal.SIGINT})
    """The signals that end the process on the spot when they come second."""
    ends_by_signal: bool = True
    """Whether the parent sees SIGTERM or SIGHUP as the reason; if not, the process exits by itself after them, too."""
    hints_after_signal: bool = True
    """Whether the hint at resuming is written after those as well."""


class DriverOutput(Protocol):
    """What a driver writes to stdout through."""

    @property
    def is_write_stuck(self) -> bool:
        """Whether a write is under way; after the end: one that nobody reads."""
        ...

    def fail(self) -> None:
        """End the output: nobody reads it any more. Idempotent."""
        ...


class DriverProcess:
    """A process that serves a client, or the user at the terminal, from its start to its exit status. Runs once."""

    def __init__(self, streams: Streams, rules: ExitRules | None = None) -> None:
        self.streams = streams
        self._rules = rules = rules or ExitRules()
        on_timeout = None if rules.timeout_status is None else partial(self._exit_at_once, rules.timeout_status)
        self.shutdown = GracefulShutdown(rules.timeout_s, on_timeout, rules.immediate_signals)
        self.is_watching = False
        """Whether signals are heard; before that an interrupt raises KeyboardInterrupt out of `run`."""
        self._output: DriverOutput | None = None
        self._resumable_id: str | None = None
        self._is_starting = True

    def run(self, serve: Callable[[], Awaitable[int]]) -> int:
        """Run `serve` and return its exit status. After SIGTERM or SIGHUP the process ends by that signal instead, when
        everything is settled. Raises what `serve` raises."""
        status = anyio.run(serve)
        # A write that nobody reads holds up the end of the interpreter: then the watchdog has the last word.
        if self._output is None or not self._output.is_write_stuck:
            self.shutdown.disarm_watchdog()
        number = self.shutdown.exit_signal if self._rules.ends_by_signal else None
        if self._resumable_id is not None and (number is None or self._rules.hints_after_signal):
            self.streams.write_resume_hint(self._resumable_id)
        if number is not None:
            exit_by_signal(number)
        return status

    def run_conversation(
        self,
        opening: AbstractAsyncContextManager[Conversation],
        serve: Callable[[Conversation], Awaitable[int]],
    ) -> int:
        """`run` for a driver that serves one conversation."""

        async def open_and_serve() -> int:
            async with opening as conversation:
                with self.track_session(conversation):
                    return await serve(conversation)

        return self.run(open_and_serve)

    @contextmanager
    def track_session(self, conversation: Conversation) -> Generator[None, None, None]:
        """Name the session in the log, and on leaving remember whether it can be resumed."""
        set_session_id(conversation.id)
        if self._is_starting:  # once: what a later session leaves behind must not be frozen
            self._is_starting = False
            startup_tuning.end()
        try:
            yield
        finally:
            self._resumable_id = None if conversation.is_empty else conversation.id

    @asynccontextmanager
    async def watch(
        self,
        stop: Callable[[], None],
        output: DriverOutput | None = None,
        on_interrupt: Callable[[], None] | None = None,
    ) -> AsyncGenerator[TaskGroup, None]:
        """Hear signals while the context is open, and learn when nobody reads `output` any more.

        `stop` must bring the service to its end. With `on_interrupt` interrupts are the driver's own business. The
        task group is for what the driver does beside its service; it is cancelled on leaving.
        """
        self._output = output
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.shutdown.watch_signals, stop, on_interrupt)
            if output is not None:
                tasks.start_soon(watch_output, self.streams.stdout_fd, output.fail)
            await anyio.lowlevel.checkpoint()  # signals are heard from here on, before anything is said
            self.is_watching = True
            yield tasks
            tasks.cancel_scope.cancel()

    def open_stdin(self) -> BlockReader:
        """The input. The end of the process begins with its end."""
        return BlockReader(self.streams.stdin_fd, self.shutdown.begin)

    def time_left(self) -> float:
        """Seconds that the end of a session may take, so that what it started can still be killed."""
        if self.shutdown.has_begun or self._rules.close_timeout_s is None:
            return self.shutdown.time_left() - self._rules.kill_reserve_s
        return self._rules.close_timeout_s

    def _exit_at_once(self, status: int) -> None:
        if self._rules.ends_by_signal and self.shutdown.exit_signal is not None:
            exit_by_signal(self.shutdown.exit_signal)
        os._exit(status)
