"""The output of `kimi demo`: with colour and at reading pace on a terminal, plain and fast elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TextIO, TypeAlias

Style: TypeAlias = Literal["plain", "strong", "faint", "user", "tool", "ask", "added", "removed"]

_CODES: Final[Mapping[Style, str]] = {
    "plain": "",
    "strong": "1",
    "faint": "2",
    "user": "1;36",
    "tool": "33",
    "ask": "1;35",
    "added": "32",
    "removed": "31",
}

LINE_PAUSE_S: Final = 0.25
PIECE_PAUSE_S: Final = 0.06


@dataclass(slots=True)
class DemoScreen:
    """Writes lines and streamed pieces of lines; a line that is still open is ended before another begins.

    `colour` turns styles into escape sequences; `paced` waits a moment after each piece and line.
    """

    output: TextIO
    colour: bool = False
    paced: bool = False
    _open: Style | None = field(default=None, init=False)

    def write_line(self, text: str = "", style: Style = "plain") -> None:
        """Write one or more whole lines."""
        self.end_line()
        for line in text.split("\n"):
            self._write(self._apply_style(line, style) + "\n")
        self._pause(LINE_PAUSE_S)

    def write_piece(self, text: str, style: Style, prefix: str) -> None:
        """Continue a streamed line. Another style than that of the open line starts a new one, with `prefix`."""
        if self._open != style:
            self.end_line()
            self._write(self._apply_style(prefix, style))
            self._open = style
        self._write(self._apply_style(text, style))
        self._pause(PIECE_PAUSE_S)

    def end_line(self) -> None:
        """End the open line, if there is one."""
        if self._open is not None:
            self._write("\n")
            self._open = None

    def write_trace(self, line: str) -> None:
        """Write a line of the protocol, never split and without a pause."""
        self.end_line()
        self._write(self._apply_style(line, "faint") + "\n")

    def _apply_style(self, text: str, style: Style) -> str:
        code = _CODES[style]
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code and text else text

    def _write(self, text: str) -> None:
        encoding = self.output.encoding or "utf-8"
        self.output.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self.output.flush()

    def _pause(self, seconds: float) -> None:
        if self.paced:
            time.sleep(seconds)


def create_screen(output: TextIO, environ: Mapping[str, str]) -> DemoScreen:
    """Return the screen for an output: colour on a terminal that has it unless NO_COLOR is set, pace on a terminal."""
    terminal = output.isatty()
    plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb" or not _supports_escapes(environ)
    return DemoScreen(output, colour=terminal and not plain, paced=terminal)


def _supports_escapes(environ: Mapping[str, str]) -> bool:
    """Whether the terminal knows escape sequences. Old Windows consoles print them; newer hosts set a variable."""
    return sys.platform != "win32" or any(name in environ for name in ("WT_SESSION", "ANSICON", "TERM", "ConEmuANSI"))


def open_stdout() -> TextIO:
    """Return the output of the demo; the null device when the process was started with a closed stdout."""
    output: TextIO | None = sys.stdout
    return output if output is not None else open(os.devnull, "w", encoding="utf-8")
