"""Folds characters that look like others, so that a tag is found however it is spelled (tools spec 1.8)."""

from __future__ import annotations

import unicodedata

IGNORED, LIGATURE = "\0", "\1"

_ANGLES = "‹〈⟨〈＜﹤˂ᐸ❮❰≺≪«⟪《⧼⪡⋖𝈶ᚲ"
_SLASHES = "⁄∕⧸╱／⟋"
_HYPHENS = "‐‑‒–—―−﹘﹣－⁃➖"
_LETTERS = {
    "a": "аɑα",
    "b": "Ьƅ",
    "c": "сϲᴄⅽ",
    "d": "ԁɗᴅ",
    "e": "еεєᴇ",
    "f": "ƒ",
    "g": "ɡց",
    "h": "һհ",
    "i": "іıιɩɪ",
    "k": "кκᴋ",
    "l": "ӏ",
    "m": "мᴍ",
    "n": "пոɴ",
    "o": "оοօᴏ",
    "p": "рρ",
    "r": "гᴦʀ",
    "s": "ѕꜱ",
    "t": "тτᴛ",
    "u": "υսᴜ",
    "v": "ѵν",
    "x": "хχ×",
    "y": "уγʏү",
}
_KNOWN = {
    ord(look_alike): plain
    for plain, look_alikes in {"<": _ANGLES, "/": _SLASHES, "-": _HYPHENS, **_LETTERS}.items()
    for look_alike in look_alikes
} | dict.fromkeys(map(ord, "\ufb05\ufb06"), LIGATURE)


class _FoldedCharacters(dict[int, str]):
    """The folded form of each character that was looked up, always one character long."""

    def __missing__(self, code: int) -> str:
        folded = self[code] = _fold_character(chr(code))
        return folded


_FOLDED = _FoldedCharacters(_KNOWN)


def fold_look_alikes(text: str) -> str:
    """Return `text` with look-alikes replaced by plain letters, invisible characters by NUL; its length is the same."""
    return text.translate(_FOLDED)


def _fold_character(char: str) -> str:
    if char.isspace() and char not in "\x1c\x1d\x1e\x1f\x85":
        return " "
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Mn", "Me"):
        return _fold_tag_character(char)
    plain = unicodedata.normalize("NFKD", char)[0].lower()
    return _KNOWN.get(ord(plain[0]), plain[0])


def _fold_tag_character(char: str) -> str:
    """Return the ASCII character that a character of the block Tags repeats invisibly, else the ignored character."""
    code = ord(char) - 0xE0000
    return chr(code).lower() if 0x20 <= code < 0x7F else IGNORED
