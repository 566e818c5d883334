"""A program of the person's that has the terminal for a while."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


class LocalCommand:
    """One run of a program. `run` blocks a thread; `stop`, from another one, ends it early."""

    def __init__(self, command: Sequence[str], work_dir: str, *, with_input: bool) -> None:
        self._command = command
        self._work_dir = work_dir
        self._stdin = None if with_input else subprocess.DEVNULL
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def run(self) -> int:
        """Start it and wait for its end; gives its status. Raises OSError."""
        self._process = subprocess.Popen(self._command, cwd=self._work_dir, stdin=self._stdin)
        if self._stopped:
            self.stop()
        return self._process.wait()

    def stop(self) -> None:
        """The shell has to end, and waits for nobody."""
        self._stopped = True
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
