"""Escape control characters in text of models, tools and files, so that it cannot control the terminal."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # characters that change the displayed order of the text
)
_SPACE: Final = re.compile(r"\s+")


def escape_text(text: str) -> str:
    r"""Escape every control character but tab and line feed, as in `\x1b` or `\u202e`.

    Line ends become line feeds. Each character is escaped by itself, so a text may be passed in pieces.
    """
    return _CONTROL.sub(_escape_character, text.replace("\r\n", "\n"))


def escape_json(lines: str) -> str:
    """Escape in lines of JSON what JSON leaves as it is and a terminal obeys; the lines mean the same."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", lines)


def escape_line(text: str, limit: int = 120) -> str:
    """Return `text` on one line of at most `limit` characters: white space becomes a blank, longer text ends in `…`."""
    line = escape_text(_SPACE.sub(" ", text[: limit * 8]).strip())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _escape_character(found: re.Match[str]) -> str:
    if found[0] == "\r":
        return "\\r"
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
