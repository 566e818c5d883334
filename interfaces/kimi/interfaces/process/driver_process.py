"""Run the process of a driver: signals, the deadline of the shutdown, the resume hint, the exit status.

The driver passes what to serve, and `ExitRules` for how its process ends (wire spec 1.5, acp spec 4.8, runtime spec
1.4).
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from kimi.interfaces.process import startup_tuning
from kimi.interfaces.process.graceful_shutdown import GracefulShutdown, exit_by_signal, watch_output
from kimi.interfaces.process.log import set_session_id
from kimi.interfaces.process.stdio import BlockReader
from kimi.interfaces.process.streams import Streams

if TYPE_CHECKING:
    from kimi.application.conversation.conversation import Conversation


@dataclass(frozen=True, slots=True)
class ExitRules:
    """Says how the process of a driver ends."""

    timeout_s: float = 2.0
    """The maximum time from what begins the shutdown (end of the input, a signal) to the end of the process."""
    timeout_status: int | None = 0
    """The exit status after the timeout, unless the process ends by a signal; None never forces the process to end."""
    kill_reserve_s: float = 0.9
    """The part of `timeout_s` that is reserved for ending programs that still run."""
    close_timeout_s: float | None = math.inf
    """How long a session may take to close while the process does not shut down; None: closing begins the shutdown."""
    immediate_signals: frozenset[signal.Signals] = frozenset({signal.SIGINT})
    """The signals that end the process at once if they are not the first signal."""
    ends_by_signal: bool = True
    """Whether the process ends by SIGTERM or SIGHUP, so that the parent sees it; if not, it exits with a status."""
    hints_after_signal: bool = True
    """Whether the resume hint is also written after SIGTERM or SIGHUP."""


class DriverOutput(Protocol):
    """The queue through which a driver writes to stdout."""

    @property
    def is_write_stuck(self) -> bool:
        """Whether a write is under way; after the end, whether a write is blocked by the reader."""
        ...

    def fail(self) -> None:
        """Drop all output, because the other side is gone. Idempotent."""
        ...


class DriverProcess:
    """Runs a process that serves a client or the user at the terminal, until its exit status. Runs once."""

    def __init__(self, streams: Streams, rules: ExitRules | None = None) -> None:
        self.streams = streams
        self._rules = rules = rules or ExitRules()
        on_timeout = None if rules.timeout_status is None else partial(self._exit_at_once, rules.timeout_status)
        self.shutdown = GracefulShutdown(rules.timeout_s, on_timeout, rules.immediate_signals)
        self.is_watching = False
        """Whether signals are handled; before that an interrupt raises KeyboardInterrupt out of `run`."""
        self._output: DriverOutput | None = None
        self._resumable_id: str | None = None
        self._is_starting = True

    def run(self, serve: Callable[[], Awaitable[int]]) -> int:
        """Run `serve` and return its exit status; after SIGTERM or SIGHUP end the process by that signal instead.

        Raises what `serve` raises.
        """
        status = anyio.run(serve)
        # A blocked write would keep the interpreter from ending: then the watchdog must end the process.
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
        """Open a conversation, serve it, and return the exit status, as `run` does."""

        async def open_and_serve() -> int:
            async with opening as conversation:
                with self.track_session(conversation):
                    return await serve(conversation)

        return self.run(open_and_serve)

    @contextmanager
    def track_session(self, conversation: Conversation) -> Generator[None, None, None]:
        """Name the session in the log; on exit record whether it can be resumed."""
        set_session_id(conversation.id)
        if self._is_starting:  # once: the remains of an earlier session must not be frozen
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
        """Handle signals while the context is open, and fail `output` when its reader is gone.

        `stop` must end the service. With `on_interrupt`, an interrupt calls that instead. The task group is for further
        tasks of the driver; it is cancelled on exit.
        """
        self._output = output
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.shutdown.watch_signals, stop, on_interrupt)
            if output is not None:
                tasks.start_soon(watch_output, self.streams.stdout_fd, output.fail)
            await anyio.lowlevel.checkpoint()  # lets the task install its signal handlers before the driver serves
            self.is_watching = True
            yield tasks
            tasks.cancel_scope.cancel()

    def open_stdin(self) -> BlockReader:
        """Return a reader of the input, whose end begins the shutdown."""
        return BlockReader(self.streams.stdin_fd, self.shutdown.begin)

    def time_left(self) -> float:
        """Return how many seconds a session may take to close, so that its programs can still be killed after it."""
        if self.shutdown.has_begun or self._rules.close_timeout_s is None:
            return self.shutdown.time_left() - self._rules.kill_reserve_s
        return self._rules.close_timeout_s

    def _exit_at_once(self, status: int) -> None:
        if self._rules.ends_by_signal and self.shutdown.exit_signal is not None:
            exit_by_signal(self.shutdown.exit_signal)
        os._exit(status)
