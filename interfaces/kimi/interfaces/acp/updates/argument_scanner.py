"""Find the top-level strings of a JSON object while it streams (acp spec 3.3).

Each character is looked at once, so the time is linear in the length of the text, however it is cut into pieces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Final

MAX_STRING_CHARS: Final = 4096
"""How many characters of a string are kept, as written; of a longer string only the beginning is known."""

LENIENT_DECODER: Final = json.JSONDecoder(strict=False)
"""Accepts control characters in strings, which models write. `json.loads` would make one for each text."""

_END_OR_ESCAPE = re.compile(r'["\\]')
_STRUCTURE = re.compile(r'["{}\[\]:,]')
_WHOLE_CHARACTERS = re.compile(r"(?:[^\\]|\\u[0-9A-Fa-f]{4}|\\[^u])*", re.DOTALL)
_TRAILING_HIGH_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9A-Fa-f]{2}\Z")
_LONE_SURROGATES = re.compile(r"[\ud800-\udfff]")


class ArgumentScanner:
    """Finds the string values of `wanted_keys` in the outermost object.

    `values` holds the complete strings of at most `MAX_STRING_CHARS` characters; for a repeated key, the last one.
    Invalid JSON raises nothing, and values that were found before it stay.
    """

    __slots__ = (
        "_depth",
        "_escaped",
        "_in_string",
        "_is_object",
        "_is_value",
        "_keeps",
        "_kept",
        "_key",
        "_length",
        "_wanted",
        "values",
    )  # fmt: skip

    def __init__(self, wanted_keys: Collection[str]) -> None:
        self._wanted = wanted_keys
        self.values: dict[str, str] = {}
        self._depth = 0
        self._is_object = False
        self._in_string = self._escaped = self._is_value = self._keeps = False
        self._key: str | None = None
        self._kept: list[str] = []
        self._length = 0

    def feed(self, text: str) -> None:
        """Scan the next piece of the text."""
        at, end = 0, len(text)
        while at < end:
            at = self._scan_string(text, at) if self._in_string else self._scan_structure(text, at)

    @property
    def streaming_key(self) -> str | None:
        """The wanted key whose string is incomplete so far."""
        return self._key if self._in_string and self._keeps and self._is_value else None

    @property
    def streaming_length(self) -> int:
        """How many characters of the incomplete string have arrived, as written."""
        return self._length

    @property
    def streaming_value(self) -> tuple[str, str] | None:
        """The key and the beginning of the wanted string that is incomplete so far."""
        key = self.streaming_key
        return None if key is None else (key, decode_string_prefix("".join(self._kept)))

    def _scan_string(self, text: str, position: int) -> int:
        """Continue inside of a string; return the position after the scanned part."""
        if self._escaped:
            self._escaped = False
            self._keep_piece(text[position])
            return position + 1
        found = _END_OR_ESCAPE.search(text, position)
        if found is None:
            self._keep_piece(text[position:])
            return len(text)
        self._keep_piece(text[position : found.start()])
        if found.group() == '"':
            self._close_string()
        else:
            self._keep_piece("\\")
            self._escaped = True
        return found.end()

    def _keep_piece(self, piece: str) -> None:
        if self._keeps and piece and self._length <= MAX_STRING_CHARS:
            self._kept.append(piece[: MAX_STRING_CHARS + 1 - self._length])
            self._length += len(piece)

    def _scan_structure(self, text: str, position: int) -> int:
        """Continue between strings; return the position after the next structural character."""
        found = _STRUCTURE.search(text, position)
        if found is None:
            return len(text)
        match found.group():
            case '"':
                self._open_string()
            case "{" | "[" as bracket:
                self._depth += 1
                if self._depth == 1:
                    self._is_object = bracket == "{"
            case "}" | "]":
                self._depth -= 1
            case ":" if self._depth == 1:
                self._is_value = True
                if self._key is not None:
                    self.values.pop(self._key, None)
            case "," if self._depth == 1:
                self._is_value, self._key = False, None
            case _:
                pass
        return found.end()

    def _open_string(self) -> None:
        self._in_string = True
        here = self._depth == 1 and self._is_object
        self._keeps = here and (not self._is_value or self._key is not None)
        self._kept, self._length = [], 0

    def _close_string(self) -> None:
        self._in_string = False
        if not self._keeps:
            return
        raw = "".join(self._kept)
        value = decode_string(raw) if self._length <= MAX_STRING_CHARS else None
        if not self._is_value:
            self._key = value if value in self._wanted else None
        elif value is not None and self._key is not None:
            self.values[self._key] = value


def decode_string(raw: str) -> str | None:
    """Decode the inside of a JSON string; None if it is invalid. A lone surrogate becomes U+FFFD."""
    try:
        text: str = LENIENT_DECODER.decode(f'"{raw}"')
    except ValueError:
        return None
    return _LONE_SURROGATES.sub("\ufffd", text)


def decode_string_prefix(raw: str) -> str:
    """Decode the beginning of a JSON string, without an incomplete escape or character at its end."""
    whole = _WHOLE_CHARACTERS.match(raw)
    return decode_string(_TRAILING_HIGH_SURROGATE.sub("", whole.group() if whole else "")) or ""
