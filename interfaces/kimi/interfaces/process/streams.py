"""The three streams of the process (runtime spec 2.8, wire spec 1.2).

In the protocol modes, stdin and stdout serve only the protocol: the driver gets private copies, and the public
descriptors lead to the null device and to the log, so that no stray `print`, child or C library can disturb it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kimi.interfaces.process.log import local_date, log_path, open_log

RESUME_HINT = "To resume this session: kimi -r "


@dataclass(frozen=True, slots=True)
class Streams:
    """The descriptors that a driver reads and writes. It owns them; child processes do not inherit them.

    `write_error` writes to the stderr that the process was started with; descriptor 2 leads to the log.
    """

    stdin_fd: int
    stdout_fd: int
    write_error: Callable[[str], None]

    def write_resume_hint(self, session_id: str) -> None:
        """Write how to resume the session, to the stderr of the start."""
        self.write_error(f"\n{RESUME_HINT}{session_id}\n")


def take_streams(share: str, protocol: bool) -> Streams:
    """Point stderr at the log; with `protocol`, also replace stdin and stdout and return private copies.

    A descriptor that was closed at the start is treated as the null device.
    """
    _fill_closed_descriptors()  # before the log is opened, which would get the first free descriptor
    log = open_log(log_path(share), local_date())
    stderr = os.dup(2)
    os.dup2(log, 2)
    stdin, stdout = 0, 1
    if protocol:
        stdin, stdout = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(log, 1)
    os.close(log)
    return Streams(stdin, stdout, lambda text: write_stderr(text, stderr))


def _fill_closed_descriptors() -> None:
    """Open the null device as each closed descriptor of 0, 1, 2; else the next open file would get its number."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def write_stderr(text: str, descriptor: int = 2) -> None:
    """Write all of `text` to stderr, or to a copy of it; ignore a reader that is gone.

    Characters that the encoding of stderr lacks are escaped, and those that control a terminal.
    """
    from kimi.interfaces.process.terminal_escape import escape_text  # start-up time

    rest = escape_text(text).encode(getattr(sys.stderr, "encoding", None) or "utf-8", "backslashreplace")
    with suppress(OSError):
        while rest:
            rest = rest[os.write(descriptor, rest) :]
