"""Programs of the person's that have the terminal for a while."""

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
"""How long a program may take to end that is asked to, in seconds."""


LATE_INTERRUPT_S: Final = 0.5
"""How long after the end of a program its Ctrl-C may still be on its way."""


class TerminalLease:
    """Who has the terminal: the shell, or programs that it was given to; the next one waits for those before."""

    def __init__(self) -> None:
        self._holders = 0
        self._late_interrupts_until = 0.0

    @property
    def is_held(self) -> bool:
        """Has a program the terminal, or waits for it?"""
        return self._holders > 0

    @property
    def owns_interrupts(self) -> bool:
        """Is a Ctrl-C that is heard now that of a program?"""
        return self.is_held or time.monotonic() < self._late_interrupts_until

    @contextmanager
    def hold(self) -> Generator[None, None, None]:
        """The terminal is a program's while this is open."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            self._late_interrupts_until = time.monotonic() + LATE_INTERRUPT_S


class LocalProgram:
    """One run of a program. `run` blocks a thread; `ended` sees to it that nothing of it stays."""

    def __init__(self, command: Sequence[str], work_dir: str, *, with_input: bool) -> None:
        self._command = command
        self._work_dir = work_dir
        self._stdin = None if with_input else subprocess.DEVNULL
        self._process: subprocess.Popen[bytes] | None = None
        self._stop_requested = False

    def run(self) -> int:
        """Start it and wait for its end; gives its status. Raises OSError."""
        self._process = subprocess.Popen(self._command, cwd=self._work_dir, stdin=self._stdin)
        if self._stop_requested:
            self._terminate()
        return self._process.wait()

    async def ensure_ended(self) -> None:
        """Nobody waits for it any more: if it still runs, the shell has to end, and the program with it."""
        self._stop_requested = True
        if self._process is not None and self._process.returncode is None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._terminate)

    def _terminate(self) -> None:
        """End it and all that it has started; where that cannot be seen, at least the program itself."""
        assert self._process is not None
        end_process_tree(self._process.pid, TERMINATION_GRACE_S)
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(TERMINATION_GRACE_S)
        self._process.kill()
