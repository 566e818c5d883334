r"""Makes characters visible that a screen hides: in what is approved, nobody may overlook anything (tools spec 5.7).

A control character, one that takes no room and one that reorders text are written as in `\x1b` or `\u202e`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from kimi.domain.tools.look_alikes import IGNORED, fold_look_alikes
from kimi.domain.tools.tool import BackgroundTaskBlock, BriefBlock, DiffBlock, DisplayBlock, ShellBlock

HIDDEN_NOTE = r"Characters that a screen hides or that reorder text are shown as in \u202e."
"""What the user is told where something was made visible."""

_FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Letters and marks that are drawn as nothing."""


class _VisibleForms(dict[int, str]):
    """The visible form of each character that was looked up."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        is_hidden = unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") or char in _FILLERS
        form = self[code] = _escape(code) if is_hidden else char
        return form


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_VISIBLE = _VisibleForms({ord("\n"): "\n", ord("\t"): "\t"})


def reveal_hidden(text: str) -> str:
    """Return `text` with hidden characters escaped; tabs, line feeds and the line ends of Windows stay."""
    if text.isascii() and text.isprintable():
        return text
    return "\r\n".join(part.translate(_VISIBLE) for part in text.split("\r\n"))


def reveal_hidden_line(text: str) -> str:
    """Return `text` as `reveal_hidden` does, on one line: a path may hold line breaks."""
    return reveal_hidden(text).replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")


def fold_label(label: str) -> str:
    """Return the words of a label as a reader sees them: labels that look alike are equal."""
    folded = fold_look_alikes(label).replace(IGNORED, "")
    return " ".join(re.findall(r"\w+", folded)) or folded.strip()


def reveal_blocks(display: Sequence[DisplayBlock]) -> tuple[DisplayBlock, ...]:
    """Return the blocks of an approval with hidden characters escaped, and a note if there were any."""
    shown = tuple(map(_reveal_block, display))
    return shown if shown == tuple(display) else (*shown, BriefBlock(HIDDEN_NOTE))


def _reveal_block(block: DisplayBlock) -> DisplayBlock:
    match block:
        case DiffBlock():
            old, new = reveal_hidden(block.old_text), reveal_hidden(block.new_text)
            return replace(block, path=reveal_hidden_line(block.path), old_text=old, new_text=new)
        case ShellBlock(command=command):
            return replace(block, command=reveal_hidden(command))
        case BriefBlock(text=text):
            return BriefBlock(reveal_hidden(text))
        case BackgroundTaskBlock(description=description):
            return replace(block, description=reveal_hidden_line(description))
        case _:
            return block
