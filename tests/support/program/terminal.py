"""A real `kimi` on a pseudo terminal, and the screen that a user would see."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyte

from tests.support.program.program import start_on_terminal
from tests.support.program.wire_process import Place

DEADLINE_S = 12.0
ENTER = "\r"
CTRL_A, CTRL_C, CTRL_D, CTRL_E, CTRL_J, CTRL_O = "\x01", "\x03", "\x04", "\x05", "\n", "\x0f"
CTRL_R, CTRL_S, CTRL_T, CTRL_U, CTRL_V, CTRL_X = "\x12", "\x13", "\x14", "\x15", "\x16", "\x18"
ESCAPE, TAB, SHIFT_TAB, UP, DOWN, RIGHT = "\x1b", "\t", "\x1b[Z", "\x1b[A", "\x1b[B", "\x1b[C"


def paste(text: str) -> str:
    """Return what a terminal sends for pasted text."""
    return f"\x1b[200~{text}\x1b[201~"


class Cell(NamedTuple):
    """One character on the screen; `colour` is a name or six hexadecimal digits."""

    text: str
    colour: str
    bold: bool
    italic: bool
    underlined: bool
    struck: bool


def _contains(wanted: str, text: str) -> bool:
    return wanted in text


class Terminal:
    """`kimi ARGUMENTS` on a terminal of `columns` by `rows`; `raw` keeps every byte it wrote."""

    def __init__(
        self, arguments: Sequence[str], cwd: Path, environ: Mapping[str, str], columns: int = 80, rows: int = 24
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=20_000, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.raw = bytearray()
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        self.process = start_on_terminal(arguments, cwd, environ, slave)
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            while self._master >= 0:
                if not select.select([self._master], [], [], 0.1)[0]:
                    continue
                if not (data := os.read(self._master, 65_536)):
                    return
                with self._lock:
                    self.raw += data
                    self._stream.feed(data)

    # --- the user -----------------------------------------------------------------------------------------------

    def type(self, *texts: str) -> None:
        """Type text or press keys."""
        for text in texts:
            os.write(self._master, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window."""
        with self._lock:
            self._screen.resize(rows, columns)
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if hasattr(self, "process"):
            os.killpg(self.process.pid, signal.SIGWINCH)

    # --- the screen ---------------------------------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        """The lines on the screen."""
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    @property
    def cells(self) -> list[list[Cell]]:
        """The screen with its styles; the second half of a wide character is left out."""
        columns, rows = range(self._screen.columns), range(self._screen.lines)
        with self._lock:
            chars = [[self._screen.buffer[row][column] for column in columns] for row in rows]
        return [
            [
                Cell(one.data, one.fg, one.bold, one.italics, one.underscore, one.strikethrough)
                for one in row
                if one.data
            ]
            for row in chars
        ]

    @property
    def text(self) -> str:
        """The screen as text, without empty lines at its end."""
        return "\n".join(self.lines).rstrip("\n")

    @property
    def all_text(self) -> str:
        """Scrollback and screen."""
        with self._lock:
            columns = self._screen.columns
            above = ["".join(row[at].data for at in range(columns)).rstrip() for row in self._screen.history.top]
        return "\n".join([*above, *self.lines]).rstrip("\n")

    def until(self, wanted: str | Callable[[str], bool], seconds: float = DEADLINE_S) -> str:
        """Wait until the screen shows this; return the screen."""
        fits = partial(_contains, wanted) if isinstance(wanted, str) else wanted
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if fits(text := self.text):
                return text
            if self.process.poll() is not None and not self._reader.is_alive():
                break
            time.sleep(0.02)
        raise AssertionError(f"not on the screen within {seconds} s: {wanted!r}\n{self.text}")

    def until_gone(self, unwanted: str) -> str:
        """Wait until the screen does not show this any more."""
        return self.until(lambda text: unwanted not in text)

    def idle(self) -> str:
        """Wait until nothing runs."""
        return self.until(lambda text: "Working" not in text and "context:" in text)

    def hang_up(self) -> None:
        """Close the window while the program runs."""
        master, self._master = self._master, -1
        self._reader.join(2)  # the reader keeps it open
        os.close(master)

    # --- the end ------------------------------------------------------------------------------------------------

    def wait(self, seconds: float = DEADLINE_S) -> int:
        """Wait for the exit status and return it."""
        status = self.process.wait(seconds)
        self._reader.join(2)
        return status

    def close(self) -> None:
        """Kill the program if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._reader.join(2)
        with suppress(OSError):
            os.close(self._master)


@contextmanager
def terminal(
    place: Place, *arguments: str, columns: int = 80, rows: int = 24, term: str = "xterm-256color"
) -> Generator[Terminal, None, None]:
    """Run `kimi ARGUMENTS` on a terminal while the context is open."""
    environ = {**place.full_environ(), "TERM": term}
    environ.pop("NO_COLOR", None)
    environ |= place.environ
    started = Terminal(arguments, place.work, environ, columns, rows)
    try:
        yield started
    finally:
        started.close()
