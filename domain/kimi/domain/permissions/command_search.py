"""The search for a command at every place of a line where one may begin (tools spec 5.6).

It is for `deny` and `ask` rules and lines that cannot be split for certain. It finds too much rather than too little:
what stands in a comment, a heredoc or a quoted text counts, and so does a word that is only an argument. Each step
takes time in proportion to the line.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_QUOTING_SIGNS: Final = "\"'`^${}\\"
_QUOTING: Final = str.maketrans(dict.fromkeys(_QUOTING_SIGNS, "\0"))
"""Signs that may stand inside a word without being part of it."""

_WITHOUT_QUOTING: Final = str.maketrans("", "", _QUOTING_SIGNS)

_GAP: Final = re.compile(r"[\s,][\s,\0]*+")
"""What separates words; a comma does inside braces."""

_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|([abefnrtv\\]))"
)
MAX_DECODINGS: Final = 2
"""How often escapes are decoded: a program may hand a text that it has decoded to a shell."""

_CONTROLS: Final = dict(zip("abefnrtv\\", "\a\b\x1b\f\n\r\t\v\\", strict=True))

# Every expression below begins with a sign, which the search for it finds fast.
_DESCRIPTOR: Final = re.compile(r"\d{1,9}(?=[<>])")
_OPERATOR: Final = r"(?:&>>?|<>|<&|>&|>>|>\||>(?!\()|<(?<!<<)(?:<-?(?!<))?(?![<(]))"
_REDIRECTION: Final = re.compile(_OPERATOR + r"(?:(?<=[<>]&)[ \t]*+-|[ \t]*+[^\s;|&()<>`]++)")
_QUOTED_REDIRECTION: Final = re.compile(
    _OPERATOR
    + r"(?:(?<=[<>]&)[ \t]*+-"
    + r"""|[ \t]*+(?:\$\([^()]*\)|`[^`]*`|[^\s;|&()<>`'"\\]|\\.|'[^']*'|"[^"]*")++)""",
    re.DOTALL,
)
"""Where a line is quoted twice, the quotes of the inner one mislead: so a redirection is read in both ways."""

_EXPANSION: Final = re.compile(r"\$(?:\{[^{}$`()]*\}|\w+|[@*#?!-]|\(\))")
"""Expansions that may come to nothing, but those with a command inside."""

_BLANK_VARIABLE: Final = re.compile(r"\$(?:\{IFS\}|IFS(?!\w))")

_WILDCARD: Final = re.compile(r"(\*+)|\?|\[!?\]?[^\]]*\]")


def find_command(pattern: str, line: str) -> bool:
    """Return whether the glob `pattern` matches any text of `line` that begins and ends between two words.

    Quotes do not count, redirections are left out, and a set of characters matches every character.
    """
    segments = _compile_segments(pattern)
    return any(_find_in_order(segments, text) for text in _list_readings(line))


def _find_in_order(segments: tuple[re.Pattern[str], ...], text: str) -> bool:
    # The first place of each segment is the best one: `*` matches whatever lies between it and the next.
    at = 0
    for segment in segments:
        found = segment.search(text, at)
        if found is None:
            return False
        at = found.end()
    return True


@lru_cache(maxsize=4)
def _list_readings(line: str) -> tuple[str, ...]:
    """Return the texts to search in: as written, with escapes decoded, without redirections and empty expansions."""
    line = _BLANK_VARIABLE.sub(" ", line)
    spellings = [line]
    while "\\" in spellings[-1] and len(spellings) <= MAX_DECODINGS:
        spellings.append(_ESCAPE.sub(_decode_escape, spellings[-1]))
    if "<" in line or ">" in line:
        bare = [_DESCRIPTOR.sub("", spelling) for spelling in spellings]
        spellings += [form.sub(" ", one) for one in bare for form in (_REDIRECTION, _QUOTED_REDIRECTION)]
    if "$" in line:
        spellings += [_EXPANSION.sub("", spelling) for spelling in spellings]
    return tuple(dict.fromkeys(f"\0{_canonicalise(spelling)}" for spelling in spellings))


def _canonicalise(text: str) -> str:
    """Return `text` with a NUL for each quoting sign and a blank for each gap."""
    return _GAP.sub(" ", text.replace("\\\n", "\\").translate(_QUOTING))


def _decode_escape(escape: re.Match[str]) -> str:
    if escape[5]:
        return _CONTROLS[escape[5]]
    code = int(escape[4], 8) & 0xFF if escape[4] else int(escape[1] or escape[2] or escape[3], 16)
    return chr(code) if code <= 0x10FFFF else ""


@lru_cache(maxsize=256)
def _compile_segments(pattern: str) -> tuple[re.Pattern[str], ...]:
    """Return an expression of bounded length for each part between the stars; the first and last one are anchored."""
    segments: list[list[str]] = [[]]
    at = 0
    while at < len(pattern):
        wildcard = _WILDCARD.search(pattern, at)
        end = wildcard.start() if wildcard else len(pattern)
        segments[-1] += _GAP.sub(" ", pattern[at:end].translate(_WITHOUT_QUOTING))
        if wildcard is not None and wildcard[1]:
            segments.append([])
        elif wildcard is not None:
            segments[-1].append("")
        at = wildcard.end() if wildcard else end
    expressions = [_join_segment(segment) for segment in segments]
    if segments[0]:
        expressions[0] = _anchor_start(segments[0][0], _join_characters(segments[0]))
    expressions[-1] += r"(?![\w.-])" if segments[-1] else ""
    return tuple(re.compile(expression) for expression in expressions if expression)


def _join_characters(segment: list[str]) -> str:
    return r"\0*+".join(re.escape(char) if char else r"[^\0]" for char in segment)


def _join_segment(segment: list[str]) -> str:
    """Return the expression of a segment; the gap that it begins with may have ended the one before it."""
    if segment[:1] != [" "]:
        return _join_characters(segment)
    return r"(?:(?<=\ )|\ )" + _join_characters(segment[1:])


def _anchor_start(first: str, expression: str) -> str:
    """Return the expression, to be found only where a word begins.

    A word begins after every sign that is no part of words, after a hyphen within a word (`${x:-rm}`), and after a
    short option (`-crm`). The condition stands behind the first character, because the search for that one is fast.
    """
    one = re.escape(first) if first else r"[^\0]"
    begins = rf"(?:(?<=[^\w.-]{one})|(?<=[^ \0-]-{one})|(?<=[ \0]-[A-Za-z]{one}))"
    return one + begins + expression[len(one) :]
