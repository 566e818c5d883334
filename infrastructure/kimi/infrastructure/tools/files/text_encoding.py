"""Encodings of text files that are not UTF-8: told from their bytes (tools spec 2.5).

Marks and NUL bytes tell UTF-16 and UTF-32. For the rest a library proposes what the bytes may be, and the share of
characters that are usual in each proposal decides between those that it finds equally good.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TypeAlias

HEAD_BYTES = 512
"""How many bytes from the beginning are looked at for a mark and for NUL bytes; an even number."""

SAMPLE_BYTES = 32 * 1024
"""How many bytes of words with other than ASCII characters are looked at to tell an encoding."""

_MAX_MESS = 0.3
_MAX_SCORE = 0.4
_MARGIN = 0.06
_MAX_RIVALS = 6
_DAMAGED_SHARE = 4
"""How many sequences of UTF-8 must stand beside each byte that is none, so that the file is UTF-8 with damage."""

_WORD = re.compile(rb"[A-Za-z]{0,20}[\x80-\xff][^\s\0]*")
_UTF8_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_NO_UTF8 = re.compile(rb"[\x80-\xff]")

_Weigh: TypeAlias = Callable[[str, str], float]
"""How usual a character is, from 0 to 1, behind the one before."""

_MARKS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

_TITLES = {
    "utf-8": "UTF-8",
    "utf-16-le": "UTF-16 LE",
    "utf-16-be": "UTF-16 BE",
    "utf-32-le": "UTF-32 LE",
    "utf-32-be": "UTF-32 BE",
    "gbk": "GBK",
    "gb18030": "GB18030",
    "big5": "Big5",
    "cp950": "Big5 (Windows-950)",
    "big5hkscs": "Big5-HKSCS",
    "shift_jis": "Shift-JIS",
    "cp932": "Shift-JIS (Windows-932)",
    "euc_jp": "EUC-JP",
    "euc_kr": "EUC-KR",
    "cp949": "EUC-KR (Windows-949)",
    "koi8_r": "KOI8-R",
    "koi8_u": "KOI8-U",
    "cp866": "IBM866",
    "cp850": "IBM850",
}

_NARROWEST: dict[str, tuple[str, ...]] = {
    "gb18030": ("gbk", "gb18030"),
    "big5": ("big5", "cp950", "big5hkscs"),
    "cp950": ("big5", "cp950", "big5hkscs"),
    "big5hkscs": ("big5", "cp950", "big5hkscs"),
    "cp932": ("shift_jis", "cp932"),
    "cp949": ("euc_kr", "cp949"),
    "koi8_r": ("koi8_r", "koi8_u"),
}
"""What each proposal stands for, the narrowest first: a character beyond it may not be known to other programs."""

_SAME = {codec: family for name, family in _NARROWEST.items() if name != "koi8_r" for codec in family}
"""Codecs of one family, of which the narrowest that fits is taken: the others are no rivals."""

_PREFERENCE = [
    *("gb18030", "cp932", "euc_jp", "big5", "cp950", "big5hkscs", "cp949", "euc_kr"),
    *("cp1252", "cp1251", "koi8_r", "koi8_u", "cp866", "cp1250", "iso8859_2", "cp1253", "cp1254", "cp1255"),
    *("cp1256", "cp1257", "cp874", "iso8859_15", "cp850"),
]
"""The encodings that are told apart; of equally good ones the first is taken."""


@dataclass(frozen=True, slots=True)
class TextEncoding:
    """An encoding of a file: the name of its codec, and whether the file begins with a byte order mark.

    `rivals` are other codecs that the file may be in just as well; `doubts` are those of them in which it would be
    another text. In `damaged` text, bytes that are none stand as
    lone surrogates, so that they are written as they were.
    """

    codec: str
    has_mark: bool = False
    rivals: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    damaged: bool = False

    @property
    def title(self) -> str:
        """The name for people, with what the file might be instead."""
        if self.damaged:
            return "UTF-8 with bytes that are no text"
        title = _name_codec(self.codec)
        if self.codec.startswith("utf-"):
            return title if self.has_mark else f"{title} without a byte order mark"
        return f"probably {title} (or {', '.join(map(_name_codec, self.doubts))})" if self.doubts else title

    @property
    def errors(self) -> str:
        """How the codec treats what it does not know."""
        return "surrogateescape" if self.damaged else "strict"

    def decode(self, content: bytes) -> str:
        """Return the text of the file; a byte order mark is its first character. Raises UnicodeDecodeError."""
        return content.decode(self.codec, self.errors)

    def encode(self, text: str) -> bytes:
        """Return the bytes of the text. Raises UnicodeEncodeError."""
        return text.encode(self.codec, self.errors)


UTF8 = TextEncoding("utf-8")


def detect_mark(head: bytes) -> TextEncoding | None:
    """Return the encoding that a byte order mark, or the places of NUL bytes, tell from the beginning of a file.

    None also for UTF-8.
    """
    for mark, codec in _MARKS:
        if head.startswith(mark) and _is_text(_decode_start(head, codec)):
            return TextEncoding(codec, has_mark=True)
    return _detect_unmarked_utf16(head) if b"\0" in head else None


def detect_encoding(content: bytes) -> TextEncoding | None:
    """Return the encoding of a whole text file, which decodes it all and gives its bytes again; None if none does."""
    known = detect_mark(content[:HEAD_BYTES])
    if known is not None:
        return known if _is_reversible(known, content) else None
    if _is_reversible(UTF8, content):
        return UTF8
    if b"\0" in content:
        return None
    sample = collect_sample(content)
    if _is_damaged_utf8(sample):
        return TextEncoding("utf-8", damaged=True)
    return _choose_encoding(sample, lambda codec: _is_reversible(TextEncoding(codec), content))


def detect_sample(sample: bytes) -> TextEncoding | None:
    """Return the encoding of a file that is not UTF-8 by a sample of its words; enough to show it."""
    if _is_damaged_utf8(sample):
        return TextEncoding("utf-8", damaged=True)
    return _choose_encoding(sample, lambda codec: _can_decode(sample, codec))


def collect_sample(content: bytes) -> bytes:
    """Return the first words with other than ASCII characters, a line each, up to `SAMPLE_BYTES`."""
    words: list[bytes] = []
    size = 0
    for found in _WORD.finditer(content):
        word = _cut_word(found[0])
        words.append(word)
        size += len(word)
        if size >= SAMPLE_BYTES:
            break
    return b"\n".join(words)


def find_differing_rival(
    encoding: TextEncoding, old: bytes, new: bytes, new_texts: Sequence[str], edit: Callable[[str], str | None]
) -> str | None:
    """Return the name of an encoding that the file may be in, too, and in which an edit does not give the bytes `new`.

    `edit` returns the new text of the file; None if the edit cannot be made in it. Then the old text was seen in the
    chosen encoding only, and what counts are the bytes of the new texts.
    """
    for codec in encoding.rivals:
        if not _can_decode(old, codec):
            continue
        edited = edit(old.decode(codec))
        if edited is not None:
            is_same = _encode_or_none(edited, codec) == new
        else:
            is_same = all(_encode_or_none(text, codec) == encoding.encode(text) for text in new_texts)
        if not is_same:
            return _name_codec(codec)
    return None


def _choose_encoding(sample: bytes, is_possible: Callable[[str], bool]) -> TextEncoding | None:
    """Return the best of the proposals that are possible, with the rivals that are nearly as good."""
    ranked = [
        (score, narrow)
        for score, codec in _rank_proposals(sample)
        if (narrow := next(filter(is_possible, _NARROWEST.get(codec, (codec,))), None)) is not None
    ]
    if not ranked:
        return None
    best, chosen = ranked[0]
    near = dict.fromkeys(
        codec for score, codec in ranked if score <= best + _MARGIN and codec not in _SAME.get(chosen, (chosen,))
    )
    text = sample.decode(chosen, "replace")
    rivals = tuple(near)[:_MAX_RIVALS]
    return TextEncoding(
        chosen, rivals=rivals, doubts=tuple(codec for codec in rivals if sample.decode(codec, "replace") != text)
    )


def _rank_proposals(sample: bytes) -> Sequence[tuple[float, str]]:
    """Return what the library proposes, best first; lower scores are better."""
    from charset_normalizer import from_bytes  # only for a file that is not UTF-8

    scores: dict[str, float] = {}
    for match in from_bytes(sample, cp_isolation=_PREFERENCE, preemptive_behaviour=False, threshold=_MAX_MESS):
        for codec in dict.fromkeys([match.encoding, *match.could_be_from_charset]):
            if codec in _PREFERENCE and _can_decode(sample, codec):
                unusual = 1 - _count_usual_share(sample.decode(codec), codec)
                score = match.chaos + 0.6 * unusual - 0.2 * match.coherence
                scores[codec] = min(score, scores.get(codec, score))
    return sorted(((score, codec) for codec, score in scores.items() if score <= _MAX_SCORE), key=_sort_key)


def _sort_key(scored: tuple[float, str]) -> tuple[float, int]:
    score, codec = scored
    return round(score / _MARGIN * 3), _PREFERENCE.index(codec)


def _count_usual_share(text: str, codec: str) -> float:
    """Return the share of the characters beyond ASCII that texts in this encoding mostly consist of."""
    places = [(char, before) for before, char in pairwise(f" {text}") if char > "\x7f"]
    if not places:
        return 0.0
    known = _WEIGHTS.get(codec)
    weights = [known] if known else [_letters(of, joins_ascii=True) for of in _LATIN_LETTERS.get(codec, (_WESTERN,))]
    return max(sum(weigh(char, before) for char, before in places) for weigh in weights) / len(places)


@cache
def _leading_byte(char: str, codec: str) -> int:
    """Return the first of two bytes of a character; 0 if it has not two."""
    encoded = _encode_or_none(char, codec) or b""
    return encoded[0] if len(encoded) == 2 else 0


def _two_bytes(codec: str, first: int, last: int, extra: str = "") -> _Weigh:
    """Return a weight for the common characters of a set of two bytes, which stand in one range of leading bytes."""
    return lambda char, before: float(
        char in _WIDE_PUNCTUATION or char in extra or first <= _leading_byte(char, codec) <= last
    )


def _letters(frequent: str, rare: str = "", *, joins_ascii: bool = False) -> _Weigh:
    """Return a weight for the letters of an alphabet; unless it is Latin, they share no word with ASCII letters."""
    known, common = frozenset(frequent + frequent.upper() + rare), frozenset(frequent)

    def weigh(char: str, before: str) -> float:
        if char in _PUNCTUATION:
            return 1.0
        if char not in known or (not joins_ascii and before.isascii() and before.isalpha()):
            return 0.0
        return 1.0 if char in common else 0.25

    return weigh


def _span(first: str, last: str) -> str:
    return "".join(map(chr, range(ord(first), ord(last) + 1)))


_WIDE_PUNCTUATION = frozenset(
    "\u3001\u3002\u300c\u300d\u300e\u300f\u3000\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"
    "\u201c\u201d\u2026\u300a\u300b\u30fb\u30fc"
)
_PUNCTUATION = frozenset(
    "\u201e\u201c\u201d\u2018\u2019\u2013\u2014\u2026\u20ac\xab\xbb\xa0\xa7\xa9\xb0\xbf\xa1\xa3\u2116"
)
_WESTERN = "éèàçêâôûîëïüöäßñóíáúãõåøæœìòùý"
_CENTRAL = ("ěščřžýáíéůúňťďó", "áäčďéíĺľňóôŕšťúýž", "ąćęłńóśźż", "áéíóöőúüű", "čćžšđ", "ăâîșşțţ", "äöüß")
_LATIN_LETTERS = {
    "cp1250": _CENTRAL,
    "iso8859_2": _CENTRAL,
    "cp1254": ("ığşçöüâîİ",),
    "cp1257": ("āčēģīķļņšūž", "ąčęėįšųūž", "õäöüšž"),
}
"""The letters of each language that is written in an encoding of Latin letters."""

_CYRILLIC = _letters("оеаинтсрвлкмдпуяыьёії", _span("\u0401", "\u0491"))

_WEIGHTS: dict[str, _Weigh] = {
    "gb18030": _two_bytes("gb2312", 0xB0, 0xD7),
    "big5": _two_bytes("big5", 0xA4, 0xC6),
    "cp950": _two_bytes("big5", 0xA4, 0xC6),
    "big5hkscs": _two_bytes("big5", 0xA4, 0xC6),
    "cp932": _two_bytes("euc_jp", 0xB0, 0xCF, _span("\u3041", "\u30fe")),
    "euc_jp": _two_bytes("euc_jp", 0xB0, 0xCF, _span("\u3041", "\u30fe")),
    "euc_kr": _two_bytes("euc_kr", 0xB0, 0xC8),
    "cp949": _two_bytes("euc_kr", 0xB0, 0xC8),
    "cp1251": _CYRILLIC,
    "koi8_r": _CYRILLIC,
    "koi8_u": _CYRILLIC,
    "cp866": _CYRILLIC,
    "cp1253": _letters("αοιετσνηυρπκμλςίόάέή", _span("\u0384", "\u03ce")),
    "cp1255": _letters("יוהלאתרמבשנםדחקע", _span("\u05b0", "\u05ea")),
    "cp1256": _letters("اليمونترةبعدسفهكقحأ", _span("\u060c", "\u06d2")),
    "cp874": _letters("านรอกเงมยลวดทส\u0e48\u0e49\u0e35\u0e31\u0e34ตคปบหะ", _span("\u0e01", "\u0e5b")),
}


def _detect_unmarked_utf16(head: bytes) -> TextEncoding | None:
    """Return UTF-16 in the byte order that gives text, if the other one gives none or fewer ASCII characters."""
    if len(head) < 4 or len(head) % 2:
        return None
    texts = {codec: _decode_start(head, codec) for codec in ("utf-16-le", "utf-16-be")}
    counts = {codec: sum(char < "\x80" for char in text) for codec, text in texts.items() if text and _is_text(text)}
    if not counts:
        return None
    codec = max(counts, key=counts.__getitem__)
    others = [count for name, count in counts.items() if name != codec]
    return TextEncoding(codec) if counts[codec] > max(others, default=0) else None


def _is_text(text: str | None) -> bool:
    """Return whether a text has no control characters but breaks and tabs, and no code points without a character."""
    if not text:
        return False
    seen = set(text.removeprefix("\ufeff"))
    return not any(unicodedata.category(char) in ("Cc", "Cn", "Co", "Cs") for char in seen - set("\t\n\r\f\x1b"))


def _decode_start(head: bytes, codec: str) -> str | None:
    """Decode the beginning of a file, whose last character may be cut; None if it is not in this encoding."""
    try:
        return codecs.getincrementaldecoder(codec)().decode(head)
    except UnicodeDecodeError:
        return None


def _is_damaged_utf8(sample: bytes) -> bool:
    rest, sequences = _UTF8_SEQUENCE.subn(b"", sample)
    return sequences >= _DAMAGED_SHARE * len(_NO_UTF8.findall(rest))


def _cut_word(word: bytes) -> bytes:
    """Cut a word that is longer than the sample, behind a byte that is a character in every encoding."""
    if len(word) <= SAMPLE_BYTES:
        return word
    cut = max(word.rfind(bytes([mark]), 0, SAMPLE_BYTES) for mark in b"!\"#$%&'()*+,-./")
    return word[: cut + 1] if cut > 0 else word[: SAMPLE_BYTES * 8]


def _name_codec(codec: str) -> str:
    return _TITLES.get(codec) or codec.replace("cp", "Windows-").replace("iso8859_", "ISO-8859-")


def _is_reversible(encoding: TextEncoding, content: bytes) -> bool:
    """Return whether the content is text in this encoding that gives the same bytes again."""
    try:
        return encoding.encode(encoding.decode(content)) == content
    except UnicodeError:
        return False


def _can_decode(sample: bytes, codec: str) -> bool:
    try:
        sample.decode(codec)
    except UnicodeDecodeError:
        return False
    return True


def _encode_or_none(text: str, codec: str) -> bytes | None:
    try:
        return text.encode(codec)
    except UnicodeEncodeError:
        return None
