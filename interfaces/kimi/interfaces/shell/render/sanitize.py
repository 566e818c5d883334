"""Makes text from models, tools and files harmless for a terminal.

Every text from outside passes through `neutralize` on its way to the screen, so that no escape sequence in it can
move the cursor, change a title, write to the clipboard, or hide content.
"""

from __future__ import annotations

import re
import unicodedata

_BIDI_AND_INVISIBLE = "\u061c\u200b\u200e\u200f\u2060\u2066\u2067\u2068\u2069\u202a\u202b\u202c\u202d\u202e\ufeff"
_PICTURES: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"},
    0x7F: "␡",
    **dict.fromkeys(range(0x80, 0xA0), "�"),
    **dict.fromkeys(map(ord, _BIDI_AND_INVISIBLE), "�"),
    **dict.fromkeys(range(0xD800, 0xE000), "�"),
    **dict.fromkeys(range(0xE0000, 0xE0080), "�"),
    0x85: "\n",
    0x2028: "\n",
    0x2029: "\n",
}
_COLOURS = re.compile(r"\x1b\[[0-9;:]*[mK]")


def neutralize(text: str) -> str:
    """Replace every control character except line feed and tab by a visible sign; nothing is left out.

    Characters that reorder or hide others are replaced, too, and lone surrogates, which cannot be encoded.
    """
    if text.isascii() and text.isprintable():
        return text
    return text.replace("\r\n", "\n").translate(_PICTURES)


def clean_tool_output(text: str) -> str:
    """Remove colours from the output of a command, and keep only the last state of a redrawn line."""
    text = text.replace("\r\n", "\n")
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    if "\r" in text:
        text = "\n".join(map(_keep_last_redraw, text.split("\n")))
    return neutralize(text).expandtabs(4)


def _keep_last_redraw(line: str) -> str:
    """Return what a redrawn line shows: the text after its last carriage return, ignoring one at its end."""
    return line[line.rfind("\r", 0, max(0, len(line) - 1)) + 1 :]


def fit_one_line(text: str, width: int = 200) -> str:
    """Return `text` neutralized on one line of at most `width` characters; an ellipsis replaces the rest."""
    line = " ".join(neutralize(text[: width * 4]).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def count_cells(text: str) -> int:
    """Return how many columns `text` takes on a terminal."""
    return sum(map(_count_char_cells, text)) if not text.isascii() else len(text)


def truncate_to_width(text: str, width: int) -> str:
    """Return the beginning of `text` that fits into `width` columns, with an ellipsis when it is truncated."""
    if count_cells(text) <= width:
        return text
    used, kept = 0, list[str]()
    for char in text:
        used += _count_char_cells(char)
        if used > width - 1:
            break
        kept.append(char)
    return "".join(kept) + "…" if width > 0 else ""


def _count_char_cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
