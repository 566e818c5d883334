"""Lend the terminal to a program that the user runs, and end the program when the shell ends."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import anyio
import anyio.to_thread

from kimi.interfaces.bootstrap.shell import end_process_tree

TERMINATION_GRACE_S: Final = 1.0
"""Seconds that a program has to end after it was asked to."""


LATE_INTERRUPT_S: Final = 0.5
"""Seconds after the end of a program in which its Ctrl-C may still arrive."""


class TerminalLease:
    """Records whether a program has the terminal. Several programs may hold it; prompt_toolkit runs them in order."""

    def __init__(self) -> None:
        self._holders = 0
        self._late_interrupts_until = 0.0

    @property
    def is_held(self) -> bool:
        """Whether a program has the terminal or waits for it."""
        return self._holders > 0

    @property
    def owns_interrupts(self) -> bool:
        """Whether a Ctrl-C that arrives now is meant for a program."""
        return self.is_held or time.monotonic() < self._late_interrupts_until

    @contextmanager
    def hold(self) -> Generator[None, None, None]:
        """Lease the terminal to a program while the context is open."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            # The signal handler runs in the event loop: a Ctrl-C that ended the program may be handled after it.
            self._late_interrupts_until = time.monotonic() + LATE_INTERRUPT_S


class LocalProgram:
    """One run of a program. `run` blocks a thread; `ensure_ended` must be called when the caller stops waiting."""

    def __init__(self, command: Sequence[str], work_dir: str, *, with_input: bool) -> None:
        self._command = command
        self._work_dir = work_dir
        self._stdin = None if with_input else subprocess.DEVNULL
        self._process: subprocess.Popen[bytes] | None = None
        self._stop_requested = False

    def run(self) -> int:
        """Start the program, wait for its end, and return its status. Raises OSError."""
        self._process = subprocess.Popen(self._command, cwd=self._work_dir, stdin=self._stdin)
        # `ensure_ended` may run while Popen starts the program: it then found no process to terminate.
        if self._stop_requested:
            self._terminate()
        return self._process.wait()

    async def ensure_ended(self) -> None:
        """Terminate the program if it still runs, which means that the wait for it was cancelled."""
        self._stop_requested = True
        if self._process is not None and self._process.returncode is None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._terminate)

    def _terminate(self) -> None:
        """Terminate the program and its descendants; the program itself even where descendants are not visible."""
        assert self._process is not None
        end_process_tree(self._process.pid, TERMINATION_GRACE_S)
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(TERMINATION_GRACE_S)
        self._process.kill()
