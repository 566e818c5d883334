"""Limits of foreign JSON, checked before it is parsed: values take up to a hundred times the memory of their text."""

from __future__ import annotations

import re
from typing import Final

MAX_VALUES: Final = 200_000
"""The limit of values and keys."""

MAX_DEPTH: Final = 500

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{\]}]|[^\s\[\]{},:"]++', re.DOTALL)
"""A string, ended or not, a bracket, or any other value. Possessive, so that the time is linear."""

_OPENING: Final = (b"[", b"{")
_CLOSING: Final = (b"]", b"}")


def find_json_excess(text: bytes | bytearray) -> str | None:
    """Return which limit a JSON text exceeds, as a clause; None if it keeps all. Takes a tenth of a second at most."""
    if len(text) <= MAX_DEPTH:
        return None
    # A value has a byte at least, so a text of few bytes has few values.
    if len(text) <= MAX_VALUES and text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return None
    values = depth = 0
    for token in _TOKEN.finditer(text):
        found = token.group()
        if found in _CLOSING:
            depth -= 1
            continue
        values += 1
        depth += found in _OPENING
        if depth > MAX_DEPTH:
            return "nested too deeply"
        if values > MAX_VALUES:
            return f"of more than {MAX_VALUES} values"
    return None
