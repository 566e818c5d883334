"""The three streams of the process (runtime spec 2.8, wire spec 1.2).

In the protocol modes stdin and stdout are kept for the protocol alone: private copies are made, and the public
descriptors lead to nothing and to the log, so that neither a stray `print` nor a child nor a C library can disturb it.
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
    """Where a driver reads and writes. The descriptors belong to it; children do not inherit them.

    `write_error` writes to the stderr that the process was started with, after its own has become the log.
    """

    stdin_fd: int
    stdout_fd: int
    write_error: Callable[[str], None]

    def write_resume_hint(self, session_id: str) -> None:
        """The last words about a session that can be taken up again."""
        self.write_error(f"\n{RESUME_HINT}{session_id}\n")


def take_streams(share: str, protocol: bool) -> Streams:
    """Point stderr at the log; with `protocol`, take stdin and stdout away as well.

    A descriptor that was closed from the start counts as one that holds nothing.
    """
    _fill_closed_descriptors()
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
    """Fill the gaps among 0, 1, 2, or the next file that is opened becomes standard input or output."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def write_stderr(text: str, descriptor: int = 2) -> None:
    """Write all of `text` to standard error, or a copy of it; a reader that went away is ignored.

    Characters that the encoding of the terminal lacks are escaped.
    """
    rest = text.encode(getattr(sys.stderr, "encoding", None) or "utf-8", "backslashreplace")
    with suppress(OSError):
        while rest:
            rest = rest[os.write(descriptor, rest) :]
